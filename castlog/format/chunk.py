"""Chunks: a sealed run of one timeline's events in one object.

Layout: a fixed prefix, the header section (one MessagePack array, read without the payloads), and the payload section
(one JSON array, so that all payloads decode in one call). A payload that does not lie inline holds its place as `null`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from castlog.errors import Corrupt
from castlog.format.record import TOMBSTONE, Record, check

MAGIC = b"CLC1"
_PREFIX = struct.Struct("<4sIQ")  # magic, header length, payload length
PREFIX_BYTES = 16
assert _PREFIX.size == PREFIX_BYTES

EMPTY_SLOT = b"null"


class OpenCall(msgspec.Struct, frozen=True, array_like=True):
    """A call in flight: its id and the seq of the event that opened it."""

    call_id: str
    seq: int


class ChunkHeader(msgspec.Struct, frozen=True, array_like=True):
    """What a chunk says of itself: whose it is, its seqs and ids at both ends, calls open at its end, its pieces.

    `open` is None where the list would be long: the calls then follow from the chunk before and this one's records.
    `unlisted` counts the events since the calls were listed last, so that all lists together stay in proportion.
    """

    session: bytes
    first_seq: int
    last_seq: int
    parent: bytes
    last_id: bytes
    open: tuple[OpenCall, ...] | None
    pieces: tuple[bytes, ...]
    records: tuple[Record, ...]
    unlisted: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ChunkHeader).decode


def encode(header: ChunkHeader, payloads: Sequence[bytes]) -> bytes:
    """Return a chunk's canonical bytes; `payloads` holds EMPTY_SLOT where a payload does not lie inline."""
    assert len(header.records) == len(payloads) == header.last_seq - header.first_seq + 1
    assert [len(payload) for payload in payloads] == [slot_length(record) for record in header.records]
    head = _encode(header)
    body = b"[" + b",".join(payloads) + b"]"
    return b"".join((_PREFIX.pack(MAGIC, len(head), len(body)), head, body))


def decode(data: bytes) -> tuple[ChunkHeader, bytes]:
    """Return a chunk's header and its payload section; raises Corrupt for bytes of another shape."""
    if len(data) < PREFIX_BYTES:
        raise Corrupt("a chunk is shorter than its prefix")
    magic, head_length, body_length = _PREFIX.unpack_from(data)
    if magic != MAGIC or PREFIX_BYTES + head_length + body_length != len(data):
        raise Corrupt("a chunk's prefix does not fit its bytes")
    body_start = PREFIX_BYTES + head_length
    try:
        header = _decode(memoryview(data)[PREFIX_BYTES:body_start])
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Corrupt(f"a chunk's header does not decode: {exc}") from exc
    if len(header.records) != header.last_seq - header.first_seq + 1:
        raise Corrupt("a chunk's header counts other events than it holds")
    for record in header.records:
        if record.stored is not None:
            check(record, len(header.pieces))
    return header, data[body_start:]


def slots(records: Sequence[Record]) -> list[int]:
    """Return where each record's place in the payload section begins; its length follows from the record."""
    starts, position = [], 1
    for record in records:
        starts.append(position)
        position += (record.size if record.stored is None else slot_length(record)) + 1
    return starts


def slot_length(record: Record) -> int:
    """Return how many bytes a record's place in the payload section takes."""
    return record.size if lies_inline(record) else len(EMPTY_SLOT)


def lies_inline(record: Record) -> bool:
    """Return whether a record's payload bytes lie in the payload section itself."""
    stored = record.stored
    return stored is None or (stored.form == TOMBSTONE and bool(stored.remains))
