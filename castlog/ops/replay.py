"""States along one history, asked for in any order, as who looks for a mistake asks for them.

Each is folded from the nearest state before it: a snapshot of the store, or one of those kept here. Those are in
memory and go with this object; nothing is written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from castlog import limits
from castlog.errors import NotFound
from castlog.event import Event, Point, Progress
from castlog.format import codec
from castlog.ops.paths import Change, changes
from castlog.state import Reducer, Restored

if TYPE_CHECKING:
    from castlog.view import View

S = TypeVar("S")
_TOLD_EVENTS = 256
_SMALL_STEP = 4  # a step back is small when the way to there would be longer by this factor


class Replay(Generic[S]):
    """A history's states by seq. The history is that of the moment it was made; not to be shared by threads."""

    def __init__(self, view: View, reducer: Reducer[S], progress: Callable[[Progress], None] | None) -> None:
        self.reducer = reducer
        self.head: Point = view.head
        self._view = view
        self._progress = progress
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0
        self._asked = 0

    def at(self, seq: int) -> Restored[S]:
        """Return the state after event `seq`, which the caller may change; raises as `View.restore` does.

        Its `snapshot_seq` says what it was folded from: a snapshot, or a state kept in memory.
        """
        self._require(seq)
        state, start = self._nearest(seq)
        leave = self._to_leave(seq, start)
        for event in self._view.events(start + 1, seq):
            state = self.reducer.fold(state, event)
            if event.seq in leave:
                self._keep(event.seq, state)
            if self._progress is not None and event.seq % _TOLD_EVENTS == 0:
                self._progress(Progress(event.seq - start, seq - start, "events"))
        if seq > start or seq not in self._kept:
            self._keep(seq, state)
        self._asked = seq
        return Restored(state, seq, start, seq - start, self._view.in_flight(seq))

    def value(self, seq: int) -> Any:
        """Return the state after event `seq` as the JSON value it is kept as."""
        self.at(seq)
        return codec.decode(self._kept[seq])

    def event(self, seq: int) -> Event:
        """Return the event at `seq`."""
        return self._view.read(seq)

    def changes(self, seq: int) -> list[Change]:
        """Return what event `seq` changed in the state; raises NotFound when there is no such event."""
        self.event(seq)
        before = self.value(seq - 1)
        return changes(before, self.value(seq))

    def walk(self, first: int, last: int) -> Iterator[tuple[Event, list[Change]]]:
        """Yield events `first` to `last`, each with what it changed in the state. Raises as `at` does."""
        if first <= last:
            self._require(last)
            state = self.at(first - 1).state
            before = as_value(self.reducer, state)
            for event in self._view.events(first, last):
                state = self.reducer.fold(state, event)
                after = as_value(self.reducer, state)
                yield event, changes(before, after)
                before = after

    def _require(self, seq: int) -> None:
        if type(seq) is not int or not 0 <= seq <= self.head.seq:
            raise NotFound(f"{self.head.branch} has no seq {seq!r}; its seqs are 0 to {self.head.seq}", seq=seq)

    def _nearest(self, seq: int) -> tuple[S, int]:
        """Return the nearest state at or before `seq`, and the seq it belongs to."""
        near = max((kept for kept in self._kept if kept <= seq), default=None)
        found = self._view._snapshot_before(self.reducer, seq, -1 if near is None else near)
        if found is not None:
            return found
        if near is None:
            return self.reducer.initial(), 0
        self._kept.move_to_end(near)
        return self.reducer.decode(self._kept[near]), near

    def _to_leave(self, seq: int, start: int) -> set[int]:
        """Return where to keep states on the way to `seq`, from which going back further would be a short way.

        Only for who goes back in small steps: keeping a large state costs as much as folding thousands of events.
        """
        if not 0 < (self._asked - seq) * _SMALL_STEP < seq - start:
            return set()
        return {seq - (1 << k) for k in range(0, (seq - start).bit_length(), 2)}

    def _keep(self, seq: int, state: S) -> None:
        """Keep a state, in the place of those not asked for in the longest time."""
        data = self.reducer.encode(state)
        self._size += len(data) - len(self._kept.pop(seq, b""))
        self._kept[seq] = data
        while self._size > limits.REPLAY_BYTES and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])


def as_value(reducer: Reducer[S], state: S) -> Any:
    """Return a state as the JSON value it is kept as."""
    return codec.decode(reducer.encode(state))
