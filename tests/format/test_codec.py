"""Payloads: what is kept comes back the same, and what would not is refused with its path before anything is stored."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from castlog import limits
from castlog.errors import Corrupt, Invalid
from castlog.format import codec

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
INTEGERS = st.integers() | st.integers(-(2**70), 2**70)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    """Return a value with `depth` levels of lists and dicts around a scalar."""
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal in value, type and sign of zero, keys in the same order."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    if type(left) is float:
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


def at_depth(frames: int, call: Callable[[], Any]) -> Any:
    """Return what `call` returns when `frames` frames stand below it."""
    return call() if frames == 0 else at_depth(frames - 1, call)


def room() -> int:
    """Return how many frames may still be added here."""
    used, frame = 0, sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back  # type: ignore[assignment]
    return sys.getrecursionlimit() - used


# --- values from Python ---------------------------------------------------------------------


@given(VALUES)
@example(-0.0)
@example(5e-324)
@example(1.7976931348623157e308)
@example({"": None, "\x00": "\u2028\U0010ffff", "a": {"a": {}}})
@example([2**63, -(2**63) - 1, 2**64, 10**4298])
def test_values_come_back_the_same(value: Any) -> None:
    """A JSON value that is encoded and decoded is the same in value, type and order, and passes as foreign JSON."""
    data = codec.encode(value)
    assert same(codec.decode(data), value)
    assert same(json.loads(data), value)
    codec.validate(data)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_longest_integers_come_back(sign: int) -> None:
    """An integer of 4,299 digits comes back; one of 4,300 is refused, from Python and from text."""
    longest = sign * (10**4299 - 1)
    assert codec.decode(codec.encode(longest)) == longest
    codec.validate(str(longest).encode())
    for refuse in (lambda: codec.encode([longest + sign]), lambda: codec.validate(f"[{longest + sign}]".encode())):
        with pytest.raises(Invalid) as caught:
            refuse()
        assert caught.value.path == "$[0]"


class Text(str):
    """A subclass of str, which would come back as a plain one."""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"),
        ({"a": [{"b c": math.inf}]}, '$.a[0]["b c"]'),
        ([0, -math.inf], "$[1]"),
        ("\ud800", "$"),
        ({"x": ["a\udfff"]}, "$.x[0]"),
        ({"k": {"\udc80": 1}}, "$.k"),
        ({"k": {1: 1}}, "$.k"),
        ({True: 1}, "$"),
        ({None: 1}, "$"),
        ((1, 2), "$"),
        ([b"raw"], "$[0]"),
        ({"s": {1, 2}}, "$.s"),
        ([bytearray(b"x")], "$[0]"),
        ([1j], "$[0]"),
        ({"o": object()}, "$.o"),
        ([Text("x")], "$[0]"),
        ({Text("x"): 1}, "$"),
        ({'"': [math.nan]}, '$["\\""][0]'),
    ],
    ids=repr,
)
def test_values_that_would_not_come_back_are_refused(value: Any, path: str) -> None:
    """A value that JSON would change or lose is Invalid, and the refusal names where it is and what to do."""
    with pytest.raises(Invalid, match=r".: .*[;,] ") as caught:
        codec.encode(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


@given(VALUES, st.sampled_from([math.nan, "\ud800", b"x", (1,), 10**5000]), st.data())
def test_the_refused_value_is_at_the_path(value: Any, bad: Any, data: st.DataObject) -> None:
    """Wherever a bad value stands in a good one, the path of the refusal leads to it."""
    path, value = "$", [value]
    item = value
    while True:
        keys = list(item) if isinstance(item, dict) else list(range(len(item)))
        key = data.draw(st.sampled_from(keys))
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"
        if not isinstance(item[key], dict | list) or not item[key] or data.draw(st.booleans()):
            item[key] = bad
            break
        item = item[key]
    with pytest.raises(Invalid) as caught:
        codec.encode(value)
    assert caught.value.path == path


def test_nesting_is_bounded() -> None:
    """128 levels are kept; 129 are refused, from Python and as text, and so is a list that holds itself."""
    deepest = nested(limits.DEPTH_MAX)
    data = codec.encode(deepest)
    assert codec.decode(data) == deepest
    codec.validate(data)
    endless: list[Any] = []
    endless.append(endless)
    for value in (nested(limits.DEPTH_MAX + 1), nested(5000), endless):
        with pytest.raises(Invalid, match="nested deeper than 128 levels"):
            codec.encode(value)
    for depth in (limits.DEPTH_MAX + 1, 1100, 200_000):
        with pytest.raises(Invalid, match="nested deeper than 128 levels"):
            codec.validate(b"[" * depth + b"]" * depth)
        with pytest.raises(Invalid):
            codec.validate(b'{"":' * depth)
    codec.validate(b'["' + b"[" * 5000 + b'"]')


@pytest.mark.parametrize("left", [20, 60, 120, 200])
def test_the_callers_stack_does_not_decide(left: int) -> None:
    """The deepest payload is encoded, decoded and validated with few frames left, also in a thread."""
    deepest = nested(limits.DEPTH_MAX)
    data = codec.encode(deepest)
    twice = b'{"a":1,"b":' + codec.encode(nested(limits.DEPTH_MAX - 1)) + b',"a":2}'
    outcomes = []

    def work() -> None:
        frames = room() - left
        outcomes.append(at_depth(frames, lambda: codec.encode(deepest)) == data)
        outcomes.append(at_depth(frames, lambda: codec.decode(data)) == deepest)
        at_depth(frames, lambda: codec.validate(data))
        with pytest.raises(Invalid, match="occurs twice"):
            at_depth(frames - 20, lambda: codec.validate(twice))
        with pytest.raises(Invalid, match="nested deeper"):
            at_depth(frames - 20, lambda: codec.validate(b"[" * 1000 + b"]" * 1000))

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcomes == [True] * 4


def test_shared_lists_do_not_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value whose lists share their items, and that would write as more than any event holds, is not even written."""
    monkeypatch.setattr(codec, "EVENT_BYTES_MAX", 1_000_000)
    value: list[Any] = [1]
    for _ in range(100):
        value = [value, value]
    with pytest.raises(Invalid, match="more values than"):
        codec.encode(value)


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload of just the bound is kept; one byte more is refused with both numbers."""
    monkeypatch.setattr(codec, "EVENT_BYTES_MAX", 1000)
    assert len(codec.encode("x" * 998)) == 1000
    codec.validate(b'"' + b"x" * 998 + b'"')
    for refuse in (lambda: codec.encode("x" * 999), lambda: codec.validate(b'"' + b"x" * 999 + b'"')):
        with pytest.raises(Invalid) as caught:
            refuse()
        assert (caught.value.size, caught.value.limit) == (1001, 1000)


def test_large_payloads_are_sound() -> None:
    """A payload of 5 MB with many values comes back and validates; nothing about it grows with its square."""
    value = {"messages": [{"role": "user", "content": "é" * 200, "n": [index, -1.5, None]} for index in range(10_000)]}
    data = codec.encode(value)
    assert 4_000_000 < len(data) < 6_000_000
    assert codec.decode(data) == value
    codec.validate(data)


# --- foreign JSON ---------------------------------------------------------------------------


class Refused(Exception):
    """What the oracle raises for JSON that must not be kept."""


def oracle(data: bytes) -> Any:
    """Return the value of JSON bytes by the standard library, or raise Refused by the rules written anew."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Refused
        return dict(pairs)

    def number(text: str) -> float:
        if math.isinf(value := float(text)):
            raise Refused
        return value

    def constant(text: str) -> Any:
        raise Refused

    def integer(text: str) -> int:
        if len(text.lstrip("-")) > 4299:
            raise Refused
        return int(text)

    def check(value: Any, depth: int) -> None:
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, dict | list):
            if depth == 128:
                raise Refused
            for key in value if isinstance(value, dict) else ():
                key.encode()
            for child in value.values() if isinstance(value, dict) else value:
                check(child, depth + 1)

    try:
        if data.startswith(b"\xef\xbb\xbf"):
            raise Refused
        value = json.loads(
            data.decode(), object_pairs_hook=unique, parse_float=number, parse_constant=constant, parse_int=integer
        )
        check(value, 0)
    except (ValueError, RecursionError) as exc:
        raise Refused from exc
    return value


def agree(data: bytes) -> None:
    """Check that `validate` and the oracle say the same, and that what is kept decodes to the same."""
    try:
        expected = oracle(data)
    except Refused:
        with pytest.raises(Invalid):
            codec.validate(data)
        return
    codec.validate(data)
    assert same(codec.decode(data), expected)


FRAGMENTS = st.sampled_from(
    [
        *(b'{ } [ ] , : "a" "b" "" 1 -0 0 -1 01 1.5 1e5 1E+2 1e999 -1e400 1e-999 . + - true false null'.split()),
        *(b"nul NaN Infinity -Infinity 9223372036854775808 99999999999999999999999 1.e5 .5 0x1 'a' // /**/".split()),
        b'"a":',
        b'"\\u0061":',
        b'"a":1,',
        b'{"a":1}',
        b'{"a":1,"a":2}',
        b'{"a":{"b":1},"b":{"a":[]}}',
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud83d\\ude00"',
        b'"\\ude00\\ud83d"',
        b'"\\u00e9"',
        b'"\\"',
        b'"\\\\"',
        b'"\\x"',
        b'"\x00"',
        b'"\x1f"',
        b'"\x7f"',
        b'"\xff"',
        b'"\xc3\xa9"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b"\xef\xbb\xbf",
        b"\xc2\xa0",
        *(bytes((code,)) for code in b" \t\n\r\v\f"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=8).map(b"".join))
@example(b"")
@example(b'{"a":1,"\\u0061":2}')
@example(b'[{"a":[{"b":1,"b":1}]}]')
@example(b' \t\r\n{"a": [1 , 2]}\n')
@example(b"[" * 128 + b"]" * 128)
@example(b"[" * 129 + b"]" * 129)
@example(b"1" * 4299)
@example(b"-" + b"1" * 4300)
@example(b"1" * 400 + b".5")
@example(b"0." + b"1" * 5000)
def test_validate_agrees_with_the_standard_library(data: bytes) -> None:
    """What is accepted is what the standard library takes, less the values that would not come back the same."""
    agree(data)


@given(VALUES, st.booleans(), st.data())
def test_one_changed_byte_is_judged_alike(value: Any, ascii_only: bool, data: st.DataObject) -> None:
    """Good JSON with one byte replaced, removed or doubled is judged as the standard library judges it."""
    text = bytearray(json.dumps(value, ensure_ascii=ascii_only).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    there = bytes(text[at : at + 1])
    text[at : at + 1] = data.draw(st.sampled_from([b"", there * 2, b'"', b"\\", b"}", b"1", b"\xff"]))
    agree(bytes(text))


@given(st.binary(max_size=12))
def test_any_bytes_are_judged_alike(data: bytes) -> None:
    """Arbitrary bytes never raise anything but Invalid."""
    agree(data)


@given(VALUES, st.text(" \t\n\r", max_size=3), st.text(" \t\n\r", max_size=3))
def test_white_space_around_a_value_is_kept(value: Any, before: str, after: str) -> None:
    """Foreign JSON may have any JSON white space around its value."""
    codec.validate(before.encode() + codec.encode(value) + after.encode())


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"a":1,"a":2}', "$"),
        (b'{"x":[0,{"a":1,"\\u0061":2}]}', "$.x[1]"),
        (b"[1e999]", "$[0]"),
        (b'{"k":' + b"1" * 5000 + b"}", "$.k"),
        (b'{"b c":["\\ud800"]}', '$["b c"][0]'),
        (b'[{"\\udfff":1}]', "$[0]"),
        (b"[1,NaN]", "$[1]"),
        (b'{"n":-Infinity}', "$.n"),
    ],
    ids=repr,
)
def test_foreign_json_is_refused_with_its_path(data: bytes, path: str) -> None:
    """Text that is JSON to many readers but would not come back the same is refused with the path of the value."""
    with pytest.raises(Invalid) as caught:
        codec.validate(data)
    assert caught.value.path == path


def test_bytes_that_are_not_utf8_are_refused_with_their_place() -> None:
    """The refusal of bad UTF-8 says at which byte."""
    with pytest.raises(Invalid) as caught:
        codec.validate(b'"ab\xff"')
    assert caught.value.offset == 3


def test_stored_bytes_that_are_not_json_are_corrupt() -> None:
    """Decoding what cannot have been stored is Corrupt, not an error of the decoder."""
    for data in (b"", b"{", b'"\xff"', b"nan"):
        with pytest.raises(Corrupt):
            codec.decode(data)
