"""Traces: how far the histories of a store run along those of a parcel, found by ids, each timeline looked at once.

Ids name whole histories: where two have one id they are one up to there, and halving finds the last such place.
"""

from __future__ import annotations

from bisect import bisect_left

from castlog.engine.base import ReadTxn
from castlog.history import reader, timelines
from castlog.history.objects import Objects
from castlog.history.refs import Place
from castlog.ops.parcel import Parcel


class Traces:
    """What is found of a parcel in one store; lives as long as the transaction.

    `located` says for a timeline of the parcel how far it is in the store, and where.
    """

    def __init__(self, txn: ReadTxn, objects: Objects, item: Parcel) -> None:
        self._txn = txn
        self._objects = objects
        self._item = item
        self._starts = {line.id_at(line.fork_seq + 1): n for n, line in item.lines.items() if line.ids}
        self._steps: dict[int, list[tuple[int, int]]] = {timelines.GENESIS: [(0, 0)]}
        self.located: dict[int, Place] = {}

    def joint(self, timeline: int, seq: int) -> tuple[int, int]:
        """Return the last place of the parcel, as (timeline, seq), that a history of the store runs through."""
        way = []
        at = timeline
        while at not in self._steps:
            way.append(at)
            at = timelines.read(self._txn, at).parent
        for at in reversed(way):
            self._steps[at] = self._follow(at)
        steps = self._steps[timeline]
        index = bisect_left(steps, (seq, 0))
        last, n = steps[min(index, len(steps) - 1)]
        return n, min(last, seq)

    def _follow(self, timeline: int) -> list[tuple[int, int]]:
        """Return how a timeline runs on: to which seq, on which timeline of the parcel, in turn."""
        row = timelines.read(self._txn, timeline)
        n, seq = self.joint(row.parent, row.fork_seq)
        steps = [(seq, n)]
        end = reader.tail_of(self._txn, timeline).last if seq == row.fork_seq else 0
        while seq < end:
            following = self._id_at(timeline, seq + 1)
            if not (n and seq < self._item.lines[n].last and self._item.lines[n].id_at(seq + 1) == following):
                n = self._starts.get(following, 0)
                if not n:
                    break
            seq = self._shared(timeline, n, seq + 1, min(end, self._item.lines[n].last))
            steps.append((seq, n))
            if n not in self.located or self.located[n].seq < seq:
                self.located[n] = Place(timeline, seq, self._item.id_at(n, seq))
        return steps

    def _shared(self, timeline: int, n: int, low: int, high: int) -> int:
        """Return the last seq up to `high` at which both have one id; they have at `low`."""
        middle = high
        while low < high:
            if self._id_at(timeline, middle) == self._item.lines[n].id_at(middle):
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        return low

    def _id_at(self, timeline: int, seq: int) -> bytes:
        return reader.id_at(self._txn, self._objects, self._item.row, timeline, seq)
