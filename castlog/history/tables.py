"""Rows by table: get, put, scan, and the counters that number things."""

from __future__ import annotations

from collections.abc import Iterator

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.format import rows
from castlog.format.rows import RowType, Table


def get(txn: ReadTxn, table: Table[RowType], *fields: int | bytes) -> RowType | None:
    """Return the row with these key fields, or None."""
    key = table.key(*fields)
    value = txn.get(key)
    return None if value is None else table.decode(key, value)


def put(txn: WriteTxn, table: Table[RowType], row: RowType, *fields: int | bytes) -> None:
    """Write the row with these key fields."""
    key = table.key(*fields)
    txn.put(key, table.encode(key, row))


def delete(txn: WriteTxn, table: Table[RowType], *fields: int | bytes) -> bool:
    """Remove the row with these key fields; return whether it was there."""
    return txn.delete(table.key(*fields))


def scan(txn: ReadTxn, table: Table[RowType], *first: bytes) -> Iterator[tuple[bytes, RowType]]:
    """Yield every row of a table whose first key fields have these bytes, as (key, row), in key order."""
    start = table.prefix(*first)
    for key, value in txn.scan(start, rows.after(start)):
        if table.owns(key):
            yield key, table.decode(key, value)


def take_number(txn: WriteTxn, kind: str, count: int = 1) -> int:
    """Return the first of `count` numbers of a kind never given out before."""
    counters = get(txn, rows.COUNTERS) or rows.Counters()
    number: int = getattr(counters, kind)
    fields = {name: getattr(counters, name) for name in counters.__struct_fields__}
    put(txn, rows.COUNTERS, rows.Counters(**{**fields, kind: number + count}))
    return number
