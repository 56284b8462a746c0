"""Snapshots: folded state at a place, kept as objects, and found again from any history that runs through the place.

A snapshot belongs to the timeline that owns its seq, so a fork inherits its parent's up to the fork. Its row is found
by what it was folded with: the reducer's name and version and the upcasters. Large states are cut into pieces as
payloads are, so that the next snapshot costs what changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from castlog import limits
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Corrupt
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.format.identity import short_digest
from castlog.format.snapshot import Snapshot, decode, encode
from castlog.history import pieces, tables, timelines
from castlog.history.objects import Objects


class Found(NamedTuple):
    """A snapshot's row, and the place it belongs to."""

    timeline: int
    seq: int
    row: rows.SnapshotRow


class Prepared(msgspec.Struct, frozen=True):
    """A snapshot ready to be written."""

    blob: bytes
    cut: Mapping[bytes, bytes]
    packs: Sequence[pieces.Pack]


def fold_key(name: str, version: str, upcasters: str) -> bytes:
    """Return the 16 bytes that stand for what a state was folded with."""
    return short_digest(f"{name}/{version}/{upcasters}")


def along(txn: ReadTxn, timeline: int, seq: int, key: bytes) -> Iterator[Found]:
    """Yield the snapshots of one fold in the history that ends at a place, newest first.

    Costs one look a timeline on the way up.
    """
    while timeline != timelines.GENESIS:
        start, stop = rows.SNAPSHOTS.key(timeline, key, 0), rows.SNAPSHOTS.key(timeline, key, seq + 1)
        for found, value in txn.scan(start, stop, reverse=True):
            yield Found(timeline, _seq(found), rows.SNAPSHOTS.decode(found, value))
        above = timelines.read(txn, timeline)
        timeline, seq = above.parent, above.fork_seq


def listing(txn: ReadTxn, timeline: int, seq: int) -> Iterator[Found]:
    """Yield all snapshots in the history that ends at a place, those of the newest timelines first."""
    while timeline != timelines.GENESIS:
        for found, row in tables.scan(txn, rows.SNAPSHOTS, timeline.to_bytes(8, "big")):
            if _seq(found) <= seq:
                yield Found(timeline, _seq(found), row)
        above = timelines.read(txn, timeline)
        timeline, seq = above.parent, above.fork_seq


def read(txn: ReadTxn, objects: Objects, found: Found) -> tuple[Snapshot, bytes]:
    """Return a snapshot and its state; raises Corrupt naming the object or piece that cannot be verified."""
    number = found.row.object
    item = objects.read(txn, number)
    if item.kind != fmt.SNAPSHOT:
        raise Corrupt(f"object {number} is not a snapshot", object=number)
    try:
        snapshot = decode(item.data)
    except Corrupt as exc:
        raise Corrupt(f"object {number}: {exc}", object=number) from exc
    state = pieces.join(txn, objects, snapshot.pieces) if snapshot.pieces else snapshot.state
    if snapshot.seq != found.seq or len(state) != snapshot.size:
        raise Corrupt(f"object {number} is not the snapshot its row says", object=number)
    return snapshot, state


def prepare(txn: ReadTxn, secret: bytes, snapshot: Snapshot) -> Prepared:
    """Return a snapshot that holds its state whole as one ready to be written, cut where that pays."""
    cut: dict[bytes, bytes] = {}
    packs: list[pieces.Pack] = []
    if snapshot.size >= limits.PIECE_PAYLOAD_BYTES_MIN:
        parts = pieces.cut(secret, snapshot.state)
        cut = dict(parts)
        packs = list(pieces.pack(secret, pieces.missing(txn, cut), cut))
        snapshot = msgspec.structs.replace(snapshot, state=b"", pieces=tuple(digest for digest, _ in parts))
    return Prepared(fmt.encode(secret, fmt.SNAPSHOT, encode(snapshot)), cut, packs)


def write(txn: WriteTxn, objects: Objects, timeline: int, seq: int, key: bytes, new: Prepared, now: int) -> bool:
    """Write a snapshot at a place its timeline owns; return False when pieces it needs have gone meanwhile."""
    pieces.write(txn, objects, new.packs)
    if pieces.missing(txn, new.cut):
        return False
    old = tables.get(txn, rows.SNAPSHOTS, timeline, key, seq)
    if old is not None:
        _delete(txn, old.object)
    row = rows.SnapshotRow(objects.write(txn, new.blob), now)
    tables.put(txn, rows.SNAPSHOTS, row, timeline, key, seq)
    return True


def drop(txn: WriteTxn, timeline: int, seq: int, only: int | None = None) -> int:
    """Take away the snapshots at a place, or of them only the one in this object; return how many there were."""
    prefix = timeline.to_bytes(8, "big")
    gone = [
        (key, row.object)
        for key, row in tables.scan(txn, rows.SNAPSHOTS, prefix)
        if _seq(key) == seq and only in (None, row.object)
    ]
    for key, number in gone:
        txn.delete(key)
        _delete(txn, number)
    return len(gone)


def _delete(txn: WriteTxn, number: int) -> None:
    """Take an object away; only its own row refers to one that holds a snapshot."""
    for part, _ in list(txn.scan(rows.part_key(number, 0), rows.part_key(number + 1, 0))):
        txn.delete(part)


def _seq(key: bytes) -> int:
    seq = rows.SNAPSHOTS.fields(key)[2]
    assert isinstance(seq, int)
    return seq
