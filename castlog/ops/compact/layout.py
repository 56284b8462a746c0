"""The plan of a rewritten store: which chunks and pieces share a frame, decided before a byte is compressed.

Rows that say where things lie come before the objects in the order of keys, so all places must be known first. They
are kept in arrays, some fifty bytes a chunk and a piece.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from castlog import limits
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.history import tables, timelines
from castlog.history.objects import Objects
from castlog.ops.compact import lines
from castlog.ops.compact.lines import Stretch


class Frames:
    """Things put one behind the other into frames of about FRAME_BYTES; says where each lies."""

    def __init__(self) -> None:
        self.starts = array("Q")  # the first thing of each frame
        self.offsets = array("Q")
        self.bytes = 0
        self._room = 0

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, length: int) -> None:
        """Place the next thing: in the frame begun last unless a new one comes nearer to the size wanted."""
        if length > 2 * self._room:
            self.starts.append(len(self.offsets))
            self._room = limits.FRAME_BYTES
        self.offsets.append(limits.FRAME_BYTES - self._room)
        self._room = max(0, self._room - length)
        self.bytes += length

    def of(self, index: int) -> int:
        """Return the frame a thing lies in, counted from 0."""
        return bisect_right(self.starts, index) - 1

    def things(self, frame: int) -> range:
        """Return which things lie in a frame."""
        end = self.starts[frame + 1] if frame + 1 < len(self.starts) else len(self.offsets)
        return range(self.starts[frame], end)


class Pieces:
    """All pieces: where they lie and where they will. Counted in the order of their digests."""

    kind = fmt.PACK

    def __init__(self, txn: ReadTxn) -> None:
        self.frames = Frames()
        self._digests = array("Q")  # eight bytes of each, enough to see that a place is another piece's
        self._objects = array("Q")
        self._offsets = array("Q")
        self._lengths = array("Q")
        for key, row in tables.scan(txn, rows.PIECES):
            self._digests.append(int.from_bytes(key[1:9], "big"))
            self._objects.append(row.object)
            self._offsets.append(row.offset)
            self._lengths.append(row.length)
        # As they were written: pieces of one payload, and of payloads that grew out of one another, lie together.
        by_place = sorted(range(len(self)), key=lambda index: (self._objects[index], self._offsets[index]))
        self._order = array("Q", by_place)
        self._ranks = array("Q", bytes(8 * len(self)))
        for rank, index in enumerate(self._order):
            self._ranks[index] = rank
            self.frames.add(self._lengths[index])

    def __len__(self) -> int:
        return len(self._digests)

    def place(self, index: int, first_object: int) -> rows.Piece:
        """Return where a piece will lie."""
        rank = self._ranks[index]
        return rows.Piece(first_object + self.frames.of(rank), self.frames.offsets[rank], self._lengths[index])

    def content(self, txn: ReadTxn, objects: Objects, frame: int) -> bytes:
        """Return the bytes of a frame, each piece verified; raises Corrupt naming the object that fails."""
        return b"".join(self._piece(txn, objects, self._order[rank]) for rank in self.frames.things(frame))

    def _piece(self, txn: ReadTxn, objects: Objects, index: int) -> bytes:
        number, offset = self._objects[index], self._offsets[index]

        def load() -> tuple[fmt.Object, int]:
            item = objects.read(txn, number)
            return item, len(item.data)

        item: fmt.Object = objects.cache.get(("pack", number), load)
        data = item.data[offset : offset + self._lengths[index]]
        digest = int.from_bytes(fmt.digest(objects.secret, fmt.PIECE, data)[:8], "big")
        if item.kind != fmt.PACK or digest != self._digests[index]:
            raise Corrupt(f"object {number} does not hold the piece its row says", object=number)
        return data


class Chunks:
    """All chunks as they will be: sessions one after another, in each the timelines in the order of their numbers."""

    kind = fmt.CHUNK

    def __init__(self, txn: ReadTxn, objects: Objects) -> None:
        self.frames = Frames()
        self._lengths = array("Q")
        self._timelines = array("Q")
        self._firsts = array("Q")
        self._lasts = array("Q")
        self._numbers = array("Q", lines.numbers(txn))
        self._starts = array("Q", bytes(8 * len(self._numbers)))  # of each timeline, its first chunk
        self._ends = array("Q", bytes(8 * len(self._numbers)))
        for at in self._by_session(txn):
            number = self._numbers[at]
            self._starts[at] = len(self)
            for stretch in _merged(lines.stretches(txn, objects, number)):
                self._add(txn, objects, number, stretch)
            self._ends[at] = len(self)

    def __len__(self) -> int:
        return len(self._lasts)

    def holding(self, timeline: int, seq: int) -> int:
        """Return the chunk that will hold a seq of a timeline."""
        at = bisect_left(self._numbers, timeline)
        return bisect_left(self._lasts, seq, self._starts[at], self._ends[at])

    def first(self, chunk: int) -> int:
        """Return the first seq of a chunk."""
        return self._firsts[chunk]

    def last(self, chunk: int) -> int:
        """Return the last seq of a chunk."""
        return self._lasts[chunk]

    def place(self, chunk: int, first_object: int, parent: bytes, last_id: bytes) -> rows.Chunk:
        """Return the row that says where a chunk will lie."""
        number = first_object + self.frames.of(chunk)
        offset, length = self.frames.offsets[chunk], self._lengths[chunk]
        return rows.Chunk(self._firsts[chunk], number, offset, length, parent, last_id)

    def content(self, txn: ReadTxn, objects: Objects, frame: int) -> bytes:
        """Return the bytes of a frame; raises Corrupt naming what cannot be verified."""
        return b"".join(self._bytes(txn, objects, chunk) for chunk in self.frames.things(frame))

    def _by_session(self, txn: ReadTxn) -> Iterable[int]:
        # Ids of sessions begin with the time they were made, so this is roughly the order they were written in.
        keys = array("Q")
        for number in self._numbers:
            keys.append(int.from_bytes(timelines.read(txn, number).session[:8], "big"))
        return array("Q", sorted(range(len(keys)), key=keys.__getitem__))

    def _add(self, txn: ReadTxn, objects: Objects, timeline: int, stretches: list[Stretch]) -> None:
        first, last, length = stretches[0].first, stretches[-1].last, stretches[0].length
        if len(stretches) > 1:
            length = len(lines.chunk_bytes(txn, objects, timeline, first, last))
        self._timelines.append(timeline)
        self._firsts.append(first)
        self._lasts.append(last)
        self._lengths.append(length)
        self.frames.add(length)

    def _bytes(self, txn: ReadTxn, objects: Objects, chunk: int) -> bytes:
        timeline, first, last = self._timelines[chunk], self._firsts[chunk], self._lasts[chunk]
        data = lines.chunk_bytes(txn, objects, timeline, first, last)
        assert len(data) == self._lengths[chunk]
        return data


def _merged(stretches: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    """Yield neighbours together as far as they fit into one chunk."""
    group: list[Stretch] = []
    size = 0
    for stretch in stretches:
        size += stretch.length
        if group and (size > limits.SEAL_BYTES or stretch.last - group[0].first >= limits.SEAL_EVENTS):
            yield group
            group, size = [], stretch.length
        group.append(stretch)
    if group:
        yield group
