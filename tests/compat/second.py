"""A second reader of stores, written from FORMAT.md alone: it imports nothing of castlog.

It is slow and plain on purpose. What it finds in a store or a vector must be what castlog finds.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import zstandard
from blake3 import blake3

# --- MessagePack in shortest form -----------------------------------------------------------


def pack(value: Any) -> bytes:
    """Return a value's MessagePack, every part of it in the shortest form."""
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        return _pack_int(value)
    if isinstance(value, str):
        data = value.encode("utf-8")
        return _head(len(data), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + data
    if isinstance(value, bytes):
        return _head(len(value), 0, 0, (0xC4, 0xC5, 0xC6)) + value
    if isinstance(value, dict):
        items = b"".join(pack(key) + pack(item) for key, item in value.items())
        return _head(len(value), 0x80, 16, (None, 0xDE, 0xDF)) + items
    return _head(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(pack, value))


def _pack_int(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack(">b", value) if value < 0 else bytes([value])
    codes = ((0xCC, "B"), (0xCD, "H"), (0xCE, "I"), (0xCF, "Q"))
    if value < 0:
        codes = ((0xD0, "b"), (0xD1, "h"), (0xD2, "i"), (0xD3, "q"))
    for code, width in codes:
        try:
            return struct.pack(f">B{width}", code, value)
        except struct.error:
            continue
    raise ValueError(value)


def _head(count: int, fixed: int, below: int, codes: tuple[int | None, ...]) -> bytes:
    if count < below:
        return bytes([fixed | count])
    for code, width, limit in zip(codes, "BHI", (1 << 8, 1 << 16, 1 << 32), strict=True):
        if code is not None and count < limit:
            return struct.pack(f">B{width}", code, count)
    raise ValueError(count)


def unpack(data: bytes) -> Any:
    """Return the one value of MessagePack bytes; arrays come as lists."""
    value, end = _unpack(data, 0)
    assert end == len(data), "bytes behind the value"
    return value


_LENGTHS = {
    0xC4: "B",
    0xC5: "H",
    0xC6: "I",
    0xD9: "B",
    0xDA: "H",
    0xDB: "I",
    0xDC: "H",
    0xDD: "I",
    0xDE: "H",
    0xDF: "I",
}
_NUMBERS = {0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    code = data[at]
    at += 1
    if code < 0x80 or code >= 0xE0:
        return (code if code < 0x80 else code - 256), at
    if code == 0xC0:
        return None, at
    if code in _NUMBERS:
        width = struct.calcsize(_NUMBERS[code])
        return struct.unpack_from(f">{_NUMBERS[code]}", data, at)[0], at + width
    if code in _LENGTHS:
        (count,) = struct.unpack_from(f">{_LENGTHS[code]}", data, at)
        at += struct.calcsize(_LENGTHS[code])
    else:
        count = code & (0x1F if code >= 0xA0 else 0x0F)
    if 0xA0 <= code < 0xC0 or code in (0xD9, 0xDA, 0xDB):
        return data[at : at + count].decode("utf-8"), at + count
    if code in (0xC4, 0xC5, 0xC6):
        return data[at : at + count], at + count
    assert 0x80 <= code < 0xA0 or code >= 0xDC, hex(code)
    is_map = code < 0x90 or code in (0xDE, 0xDF)
    items = []
    for _ in range(2 * count if is_map else count):
        item, at = _unpack(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if is_map else items), at


# --- identity -------------------------------------------------------------------------------


def derive(context: str, data: bytes) -> bytes:
    """Return a digest in derive-key mode."""
    return blake3(data, derive_key_context=context).digest()


def keyed(key: bytes, data: bytes) -> bytes:
    """Return a keyed digest."""
    return blake3(data, key=key).digest()


def genesis_of(session: bytes, created: int, parent: bytes | None, salt: bytes) -> bytes:
    """Return a session's genesis digest."""
    salt_digest = derive("castlog v1 salt", salt)
    return derive("castlog v1 genesis", pack([1, session, created, parent, salt_digest]))


def event_id_of(parent: bytes, header: list[Any], commitment: bytes) -> bytes:
    """Return an event's id; `header` is seq, ts, type, schema, harness version, call ids, key."""
    return derive("castlog v1 event id", parent + pack(header) + commitment)


def short_name(text: str) -> bytes:
    """Return the 16 bytes that stand for a key or an origin."""
    return derive("castlog v1 short name", text.encode("utf-8"))[:16]


# --- rows, objects, chunks ------------------------------------------------------------------


def read_row(key: bytes, value: bytes) -> Any:
    """Return a row's fields, its checksum checked."""
    assert zlib.crc32(key + value[:-4]) == int.from_bytes(value[-4:], "little"), "checksum"
    return unpack(value[:-4])


def write_row(key: bytes, fields: Any) -> bytes:
    """Return the value of a row."""
    body = pack(fields)
    return body + zlib.crc32(key + body).to_bytes(4, "little")


def read_object(secret: bytes, blob: bytes, dictionaries: Callable[[int], bytes] | None = None) -> tuple[int, bytes]:
    """Return an object's kind and uncompressed bytes, its digest checked; dictionaries are had by their numbers."""
    kind, codec, dictionary, length, digest = struct.unpack_from("<BBHQ32s", blob)
    frame = blob[44:]
    words = None
    if dictionary:
        assert codec == 1
        assert dictionaries is not None
        words = zstandard.ZstdCompressionDict(dictionaries(dictionary))
    data = frame if codec == 0 else zstandard.ZstdDecompressor(words).decompress(frame, max_output_size=length)
    assert codec in (0, 1)
    assert len(data) == length
    assert keyed(secret, bytes([kind]) + data) == digest, "digest"
    return kind, data


class Found(NamedTuple):
    """An event as this reader finds it. `payload` is None for a tombstone of which nothing remains."""

    header: list[Any]
    commitment: bytes
    id: bytes
    form: int | None
    payload: bytes | None


class Chunk(NamedTuple):
    """A chunk's header and, for each record, the bytes in its place of the payload section."""

    session: bytes
    first: int
    last: int
    parent: bytes
    last_id: bytes
    open: list[Any]
    pieces: list[bytes]
    records: list[Any]
    unlisted: int
    slots: list[bytes]


def read_chunk(data: bytes) -> Chunk:
    """Return a chunk's parts."""
    magic, head, body = struct.unpack_from("<4sIQ", data)
    assert magic == b"CLC1"
    assert len(data) == 16 + head + body
    fields = unpack(data[16 : 16 + head])
    section, slots = data[16 + head :], []
    at = 1
    for record in fields[7]:
        size, stored = record[6], record[7]
        width = size if stored is None or (stored[0] == 4 and stored[3]) else 4
        slots.append(section[at : at + width])
        at += width
        assert section[at : at + 1] == (b"]" if len(slots) == len(fields[7]) else b",")
        at += 1
    assert section[:1] == b"["
    assert at == len(section)
    return Chunk(*fields, slots)


class Reader:
    """A store as its rows, which must fit in memory."""

    def __init__(self, rows: Mapping[bytes, bytes]) -> None:
        self.rows = rows
        self.keys = sorted(rows)
        self.version, self.secret, *_ = self.row(b"M")
        assert self.version == 1

    def row(self, key: bytes) -> Any:
        """Return the fields of the row under a key."""
        return read_row(key, self.rows[key])

    def under(self, prefix: bytes) -> list[bytes]:
        """Return the keys that begin with a prefix, in order."""
        found = []
        for key in self.keys[bisect_left(self.keys, prefix) :]:
            if not key.startswith(prefix):
                break
            found.append(key)
        return found

    def object(self, number: int) -> tuple[int, bytes]:
        """Return an object by its number."""
        parts = self.under(b"X" + struct.pack(">Q", number))
        assert [struct.unpack(">H", key[9:])[0] for key in parts] == list(range(len(parts)))
        return read_object(self.secret, b"".join(self.rows[key] for key in parts), self.dictionary)

    def dictionary(self, number: int) -> bytes:
        """Return a dictionary by its number."""
        kind, data = self.object(self.row(b"Z" + struct.pack(">H", number))[0])
        assert kind == 5
        return data

    def piece(self, digest: bytes) -> bytes:
        """Return a piece by its digest."""
        number, offset, length = self.row(b"P" + digest)
        kind, data = self.object(number)
        assert kind == 3
        piece = data[offset : offset + length]
        assert keyed(self.secret, b"\x02" + piece) == digest
        return piece

    def events(self, session: bytes, timeline: int, last: int) -> list[Found]:
        """Return events 1 to `last` of the history that ends on a timeline, every id computed from genesis on."""
        created, salt, genesis, _, _, _, parent_call, *_ = self.row(b"S" + session)
        assert genesis == genesis_of(session, created, parent_call and parent_call[3], salt)
        owned: list[tuple[int, int, int]] = []
        while timeline:
            start = self.row(_cluster(timeline, 0))
            owned.append((timeline, start[2] + 1, last))
            timeline, last = start[1], start[2]
        assert last == 0
        found: list[Found] = []
        parent = genesis
        for timeline, first, end in reversed(owned):
            assert self.row(_cluster(timeline, 0))[3] == parent
            for seq in range(first, end + 1):
                event = self._event(salt, timeline, seq, parent)
                found.append(event)
                parent = event.id
        return found

    def _event(self, salt: bytes, timeline: int, seq: int, parent: bytes) -> Found:
        tail_last, tail_id, sealed, _ = self.row(_cluster(timeline, 3))
        assert seq <= tail_last
        if seq <= sealed:
            at = bisect_left(self.keys, _cluster(timeline, 1, seq))
            first, number, offset, length, before, last_id = self.row(self.keys[at])
            kind, data = self.object(number)
            assert kind == 1
            chunk = read_chunk(data[offset : offset + length])
            assert (chunk.first, chunk.parent, chunk.last_id) == (first, before, last_id)
            index = seq - first
            assert seq != first or before == parent
            record, inline, table = chunk.records[index], chunk.slots[index], chunk.pieces
            known = last_id if seq == chunk.last else None
        else:
            before, known, record, inline, table = self.row(_cluster(timeline, 2, seq))
            assert before == parent
        event = found_in(salt, parent, seq, record, inline, [self.piece(d) for d in _used(record, table)])
        assert known in (None, event.id)
        assert seq != tail_last or tail_id == event.id
        return event

    def branches(self, session: bytes) -> dict[str, tuple[int, int, bytes]]:
        """Return the heads of a session's branches by name."""
        heads = {}
        for key in self.under(b"B" + session):
            number = self.row(key)[0]
            if number:
                ref = self.row(b"R" + struct.pack(">QB", number, 0))
                assert ref[1] == key[17:].decode("utf-8")
                heads[ref[1]] = (ref[2], ref[3], ref[4])
        return heads


def _cluster(timeline: int, kind: int, seq: int | None = None) -> bytes:
    return b"T" + struct.pack(">QB", timeline, kind) + (b"" if seq is None else struct.pack(">Q", seq))


def _used(record: list[Any], table: list[bytes]) -> list[bytes]:
    return [table[index] for index in record[7][2]] if record[7] else []


def found_in(salt: bytes, parent: bytes, seq: int, record: list[Any], inline: bytes, pieces: list[bytes]) -> Found:
    """Return the event of a record, its stored bytes checked; `pieces` are those of its recipe, in order."""
    *header, size, stored = record
    header = [seq, *header]
    if stored is None:
        commitment = keyed(salt, inline)
        return Found(header, commitment, event_id_of(parent, header, commitment), None, inline)
    form, commitment, recipe, remains, data = stored
    payload: bytes | None = b"".join(pieces) if recipe else data or inline
    if form == 4 and not remains:
        payload = None
    else:
        assert payload is not None
        assert keyed(salt, payload) == (remains or commitment), "commitment"
    assert len(payload or b"") == size
    return Found(header, commitment, event_id_of(parent, header, commitment), form, payload)
