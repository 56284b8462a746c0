"""The rows of a rewritten store, in key order, out of one read transaction: copied, placed anew, or compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.event import Progress
from castlog.format import objects as fmt
from castlog.format import rows, snapshot
from castlog.history import reader, tables
from castlog.history.objects import Objects
from castlog.ops.compact import dictionary, lines
from castlog.ops.compact.layout import Chunks, Pieces
from castlog.ops.compact.press import Frame, Press

Row = tuple[bytes, bytes]


class Done(msgspec.Struct, frozen=True):
    """What a rewritten store holds."""

    raw: int = 0
    chunks: int = 0
    pieces: int = 0
    objects: int = 0
    dictionary: int = 0


class _Ends(NamedTuple):
    """The ends of some events of a timeline: their seqs, and the ids before the first and of the last."""

    timeline: int
    first: int
    last: int
    parent: bytes
    last_id: bytes


class Rewrite:
    """Makes the rows, as often as it is asked to; `done` is of the last time.

    `refused` is what `progress` raised. What it keeps for another time lies in `folder`, if that has room.
    """

    def __init__(self, secret: bytes, progress: Callable[[Progress], None] | None, folder: Path | None = None) -> None:
        self.done = Done()
        self.refused: BaseException | None = None
        self._folder = folder
        self._secret = secret
        self._progress = progress
        self._press: Press | None = None  # good for a second time, with the dictionary of the first

    def close(self) -> None:
        """Forget what was kept for another time."""
        if self._press is not None:
            self._press.close()

    def rows(self, txn: ReadTxn) -> Iterator[Row]:
        """Yield every row of the new store; raises Corrupt naming what of the old one cannot be verified."""
        old = Objects(self._secret)  # with a cache of its own: the store's would be flushed, and may be out of date
        counters = tables.get(txn, rows.COUNTERS) or rows.Counters()
        pieces, chunks = Pieces(txn), Chunks(txn, old)
        raw = pieces.frames.bytes + chunks.frames.bytes
        packs, count = len(pieces.frames), len(pieces.frames) + len(chunks.frames)

        def frame(index: int) -> bytes:
            return pieces.content(txn, old, index) if index < packs else chunks.content(txn, old, index - packs)

        if self._press is None:
            trained = _dictionary(txn, self._secret, count, raw, frame)
            self._press = Press(self._secret, trained, self._folder)
        press, trained = self._press, self._press.dictionary
        first_frame = counters.object + (0 if trained is None else 1)
        yield from _copies(txn, b"\0", rows.COUNTERS.letter)
        yield from _counters(txn, counters, first_frame + count)
        yield from _copies(txn, rows.after(rows.COUNTERS.letter), rows.PIECES.letter)
        yield from _piece_rows(txn, pieces, first_frame)
        yield from _copies(txn, rows.after(rows.PIECES.letter), rows.TIMELINES.letter)
        yield from _timeline_rows(txn, chunks, first_frame + packs)
        yield from _copies(txn, rows.after(rows.TIMELINES.letter), rows.PART_LETTER)
        numbers = sorted({row.object for _, row in tables.scan(txn, rows.SNAPSHOTS)})
        for number, (blob, _) in zip(numbers, press.objects(_snapshots(txn, old, numbers)), strict=True):
            yield from _parts(number, blob)
        if trained is not None:
            yield from _parts(counters.object, dictionary.encode(self._secret, trained))
        frames = ((fmt.PACK if index < packs else fmt.CHUNK, frame(index)) for index in range(count))
        done = 0
        for number, (blob, length) in enumerate(press.objects(frames), first_frame):
            yield from _parts(number, blob)
            done += length
            self._tell(Progress(done, raw, "bytes"))
        yield from _copies(txn, rows.after(rows.PART_LETTER), rows.DICTIONARIES.letter)
        if trained is not None:
            yield _row(rows.DICTIONARIES, rows.Dictionary(counters.object), trained.number)
        yield from _copies(txn, rows.after(rows.DICTIONARIES.letter), None)
        size = 0 if trained is None else len(trained.data)
        self.done = Done(raw, len(chunks), len(pieces), count + len(numbers) + (0 if trained is None else 1), size)

    def _tell(self, progress: Progress) -> None:
        if self._progress is None:
            return
        try:
            self._progress(progress)
        except BaseException as error:
            self.refused = error
            raise


def _snapshots(txn: ReadTxn, old: Objects, numbers: Iterable[int]) -> Iterator[Frame]:
    """Yield the kind and the bytes of snapshots, which keep their numbers."""
    for number in numbers:
        item = old.read(txn, number)
        if item.kind != fmt.SNAPSHOT:
            raise Corrupt(f"object {number} is not a snapshot", object=number)
        lines.require_pieces(txn, snapshot.decode(item.data).pieces)
        yield item.kind, item.data


def _dictionary(
    txn: ReadTxn, secret: bytes, count: int, raw: int, frame: Callable[[int], bytes]
) -> fmt.Dictionary | None:
    """Return a dictionary under a number that none has now, or None where none pays."""
    taken = {rows.DICTIONARIES.fields(key)[0] for key, _ in tables.scan(txn, rows.DICTIONARIES)}
    number = next(number for number in range(1, 1 << 16) if number not in taken)
    return dictionary.train(secret, number, count, raw, frame)


def _copies(txn: ReadTxn, start: bytes, stop: bytes | None) -> Iterator[Row]:
    for key, value in txn.scan(start, stop):
        yield _sound(key, value)


def _counters(txn: ReadTxn, counters: rows.Counters, following: int) -> Iterator[Row]:
    if following != counters.object:
        yield _row(rows.COUNTERS, msgspec.structs.replace(counters, object=following))
    else:
        yield from _copies(txn, rows.COUNTERS.letter, rows.after(rows.COUNTERS.letter))


def _piece_rows(txn: ReadTxn, pieces: Pieces, first_object: int) -> Iterator[Row]:
    letter = rows.PIECES.letter
    for index, (key, _) in enumerate(txn.scan(letter, rows.after(letter))):
        yield key, rows.PIECES.encode(key, pieces.place(index, first_object))


def _timeline_rows(txn: ReadTxn, chunks: Chunks, first_object: int) -> Iterator[Row]:
    """Yield the rows of all timelines: chunks where they will lie, in the place of old ones and of open records."""
    letter = rows.TIMELINES.letter
    parent = b""
    for key, value in txn.scan(letter, rows.after(letter)):
        ends = _ends(key, value)
        if ends is not None:
            chunk = chunks.holding(ends.timeline, ends.last)
            if ends.first == chunks.first(chunk):
                parent = ends.parent
            if ends.last == chunks.last(chunk):
                place = chunks.place(chunk, first_object, parent, ends.last_id)
                yield _row(rows.CHUNKS, place, ends.timeline, ends.last)
        elif rows.TAILS.owns(key):
            tail = rows.TAILS.decode(key, value)
            yield key, rows.TAILS.encode(key, msgspec.structs.replace(tail, sealed=tail.last, size=0))
        else:
            yield _sound(key, value)


def _ends(key: bytes, value: bytes) -> _Ends | None:
    """Return what a row of a chunk or a record says about its ends; None for a row of another table."""
    if rows.CHUNKS.owns(key):
        row = rows.CHUNKS.decode(key, value)
        timeline, last = rows.CHUNKS.fields(key)
        assert isinstance(timeline, int)
        assert isinstance(last, int)
        return _Ends(timeline, row.first, last, row.parent, row.last_id)
    if rows.is_record(key):
        record = reader.open_record(key, value)
        seq = rows.record_seq(key)
        return _Ends(int.from_bytes(key[1:9], "big"), seq, seq, record.parent, record.id)
    return None


def _sound(key: bytes, value: bytes) -> Row:
    """Return a row as it is; raises Corrupt for one that fails its checksum."""
    if rows.guarded(key, value) is None:
        raise Corrupt(f"the row {key.hex()} fails its checksum", key=key.hex())
    return key, value


def _parts(number: int, blob: bytes) -> Iterator[Row]:
    for part, data in enumerate(fmt.split(blob)):
        yield rows.part_key(number, part), data


def _row(table: rows.Table[rows.RowType], row: rows.RowType, *fields: int | bytes) -> Row:
    key = table.key(*fields)
    return key, table.encode(key, row)
