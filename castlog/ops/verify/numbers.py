"""The store's own rows: counters against numbers in use, and keys of no known table."""

from __future__ import annotations

from castlog.format import rows
from castlog.history import tables
from castlog.ops.verify import scan
from castlog.ops.verify.inspection import Inspection

_TABLES = (
    rows.META,
    rows.COUNTERS,
    rows.HEAD,
    rows.SESSIONS,
    rows.ORIGINS,
    rows.CHILDREN,
    rows.REFS,
    rows.TIMELINES,
    rows.PIECES,
    rows.KEYS,
    rows.TRASH,
    rows.DICTIONARIES,
    rows.SNAPSHOTS,
    rows.NAMES,
)
_LETTERS = {table.letter for table in _TABLES} | {rows.PART_LETTER}


def check_counters(inspection: Inspection) -> None:
    """Check that every counter is above all numbers met."""
    with inspection.core.read() as txn:
        counters = inspection.attempt(lambda: tables.get(txn, rows.COUNTERS) or rows.Counters())
    if counters is None:
        return
    for kind, highest in inspection.highest.items():
        following = getattr(counters, kind)
        if following <= highest:
            inspection.found("low_counter", f"the next {kind} would be number {following}; {highest} is in use")


def check_letters(inspection: Inspection) -> None:
    """Report the first key of every table that this version does not know."""
    start = b"\0"
    while start:
        with inspection.core.read() as txn:
            key = inspection.attempt(lambda txn=txn, start=start: scan.first_key(txn, start, None))  # type: ignore[misc]
        if key is None:
            return
        letter = key[:1]
        if letter not in _LETTERS:
            inspection.found("unknown_row", f"the key {key.hex()} belongs to no table")
        start = b"" if letter == b"\xff" else rows.after(letter)
