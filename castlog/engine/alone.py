"""Letting one thread be alone with an environment that all threads of a process share.

LMDB wants no transaction open while its map is resized or closed, and a child forked in the middle of one could not
let go of it. So each transaction announces itself before it begins and then looks at the gate; whoever must be alone
closes the gate and waits until the others' announcements are gone. No lock is taken on the common path.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from weakref import ref

from castlog.errors import Unavailable
from castlog.limits import LOCK_POLL_SECONDS_MIN

_get_ident = threading.get_ident


class Guest:
    """Something that keeps others from being alone: a transaction, and the thread that began it."""

    __slots__ = ("__weakref__", "thread")

    thread: int


class Gate:
    """Who is inside, and who wants to be alone."""

    __slots__ = ("_turn", "closed_by", "inside")

    def __init__(self) -> None:
        # By identity, and weak: a transaction that an interrupt kept from ending does not stay for ever.
        self.inside: dict[int, ref[Guest]] = {}
        self.closed_by = 0
        # Reentrant, because opening a replaced file may be part of something that is already alone.
        self._turn = threading.RLock()

    def enter(self, guest: Guest) -> None:
        """Announce `guest`, waiting while somebody is alone. Call `leave`, whatever comes after."""
        self.inside[id(guest)] = ref(guest)
        if self.closed_by:
            self._wait_outside(guest)

    def leave(self, guest: Guest) -> None:
        """Take the announcement back. Doing it again does nothing."""
        self.inside.pop(id(guest), None)

    def guests(self) -> list[Guest]:
        """Return who is inside."""
        return [guest for reference in list(self.inside.values()) if (guest := reference()) is not None]

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other threads from what must be done one at a time, without being alone."""
        with self._turn:
            yield

    @contextlib.contextmanager
    def alone(self, purpose: str, seconds: float) -> Iterator[None]:
        """Be alone inside the block, or raise Unavailable when the others are not gone in time."""
        with self._turn:
            self.closed_by = me = _get_ident()
            try:
                if any(guest.thread == me for guest in self.guests()):
                    raise Unavailable(f"cannot {purpose} while this thread has a transaction open")
                if not self._wait_for_others(seconds):
                    raise Unavailable(f"cannot {purpose}: other threads keep transactions open")
                yield
            finally:
                self.closed_by = 0

    def close_for_fork(self, seconds: float) -> bool:
        """Close the gate and wait for the other threads; return whether they are gone. Call `open_after_fork`."""
        began = time.monotonic()
        if not self._turn.acquire(timeout=seconds):
            return False
        self.closed_by = _get_ident()
        return self._wait_for_others(seconds - (time.monotonic() - began))

    def open_after_fork(self) -> None:
        """Open the gate again, in the parent."""
        # Refused, and rightly so, when the turn was not had.
        with contextlib.suppress(RuntimeError):
            self._turn.release()
            self.closed_by = 0

    def _wait_outside(self, guest: Guest) -> None:
        me = _get_ident()
        while self.closed_by not in (0, me):
            if any(other is not guest and other.thread == me for other in self.guests()):
                return  # Whoever wants to be alone waits for this thread's other transaction; it must get on.
            self.leave(guest)
            time.sleep(LOCK_POLL_SECONDS_MIN)
            if self._turn.acquire(blocking=False):
                try:
                    self.closed_by = 0  # Nobody is alone, then: an interrupt kept who was from saying so.
                finally:
                    self._turn.release()
            self.inside[id(guest)] = ref(guest)

    def _wait_for_others(self, seconds: float) -> bool:
        me = _get_ident()
        deadline = time.monotonic() + seconds
        while any(guest.thread != me for guest in self.guests()):
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_POLL_SECONDS_MIN)
        return True
