"""The event line: times written and read, payload bytes that travel unchanged, lines of another shape refused."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from castlog.errors import Invalid
from castlog.format import codec, ids, line

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
SPACE = st.text(" \t\n\r", max_size=3).map(str.encode)
RAW = st.builds(
    lambda before, value, indent, after: before + json.dumps(value, indent=indent).encode() + after,
    SPACE,
    JSON,
    st.sampled_from([None, 0, 1]),
    SPACE,
)

# --- times ----------------------------------------------------------------------------------


@given(INT64)
@example(0)
@example(-1)
@example(-(1 << 63))
@example((1 << 63) - 1)
@example(-62_135_596_800 * 10**9 // 10**3)
def test_times_come_back(ts: int) -> None:
    """Every signed 64-bit time is written in RFC 3339 with 3, 6 or 9 digits and read back to the nanosecond."""
    text = line.show_time(ts)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(\d{3}|\d{6}|\d{9})Z", text)
    assert line.parse_time(text) == ts
    digits = text[20:-1]
    assert len(digits) == 3 or not digits.endswith("000")


@given(st.datetimes(datetime(1678, 1, 1), datetime(2262, 1, 1)), st.integers(-1439, 1439))
def test_times_agree_with_the_standard_library(moment: datetime, minutes: int) -> None:
    """Writing agrees with datetime to the microsecond, and an offset is taken off on reading."""
    moment = moment.replace(tzinfo=UTC)
    ts = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert datetime.fromisoformat(line.show_time(ts)) == moment
    sign, (hours, rest) = "+-"[minutes < 0], divmod(abs(minutes), 60)
    local = (moment + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    assert line.parse_time(f"{local}{sign}{hours:02}:{rest:02}") == ts


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00", 0),
        ("1970-01-01 00:00:00.5", 500_000_000),
        ("1970-01-01t00:00:00.000000001z", 1),
        ("1970-01-01T00:00:00.0000000019Z", 1),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+0100", 0),
        ("1969-12-31T18:30:00 -05:30", 0),
        ("  2026-05-06T14:23:01.123Z\n", 1_778_077_381_123_000_000),
        ("1677-09-21T00:12:43.145224192Z", -(1 << 63)),
        ("2262-04-11T23:47:16.854775807Z", (1 << 63) - 1),
    ],
)
def test_written_times_are_understood(text: str, ts: int) -> None:
    """A time may lack its offset, use a space, have up to nine digits and more, and lie before 1970."""
    assert line.parse_time(text) == ts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-05-06",
        "14:23:01",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2016-12-31T23:59:60Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00Zulu",
        "0000-01-01T00:00:00Z",
        "20260506T142301Z",
        "2026-01-01T00:00:00.\u0661Z",
        "\u0662026-01-01T00:00:00Z",
        "1677-09-21T00:12:43.145224191Z",
        "2262-04-11T23:47:16.854775808Z",
        "9999-12-31T23:59:59Z",
        "2262-04-11T23:47:16.854775807-00:01",
    ],
)
def test_other_times_are_refused(text: str) -> None:
    """What is no time, no day of the calendar, or beyond 64 bits of nanoseconds is Invalid and is quoted."""
    with pytest.raises(Invalid) as caught:
        line.parse_time(text)
    assert caught.value.value == text


# --- lines ----------------------------------------------------------------------------------


def encode(raw: bytes, **fields: Any) -> str:
    """Return a line with these fields, the others filled in."""
    given_fields: dict[str, Any] = {
        "session_id": ids.show_session(bytes(16)),
        "branch": "main",
        "seq": 1,
        "ts": 0,
        "type": "note",
        "harness_version": None,
        "schema": 1,
        "call_ids": (),
        "key": None,
        "id": ids.show_digest(bytes(32)),
        "commitment": None,
    }
    return line.encode(raw=raw, **{**given_fields, **fields})


@given(
    RAW,
    st.fixed_dictionaries(
        {
            "branch": TEXT,
            "seq": st.integers(1, (1 << 63) - 1),
            "ts": INT64,
            "type": TEXT,
            "harness_version": st.none() | TEXT,
            "schema": st.integers(1, (1 << 31) - 1),
            "call_ids": st.lists(TEXT, max_size=3).map(tuple),
            "key": st.none() | TEXT,
        }
    ),
)
@example(b'{"a":\n1}', {})
@example(b" 1", {})
@example(b"1\t", {})
@example(b'"\xe2\x80\xa8\xc2\x85"', {})
def test_lines_come_back(raw: bytes, fields: dict[str, Any]) -> None:
    """A line is one line of JSON with the fields given, and the payload's bytes come out of it as they went in."""
    text = encode(raw, **fields)
    assert "\n" not in text
    assert "\r" not in text
    value = json.loads(text)
    shown = dict(fields)
    calls = shown.pop("call_ids", ())
    if "ts" in shown:
        shown["ts"] = line.show_time(shown["ts"])
    assert {name: value.get(name) for name in shown} == shown
    assert value["parent_seq"] == value["seq"] - 1
    assert (value.get("call_ids") or ([value["call_id"]] if "call_id" in value else [])) == list(calls)
    assert ("harness_version" in value) == (fields.get("harness_version") is not None)
    assert ("key" in value) == (fields.get("key") is not None)
    assert not {"commitment", "redacted", "ciphertext"} & set(value)
    payload = json.loads(value["payload_text"]) if "payload_text" in value else value["payload"]
    assert payload == json.loads(raw)
    decoded = line.decode(text.encode() + b"\n")
    assert line.payload_bytes(decoded) == raw
    assert (decoded.seq, decoded.schema, decoded.key) == (value["seq"], value["schema"], fields.get("key"))


@given(RAW)
def test_bytes_a_line_cannot_carry_go_as_text(raw: bytes) -> None:
    """The payload is spliced in as it is unless a line end, or white space around it, would be lost."""
    value = json.loads(encode(raw))
    plain = raw == raw.strip(b" \t\r\n") and b"\n" not in raw and b"\r" not in raw
    assert ("payload" in value) == plain
    assert ("payload_text" in value) == (not plain)


def test_a_line_shows_time_as_needed() -> None:
    """A time has three digits, or six or nine when it needs them, as in the documentation's example."""
    ts = 1_778_077_381_123_000_000
    shown = [json.loads(encode(b"{}", ts=ts + more))["ts"] for more in (0, 4_000, 5)]
    assert shown == ["2026-05-06T14:23:01.123Z", "2026-05-06T14:23:01.123004Z", "2026-05-06T14:23:01.123000005Z"]


@pytest.mark.parametrize("remains", [b"", b"null", b'{"text":null}', b'{\n"text":null}'])
def test_a_redacted_line_carries_its_commitment(remains: bytes) -> None:
    """A redacted event shows the commitment its id covers, and as payload what remains; nothing is not null."""
    text = encode(remains, commitment=b"c" * 32)
    value = json.loads(text)
    assert (value["redacted"], value["commitment"]) == (True, ids.show_digest(b"c" * 32))
    assert ("payload" in value or "payload_text" in value) == bool(remains)
    decoded = line.decode(text.encode())
    assert (decoded.redacted, decoded.commitment) == (True, value["commitment"])
    assert line.payload_bytes(decoded) == remains


def test_a_locked_line_carries_ciphertext() -> None:
    """Encrypted bytes, which are no JSON, travel in base64."""
    value = json.loads(encode(b"\x00\xff\n", encrypted=True))
    assert base64.b64decode(value["ciphertext"]) == b"\x00\xff\n"
    assert "payload" not in value
    assert line.decode(json.dumps(value).encode()).ciphertext == value["ciphertext"]


def test_unknown_members_are_passed_over() -> None:
    """A line of a later castlog with another member is read, and the payload is the slice of the line."""
    text = b'{"new":[1],"seq":1,"ts":"1970-01-01T00:00:00Z","type":"t","payload" : {"a" : 1.50} }'
    assert line.payload_bytes(line.decode(text)) == b'{"a" : 1.50}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"seq":1,"ts":"","type":1}',
        b'{"seq":"1","ts":"","type":"t"}',
        b'{"seq":1.5,"ts":"","type":"t"}',
        b'{"seq":1,"ts":"","type":"t","payload":}',
        b'{"seq":1,"ts":"","type":"t","payload":{"a"}}',
        b'{"seq":1,"ts":"","type":"\xff"}',
        b'{"seq":1,"ts":"","type":"t"} x',
        b'{"seq":1,"ts":"","type":"t","payload":' + b"[" * 100_000,
    ],
)
def test_other_lines_are_refused(data: bytes) -> None:
    """A line of another shape, broken or endlessly deep, is Invalid."""
    with pytest.raises(Invalid, match="not an event line"):
        line.decode(data)


def test_the_deepest_payload_travels() -> None:
    """A payload nested as deep as allowed goes through a line, and the line itself adds no level to it."""
    raw = b"[" * 128 + b"]" * 128
    codec.validate(line.payload_bytes(line.decode(encode(raw).encode())))
