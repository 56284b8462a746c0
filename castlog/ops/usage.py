"""What a store holds and what that takes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec

from castlog.core import Core
from castlog.engine.base import ReadTxn
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.history import refs, sessions, tables, timelines
from castlog.ops import walk


class Usage(msgspec.Struct, frozen=True):
    """Bytes and counts.

    `logical` is what the histories of all branches would take as separate copies, `distinct` the payload bytes of each
    event once, `stored` what that takes on disk: of a store the whole file, free pages included; of a session the rows
    and objects its events lie in, a shared piece counted in full. `kinds` divides the stored bytes.
    """

    logical: int
    distinct: int
    stored: int
    sessions: int
    branches: int
    events: int
    kinds: dict[str, int]


class _Sizes:
    """Payload bytes of a session, added up along each timeline."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._sums: dict[int, array[int]] = {}

    def add(self, timeline: int, first: int, sizes: Iterable[int]) -> None:
        self._first.setdefault(timeline, first)
        sums = self._sums.setdefault(timeline, array("Q", [0]))
        for size in sizes:
            sums.append(sums[-1] + size)

    def upto(self, timeline: int, seq: int) -> int:
        """Return the bytes of the timeline's own events up to `seq`."""
        return self._sums[timeline][seq - self._first[timeline] + 1]

    def total(self) -> int:
        return sum(sums[-1] for sums in self._sums.values())

    def events(self) -> int:
        return sum(len(sums) - 1 for sums in self._sums.values())


def measure(core: Core, session: bytes | None) -> Usage:
    """Return the usage of a store's living sessions, or of one of them. Reads the headers of all their chunks."""
    with core.read() as txn:
        chosen = walk.living(txn) if session is None else [(session, sessions.read(txn, session))]
    logical = distinct = branches = events = 0
    stored: dict[str, int] = {}
    for key, row in chosen:
        with core.read() as txn:
            stretches = walk.of_session(txn, key, row)
        sizes = _Sizes()
        used: set[bytes] = set()
        for stretch in stretches:
            for run, first, last in walk.runs(core, stretch):
                low = first - run.first
                sizes.add(stretch.timeline, first, (r.size for r in run.records[low : last - run.first + 1]))
                for index in range(low, last - run.first + 1):
                    record = run.records[index]
                    if record.stored is not None and record.stored.recipe:
                        used.update(run.pieces(index))
        ends, paths = _histories(core, key)
        branches += len(ends)
        logical += sum(_along(sizes, paths, end) for end in ends)
        distinct += sizes.total()
        events += sizes.events()
        if session is not None:
            stored = _stored_of(core, {stretch.timeline for stretch in stretches}, used)
    if session is None:
        stored = _stored(core)
    total = sum(stored.values())
    return Usage(logical, distinct, total, len(chosen), branches, events, stored)


def _histories(core: Core, session: bytes) -> tuple[list[tuple[int, int]], dict[int, tuple[int, int]]]:
    """Return the ends of a session's branches, and (parent, fork seq) of every timeline above them."""
    paths: dict[int, tuple[int, int]] = {}
    ends = []
    with core.read() as txn:
        for _, item in refs.names(txn, session):
            if item.branch:
                ref = refs.branch(txn, item.branch)
                ends.append((ref.timeline, ref.seq))
                at = ref.timeline
                while at != timelines.GENESIS and at not in paths:
                    row = timelines.read(txn, at)
                    paths[at] = (row.parent, row.fork_seq)
                    at = row.parent
    return ends, paths


def _along(sizes: _Sizes, paths: dict[int, tuple[int, int]], end: tuple[int, int]) -> int:
    total = 0
    timeline, seq = end
    while timeline != timelines.GENESIS:
        total += sizes.upto(timeline, seq)
        timeline, seq = paths[timeline]
    return total


def _stored(core: Core) -> dict[str, int]:
    """Divide the store's file by what its rows are for; what no row accounts for is free space and structure."""
    kinds: dict[str, int] = {}
    names = {rows.PART_LETTER: "objects", rows.TIMELINES.letter: "timelines and open chunks"}
    with core.read() as txn:
        start = b"A"
        found = next(iter(txn.scan(start)), None)
        while found is not None:
            letter = found[0][:1]
            size = sum(len(key) + len(value) for key, value in txn.scan(letter, rows.after(letter)))
            kind = names.get(letter, "rows")
            kinds[kind] = kinds.get(kind, 0) + size
            found = next(iter(txn.scan(rows.after(letter))), None)
    kinds["free space and structure"] = max(0, core.engine.stored_bytes() - sum(kinds.values()))
    return kinds


def _stored_of(core: Core, lines: set[int], used: set[bytes]) -> dict[str, int]:
    """Return what one session's events take: its open records, and its chunks' and pieces' shares of their objects."""
    kinds = {"chunks": 0.0, "open chunks": 0.0, "pieces": 0.0}
    with core.read() as txn:
        shares = _Shares(txn)
        for timeline in lines:
            for _, row in tables.scan(txn, rows.CHUNKS, timeline.to_bytes(8, "big")):
                kinds["chunks"] += shares.of(row)
            tail = txn.scan(rows.record_key(timeline, 0), rows.record_key(timeline + 1, 0))
            kinds["open chunks"] += sum(len(value) for _, value in tail)
        for digest in used:
            piece = tables.get(txn, rows.PIECES, digest)
            if piece is not None:
                kinds["pieces"] += shares.of(piece)
    return {kind: round(size) for kind, size in kinds.items()}


class _Shares:
    """What stretches of objects take as stored: their part of it, by uncompressed bytes. Nothing is decompressed."""

    def __init__(self, txn: ReadTxn) -> None:
        self._txn = txn
        self._ratios: dict[int, float] = {}

    def of(self, place: rows.Chunk | rows.Piece) -> float:
        """Return the stored bytes of a stretch."""
        if place.object not in self._ratios:
            start, stop = rows.part_key(place.object, 0), rows.part_key(place.object + 1, 0)
            parts = [value for _, value in self._txn.scan(start, stop)]
            self._ratios[place.object] = sum(map(len, parts)) / max(fmt.length(parts[0]), 1) if parts else 0.0
        return place.length * self._ratios[place.object]
