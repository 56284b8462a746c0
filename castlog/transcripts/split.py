"""Lines to records and gaps. Every byte of the file ends up in exactly one of them, or in a newline left out by rule.

What a gap is, and which one is left out, `castlog.ops.source` says. How the stream was cut into parts must not show:
a file read as it grows gives the same records and gaps as the same file read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from castlog import Invalid, Raw
from castlog.event import Checked
from castlog.transcripts.lines import Line
from castlog.transcripts.resync import find_objects

GAP_BYTES_MAX = 1024 * 1024  # a longer gap becomes several events

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_REASON_LENGTH_MAX = 200


class Record(NamedTuple):
    """A record's bytes, white space around it included, and where they stand."""

    payload: Raw
    line: int
    offset: int

    @property
    def raw(self) -> bytes:
        """The bytes."""
        return self.payload.data


class Gap(NamedTuple):
    """The bytes between two records, or a part of them; `line` and `offset` stand at the first odd byte."""

    raw: bytes
    line: int
    offset: int
    reason: str
    damaged: bool


Token = Record | Gap


def split(
    lines: Iterable[Line],
    *,
    resembles: Callable[[dict[str, Any]], bool],
    known: Callable[[bytes], bool] = lambda line: False,
) -> Iterator[Token]:
    """Yield the records and gaps of a file.

    `resembles` says whether an object found behind damage looks like a record. `known` may say that a line was taken as
    a record before, which saves checking it again.
    """
    gap = _Pending(default=b"", line=1, offset=0)
    for line in lines:
        found, reason = _records(line, resembles, known)
        end = 0
        for start, payload in found:
            yield from gap.add(line.data[end:start], line.number, line.offset + end, reason)
            yield from gap.close()
            yield Record(payload, line.number, line.offset + start)
            end = start + len(payload.data)
            gap = _Pending(default=b"\n", line=line.number, offset=line.offset + end)
        rest = line.data[end:] + (b"\n" if line.ended else b"")
        yield from gap.add(rest, line.number, line.offset + end, reason)
    yield from gap.close()


def _records(
    line: Line, resembles: Callable[[dict[str, Any]], bool], known: Callable[[bytes], bool]
) -> tuple[list[tuple[int, Raw]], str]:
    """Return the records of a line and where they stand, and why the rest of it, if any, is none."""
    data = line.data
    if not line.whole:
        return [], "a line too long for an event"
    if not data.strip(_BLANK):
        return [], ""
    if known(data):
        return [(0, Raw(data))], ""
    start = len(_BOM) if data.startswith(_BOM) else 0
    whole = _payload(data[start:] if start else data)
    if isinstance(whole, Raw):
        return [(start, whole)], ""
    parts = [(start, _payload(data[start:stop])) for start, stop in find_objects(data, resembles)]
    return [(start, part) for start, part in parts if isinstance(part, Raw)], whole


def _payload(data: bytes) -> Raw | str:
    """Return bytes that castlog would store as a payload, or why it would not."""
    try:
        return Checked(data)
    except Invalid as exc:
        return str(exc)[:_REASON_LENGTH_MAX]
    except RecursionError:
        return "nested too deep"


class _Pending:
    """The gap being gathered. Full parts of a long one are handed on at fixed places, counted from its start."""

    def __init__(self, *, default: bytes, line: int, offset: int) -> None:
        self._raw = bytearray()
        self._default: bytes | None = default
        self._start = (line, offset)
        self._odd: tuple[int, int, str] | None = None

    def add(self, raw: bytes, line: int, offset: int, reason: str) -> Iterator[Gap]:
        """Take bytes that stand at `offset` and are no record; yield the parts that became full."""
        while raw:
            if len(self._raw) == GAP_BYTES_MAX:
                yield self._part()
                self._start = (line, offset)
            part = raw[: GAP_BYTES_MAX - len(self._raw)]
            if self._odd is None and (odd := _odd(part)) < len(part):
                self._odd = (line, offset + odd, reason)
            self._raw += part
            raw = raw[len(part) :]
            offset += len(part)

    def close(self) -> Iterator[Gap]:
        """Yield what is left, unless it goes without saying."""
        if self._default is None or self._raw != self._default:
            yield self._part()

    def _part(self) -> Gap:
        raw = bytes(self._raw)
        self._raw.clear()
        self._default = None
        if self._odd is not None:
            line, offset, reason = self._odd
            self._odd = None
            return Gap(raw, line, offset, reason or "not JSON", True)
        reason = "byte order mark" if _BOM in raw else "blank lines" if raw else "no newline"
        return Gap(raw, *self._start, reason, False)


def _odd(raw: bytes) -> int:
    """Return where the first byte stands that is neither white space nor a byte order mark."""
    position = 0
    while True:
        rest = raw[position:].lstrip(_BLANK) if position else raw.lstrip(_BLANK)
        position = len(raw) - len(rest)
        if not rest.startswith(_BOM):
            return position
        position += len(_BOM)
