"""A run's side of the log: the branch it owns, what it has in line, and the fold it keeps of both.

Everything is folded, and told to observers, when it is durable and in the order of the log, whoever wrote it. Between
two waits nothing here blocks, and no lock is held across one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from castlog.branch import Branch
from castlog.engine.owner import Ownership
from castlog.errors import Conflict, Error, Invalid, Unavailable
from castlog.event import Draft, Event
from castlog.run.journal import Journal
from castlog.run.policy import Every
from castlog.run.port import Port
from castlog.state import Reducer
from castlog.view import View

S = TypeVar("S")
Observer = Callable[[Event], Any]


class _Mark:
    """Something that is under way."""

    __slots__ = ("__weakref__",)


class Log(Generic[S]):
    """The branch of a run, as the run knows it. `begin` comes first."""

    journal: Journal[S]
    in_flight: list[Event]
    """Calls that were in flight when the run began."""

    def __init__(self, branch: View, reducer: Reducer[S], every: Every, port: Port, *, live: bool) -> None:
        if live and not isinstance(branch, Branch):
            raise Invalid(f"{branch!r} cannot be appended to; give a branch, or live=False")
        self.branch = branch
        self.live = live
        self.begun = False
        self.closed = True
        self._reducer = reducer
        self._every = every
        self._port = port
        self._hold: Ownership | None = None
        self._results: list[Any] = []  # in line, and nobody has waited for them yet
        self._broken: Error | None = None
        self._observers: list[Observer] = []
        self._telling = threading.Lock()  # never waited for
        self._lock = threading.Lock()  # guards the next
        self._busy: WeakSet[_Mark] = WeakSet()  # steps under way; weak, as an interrupt may keep one from ending

    # --- beginning and end ---

    def begin(self, at: int | None) -> int:
        """Own the branch, restore its state at a seq (default: the head), and return the seq.

        Blocks. Raises Conflict(holder, since) when another run has the branch.
        """
        if self.live:
            assert isinstance(self.branch, Branch)
            self._hold = self.branch._core.own(self.branch._number)
        try:
            restored = self.branch.restore(self._reducer, at=at)
            self.journal = Journal(self._reducer, restored.state, restored.seq)
            self.in_flight = restored.in_flight if self.live else []
            self._kept, self._kept_at = restored.snapshot_seq, self.now()
            self.closed, self.begun = False, True
            return restored.seq
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Take no more steps, and let go of the branch as soon as none is under way."""
        with self._lock:
            self.closed = True
            if not self._busy and self._hold is not None:
                self._hold.release()

    async def end(self) -> None:
        """Make durable what is in line, and let go of the branch."""
        try:
            if not self.closed:
                await self.flush()
        finally:
            self.release()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Take a step, during which the branch stays owned; raises Unavailable when the run takes none any more."""
        mark = _Mark()
        try:
            with self._lock:
                self._require_usable()
                self._busy.add(mark)
            yield
        finally:
            with self._lock:
                self._busy.discard(mark)
                ended = self.closed
            if ended:
                self.release()

    def _require_usable(self) -> None:
        if self.closed:
            raise Unavailable("the run was closed" if self.begun else "the run has not begun; await it first")
        if self._broken is not None:
            raise Unavailable(f"a result could not be recorded ({self._broken}); begin a new run, which recovers")

    # --- writing ---

    async def append(self, *drafts: Draft) -> list[Event]:
        """Return the events of drafts once they are durable and folded."""
        return await self.settle(await self.submit(*drafts))

    async def submit(self, *drafts: Draft) -> Any:
        """Put drafts in line, as a `Written`; raises Invalid for what cannot be kept."""
        return await self._port.submit(drafts, linger=False)

    async def answer(self, draft: Draft) -> Any:
        """Put a result in line, where the next step's commit may take it along; otherwise as `submit`."""
        written = await self._port.submit([draft], linger=self._port.lazy)
        self._results.append(written)
        return written

    async def settle(self, written: Any) -> list[Event]:
        """Return events once they are durable, folded and told, and the results before them too."""
        events = await (self._result(written) if written in self._results else self._port.durable(written))
        known = list(events)
        for earlier in [result for result in self._results if result.done()]:
            known += await self._result(earlier)
        self.journal.learn(known)
        await self._reach(max(event.seq for event in known))
        return events

    async def flush(self) -> None:
        """Wait for results that nobody has waited for, and fold them."""
        for written in list(self._results):
            await self.settle(written)
        await self._mend()

    async def _result(self, written: Any) -> list[Event]:
        """Return the event of a result once it is durable; a run that cannot record one does not go on."""
        try:
            return await self._port.durable(written)
        except Error as error:
            self._broken = self._broken or error
            raise
        finally:
            with suppress(ValueError):  # another thread was faster
                self._results.remove(written)

    # --- folding ---

    async def make_ready(self) -> None:
        """Fold what others appended, and keep a snapshot if one is due."""
        await self._mend()
        await self.catch_up()
        await self._keep_snapshot()

    async def catch_up(self) -> None:
        """Fold what others appended; raises Conflict when they moved the branch."""
        before = self.journal.seq
        head = (await self._port.work(lambda: self.branch.head)).seq
        if head < before:
            raise Conflict(f"the branch moved back to seq {head} under its run", head=head)
        if head > self.journal.seq:
            await self._reach(head)

    def fold_served(self, events: Sequence[Event] = ()) -> None:
        """Fold recorded events, of which nobody is told."""
        self.journal.learn(events)
        self.journal.fold(tell=False)

    async def _reach(self, until: int) -> None:
        while (gap := self.journal.gap(until)) is not None:
            self.journal.learn(await self._port.work(partial(self._read, *gap)))
        self.journal.fold(tell=True)
        await self._tell()

    def _read(self, first: int, last: int) -> list[Event]:
        return list(self.branch.events(first, last))

    async def _mend(self) -> None:
        """Restore the state that an interrupted fold left torn."""
        if self.journal.torn:
            restore = partial(self.branch.restore, self._reducer)
            await self._port.work(lambda: self.journal.mend(lambda seq: restore(at=seq).state))
            self.journal.fold(tell=True)

    async def _keep_snapshot(self) -> None:
        seq, now = self.journal.seq, self.now()
        if not self._every.due(seq - self._kept, now - self._kept_at):
            return
        self._kept, self._kept_at = seq, now
        branch = self.branch
        assert isinstance(branch, Branch)
        with suppress(Unavailable, Conflict):  # a disk without room for it may have room for the step
            await self._port.work(lambda: branch.snapshot(self._reducer, at=seq))

    # --- telling ---

    def observe(self, observer: Observer) -> None:
        """Have a function called with each event from now on."""
        self._observers.append(observer)

    async def _tell(self) -> None:
        """Call the observers with what is new, in order; whoever comes while that is done leaves it to them."""
        news = self.journal.news
        while news and self._telling.acquire(blocking=False):
            try:
                while news:
                    event = news.popleft()
                    for observer in self._observers:
                        await self._tell_one(observer, event)
            finally:
                self._telling.release()

    async def _tell_one(self, observer: Observer, event: Event) -> None:
        """Call an observer; what it raises is reported as a thread's failure is, and keeps no step from going on."""
        try:
            await self._port.tell(observer, event)
        except Exception as error:
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )

    def now(self) -> int:
        """Return the store's time, nanoseconds UTC."""
        return self.branch._core.clock()
