"""Tables: the key and the value of every row.

All tables lie in one ordered map; a key is a table's letter and big-endian fields of fixed width, so that byte order is
the order people mean. A value is a MessagePack array and ends with a CRC-32 over key and value: the engine has no
checksums of its own, and a row that moved or changed must not be believed.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Generic, TypeVar

import msgspec

from castlog.errors import Corrupt
from castlog.format.chunk import OpenCall
from castlog.format.identity import short_digest

# The version of everything in this folder. A store says which one wrote it; see FORMAT.md.
OLDEST_READ = 1
NEWEST_READ = 1
WRITTEN = 1

CRC_BYTES = 4


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """The store itself: format version, secret, when it was made, and which version of the cutter cuts its pieces."""

    version: int
    secret: bytes
    created: int
    cutter: int = 1


class Counters(msgspec.Struct, frozen=True, array_like=True):
    """The next number of each kind. Numbers are never used twice, not even after gc."""

    branch: int = 1
    timeline: int = 1
    object: int = 1
    trashed: int = 1


class Head(msgspec.Struct, frozen=True, array_like=True):
    """HEAD: the branch that `checkout` made current."""

    session: bytes
    branch: int


class ParentCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The call that started a session. All but `id` is for finding it; the id is what genesis covers."""

    session: bytes
    seq: int
    call_id: str | None
    id: bytes


class Session(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A session: what genesis covers, and what people may change.

    `salt_digest` is filled only when the salt itself is gone, so that genesis can still be checked.
    """

    created: int
    salt: bytes
    genesis: bytes
    title: str
    labels: dict[str, str]
    origin: str | None = None
    parent: ParentCall | None = None
    deleted: int | None = None
    salt_digest: bytes = b""


class Name(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a name means: a branch by its number, or (branch 0) a tag fixed to a place."""

    branch: int
    timeline: int = 0
    seq: int = 0
    id: bytes = b""
    created: int = 0


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A branch: the truth about its head. `id` is empty until somebody needs the id of a fork point inside a chunk.

    `operation`, `start` and `note` say how it began; the reflog holds what moved it since. `events` and `size` count
    what was written through it and its payload bytes, `active` is the newest of those events' times, `appended` when
    castlog last wrote one.
    """

    session: bytes
    name: str
    timeline: int
    seq: int
    id: bytes
    created: int
    operation: str
    start: int
    note: str
    deleted: int | None = None
    events: int = 0
    size: int = 0
    active: int = 0
    appended: int = 0


class Move(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a branch's reflog: everything that moved it except appends."""

    ts: int
    operation: str
    old_timeline: int
    old_seq: int
    old_id: bytes
    new_timeline: int
    new_seq: int
    new_id: bytes
    note: str = ""


class Timeline(msgspec.Struct, frozen=True, array_like=True):
    """The run of events one branch wrote since it forked. Never changes.

    `parent` 0 means it starts at the session's genesis. `jump` is the skew-binary jump pointer (Myers 1983, "An
    applicative random-access stack").
    """

    session: bytes
    parent: int
    fork_seq: int
    fork_id: bytes
    depth: int
    jump: int


class Tail(msgspec.Struct, frozen=True, array_like=True):
    """Where a timeline ends: its last seq and id never fall. Events after `sealed` lie in the open chunk."""

    last: int
    last_id: bytes
    sealed: int
    size: int


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Where a sealed chunk lies, and the ids at both ends. Its last seq is in the key."""

    first: int
    object: int
    offset: int
    length: int
    parent: bytes
    last_id: bytes


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Where a piece lies: a stretch of an object."""

    object: int
    offset: int
    length: int


class Seq(msgspec.Struct, frozen=True, array_like=True):
    """A seq, for an idempotency key."""

    seq: int


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """The session that came from a foreign id."""

    origin: str
    session: bytes


class Child(msgspec.Struct, frozen=True, array_like=True):
    """A sub-agent's session, under the session whose call started it."""

    call_id: str | None


class Trash(msgspec.Struct, frozen=True, array_like=True):
    """A deleted session (branch 0) or branch, newest last."""

    deleted: int
    session: bytes
    branch: int


class Dictionary(msgspec.Struct, frozen=True, array_like=True):
    """Where a dictionary lies: in an object of its own."""

    object: int


class SnapshotRow(msgspec.Struct, frozen=True, array_like=True):
    """Where a snapshot lies, and when it was made. What it was folded with is a digest in the key."""

    object: int
    created: int


RowType = TypeVar("RowType", bound=msgspec.Struct)

_encode = msgspec.msgpack.Encoder().encode
_crc = struct.Struct("<I")
_RESIDUE = 0x2144DF1C  # the CRC-32 of any bytes that end with their own CRC-32


def guard(key: bytes, body: bytes) -> bytes:
    """Return a row's value: its body, and a checksum over key and body."""
    return body + _crc.pack(zlib.crc32(body, zlib.crc32(key)))


def guarded(key: bytes, value: bytes) -> bytes | None:
    """Return the body of a row's value, or None when the checksum does not fit."""
    return value[:-CRC_BYTES] if zlib.crc32(value, zlib.crc32(key)) == _RESIDUE else None


class Table(Generic[RowType]):
    """A table: makes its keys, encodes and decodes its rows. `layout` is a struct format without the letter."""

    def __init__(self, letter: bytes, layout: str, row: type[RowType]) -> None:
        self.letter = letter
        self.row = row
        self._struct = struct.Struct(">c" + layout)
        self._decode = msgspec.msgpack.Decoder(row).decode

    def key(self, *fields: int | bytes) -> bytes:
        """Return the key of the row with these fields."""
        return self._struct.pack(self.letter, *fields)

    def fields(self, key: bytes) -> tuple[int | bytes, ...]:
        """Return the fields of a key, the letter left out."""
        return self._struct.unpack(key)[1:]

    def prefix(self, *fields: bytes) -> bytes:
        """Return what the keys of all rows with these first fields begin with."""
        return b"".join((self.letter, *fields))

    def owns(self, key: bytes) -> bool:
        """Return whether a key that begins with the letter is one of this table's."""
        return True

    def encode(self, key: bytes, row: RowType) -> bytes:
        """Return a row's bytes."""
        body = _encode(row)
        return body + _crc.pack(zlib.crc32(body, zlib.crc32(key)))

    def decode(self, key: bytes, value: bytes) -> RowType:
        """Return the row; raises Corrupt when its checksum or shape is wrong."""
        body = guarded(key, value)
        if body is None:
            raise Corrupt(f"a row of table {self.name} fails its checksum", table=self.name, key=key.hex())
        try:
            return self._decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Corrupt(f"a row of table {self.name} does not decode", table=self.name, key=key.hex()) from exc

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.row.__name__.lower()


class Clustered(Table[RowType]):
    """A table whose rows lie together with other tables' rows about the same number: letter, number, kind, the rest.

    What one append or one fork changes then lies in few leaves of the engine's tree, and each leaf is a page to write.
    """

    def __init__(self, letter: bytes, kind: int, layout: str, row: type[RowType]) -> None:
        super().__init__(letter, f"QB{layout}", row)
        self.kind = kind

    def key(self, *fields: int | bytes) -> bytes:
        """Return the key of the row with these fields, the number first."""
        return self._struct.pack(self.letter, fields[0], self.kind, *fields[1:])

    def fields(self, key: bytes) -> tuple[int | bytes, ...]:
        """Return the fields of a key, letter and kind left out."""
        _, number, _, *rest = self._struct.unpack(key)
        return number, *rest

    def prefix(self, *fields: bytes) -> bytes:
        """Return what the keys of all rows about a number begin with; without one, the letter."""
        return b"".join((self.letter, fields[0], bytes((self.kind,)), *fields[1:])) if fields else self.letter

    def owns(self, key: bytes) -> bool:
        """Return whether a key that begins with the letter is of this table's kind."""
        return len(key) > _KIND_AT and key[_KIND_AT] == self.kind


_KIND_AT = 9

# The tables. On disk: DO NOT CHANGE a letter, kind or layout; add a table or raise the version.
META = Table(b"M", "", Meta)
COUNTERS = Table(b"N", "", Counters)
HEAD = Table(b"H", "", Head)
SESSIONS = Table(b"S", "16s", Session)
ORIGINS = Table(b"O", "16s", Origin)
CHILDREN = Table(b"L", "16s16s", Child)
REFS = Clustered(b"R", 0, "", Ref)
REFLOG = Clustered(b"R", 1, "Q", Move)
TIMELINES = Clustered(b"T", 0, "", Timeline)
CHUNKS = Clustered(b"T", 1, "Q", Chunk)
_RECORD_KIND = 2  # between the chunks and the tail, so that the newest record lies beside the tail
TAILS = Clustered(b"T", 3, "", Tail)
IN_FLIGHT = Clustered(b"T", 4, "16s", OpenCall)
OPEN_AT_FORK = Clustered(b"T", 5, "16s", OpenCall)
PIECES = Table(b"P", "32s", Piece)
KEYS = Table(b"K", "16s16sQ", Seq)
TRASH = Table(b"D", "Q", Trash)
SNAPSHOTS = Table(b"I", "Q16sQ", SnapshotRow)
DICTIONARIES = Table(b"Z", "H", Dictionary)

# Three tables whose keys or values are of another form.
_NAME_LETTER = b"B"  # session, then the name's UTF-8
_RECORD = struct.Struct(">cQBQ")  # timeline, kind, seq -> a record, checksum as in the others
_PART = struct.Struct(">cQH")  # object, part -> bytes, which the object's digest checks


class _Names(Table[Name]):
    def __init__(self) -> None:
        super().__init__(_NAME_LETTER, "16s", Name)

    def of(self, session: bytes, name: str) -> bytes:
        """Return the key of a name."""
        return self.key(session) + name.encode("utf-8")

    def name_in(self, key: bytes) -> str:
        """Return the name in a key."""
        return key[self._struct.size :].decode("utf-8")


NAMES = _Names()


def record_key(timeline: int, seq: int) -> bytes:
    """Return the key of a record in a timeline's open chunk."""
    return _RECORD.pack(TIMELINES.letter, timeline, _RECORD_KIND, seq)


def is_record(key: bytes) -> bool:
    """Return whether a key of a timeline's rows is a record's."""
    return len(key) > _KIND_AT and key[_KIND_AT] == _RECORD_KIND


def record_seq(key: bytes) -> int:
    """Return the seq in a record's key; raises Corrupt for a key of another shape."""
    if len(key) != _RECORD.size:
        raise Corrupt("a key among the records of an open chunk is none", table="record", key=key.hex())
    seq: int = _RECORD.unpack(key)[3]
    return seq


PART_LETTER = b"X"


def part_key(number: int, part: int) -> bytes:
    """Return the key of a part of an object."""
    return _PART.pack(PART_LETTER, number, part)


def format_version(value: bytes) -> int:
    """Return the format version in the META row of any version, newer ones included; raises Corrupt.

    Whatever else changes: that row's key is its letter, its first field is the version, and its checksum ends it.
    """
    body = guarded(META.key(), value)
    if body is None:
        raise Corrupt("the row that says the store's format fails its checksum")
    try:
        version = msgspec.msgpack.decode(body, type=list[Any])[0]
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError) as exc:
        raise Corrupt("the row that says the store's format does not decode") from exc
    if type(version) is not int:
        raise Corrupt("the row that says the store's format holds no number")
    return version


def key_digest(key: str) -> bytes:
    """Return what stands for an idempotency key, an origin or a call id in a table key."""
    return short_digest(key)


def after(prefix: bytes) -> bytes:
    """Return the first key that no longer begins with `prefix`; a prefix here never ends in only 0xff bytes."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
