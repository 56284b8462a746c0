"""Payloads: every JSON value comes back the same, and whatever would not is refused with its path."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
from collections import OrderedDict
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import castlog
from castlog import Draft, Invalid, Raw
from castlog.event import Checked

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_json_value_comes_back_equal(main, value) -> None:
    """Whatever JSON can carry is read back equal and of the same type, key order included."""
    event = main.append("note", value)
    for got in (event.payload, main.read(event.seq).payload):
        assert json.dumps(got) == json.dumps(value)
        assert got == value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -0.0,
        "",
        "\x00\x1f\u2028",
        [],
        {},
        {"": {"": []}},
        1 << 63,
        -(1 << 64),
        10**30,
        5e-324,
        1.7976931348623157e308,
        "😀" * 1000,
    ],
    ids=repr,
)
def test_values_at_the_edge_come_back_the_same(main, value) -> None:
    """Empty values, the largest and smallest numbers, control characters and big integers are kept exactly."""
    main.append("note", value)
    got = main.read(1).payload
    assert type(got) is type(value)
    assert got == value
    assert math.copysign(1, got) == math.copysign(1, value) if value == 0 and value is not False else True


def test_the_order_of_keys_is_kept(main) -> None:
    """A dict comes back in the order it was given in."""
    main.append("note", {"z": 1, "a": 2, "m": {"y": 1, "b": 2}})
    assert json.dumps(main.read(1).payload) == '{"z": 1, "a": 2, "m": {"y": 1, "b": 2}}'


def nested(depth: int) -> object:
    """Return lists inside each other, `depth` of them."""
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Colour(enum.Enum):
    """An enumeration, which is no JSON."""

    RED = 1


class Pair(NamedTuple):
    """A named tuple, which would come back as a list."""

    a: int
    b: int


class Text(str):
    """A subclass of str, which would come back as plain text."""

    __slots__ = ()


REFUSED = {
    "nan": (float("nan"), "$", "nan is not JSON"),
    "infinity": ({"a": [1, float("inf")]}, "$.a[1]", "inf is not JSON"),
    "minus infinity": ([float("-inf")], "$[0]", "-inf is not JSON"),
    "lone surrogate": ({"a": ["ok", "x\ud800"]}, "$.a[1]", "U+D800"),
    "surrogate in a key": ({"a": {"\udfff": 1}}, "$.a", "U+DFFF"),
    "int key": ({"a": {1: 2}}, "$.a", "key 1 would come back as a string"),
    "None key": ({None: 2}, "$", "key None"),
    "bool key": ([{True: 2}], "$[0]", "key True"),
    "tuple": ({"a": (1, 2)}, "$.a", "a tuple would not come back"),
    "named tuple": ([Pair(1, 2)], "$[0]", "a Pair would not come back"),
    "set": ({"a": {1}}, "$.a", "a set would not come back"),
    "bytes": ({"a b": b"x"}, '$["a b"]', "attachment"),
    "bytearray": ([bytearray(b"x")], "$[0]", "bytearray"),
    "datetime": ({"at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "$.at", "datetime"),
    "decimal": ([decimal.Decimal("1.5")], "$[0]", "Decimal"),
    "enum": ([Colour.RED], "$[0]", "Colour"),
    "str subclass": ([Text("x")], "$[0]", "Text"),
    "dict subclass": (OrderedDict(a=1), "$", "OrderedDict"),
    "object": ({"a": object()}, "$.a", "object"),
    "depth 129": (nested(129), "$" + "[0]" * 25, "deeper than 128"),
    "huge int": ({"n": 10**4299}, "$.n", "4,299 digits"),
    "negative huge int": ([-(10**4299)], "$[0]", "4,299 digits"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_come_back_is_refused_with_its_path(session, main, case) -> None:
    """The sentence names the place in the payload and what to do; nothing was written."""
    value, path, problem = REFUSED[case]
    with pytest.raises(Invalid) as caught:
        main.append("note", value)
    assert caught.value.path.startswith(path)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(path)
    assert main.head.seq == 0
    assert session.info.events == 0


def test_a_value_that_holds_itself_is_refused(main) -> None:
    """A cycle ends as nesting too deep, not in a crash."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(Invalid, match="deeper than 128"):
        main.append("note", loop)


def test_nesting_of_128_is_kept(main) -> None:
    """The bound on depth is inclusive, for Python values and for bytes."""
    main.append("note", nested(128))
    main.append("note", Raw(b"[" * 128 + b"]" * 128))
    assert main.read(1).payload == main.read(2).payload == nested(128)


def test_depth_does_not_depend_on_the_callers_stack(main) -> None:
    """Near the interpreter's recursion limit the same values are kept and refused."""

    def deep(left: int) -> None:
        if left:
            return deep(left - 1)
        main.append("note", nested(120))
        with pytest.raises(Invalid, match="deeper than 128"):
            main.append("note", nested(129))
        return None

    deep(700)
    assert main.read(1).payload == nested(120)


def test_the_largest_integers_come_back(main) -> None:
    """Integers of up to 4,299 digits survive, which is what the interpreter reads back with a sign."""
    for value in (10**4299 - 1, 1 - 10**4299):
        event = main.append("note", {"n": value})
        assert main.read(event.seq).payload == {"n": value}


# --- Raw ----------------------------------------------------------------------------------------

KEPT = [
    b"{}",
    b' {"a" : 1 } ',
    b'\n{"a":\r\n 1}\t\n',
    b"1.0",
    b"1.10",
    b"1E2",
    b"-0",
    b"-0.0",
    b'"\\u0041\\/"',
    b'"\\ud83d\\ude00"',
    '{"ü":"\u2028"}'.encode(),
    b"[ ]",
    b"0.1000000000000000055511151231257827",
    b"123456789012345678901234567890",
    b"null",
]


@pytest.mark.parametrize("data", KEPT, ids=repr)
def test_raw_bytes_are_kept_byte_for_byte(main, data) -> None:
    """White space, number spelling and escapes of validated bytes are stored as given, open and sealed."""
    event = main.append("note", Raw(data))
    assert event.raw == main.read(1).raw == data
    assert event.size == len(data)
    assert main.read(1).payload == json.loads(data)


def test_raw_bytes_survive_sealing(main, small_chunks) -> None:
    """A chunk of payloads with white space around them gives back each as it was."""
    main.extend([("note", Raw(data)) for data in KEPT])
    main.append("note", {})
    main.append("note", {})
    assert [e.raw for e in main.events(until=len(KEPT))] == KEPT
    assert [e.payload for e in main.events(until=len(KEPT))] == [json.loads(data) for data in KEPT]
    assert [main.read(n).raw for n in range(1, len(KEPT) + 1)] == KEPT


NOT_JSON = {
    "nothing": b"",
    "only white space": b" \n",
    "nan": b"NaN",
    "infinity": b"[Infinity]",
    "too large a number": b"[1e999]",
    "surrogate escape": b'"\\ud800"',
    "surrogate escape in a key": b'{"\\udc00":1}',
    "surrogate pair the wrong way": b'"\\ude00\\ud83d"',
    "not UTF-8": b'"\xff"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "duplicate key": b'{"a":1,"b":{"k":1,"k":1}}',
    "duplicate key, spelled twice": b'{"k":1,"\\u006b":1}',
    "two values": b"1 2",
    "comma too many": b"[1,]",
    "single quotes": b"{'a':1}",
    "bare word": b"{a:1}",
    "control character": b'"\x01"',
    "byte order mark": b"\xef\xbb\xbf{}",
    "unfinished": b'{"a":',
    "depth 129": b"[" * 129 + b"]" * 129,
    "very deep": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 129 + b"1" + b"}" * 129,
    "huge integer": b"[" + b"1" * 4301 + b"]",
    "leading zero": b"01",
    "comment": b"1//x",
}


@pytest.mark.parametrize("case", NOT_JSON)
def test_raw_bytes_that_are_no_sound_json_are_refused(main, case) -> None:
    """Bytes are validated before they are stored, with a sentence; nothing is written."""
    with pytest.raises(Invalid) as caught:
        main.append("note", Raw(NOT_JSON[case]))
    assert len(str(caught.value)) > 8
    assert main.head.seq == 0


@pytest.mark.parametrize(
    ("case", "path", "problem"),
    [
        ("duplicate key", "$.b", "'k' occurs twice"),
        ("too large a number", "$[0]", "1e999"),
        ("huge integer", "$[0]", "JSON readers"),
        ("surrogate escape", "$", r"U\+D800"),
        ("deep objects", "$.a.a.a", "deeper than 128"),
    ],
)
def test_what_would_not_come_back_of_raw_bytes_is_named_with_its_path(main, case, path, problem) -> None:
    """As for Python values, the sentence says where in the payload it is."""
    with pytest.raises(Invalid, match=problem) as caught:
        main.append("note", Raw(NOT_JSON[case]))
    assert caught.value.path.startswith(path)


@pytest.mark.parametrize("data", ["{}", bytearray(b"{}"), memoryview(b"{}"), None])
def test_raw_takes_bytes_only(main, data) -> None:
    """Text or a buffer in place of bytes is refused."""
    with pytest.raises(Invalid, match="give bytes"):
        main.append("note", Raw(data))


def test_checked_bytes_are_validated_when_they_are_made(main, monkeypatch) -> None:
    """There is no `Checked` of what would be refused; one that is there is appended and not validated again."""
    for case in NOT_JSON.values():
        with pytest.raises(Invalid):
            Checked(case)
    checked = [Checked(data) for data in KEPT]
    monkeypatch.setattr("castlog.format.codec.validate", None)
    assert [event.raw for event in main.extend([("note", payload) for payload in checked])] == KEPT


def test_raw_of_equal_value_is_another_payload(main) -> None:
    """Identity is that of the bytes: `{"a":1}` and `{"a": 1}` are different events."""
    one = main.fork("a").append("note", Raw(b'{"a":1}'), ts=1)
    two = main.fork("b").append("note", Raw(b'{"a": 1}'), ts=1)
    three = main.fork("c").append("note", {"a": 1}, ts=1)
    assert one == three
    assert one != two


# --- size ---------------------------------------------------------------------------------------


def test_an_event_beyond_the_limit_is_refused(main, monkeypatch) -> None:
    """Over the limit nothing is written and the sentence has both sizes; at the limit it is kept."""
    monkeypatch.setattr("castlog.limits.EVENT_BYTES_MAX", 50_000)
    monkeypatch.setattr("castlog.format.codec.EVENT_BYTES_MAX", 50_000)
    for payload in ("x" * 49_999, Raw(b'"' + b"x" * 49_999 + b'"')):
        with pytest.raises(Invalid, match="50,001 bytes; an event holds at most 50,000"):
            main.append("note", payload)
    assert main.head.seq == 0
    assert main.append("note", "x" * 49_998).size == 50_000


@pytest.mark.parametrize("size", [8_191, 8_192, 8_193, 65_536, 300_000, 5_000_000])
def test_large_payloads_come_back_whole(main, size) -> None:
    """A payload of any size is read back byte for byte, from the returned event and from the store."""
    text = "".join(chr(97 + (n * n) % 26) for n in range(997)) * (size // 997 + 1)
    event = main.append("note", {"text": text[: size - 11]})
    assert event.size == size
    assert main.read(1).raw == event.raw
    assert main.read(1).payload["text"] == text[: size - 11]


def test_repeated_content_is_stored_once(disk_store) -> None:
    """The same large payload a second time, or with a little inserted, adds little to the store."""
    import random

    rng = random.Random(7)
    text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=400_000))
    main = disk_store.create_session("x").branch("main")
    main.append("model_request", {"text": text})
    before = disk_store.usage().kinds["objects"]
    main.append("model_request", {"text": text})
    main.append("model_request", {"text": text[:1000] + "inserted" + text[1000:]})
    other = disk_store.create_session("y").branch("main")
    other.append("model_request", {"text": text + "more"})
    assert disk_store.usage().kinds["objects"] - before < 60_000
    assert [len(e.payload["text"]) for e in main.events()] == [400_000, 400_000, 400_008]


def test_attachment_carries_a_file(main, tmp_path) -> None:
    """Binary data travels as base64 with its media type."""
    import base64

    path = tmp_path / "dot.png"
    path.write_bytes(bytes(range(256)))
    value = castlog.attachment(path)
    assert (value["type"], value["media_type"]) == ("base64", "image/png")
    main.append("user_message", {"content": [value]})
    assert base64.b64decode(main.read(1).payload["content"][0]["data"]) == bytes(range(256))
    odd = tmp_path / "no-suffix"
    odd.write_bytes(b"")
    assert castlog.attachment(odd)["media_type"] == "application/octet-stream"


def test_a_refused_value_uses_up_nothing(main) -> None:
    """After a refusal the next append gets the next seq, and the refused key is free."""
    with pytest.raises(Invalid):
        main.extend([Draft("note", {"x": {1}}, key="k")])
    assert main.append("note", {}, key="k").seq == 1
