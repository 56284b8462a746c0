"""Whole JSON objects inside a broken line: two on one line, a stub glued to the next record, NULs around one.

Objects at the line's beginning are trusted. Behind damage, one is believed only if it looks like a record and nothing
but objects follow it to the line's end: otherwise each object nested in a cut record would pass for one. Work is
bounded by a small multiple of the line's length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

LINE_BYTES_MAX = 16 * 1024 * 1024  # the objects of a line being searched are built in memory, at some 10 times its size
_WORK_PER_BYTE = 8
_WORK_MIN = 1024 * 1024
_BLANK = " \t\r\0"

_POSITION_PER_WORK = 16  # the parser counts the lines before each error it reports
_OBJECT = re.compile(r'\{"[^"\\]{0,200}"\s{0,8}:')  # how an object that could be a record begins

_scan = json.JSONDecoder().raw_decode

Span = tuple[int, int]


def find_objects(line: bytes, resembles: Callable[[dict[str, Any]], bool]) -> list[Span]:
    """Return where in a broken line whole objects stand, as (start, end) in ascending order.

    `resembles` says whether a value looks like a record of the file. The bytes are read as Latin-1, which keeps every
    offset and never fails; whether an object is valid in all else is for the caller to check.
    """
    if len(line) > LINE_BYTES_MAX:
        return []
    text = line.decode("latin-1")
    spans, position = _run(text, 0)
    budget = _WORK_MIN + _WORK_PER_BYTE * len(text)
    while budget > 0 and (begin := _OBJECT.search(text, position)):
        position = begin.start()
        run, reached = _run(text, position, resembles)
        if run and reached == len(text):
            return spans + run
        budget -= reached - position + position // _POSITION_PER_WORK + 1
        position += 1
    return spans


def _run(text: str, position: int, resembles: Callable[[dict[str, Any]], bool] | None = None) -> tuple[list[Span], int]:
    """Return the objects that follow each other from `position` on, and how far was looked."""
    spans: list[Span] = []
    while (position := _skip_blank(text, position)) < len(text):
        try:
            value, end = _scan(text, position)
        except (ValueError, RecursionError) as exc:
            return spans, max(position, _reached(exc, len(text))) if resembles else position
        if not isinstance(value, dict) or (resembles is not None and not resembles(value)):
            return spans, position if resembles is None else min(end, len(text) - 1)
        spans.append((position, end))
        position = end
    return spans, position


def _skip_blank(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANK:
        position += 1
    return position


def _reached(exc: Exception, end: int) -> int:
    """Return how far a failed parse read; an unterminated string was read to the end though it reports its start."""
    if isinstance(exc, json.JSONDecodeError) and not exc.msg.startswith("Unterminated"):
        return min(exc.pos, end - 1)
    return end - 1
