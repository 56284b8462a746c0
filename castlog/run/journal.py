"""The fold of a run: which events it knows, the state up to where it has folded them, and whom it tells.

Events reach it in any order, from the run's own appends and from reading what others appended; they are folded in the
order of the log, each once. Threads share it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from castlog.event import Event
from castlog.state import Reducer

S = TypeVar("S")


class Journal(Generic[S]):
    """State and the events not folded yet."""

    def __init__(self, reducer: Reducer[S], state: S, seq: int) -> None:
        self._reducer = reducer
        self._lock = threading.Lock()
        self._known: dict[int, Event] = {}
        self.state = state
        self.seq = seq
        self.torn = False  # a fold was cut short: the state is half of two
        self.news: deque[Event] = deque()

    def learn(self, events: Iterable[Event]) -> None:
        """Take note of events to be folded; those that were are passed over."""
        with self._lock:
            for event in events:
                if event.seq > self.seq:
                    self._known[event.seq] = event

    def gap(self, until: int) -> tuple[int, int] | None:
        """Return the first and last seq of the first stretch up to `until` that is not known, or None."""
        with self._lock:
            first = next((seq for seq in range(self.seq + 1, until + 1) if seq not in self._known), None)
            if first is None:
                return None
            last = next((seq - 1 for seq in range(first, until + 1) if seq in self._known), until)
            return first, last

    def fold(self, *, tell: bool) -> None:
        """Fold what is known as far as nothing is missing; with `tell` observers will hear of it."""
        with self._lock:
            while not self.torn and (event := self._known.get(self.seq + 1)) is not None:
                self.torn = True  # until it is done: an interrupt may come on any line
                self.state = self._reducer.fold(self.state, event)
                self.seq += 1
                del self._known[self.seq]
                if tell:
                    self.news.append(event)
                self.torn = False

    def mend(self, restore: Callable[[int], S]) -> None:
        """Restore a state that an interrupt or a failing reducer left torn."""
        with self._lock:
            if self.torn:
                self.state = restore(self.seq)
                self._known = {seq: event for seq, event in self._known.items() if seq > self.seq}
                self.torn = False
