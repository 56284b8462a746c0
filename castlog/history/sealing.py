"""Sealing: open chunks into immutable ones.

A chunk is encoded and compressed outside any transaction and applied inside the next one, which first compares what was
sealed meanwhile: two sealers may have met on one open chunk, and the second gives up quietly. A batch as large as a
chunk never passes through the open chunk at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from castlog import limits
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Corrupt
from castlog.format import chunk, rows
from castlog.format import objects as fmt
from castlog.format.chunk import OpenCall
from castlog.format.record import Record, TailRecord
from castlog.history import calls, reader, tables, timelines, writer
from castlog.history.calls import InFlight
from castlog.history.objects import Objects
from castlog.history.runs import OpenRun
from castlog.history.writer import Entry, Outcome, State


class Content(msgspec.Struct, frozen=True):
    """What a chunk holds: its header, and the payloads' bytes as they lie in it."""

    head: chunk.ChunkHeader
    payloads: Sequence[bytes]
    size: int = 0  # what its events counted in the open chunk


class Sealed(msgspec.Struct, frozen=True):
    """A chunk ready to be written."""

    first: int
    last: int
    parent: bytes
    last_id: bytes
    length: int
    blob: bytes
    size: int  # what its events counted in the open chunk


class Seal(msgspec.Struct, frozen=True):
    """Chunks ready for one timeline. They hold good while `sealed` is still its last sealed seq."""

    timeline: int
    sealed: int
    chunks: tuple[Sealed, ...]


class Before(msgspec.Struct, frozen=True):
    """The calls in flight at a chunk's border, and how many events ago they were listed."""

    calls: InFlight
    unlisted: int


def due(tail: rows.Tail) -> bool:
    """Return whether an open chunk is full."""
    return tail.last - tail.sealed >= limits.SEAL_EVENTS or tail.size >= limits.SEAL_BYTES


def prepare(
    txn: ReadTxn, objects: Objects, session: rows.Session, timeline: int, *, whole: bool = False
) -> Seal | None:
    """Return chunks for a timeline's open chunk when it is full (`whole`: whatever it holds), or None.

    None also when something there cannot be verified: it stays as it is, and the append that led here has succeeded.
    """
    tail = reader.tail_of(txn, timeline)
    if tail.last == tail.sealed or not (whole or due(tail)):
        return None
    try:
        base, records = _open_part(txn, objects, session, timeline, tail)
    except Corrupt:
        return None
    row = timelines.read(txn, timeline)
    entries = _entries(records, tail.sealed + 1)
    return _seal(objects.secret, row.session, timeline, tail.sealed, base, entries)


def prepare_batch(txn: ReadTxn, objects: Objects, at: State, outcome: Outcome, *, whole: bool = False) -> Seal | None:
    """Return chunks for what is open on a branch together with a batch of new events.

    None when the two together do not fill a chunk, unless `whole` asks for it, or what is open cannot be verified.
    """
    if at.goes_on:
        assert at.tail is not None
        timeline, sealed, open_size = at.ref.timeline, at.tail.sealed, at.tail.size
        try:
            base, older = _open_part(txn, objects, at.session, timeline, at.tail)
        except Corrupt:
            if whole:
                raise
            return None
    else:
        timeline, sealed, open_size, base, older = 0, at.ref.seq, 0, Before(outcome.before, 0), []
    size = open_size + sum(entry.size for entry in outcome.new)
    if not whole and size < limits.SEAL_BYTES and len(older) + len(outcome.new) < limits.SEAL_EVENTS:
        return None
    entries = _entries(older, sealed + 1) + outcome.new
    return _seal(objects.secret, at.ref.session, timeline, sealed, base, entries)


def apply(txn: WriteTxn, objects: Objects, seal: Seal) -> None:
    """Write prepared chunks and drop the records they replace, unless another sealer came first."""
    tail = tables.get(txn, rows.TAILS, seal.timeline)
    if tail is None or tail.sealed != seal.sealed or tail.last < seal.chunks[-1].last:
        return
    write_chunks(txn, objects, seal, seal.timeline, tail.last)
    left = max(0, tail.size - sum(item.size for item in seal.chunks))
    tables.put(txn, rows.TAILS, rows.Tail(tail.last, tail.last_id, seal.chunks[-1].last, left), seal.timeline)


def open_chunks(txn: ReadTxn, objects: Objects, session: rows.Session, timeline: int) -> list[Content]:
    """Return what sealing all of a timeline's open chunk would make of it; raises Corrupt unless all is verified."""
    tail = reader.tail_of(txn, timeline)
    if tail.last == tail.sealed:
        return []
    base, records = _open_part(txn, objects, session, timeline, tail)
    return list(_chunks(timelines.read(txn, timeline).session, base, _entries(records, tail.sealed + 1)))


def join(parts: Sequence[Content]) -> Content:
    """Return chunks that follow one another as one. It lists its calls in flight if one of them does."""
    table: dict[bytes, int] = {}
    records = [_repoint(record, part.head.pieces, table) for part in parts for record in part.head.records]
    first, last = parts[0].head, parts[-1].head
    head = msgspec.structs.replace(
        last,
        first_seq=first.first_seq,
        parent=first.parent,
        open=_open_after([part.head for part in parts]),
        pieces=tuple(table),
        records=tuple(records),
    )
    if head.open is not None:
        head = msgspec.structs.replace(head, unlisted=0)
    return Content(head, [payload for part in parts for payload in part.payloads])


def write_chunks(txn: WriteTxn, objects: Objects, seal: Seal, timeline: int, written: int) -> None:
    """Write a seal's chunks under `timeline` and delete the records they hold; there are some up to seq `written`."""
    for item in seal.chunks:
        number = objects.write(txn, item.blob)
        row = rows.Chunk(item.first, number, 0, item.length, item.parent, item.last_id)
        tables.put(txn, rows.CHUNKS, row, timeline, item.last)
        for seq in range(item.first, min(item.last, written) + 1):
            txn.delete(rows.record_key(timeline, seq))


def commit_batch(txn: WriteTxn, objects: Objects, at: State, outcome: Outcome, seal: Seal, now: int) -> State:
    """Write a batch that was sealed before it was ever open; return the state it leaves."""
    timeline, _ = writer.extend_timeline(txn, at, outcome)
    write_chunks(txn, objects, seal, timeline, at.ref.seq)
    return writer.finish(txn, at, outcome, timeline, seal.chunks[-1].last, 0, now)


def _open_part(
    txn: ReadTxn, objects: Objects, session: rows.Session, timeline: int, tail: rows.Tail
) -> tuple[Before, list[TailRecord]]:
    """Return the calls in flight where an open chunk begins, and its records; raises Corrupt unless all is verified."""
    base = reader.calls_before(txn, objects, session, timeline, tail.sealed + 1)
    unlisted = 0
    if tail.sealed > timelines.read(txn, timeline).fork_seq:
        unlisted = reader.chunk_at(txn, objects, session.salt, timeline, tail.sealed).head.unlisted
    records = reader.open_records(txn, timeline, tail.sealed + 1, tail.last)
    if records:
        OpenRun(session.salt, tail.sealed + 1, records)
    return Before(base, unlisted), records


def _seal(
    secret: bytes,
    session: bytes,
    timeline: int,
    sealed: int,
    base: Before,
    entries: Sequence[Entry],
) -> Seal:
    return Seal(timeline, sealed, tuple(_encode(secret, item) for item in _chunks(session, base, entries)))


def _chunks(session: bytes, base: Before, entries: Sequence[Entry]) -> Iterator[Content]:
    for group in _groups(entries):
        in_flight = calls.fold(base.calls, group[0].seq, (entry.tail.record for entry in group))
        unlisted = base.unlisted + len(group)
        if len(in_flight) <= max(limits.CALLS_LISTED_MAX, unlisted):
            unlisted = 0
        base = Before(in_flight, unlisted)
        yield _content(session, base, group)


def _entries(records: Sequence[TailRecord], first: int) -> list[Entry]:
    return [Entry(seq, record, writer.size_of(record)) for seq, record in enumerate(records, first)]


def _groups(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Cut entries into chunks of about equal weight, as near to a full one as that allows."""
    total = sum(entry.size for entry in entries)
    count = max(round(total / limits.SEAL_BYTES), math.ceil(len(entries) / limits.SEAL_EVENTS), 1)
    group: list[Entry] = []
    taken, cuts = 0, 1
    for entry in entries:
        group.append(entry)
        taken += entry.size
        if taken * count >= total * cuts or len(group) >= limits.SEAL_EVENTS:
            yield group
            group, cuts = [], taken * count // total + 1
    if group:
        yield group


def _content(session: bytes, after: Before, group: list[Entry]) -> Content:
    table: dict[bytes, int] = {}
    records = [_repoint(entry.tail.record, entry.tail.pieces, table) for entry in group]
    first, last = group[0], group[-1]
    head = chunk.ChunkHeader(
        session,
        first.seq,
        last.seq,
        first.tail.parent,
        last.tail.id,
        None if after.unlisted else calls.freeze(after.calls),
        tuple(table),
        tuple(records),
        after.unlisted,
    )
    return Content(head, [_slot(entry.tail) for entry in group], sum(entry.size for entry in group))


def _encode(secret: bytes, item: Content) -> Sealed:
    head = item.head
    data = chunk.encode(head, item.payloads)
    blob = fmt.encode(secret, fmt.CHUNK, data)
    return Sealed(head.first_seq, head.last_seq, head.parent, head.last_id, len(data), blob, item.size)


def _open_after(heads: Sequence[chunk.ChunkHeader]) -> tuple[OpenCall, ...] | None:
    """Return the calls in flight after the last of some chunks if one of them lists its own, else None."""
    in_flight: InFlight | None = None
    for head in heads:
        if head.open is not None:
            in_flight = calls.thaw(head.open)
        elif in_flight is not None:
            in_flight = calls.fold(in_flight, head.first_seq, head.records)
    return None if in_flight is None else calls.freeze(in_flight)


def _slot(tail: TailRecord) -> bytes:
    return tail.payload if chunk.lies_inline(tail.record) else chunk.EMPTY_SLOT


def _repoint(record: Record, pieces: Sequence[bytes], table: dict[bytes, int]) -> Record:
    """Return a record whose recipe, made for `pieces`, points into another table, which grows as needed."""
    stored = record.stored
    if stored is None or not stored.recipe:
        return record
    recipe = tuple(table.setdefault(pieces[index], len(table)) for index in stored.recipe)
    return msgspec.structs.replace(record, stored=msgspec.structs.replace(stored, recipe=recipe))
