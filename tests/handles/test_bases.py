"""Merge bases and differences, against the plain comparison of whole histories."""

from __future__ import annotations

import itertools

import pytest

from castlog import Invalid, NotFound


def test_merge_base_and_diff_are_those_of_the_plain_lists(store, grove) -> None:
    """For every two branches the base is the last common event, and each side is the rest of its own list."""
    names = list(grove.histories)
    for left, right in itertools.product(names, names):
        a, b = grove.session.branch(left), grove.session.branch(right)
        shared = grove.shared(left, right)
        base = store.merge_base(a, b)
        assert base.seq == shared
        assert base.session_id == grove.session.id
        assert base.id == (grove.histories[left][shared - 1].id if shared else a.fork(f"{left}.{right}", at=0).head.id)
        diff = store.diff(a, b)
        assert diff.base.seq == shared
        assert list(diff.left) == grove.histories[left][shared:]
        assert list(diff.right) == grove.histories[right][shared:]
        assert (diff.left_count, diff.right_count) == (
            len(grove.histories[left]) - shared,
            len(grove.histories[right]) - shared,
        )


def test_merge_base_of_points_inside_histories(store, grove) -> None:
    """Revisions that end in the middle have bases bounded by their ends."""
    names = list(grove.histories)
    for left, right in itertools.pairwise(names):
        for part in (2, 3):
            m, n = len(grove.histories[left]) // part, len(grove.histories[right]) * (part - 1) // part
            base = store.merge_base(f"{grove.session.id}/{left}@{m}", f"{grove.session.id}/{right}@{n}")
            assert base.seq == min(m, n, grove.shared(left, right))


def test_a_branch_and_itself(store, main) -> None:
    """The base is the head, and neither side has anything."""
    main.append("note", {})
    diff = store.diff(main, main)
    assert diff.base == main.head
    assert list(diff.left) == list(diff.right) == []


def test_two_sessions_have_no_base(store) -> None:
    """Histories of different sessions share nothing, not even the genesis: each side is all of its events."""
    one, two = (store.create_session("x").branch("main") for _ in range(2))
    one.extend([("note", {"n": 1}), ("note", {"n": 2})])
    two.append("note", {"n": 1})
    assert store.merge_base(one, two) is None
    diff = store.diff(one, two)
    assert diff.base is None
    assert [e.payload["n"] for e in diff.left] == [1, 2]
    assert (diff.left_count, diff.right_count) == (2, 1)


def test_empty_histories(store, main) -> None:
    """Two empty branches share the genesis, at seq 0."""
    fork = main.fork("f")
    base = store.merge_base(main, fork)
    assert (base.seq, base.id) == (0, main.head.id)


def test_a_base_may_be_asked_for_with_any_revision(store, session, main) -> None:
    """Branches, views, points and strings mix."""
    main.extend([("note", {"n": n}) for n in range(4)])
    session.tag("t", at=3)
    fork = main.fork("f", at=2)
    fork.append("note", {})
    view = store.view(f"{session.id}/t")
    for a in (main, main.rev, main.head, view, view.rev):
        assert store.merge_base(a, fork).seq == store.merge_base(fork.rev, a).seq == 2
    assert store.merge_base(view, main).seq == 3


def test_each_look_at_a_side_is_a_fresh_iterator(store, main) -> None:
    """`left` and `right` may be read any number of times, and stay what they were when the diff was made."""
    fork = main.fork("f")
    main.extend([("note", {"n": n}) for n in range(3)])
    diff = store.diff(main, fork)
    assert [e.seq for e in diff.left] == [e.seq for e in diff.left] == [1, 2, 3]
    main.append("note", {})
    fork.append("note", {})
    assert (len(list(diff.left)), len(list(diff.right))) == (3, 0)
    assert (diff.left_count, diff.right_count) == (3, 0)


def test_a_diff_can_be_picked_onto_another_branch(store, main) -> None:
    """What one branch did since the base is appended to the other in one commit."""
    main.append("note", {"n": 0})
    idea = main.fork("idea")
    main.append("note", {"main": 1})
    idea.extend([("tool_call", {"a": 1}), ("tool_result", {"b": 2})])
    picked = main.extend(store.diff(idea, main).left)
    assert [(e.seq, e.type, e.call_id) for e in picked] == [(3, "tool_call", "c2"), (4, "tool_result", None)]


def test_what_names_nothing_has_no_base(store, main) -> None:
    """A wrong revision is NotFound; a handle of another store is Invalid and points to its rev."""
    import castlog

    with pytest.raises(NotFound):
        store.merge_base(main, "nowhere")
    with castlog.open("memory:") as other, pytest.raises(Invalid, match="rev"):
        store.merge_base(main, other.create_session("x").branch("main"))
