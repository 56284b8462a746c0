"""One event as it is stored: in the open chunk as a record of its own, in a sealed chunk as a row of the header.

From the first version a record says how its payload lies: inline, in pieces, encrypted, or gone with a tombstone.
"""

from __future__ import annotations

import msgspec

from castlog.errors import Corrupt
from castlog.format.identity import Header
from castlog.format.ids import DIGEST_BYTES

# How a payload lies; flags in Stored.form. On disk: DO NOT RENUMBER.
PIECES = 1  # cut into pieces; `recipe` lists them
ENCRYPTED = 2  # the stored bytes are ciphertext; inline ones lie in `data`
TOMBSTONE = 4  # removed in part or whole; `commitment` is the original's, `remains` covers what is stored now
_FORMS = PIECES | ENCRYPTED | TOMBSTONE


class Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a payload lies that is not simply inline.

    `commitment` is what the event id covers. `recipe` are indexes into the piece table of the record's container.
    `remains` is the commitment to the bytes stored now, for a tombstone; empty when nothing remains.
    """

    form: int
    commitment: bytes
    recipe: tuple[int, ...] = ()
    remains: bytes = b""
    data: bytes = b""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event without its seq, ids and payload. `size` is the length of the stored payload bytes."""

    ts: int
    type: str
    schema: int
    harness_version: str | None
    call_ids: tuple[str, ...]
    key: str | None
    size: int
    stored: Stored | None = None


class TailRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event of an open chunk: both ids, so that it can be checked alone; its pieces; its payload if inline."""

    parent: bytes
    id: bytes
    record: Record
    payload: bytes
    pieces: tuple[bytes, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TailRecord).decode


def header(seq: int, record: Record) -> Header:
    """Return the hashed header of a record."""
    return Header(seq, record.ts, record.type, record.schema, record.harness_version, record.call_ids, record.key)


def check(record: Record, pieces: int) -> None:
    """Raise Corrupt unless a record's payload lies in one of the forms of FORMAT.md; `pieces` is its table's length."""
    stored = record.stored
    if stored is not None and not _is_sound(stored, record.size, pieces):
        raise Corrupt(f"a record says its payload lies in a form that does not exist ({stored.form})", form=stored.form)


def _is_sound(stored: Stored, size: int, pieces: int) -> bool:
    form, recipe, data = stored.form, stored.recipe, stored.data
    if not 0 < form <= _FORMS or len(stored.commitment) != DIGEST_BYTES:
        return False
    if len(stored.remains) not in ((0, DIGEST_BYTES) if form & TOMBSTONE else (0,)):
        return False
    if form & TOMBSTONE and not stored.remains:
        return form == TOMBSTONE and not recipe and not data and size == 0
    if form & PIECES:
        return bool(recipe) and min(recipe) >= 0 and max(recipe) < pieces and not data
    return not recipe and len(data) == (size if form & ENCRYPTED else 0)


def encode_tail(record: TailRecord) -> bytes:
    """Return the bytes of an open chunk's record."""
    return _encode(record)


def decode_tail(data: bytes) -> TailRecord:
    """Return the record of an open chunk's row; raises Corrupt for bytes of another shape."""
    try:
        tail = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Corrupt(f"a record of an open chunk does not decode: {exc}") from exc
    check(tail.record, len(tail.pieces))
    return tail
