"""Threads of one process take turns to write, and an interrupt anywhere leaves nobody's turn without an end.

Ctrl-C may come on any line, also on those that give a turn back. So whose turn it is, is never read from a note that
a line had to take back: a call that has the turn, or is about to, is one whose frame is on the thread's stack. What a
call left that is no longer there is cleared away by the thread's next.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_get_ident = threading.get_ident


class Turn:
    """A lock for threads that is had for one call, and given back whatever ends the call."""

    __slots__ = ("_calls", "_queue")

    def __init__(self) -> None:
        # Reentrant for one property only: a thread that does not hold it cannot release it.
        self._queue = threading.RLock()
        # The call of each thread that has the turn, waits for it or gives it back.
        self._calls: dict[int, FrameType] = {}

    def mine(self) -> bool:
        """Tell whether the caller runs inside a call of `during`."""
        call = self._calls.get(_get_ident())
        frame: FrameType | None = sys._getframe() if call is not None else None
        while frame is not None:
            if frame is call:
                return True
            frame = frame.f_back
        return False

    def during(
        self, seconds: float, take: Callable[[float], None], work: Callable[[], T], give_back: Callable[[], None]
    ) -> T:
        """Return what `work` returns; before it `take` waits for the turn by `wait`, after it comes `give_back`.

        A thread whose turn it is must not ask again. `give_back` must bear to be called without a `take` and twice.
        """
        me = _get_ident()
        try:
            try:
                if me in self._calls:
                    self._clear(me, give_back)
                self._calls[me] = sys._getframe()
                take(seconds)
                return work()
            finally:
                self._clear(me, give_back)
        finally:
            if me in self._calls:  # An interrupt came while the first was at it.
                self._clear(me, give_back)

    def wait(self, seconds: float) -> bool:
        """Wait for the turn; return whether it came in time."""
        return self._queue.acquire(False) or self._queue.acquire(timeout=bounded(seconds))

    def _clear(self, me: int, give_back: Callable[[], None]) -> None:
        """End this thread's call. Its entry goes last, so that an interrupted clearing is done again."""
        if self._queue.acquire(False):  # It is this thread's turn, or nobody's.
            give_back()
            try:
                while True:
                    self._queue.release()
            except RuntimeError:  # Given back as often as it was had; `suppress` would cost more than all this.
                pass
        self._calls.pop(me, None)


def bounded(seconds: float) -> float:
    """Return a time-out that `threading` takes."""
    return min(max(seconds, 0.0), threading.TIMEOUT_MAX)
