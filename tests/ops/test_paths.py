"""Changes between values: they are a JSON patch, and the smallest thing a person would want to read."""

from __future__ import annotations

import copy
import time
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castlog.ops.paths import Change, changes, show

LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, -1.5]) | st.text("ab~/", max_size=2)
)
KEYS = st.text("ab ~/", max_size=2)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
OPERATIONS = {"+": "add", "-": "remove", "~": "replace"}


def patch(steps: list[Change]) -> list[dict[str, Any]]:
    """Return changes as RFC 6902 has them."""
    rows = []
    for step in steps:
        pointer = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in step.path)
        rows.append({"op": OPERATIONS[step.sign], "path": pointer} | ({} if step.sign == "-" else {"value": step.new}))
    return rows


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return what lies at a path."""
    for part in path:
        value = value[part]
    return value


def exact(value: Any) -> Any:
    """Return a value that equals another only if both are the same JSON, with the same kinds of numbers."""
    if isinstance(value, dict):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    return type(value), value


@given(VALUES, VALUES)
def test_the_changes_are_a_patch_that_makes_one_value_of_the_other(before: Any, after: Any) -> None:
    """`jsonpatch` applies them and comes to the second value; without any the two are the same JSON."""
    steps = changes(before, after)
    made = jsonpatch.apply_patch(copy.deepcopy(before), patch(steps))
    assert exact(made) == exact(after)
    assert bool(steps) == (exact(before) != exact(after))


@given(VALUES, st.lists(VALUES, max_size=2), st.integers(0, 4))
def test_what_is_put_into_a_list_is_all_that_changed(items: Any, new: list[Any], index: int) -> None:
    """Items added or taken anywhere do not make those behind them look changed."""
    before = items if isinstance(items, list) else [items]
    after = before[:index] + new + before[index:]
    assert [step.sign for step in changes(before, after)] == ["+"] * len(new)
    assert [step.sign for step in changes(after, before)] == ["-"] * len(new)


@given(VALUES, VALUES)
def test_old_and_new_are_what_lies_there(before: Any, after: Any) -> None:
    """In values of objects alone a path leads to `old` before and to `new` after."""
    steps = changes({"x": {"y": before}, "a": after}, {"x": {"y": after}, "b": before})
    assert ("-", ("a",), after) in [(step.sign, step.path, step.old) for step in steps]
    assert ("+", ("b",), before) in [(step.sign, step.path, step.new) for step in steps]
    if not isinstance(before, list) and not isinstance(after, list):
        for step in changes(before, after):
            if not any(isinstance(part, int) for part in step.path):
                assert step.sign == "+" or at(before, step.path) == step.old
                assert step.sign == "-" or at(after, step.path) == step.new


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ([1], [True]), ({"a": 0}, {"a": False})])
def test_values_that_python_takes_for_equal_are_not_the_same_json(one: Any, other: Any) -> None:
    """A number is no boolean and a whole number no float, at any depth."""
    assert len(changes(one, other)) == len(changes([[one]], [[other]])) == 1
    assert changes(one, one) == []


def test_leaves_are_values_that_hold_no_others() -> None:
    """An object that was added is told by what is in it, an empty one by itself, a change as it is."""
    (added,) = changes({}, {"c9": {"name": "Edit", "args": {}, "tries": [1, [2]]}})
    assert [(leaf.sign, leaf.where, leaf.new) for leaf in added.leaves()] == [
        ("+", "c9.name", "Edit"),
        ("+", "c9.args", {}),
        ("+", "c9.tries[0]", 1),
        ("+", "c9.tries[1][0]", 2),
    ]
    (removed,) = changes({"a": {"b": None}}, {})
    assert list(removed.leaves()) == [Change("-", ("a", "b"))]
    (changed,) = changes({"a": 1}, {"a": {"b": 2}})
    assert list(changed.leaves()) == [changed] == [Change("~", ("a",), 1, {"b": 2})]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "."),
        (("tool_calls", "c9", "status"), "tool_calls.c9.status"),
        (("messages", 3, "content"), "messages[3].content"),
        (("calls", "call-1_x"), "calls.call-1_x"),
        (("a b", "c.d", ""), '["a b"]["c.d"][""]'),
        ((0, "1"), '[0]["1"]'),
        (("é",), '["é"]'),
    ],
)
def test_paths_are_written_so_that_they_can_be_told_apart(path: tuple[str | int, ...], text: str) -> None:
    """Plain keys by dots, indexes and all other keys in brackets."""
    assert show(path) == text


def test_a_change_of_a_large_state_is_found_quickly() -> None:
    """The time goes with the size of the state and not with its square."""

    def seconds(count: int) -> float:
        before = {"messages": [{"role": "user", "content": f"message {n}"} for n in range(count)]}
        after = copy.deepcopy(before)
        after["messages"].append({"role": "user", "content": "one more"})
        best = 1.0
        for _ in range(5):
            start = time.process_time()
            assert len(changes(before, after)) == 1
            best = min(best, time.process_time() - start)
        return best

    assert seconds(4000) < 20 * seconds(1000) + 0.01
