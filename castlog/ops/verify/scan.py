"""Walks over rows in short transactions. Damage becomes findings, and no order of keys makes a walk run in circles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from castlog import limits
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.format.rows import after
from castlog.ops.verify.inspection import DAMAGE, Inspection

_NUMBERED_BYTES = 9  # letter and number, with which the keys of a clustered table begin

Visit = Callable[[ReadTxn, bytes, bytes], None]


def each(inspection: Inspection, prefix: bytes, visit: Visit) -> None:
    """Call `visit` with a transaction, key and value for every row whose key begins with `prefix`."""
    at: bytes | None = prefix
    while at is not None:
        with inspection.core.read() as txn:
            at = _batch(inspection, txn, at, after(prefix), visit)


def numbers(inspection: Inspection, letter: bytes, highest: int) -> Iterator[int]:
    """Yield the numbers that the rows of a letter are about, ascending.

    Where the map cannot be read the walk goes on with the next number, up to `highest`.
    """
    start, end, at = letter, after(letter), 0
    while True:
        with inspection.core.read() as txn:
            try:
                key = first_key(txn, start, end)
            except DAMAGE as exc:
                inspection.damaged(exc)
                key = b""
        if key is None:
            return
        if not key:
            if at >= highest:
                return
            at += 1
            start = letter + at.to_bytes(8, "big")
            continue
        if len(key) <= _NUMBERED_BYTES:
            inspection.found("unknown_row", f"the key {key.hex()} belongs to no table")
            start = key + b"\0"
            continue
        at = int.from_bytes(key[1:_NUMBERED_BYTES], "big")
        yield at
        start = after(key[:_NUMBERED_BYTES])
        if len(start) < _NUMBERED_BYTES or start >= end:
            return


def first_key(txn: ReadTxn, start: bytes, stop: bytes | None) -> bytes | None:
    """Return the first key from `start` on, or None when it would be `stop` or later; raises Corrupt."""
    pair = next(iter(txn.scan(start, stop)), None)
    return None if pair is None else ordered(start, pair[0])


def ordered(start: bytes, key: bytes) -> bytes:
    """Return the key; raises Corrupt when it comes before where the scan began."""
    if key < start:
        raise Corrupt(f"the keys of the map are out of order at {key.hex()}", path=key.hex())
    return key


def _batch(inspection: Inspection, txn: ReadTxn, start: bytes, stop: bytes, visit: Visit) -> bytes | None:
    """Visit some rows and return the key to go on from, or None at the end or where the map cannot be read."""
    pairs = iter(txn.scan(start, stop))
    at = start
    for _ in range(limits.VERIFY_BATCH_ROWS):
        try:
            pair = next(pairs, None)
            if pair is None:
                return None
            ordered(at, pair[0])
        except DAMAGE as exc:
            inspection.damaged(exc)
            return None
        try:
            visit(txn, *pair)
        except DAMAGE as exc:
            inspection.damaged(exc)
        at = pair[0] + b"\0"
    return at
