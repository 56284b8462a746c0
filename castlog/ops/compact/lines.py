"""The events of a timeline as they lie now: sealed chunks and the open one, each verified before it is handed out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.format import chunk, rows
from castlog.format.record import Record
from castlog.history import reader, sealing, tables, timelines
from castlog.history.objects import Objects
from castlog.history.sealing import Content

_NUMBERED_BYTES = 9  # letter and number, with which the keys of a clustered table begin


class Stretch(msgspec.Struct, frozen=True):
    """Events that lie together now: their seqs, and the bytes of their chunk."""

    first: int
    last: int
    length: int


def numbers(txn: ReadTxn) -> Iterator[int]:
    """Yield the numbers of all timelines, ascending."""
    letter = rows.TIMELINES.letter
    key = next((key for key, _ in txn.scan(letter, rows.after(letter))), None)
    while key is not None:
        if len(key) <= _NUMBERED_BYTES:
            raise Corrupt(f"the key {key.hex()} belongs to no timeline", key=key.hex())
        yield int.from_bytes(key[1:_NUMBERED_BYTES], "big")
        key = next((key for key, _ in txn.scan(rows.after(key[:_NUMBERED_BYTES]), rows.after(letter))), None)


def stretches(txn: ReadTxn, objects: Objects, timeline: int) -> Iterator[Stretch]:
    """Yield a timeline's chunks, and those its open chunk would be sealed as; raises Corrupt where seqs are missing."""
    tail = reader.tail_of(txn, timeline)
    seq = timelines.read(txn, timeline).fork_seq
    for last, row in _chunk_rows(txn, timeline, 0, (1 << 64) - 1):
        if row.first != seq + 1 or last < row.first:
            raise Corrupt(f"the chunks of timeline {timeline} do not follow one another at seq {seq + 1}", seq=seq + 1)
        yield Stretch(row.first, last, row.length)
        seq = last
    if seq != tail.sealed:
        raise Corrupt(f"the chunks of timeline {timeline} end at seq {seq} and not at {tail.sealed}", seq=seq)
    _require_no_others(txn, timeline, tail)
    for item in _open(txn, objects, timeline):
        yield Stretch(item.head.first_seq, item.head.last_seq, len(chunk.encode(item.head, item.payloads)))


def chunk_bytes(txn: ReadTxn, objects: Objects, timeline: int, first: int, last: int) -> bytes:
    """Return events that end where chunks end, sealed or open ones, as one chunk; raises Corrupt naming what fails."""
    parts: list[Content] = []
    data = b""
    for end, row in _chunk_rows(txn, timeline, first, last):
        data, part = _sealed(txn, objects, timeline, end, row)
        parts.append(part)
    if not parts or parts[-1].head.last_seq < last:
        data = b""
        parts += (part for part in _open(txn, objects, timeline) if first <= part.head.first_seq <= last)
    if len(parts) == 1 and data:
        return data
    whole = sealing.join(parts)
    return chunk.encode(whole.head, whole.payloads)


def require_pieces(txn: ReadTxn, digests: Iterable[bytes]) -> None:
    """Raise Corrupt for a piece that is not in the index: its bytes may still lie in a pack, and would be left out."""
    for digest in digests:
        if tables.get(txn, rows.PIECES, digest) is None:
            raise Corrupt(f"piece {digest.hex()[:16]} is missing", digest=digest.hex())


def _chunk_rows(txn: ReadTxn, timeline: int, first: int, last: int) -> Iterator[tuple[int, rows.Chunk]]:
    """Yield the last seqs and rows of the chunks that end at `first` to `last`."""
    for key, value in txn.scan(rows.CHUNKS.key(timeline, first), rows.record_key(timeline, 0)):
        end = rows.CHUNKS.fields(key)[1]
        assert isinstance(end, int)
        if end > last:
            return
        yield end, rows.CHUNKS.decode(key, value)


def _sealed(txn: ReadTxn, objects: Objects, timeline: int, last: int, row: rows.Chunk) -> tuple[bytes, Content]:
    """Return a chunk's bytes and its content, which is what its row says and uses no piece that is missing."""
    data = objects.stretch(txn, row.object, row.offset, row.length)
    session = timelines.read(txn, timeline).session
    try:
        head, body = chunk.decode(data)
    except Corrupt as exc:
        raise Corrupt(f"object {row.object}: {exc}", object=row.object) from exc
    ends = (head.session, head.first_seq, head.last_seq, head.parent, head.last_id)
    slots = [(start, start + chunk.slot_length(record)) for start, record in _slots(head)]
    if ends != (session, row.first, last, row.parent, row.last_id) or len(body) != slots[-1][1] + 1:
        raise Corrupt(f"object {row.object} is not the chunk its row says", object=row.object)
    require_pieces(txn, head.pieces)
    return data, Content(head, [body[start:end] for start, end in slots])


def _require_no_others(txn: ReadTxn, timeline: int, tail: rows.Tail) -> None:
    """Raise Corrupt for records that are not between what is sealed and the end: nobody knows what they are."""
    first, end = rows.record_key(timeline, 0), rows.TAILS.key(timeline)
    bounds = ((first, rows.record_key(timeline, tail.sealed + 1)), (rows.record_key(timeline, tail.last + 1), end))
    for start, stop in bounds:
        for key, _ in txn.scan(start, stop):
            raise Corrupt(f"the record {key.hex()} of timeline {timeline} is none of its events", key=key.hex())


def _open(txn: ReadTxn, objects: Objects, timeline: int) -> list[Content]:
    session = tables.get(txn, rows.SESSIONS, timelines.read(txn, timeline).session)
    if session is None:
        raise Corrupt(f"timeline {timeline} belongs to a session that is not there", timeline=timeline)
    found = sealing.open_chunks(txn, objects, session, timeline)
    for item in found:
        require_pieces(txn, item.head.pieces)
    return found


def _slots(head: chunk.ChunkHeader) -> Iterator[tuple[int, Record]]:
    return zip(chunk.slots(head.records), head.records, strict=True)
