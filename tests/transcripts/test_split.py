"""Records and gaps: every byte is in one of them, and what they are does not depend on how the file was read."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castlog.ops.source import DAMAGED, PADDING, gap_payload, source_bytes
from castlog.transcripts import split as module
from castlog.transcripts.lines import lines
from castlog.transcripts.split import Gap, Record, Token, split


class Kept(msgspec.Struct):
    """A token as the event it becomes."""

    type: str
    raw: bytes
    payload: Any


def kept(token: Token) -> Kept:
    """Return the event a token becomes."""
    if isinstance(token, Record):
        return Kept("record", token.raw, None)
    payload = gap_payload(token.raw, file="f", line=token.line, offset=token.offset, reason=token.reason)
    return Kept(DAMAGED if token.damaged else PADDING, b"", payload)


def tokens(data: bytes, size: int = 1 << 20) -> list[Token]:
    """Split bytes read in parts of `size`, and check that they come back."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    found = list(split(lines(parts), resembles=lambda value: "type" in value))
    assert b"".join(source_bytes(map(kept, found))) == data
    return found


A, B = b'{"type":"a"}', b'{"type":"b"}'


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (A + b"\n", [A]),
        (A + b"\n" + B + b"\n", [A, B]),
        (A + b"\n" + B, [A, B, ("ok", b"")]),
        (A + b"\r\n" + B + b"\r\n", [A + b"\r", B + b"\r"]),
        (b"\xef\xbb\xbf" + A + b"\n", [("ok", b"\xef\xbb\xbf"), A]),
        (b'\xef\xbb\xbf{"x":1}\n', [("ok", b"\xef\xbb\xbf"), b'{"x":1}']),
        (b"\n" + A + b"\n\n\n" + B + b"\n\n", [("ok", b"\n"), A, ("ok", b"\n\n\n"), B, ("ok", b"\n\n")]),
        (A + B + b"\n", [A, ("ok", b""), B]),
        (A + b" \t" + B + b"\n", [A, ("ok", b" \t"), B]),
        (b'{"par' + A + b"\n", [("bad", b'{"par'), A]),
        (b"\0\0\0" + A + b"\n", [("bad", b"\0\0\0"), A]),
        (A + b"\n" + b"\0" * 9 + b"\n" + B + b"\n", [A, ("bad", b"\n" + b"\0" * 9 + b"\n"), B]),
        (A + b"\0\0\n" + B + b"\n", [A, ("bad", b"\0\0\n"), B]),
        (A + b"\noops\n", [A, ("bad", b"\noops\n")]),
        (A + b'\n{"type":"b', [A, ("bad", b'\n{"type":"b')]),
        (A + b'\n{"text":"\xe2\x82', [A, ("bad", b'\n{"text":"\xe2\x82')]),
        (b'{"type":"\xff"}\n', [("bad", b'{"type":"\xff"}\n')]),
        (b'{"type":"\\ud800"}\n', [("bad", b'{"type":"\\ud800"}\n')]),
        (b'{"type":1,"type":2}\n', [("bad", b'{"type":1,"type":2}\n')]),
        (b'{"type":NaN}\n', [("bad", b'{"type":NaN}\n')]),
        (A[:-1] + b',"t":"\xe2\x80\xa8"}\n', [A[:-1] + b',"t":"\xe2\x80\xa8"}']),
        (b'{"type":"a","m":{"type":"x"},"c\n' + B + b"\n", [("bad", b'{"type":"a","m":{"type":"x"},"c\n'), B]),
        (b'{"type":"a","t":"x{"type":"b"}\n', [("bad", b'{"type":"a","t":"x'), B]),
        (b"17\n", [b"17"]),
    ],
)
def test_what_records_and_gaps_are(data: bytes, expected: list[Any]) -> None:
    """Whole values are records; what is not a plain newline between them is a gap, harmless or damaged."""
    found = tokens(data)
    shown = [t.raw if isinstance(t, Record) else ("bad" if t.damaged else "ok", t.raw) for t in found]
    assert shown == expected


PIECES = [
    A,
    B,
    b"\n",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xef\xbb\xbf",
    b'{"par',
    b"junk",
    b"\xe2\x82",
    b" ",
    b"}",
    b"12",
    b'{"a":1,"a":2}',
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.integers(1, 30))
def test_bytes_in_are_bytes_out(data: bytes, size: int) -> None:
    """Any mixture comes back byte for byte, split the same way whatever the parts it was read in."""
    assert tokens(data, size) == tokens(data)


@given(st.binary(max_size=60))
def test_any_bytes_come_back(data: bytes) -> None:
    """Even bytes that were never lines come back."""
    tokens(data)


def test_a_gap_says_where_its_first_odd_byte_stands() -> None:
    """Blank lines before the damage do not count, and lines are counted from 1."""
    data = A + b"\n\n  oops\n" + B + b"\n"
    gap = tokens(data)[1]
    assert isinstance(gap, Gap)
    assert (gap.line, gap.offset) == (3, data.index(b"oops"))
    assert "JSON" in gap.reason


def test_a_long_gap_becomes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap is cut at fixed places, so that a file read as it grows gives the same parts."""
    monkeypatch.setattr(module, "GAP_BYTES_MAX", 10)
    data = A + b"\n" + b"\0" * 35 + b"\n" + B + b"\n"
    gaps = [token.raw for token in tokens(data, 7) if isinstance(token, Gap)]
    assert [len(gap) for gap in gaps] == [10, 10, 10, 7]
    grown = [token.raw for token in tokens(data[:30]) if isinstance(token, Gap)]
    assert gaps[: len(grown) - 1] == grown[:-1]


@pytest.mark.parametrize(
    "line", [b'{"a":' * 400_000, b'{"a' * 700_000, b'{"a":"' + b"x" * 2_000_000, b'[{"a":1},' * 200_000]
)
def test_a_broken_line_costs_time_in_its_length(line: bytes) -> None:
    """Looking for records in a broken line never becomes quadratic."""
    start = time.monotonic()
    tokens(line + b"\n" + A + b"\n")
    assert time.monotonic() - start < 10
