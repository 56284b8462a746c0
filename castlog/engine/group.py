"""Group commit: what several threads want to change goes into one transaction, in the order they came.

A commit costs two device flushes whatever is in it. A caller without company commits in its own thread and pays
nothing for this. Once a second one comes, changes queue up, and a thread of the group's own commits all that wait in
one transaction; after a group of several it waits a moment, as those it has answered will be back with more.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

from castlog import limits
from castlog.engine.base import WriteTxn

T = TypeVar("T")

_get_ident = threading.get_ident
_NOBODY = 0


class Update(Protocol):
    """How a change gets into the map: `Engine.update`, or what stands before it."""

    def __call__(self, change: Callable[[WriteTxn], T]) -> T:
        """Run `change` in the single write transaction and commit."""
        ...


class Job(Generic[T]):
    """A change in the queue, and what came of it."""

    __slots__ = ("_answered", "_change", "_error", "_result", "failure", "then")

    def __init__(self, change: Callable[[WriteTxn], T], then: Callable[[], None] | None) -> None:
        self._change = change
        self.failure: Exception | None = None  # this change's own, which keeps none of the others back
        self.then = then
        self._result: T | None = None
        self._error: BaseException | None = None
        self._answered = threading.Lock()
        self._answered.acquire()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return not self._answered.locked()

    @property
    def result(self) -> T | None:
        """What the change returned, once it is durable; None before and when it failed."""
        return self._result if self.done and self._error is None and self.failure is None else None

    def run(self, txn: WriteTxn) -> None:
        """Run the change and keep what it returns or raises; raises `_Spoilt` when it failed after it had written."""
        self.failure = None
        before = txn.touched
        try:
            self._result = self._change(txn)
        except Exception as error:
            if txn.touched != before:
                raise _Spoilt(self, error) from error
            self.failure = error

    def answer(self, error: BaseException | None) -> None:
        """Let `wait` return; `error` is what the commit came to."""
        self._error = error
        self._answered.release()

    def wait(self) -> T:
        """Return what the change returned, once it is durable; raises what it raised, or what the commit did."""
        with self._answered:
            pass
        if self._error is not None:
            raise copy.copy(self._error) from self._error  # others of the group raise the same one
        if self.failure is not None:
            raise self.failure
        return cast(T, self._result)


class _Spoilt(Exception):
    """A change failed after it had written: the transaction begins again without it."""

    def __init__(self, job: Job[Any], error: Exception) -> None:
        super().__init__()
        self.job = job
        self.error = error


class Group:
    """The queue of one store's changes in this process. Threads share it."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._pid = os.getpid()
        self._queue: deque[Job[Any]] = deque()
        self._direct = _NOBODY  # the thread that commits by itself; a hint, as an interrupt may leave it behind
        self._lock = threading.Lock()  # guards what follows, held for moments
        self._committer: threading.Thread | None = None
        self._working = False  # the committer has something to do
        self._asleep = False  # it waits to be woken, by whoever takes this back
        self._wake = threading.Lock()
        self._wake.acquire()
        self._urgent = False  # somebody waits for what is in the queue
        self._closing = False

    def update(self, change: Callable[[WriteTxn], T]) -> T:
        """Run a repeatable change in a write transaction, perhaps among others; durable on return.

        Raises what the change or the commit raises.
        """
        me = _get_ident()
        # A thread that is at it already must not wait for itself: the engine refuses it.
        company = self._direct != me and (self._working or self._queue or self._direct != _NOBODY)
        if company and not self._closing and threading.current_thread() is not self._committer:
            return self.submit(change).wait()
        self._direct = me
        try:
            return self._update(change)
        finally:
            self._direct = _NOBODY

    def submit(
        self, change: Callable[[WriteTxn], T], *, then: Callable[[], None] | None = None, linger: bool = False
    ) -> Job[T]:
        """Queue a change behind all that were queued before, and return without waiting for it.

        `then` is called by another thread once the outcome is known; it must be quick. With `linger` the commit waits
        up to `limits.LINGER_SECONDS` for somebody in a hurry, to share the flushes with. Raises as `update` does in a
        forked child, where nothing is queued.
        """
        if self._pid != os.getpid():
            self._update(change)
        job = Job(change, then)
        with self._lock:
            self._queue.append(job)
            stirred = self._stir(urgent=not linger)
        while not (stirred or job.done):
            self._commit()
        return job

    def wait(self, job: Job[T]) -> T:
        """Return what a change comes to that was queued to linger, without more delay. Raises as `update` does."""
        if not job.done:
            if self._pid != os.getpid():
                self._update(lambda txn: None)  # which is refused
            with self._lock:
                self._stir(urgent=True)
        return job.wait()

    def close(self) -> None:
        """Commit what is queued and end the committer. Who comes later commits alone."""
        if self._pid != os.getpid():
            return
        self._closing = True
        if threading.current_thread() is self._committer:
            return
        if self._working or self._queue:
            with suppress(Exception):  # whoever waits is told
                self.submit(lambda txn: None).wait()
        with self._lock:
            committer = self._committer
            if committer is not None:
                self._stir(urgent=True)
        if committer is not None:
            committer.join()

    def _stir(self, *, urgent: bool) -> bool:
        """Have the committer look at the queue; the caller has the lock. Return False when no thread can be had."""
        self._urgent = self._urgent or urgent
        if self._committer is None:
            # It says itself who it is: an interrupt here must not leave the name of one that never began.
            try:
                threading.Thread(target=self._run, name="castlog commits", daemon=True).start()
            except RuntimeError:
                return False
        elif self._asleep and (urgent or not self._working):
            if self._wake.locked():  # in this order: the committer looks at the rest once it has the lock
                self._wake.release()
            self._working, self._asleep = True, False
        return True

    def _run(self) -> None:
        with self._lock:
            if self._committer is not None:
                return  # two were started at once
            self._committer = threading.current_thread()
            self._working = True
        try:
            size = 0
            while self._sleep_until_needed():
                if size > 1:
                    time.sleep(limits.GATHER_SECONDS)
                size = self._commit()
        finally:
            with self._lock:
                if self._committer is threading.current_thread():
                    self._committer, self._working = None, False

    def _sleep_until_needed(self) -> bool:
        """Wait until there is something to commit; return False when nothing came for long."""
        while True:
            with self._lock:
                waiting = bool(self._queue)
                if waiting and self._urgent:
                    self._urgent = False
                    return True
                if self._closing and not waiting:
                    self._committer, self._working = None, False
                    return False
                self._working, self._asleep = waiting, True
            woken = self._wake.acquire(timeout=limits.LINGER_SECONDS if waiting else limits.COMMITTER_SECONDS)
            with self._lock:
                if self._asleep:
                    self._asleep = False
                    if not self._queue:
                        self._committer = None
                    self._working = bool(self._queue)
                    return self._working
                if not woken:
                    self._wake.acquire()  # it came just as the time ran out

    def _commit(self) -> int:
        """Commit everything queued in one transaction, answer, and return how many changes it was."""
        waiting = len(self._queue)
        taken: list[Job[Any]] = []
        spoilt: set[Job[Any]] = set()

        def change(txn: WriteTxn) -> None:
            while self._queue and len(taken) < limits.GROUP_CHANGES_MAX:
                taken.append(self._queue.popleft())
            for job in taken:
                if job not in spoilt:
                    job.run(txn)

        error: BaseException | None = None
        while True:
            try:
                self._update(change)
            except _Spoilt as stop:
                stop.job.failure = stop.error
                spoilt.add(stop.job)
                continue
            except BaseException as failed:
                error = failed
                while self._queue and len(taken) < waiting:
                    taken.append(self._queue.popleft())  # it never came to the change, or not to all
            break
        for job in taken:
            job.answer(error)
        with self._lock:
            self._urgent = self._urgent or len(taken) == limits.GROUP_CHANGES_MAX
        for job in taken:
            if job.then is not None:
                _call(job.then)
        return len(taken)


def _call(then: Callable[[], None]) -> None:
    """Call what must not keep the committer from the others, and report its failure as a thread's own is."""
    try:
        then()
    except Exception as error:
        threading.excepthook(
            threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
        )
