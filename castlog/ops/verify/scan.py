"""Walks over rows in short transactions. Damage becomes findings, and no order of keys makes a walk run in circles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from castlog import limits
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt, Unavailable
from castlog.format.rows import after
from castlog.ops.verify.inspection import Inspection

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
    at, end = 0, after(letter)
    while True:
        key = None
        try:
            with inspection.core.read() as txn:
                key = first_key(txn, letter + at.to_bytes(8, "big"), end)
        except Corrupt as exc:
            inspection.damaged(exc)
            if at >= highest:
                return
            at += 1
            continue
        if key is None:
            return
        number = int.from_bytes(key[1:9], "big")
        if len(key) < 9 or number < at:
            inspection.found("damaged_pages", f"the key {key.hex()} is out of order")
            return
        yield number
        at = number + 1
        if at >= 1 << 64:
            return


def first_key(txn: ReadTxn, start: bytes, stop: bytes) -> bytes | None:
    """Return the first key from `start` on, or None when it would be `stop` or later."""
    pair = next(iter(txn.scan(start, stop)), None)
    return None if pair is None else pair[0]


def _batch(inspection: Inspection, txn: ReadTxn, start: bytes, stop: bytes, visit: Visit) -> bytes | None:
    """Visit some rows and return the key to go on from, or None at the end or where the map cannot be read."""
    pairs = iter(txn.scan(start, stop))
    at = start
    for _ in range(limits.VERIFY_BATCH_ROWS):
        try:
            pair = next(pairs, None)
        except (Corrupt, Unavailable) as exc:
            inspection.damaged(exc)
            return None
        if pair is None:
            return None
        if pair[0] < at:
            inspection.found("damaged_pages", f"the key {pair[0].hex()} is out of order")
            return None
        try:
            visit(txn, *pair)
        except (Corrupt, Unavailable) as exc:
            inspection.damaged(exc)
        at = pair[0] + b"\0"
    return at
