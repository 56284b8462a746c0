"""Bytes to lines. A line ends at a newline and nowhere else; one too long to hold is handed on in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

LINE_BYTES_MAX = 256 * 1024 * 1024  # no event can hold more, so no longer line can be a record


class Line(NamedTuple):
    """A line without its newline. `ended` says whether one followed; `whole` is False for a part of an endless line."""

    data: bytes
    number: int
    offset: int
    ended: bool
    whole: bool = True


def lines(chunks: Iterable[bytes], *, bytes_max: int = LINE_BYTES_MAX) -> Iterator[Line]:
    """Yield the lines of a stream, numbered from 1. What follows the last newline is a line unless it is empty."""
    kept = _Kept()
    number = 1
    offset = 0
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            part = chunk[start:end]
            data = kept.join(part) if kept.parts else part
            yield Line(data, number, offset, True, not kept.cut)
            kept.clear()
            number += 1
            offset += len(data) + 1
            start = end + 1
        if start < len(chunk):
            kept.add(chunk[start:])
        while kept.parts and (kept.cut or kept.size > bytes_max):
            data = kept.pop()
            yield Line(data, number, offset, False, False)
            offset += len(data)
    if kept.parts:
        yield Line(kept.join(b""), number, offset, False, not kept.cut)


class _Kept:
    """The beginning of a line whose end has not been seen; `cut` once parts of it were handed on."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.cut = False

    def add(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)

    def pop(self) -> bytes:
        self.cut = True
        part = self.parts.pop(0)
        self.size -= len(part)
        return part

    def join(self, part: bytes) -> bytes:
        return b"".join([*self.parts, part])

    def clear(self) -> None:
        self.parts.clear()
        self.size = 0
        self.cut = False
