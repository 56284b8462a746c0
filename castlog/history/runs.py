"""Runs: decoded stretches of one timeline's events, from a sealed chunk or an open one, behind one face.

A run checks what it hands out: a sealed one by its object's digest, an open one by each event's id, a payload in pieces
by the pieces' digests and the event's commitment. It keeps no transaction; pieces are fetched through a function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from castlog.errors import Corrupt, Unavailable
from castlog.format import chunk, codec, identity
from castlog.format.chunk import OpenCall
from castlog.format.record import ENCRYPTED, TOMBSTONE, Record, Stored, TailRecord, header

Fetch = Callable[[Sequence[bytes]], bytes]


class Run(ABC):
    """Consecutive events of one timeline, decoded but for their payloads."""

    def __init__(self, salt: bytes, first: int, parent: bytes, records: Sequence[Record]) -> None:
        self.salt = salt
        self.first = first
        self.last = first + len(records) - 1
        self.parent = parent
        self.records = records
        self._ids: list[bytes] = []

    @abstractmethod
    def inline(self, index: int) -> bytes:
        """Return the payload bytes that lie in the run itself."""

    @abstractmethod
    def pieces(self, index: int) -> list[bytes]:
        """Return the digests of the pieces a payload was cut into."""

    def raws(self) -> list[bytes | None]:
        """Return all payloads' bytes, with None for those that do not lie whole in the run."""
        return [None if record.stored else self.inline(index) for index, record in enumerate(self.records)]

    def payloads(self, fetch: Fetch) -> list[Any]:
        """Return all payloads decoded."""
        return [codec.decode(raw) if (raw := self.raw(i, fetch)) else None for i in range(len(self.records))]

    def raw(self, index: int, fetch: Fetch) -> bytes:
        """Return stored payload bytes; empty when a tombstone left nothing. Raises Corrupt."""
        record = self.records[index]
        stored = record.stored
        if stored is None:
            return self.inline(index)
        if stored.form & TOMBSTONE and not stored.remains:
            return b""
        if stored.recipe:
            data = fetch(self.pieces(index))
            if len(data) != record.size or not covers(stored, self.salt, data):
                raise Corrupt(f"the payload of seq {self.first + index} is not what was committed to")
            return data
        return stored.data if stored.form & ENCRYPTED else self.inline(index)

    def commitment(self, index: int) -> bytes:
        """Return what the event's id covers of its payload."""
        stored = self.records[index].stored
        return identity.commitment(self.salt, self.inline(index)) if stored is None else stored.commitment

    def event_id(self, index: int) -> bytes:
        """Return an event's id, chained from the run's parent on first use."""
        ids = self._ids
        if len(ids) <= index:
            # Runs are shared by threads: grow a copy and replace the list in one step, by doubling.
            ids = ids.copy()
            for at in range(len(ids), min(max(index + 1, 2 * len(ids)), len(self.records))):
                head = header(self.first + at, self.records[at])
                parent = ids[-1] if ids else self.parent
                ids.append(identity.event_id(parent, head, self.commitment(at)))
            self._ids = ids
        return ids[index]

    @abstractmethod
    def size_in_memory(self) -> int:
        """Return roughly how many bytes keeping the run costs."""


class SealedRun(Run):
    """The events of a chunk."""

    def __init__(self, salt: bytes, head: chunk.ChunkHeader, body: bytes) -> None:
        super().__init__(salt, head.first_seq, head.parent, head.records)
        self.head = head
        self.open: tuple[OpenCall, ...] | None = head.open
        self._body = body
        self._starts: list[int] | None = None

    def inline(self, index: int) -> bytes:
        """Return a slice of the payload section."""
        if self._starts is None:
            self._starts = chunk.slots(self.records)
        start = self._starts[index]
        return self._body[start : start + self.records[index].size]

    def raws(self) -> list[bytes | None]:
        """Return slices of the payload section, cut in one loop: asked for singly they cost three times as much."""
        body = self._body
        return [
            body[start : start + record.size] if record.stored is None else None
            for start, record in zip(chunk.slots(self.records), self.records, strict=True)
        ]

    def pieces(self, index: int) -> list[bytes]:
        """Return the digests a recipe points at in the chunk's table."""
        return _look_up(self.head.pieces, self.records[index])

    def payloads(self, fetch: Fetch) -> list[Any]:
        """Return all payloads, the inline ones decoded in one call."""
        values: list[Any] = codec.decode(self._body)
        for index, record in enumerate(self.records):
            if record.stored is not None:
                raw = self.raw(index, fetch)
                values[index] = codec.decode(raw) if raw else None
        return values

    def size_in_memory(self) -> int:
        """Return the payload section and a guess at what the header's objects take."""
        return len(self._body) + 600 * len(self.records)


class OpenRun(Run):
    """Events of an open chunk. Building one checks every event's id."""

    def __init__(self, salt: bytes, first: int, tail: Sequence[TailRecord]) -> None:
        super().__init__(salt, first, tail[0].parent, [item.record for item in tail])
        self._tail = tail
        parent = self.parent
        for index, item in enumerate(tail):
            expected = identity.event_id(parent, header(first + index, item.record), self.commitment(index))
            if item.parent != parent or item.id != expected or not self._is_whole(item):
                raise Corrupt(f"the record of seq {first + index} does not match its id", seq=first + index)
            parent = item.id
        self._ids = [item.id for item in tail]

    def inline(self, index: int) -> bytes:
        """Return the payload in the record."""
        return self._tail[index].payload

    def pieces(self, index: int) -> list[bytes]:
        """Return the digests a recipe points at in the record's table."""
        return _look_up(self._tail[index].pieces, self.records[index])

    def size_in_memory(self) -> int:
        """Return the payloads and a guess at what the records' objects take."""
        return sum(len(item.payload) + 600 for item in self._tail)

    def _is_whole(self, item: TailRecord) -> bool:
        """Return whether a record holds the bytes it should; those in pieces are checked when they are fetched."""
        stored = item.record.stored
        if stored is None:
            return len(item.payload) == item.record.size  # the id covers the bytes themselves
        if stored.recipe:
            return True
        if stored.form & TOMBSTONE and not stored.remains:
            return item.record.size == 0
        data = stored.data if stored.form & ENCRYPTED else item.payload
        return len(data) == item.record.size and covers(stored, self.salt, data)


def covers(stored: Stored, salt: bytes, data: bytes) -> bool:
    """Return whether these are the bytes a record says it stores now: the original's, or what a tombstone left."""
    return identity.commitment(salt, data) == (stored.remains or stored.commitment)


def _look_up(table: Sequence[bytes], record: Record) -> list[bytes]:
    assert record.stored is not None
    try:
        return [table[index] for index in record.stored.recipe]
    except IndexError as exc:
        raise Corrupt("a recipe points beyond the table of pieces") from exc


class Page:
    """A run as the source of the events one reader was given: decodes payloads singly, or all at the first asked for.

    With `bulk` each of `decoded` is handed out once, so no two events share an object that a caller may change. When
    one payload of the run cannot be had, the others still are, singly.
    """

    __slots__ = ("_bulk", "_fetch", "_raws", "decoded", "run")

    def __init__(self, run: Run, fetch: Fetch, *, bulk: bool) -> None:
        self.run = run
        self._fetch = fetch
        self._bulk = bulk
        self._raws: list[bytes | None] | None = None
        self.decoded: list[Any] | None = None

    def raw(self, index: int) -> bytes:
        """Return the stored payload bytes of the event at `index`."""
        if self._bulk and self._raws is None:
            self._raws = self.run.raws()
        data = None if self._raws is None else self._raws[index]
        return self.run.raw(index, self._fetch) if data is None else data

    def payload(self, index: int) -> Any:
        """Return the decoded payload of the event at `index`."""
        if self._bulk and self.decoded is None:
            try:
                self.decoded = self.run.payloads(self._fetch)
            except Corrupt:
                self._bulk = False
        if self.decoded is not None:
            return self.decoded[index]
        if self.locked(index):
            seq = self.run.first + index
            raise Unavailable(f"the payload of seq {seq} is locked; this castlog has no keys", seq=seq)
        raw = self.raw(index)
        return codec.decode(raw) if raw else None

    def event_id(self, index: int) -> bytes:
        """Return the 32-byte id of the event at `index`."""
        return self.run.event_id(index)

    def size(self, index: int) -> int:
        """Return the length of the payload in bytes."""
        return self.run.records[index].size

    def commitment(self, index: int) -> bytes:
        """Return the commitment the event's id covers."""
        return self.run.commitment(index)

    def locked(self, index: int) -> bool:
        """Return whether the event's stored bytes are ciphertext."""
        stored = self.run.records[index].stored
        return stored is not None and bool(stored.form & ENCRYPTED)

    def redacted(self, index: int) -> bool:
        """Return whether the event is a tombstone."""
        stored = self.run.records[index].stored
        return stored is not None and bool(stored.form & TOMBSTONE)
