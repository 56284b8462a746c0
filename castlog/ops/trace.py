"""Traces: how far the histories of a store run along those of a parcel, found by ids, each timeline looked at once.

Ids name whole histories: where two have one id they are one up to there, and halving finds the last such place. Two
timelines of a parcel may hold the same ids; the earlier one counts then, so that each id has one place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from castlog.engine.base import ReadTxn
from castlog.history import reader, timelines
from castlog.history.objects import Objects
from castlog.history.refs import Place
from castlog.ops.parcel import Parcel

_Steps = list[tuple[int, int]]  # to which seq a history runs on which timeline of the parcel, in turn


class Traces:
    """What is found of a parcel in one store; lives as long as the transaction."""

    def __init__(self, txn: ReadTxn, objects: Objects, item: Parcel) -> None:
        self._txn = txn
        self._objects = objects
        self._item = item
        self._starts: dict[bytes, int] = {}
        self._found: dict[int, Place] = {}
        self._lines: dict[int, _Steps] = {0: [(0, 0)]}
        for n, line in item.lines.items():
            steps = self._walk(_joint(self._lines[line.parent], line.fork_seq), line.last, line.id_at)
            if steps[-1][0] < line.last:
                self._starts[line.id_at(steps[-1][0] + 1)] = n
                steps.append((line.last, n))
            self._lines[n] = steps
        self._steps: dict[int, _Steps] = {timelines.GENESIS: [(0, 0)]}

    def joint(self, timeline: int, seq: int) -> tuple[int, int]:
        """Return the last place of the parcel, as (timeline, seq), that a history of the store runs through."""
        way = []
        at = timeline
        while at not in self._steps:
            way.append(at)
            at = timelines.read(self._txn, at).parent
        for at in reversed(way):
            self._steps[at] = self._follow(at)
        return _joint(self._steps[timeline], seq)

    def located(self) -> dict[int, Place]:
        """Return how far each timeline of the parcel is in the store, and where, by all `joint` was asked for."""
        located = {}
        for n, steps in self._lines.items():
            for upto, at in reversed(steps):
                found = self._found.get(at)
                seq = min(upto, found.seq) if found else 0
                if found and seq > self._item.lines[n].fork_seq:
                    located[n] = Place(timelines.owner(self._txn, found.timeline, seq), seq, self._item.id_at(n, seq))
                    break
        return located

    def _follow(self, timeline: int) -> _Steps:
        row = timelines.read(self._txn, timeline)
        start = self.joint(row.parent, row.fork_seq)
        if start[1] < row.fork_seq:
            return [(start[1], start[0])]

        def id_at(seq: int) -> bytes:
            return reader.id_at(self._txn, self._objects, self._item.row, timeline, seq)

        steps = self._walk(start, reader.tail_of(self._txn, timeline).last, id_at)
        for seq, n in steps[1:]:
            if n not in self._found or self._found[n].seq < seq:
                self._found[n] = Place(timeline, seq, self._item.id_at(n, seq))
        return steps

    def _walk(self, start: tuple[int, int], end: int, id_at: Callable[[int], bytes]) -> _Steps:
        """Return how a history runs on in the parcel from a place there up to `end`."""
        n, seq = start
        steps = [(seq, n)]
        while seq < end:
            following = id_at(seq + 1)
            line = self._item.lines.get(n)
            if line is None or seq == line.last or line.id_at(seq + 1) != following:
                n = self._starts.get(following, 0)
                if not n:
                    break
                line = self._item.lines[n]
            low, high = seq + 1, min(end, line.last)
            middle = high
            while low < high:
                low, high = (middle, high) if id_at(middle) == line.id_at(middle) else (low, middle - 1)
                middle = (low + high + 1) // 2
            seq = low
            steps.append((seq, n))
        return steps


def _joint(steps: _Steps, seq: int) -> tuple[int, int]:
    last, n = steps[min(bisect_left(steps, (seq, 0)), len(steps) - 1)]
    return n, min(last, seq)
