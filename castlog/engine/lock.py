"""The store's own write lock: one thread of one process at a time, waited for with a time-out.

LMDB's lock has no time-out and ignores Ctrl-C while it waits, so this one is taken first and LMDB's is then free.
Threads of one process take turns (see `turn`), processes at a POSIX record lock on the file `write.lock`.

Why record locks and not `flock`: a record lock belongs to the process and dies with it. A `flock` belongs to the open
file, which forked children share, so that a child which outlives a killed parent would hold the store for ever. The
price of record locks is that closing *any* descriptor of the file drops them; hence one `WriteLock` a store and
process, kept by the registry in `disk`. Should it be lost all the same, LMDB's own lock still keeps writers apart.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from castlog.engine import folder
from castlog.engine.holder import holder
from castlog.engine.turn import Turn, bounded
from castlog.errors import Conflict, Unavailable
from castlog.limits import LOCK_POLL_SECONDS_MAX, LOCK_POLL_SECONDS_MIN, LOCK_TURN_SECONDS

T = TypeVar("T")

_WRITE_BYTE = 0  # Held by the one writer.
_SWAP_BYTE = 1  # Shared while a data file is being opened, exclusive while it is being exchanged.
_REBUILD_BYTE = 2  # Held by the one who builds a new data file.
_WAIT_BYTE = 3  # Shared by those who wait to write.
_NOTE_BYTES = 256  # The holder's note is padded to this, so that a shorter one leaves nothing of a longer one.

_NOTE = re.compile(r"pid (\d+) host .* since (\S+)\n")

_NONE = -1  # No descriptor.

_lockf = fcntl.lockf
_monotonic = time.monotonic
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_UNLOCK = fcntl.LOCK_UN


class WriteLock:
    """One process's hold on `write.lock`. Shared by all its handles on that store."""

    __slots__ = (
        "_descriptor",
        "_due",
        "_host",
        "_path",
        "_rebuild",
        "_since",
        "_swap",
        "_turn",
        "held",
        "mine",
    )

    def __init__(self, path: Path, *, write: bool) -> None:
        self._path = path
        self._turn = Turn()
        self.mine = self._turn.mine
        self._host = os.uname().nodename[:64]
        self._since = 0.0
        # When the note is to be written and others are to be looked for; 0 for at once.
        self._due = 0.0
        self._descriptor = _open(path, write=write)
        # A process's own record locks do not keep its threads apart.
        self._swap = threading.Lock()
        self._rebuild = threading.Lock()
        self.held = False

    def during(self, timeout: float, work: Callable[[], T]) -> T:
        """Return what `work` returns, run with the lock, which is had within `timeout` seconds or raises Conflict.

        Whatever ends the call gives the lock back, an interrupt on any line too. A thread that has it already must
        not ask again: `mine` tells.
        """
        return self._turn.during(timeout, self._take, work, self._give_back)

    def again(self, timeout: float) -> None:
        """Give the lock back and take it anew, inside `during`: its file may be another one now."""
        self._give_back()
        self._take(timeout)

    def _take(self, timeout: float) -> None:
        began = _monotonic()
        if not self._turn.wait(timeout):
            raise self._conflict(timeout, os.getpid(), self._since)
        try:
            if began >= self._due:
                self._step_aside()
            _lockf(self._descriptor, _TRY, 1, _WRITE_BYTE)
        except OSError as error:
            self._wait_to_write(error, began, timeout)
            self._due = 0.0
        except ValueError as error:  # What Python says of the descriptor -1.
            raise Unavailable(f"the store {self._path.parent} was closed", path=str(self._path.parent)) from error
        self.held = True
        if began >= self._due:
            self._begin_turn()

    def _give_back(self) -> None:
        """Let other processes write. An interrupt may have come before `held` was noted, so that is not asked."""
        self.held = False
        if self._descriptor != _NONE:
            _lockf(self._descriptor, _UNLOCK, 1, _WRITE_BYTE)

    def renew(self, *, write: bool) -> None:
        """Open `write.lock` anew if another file has taken its name, or to have it for writing.

        A lock that was held is `held` no more if the file is another one.
        """
        if self._descriptor != _NONE:
            here = os.fstat(self._descriptor)
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(self._path)
                enough = not write or fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
                if enough and (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                    return
        old, self._descriptor = self._descriptor, _open(self._path, write=write)
        self.held = False
        self._due = 0.0
        if old != _NONE:
            os.close(old)

    @contextlib.contextmanager
    def opening(self, timeout: float) -> Iterator[None]:
        """Keep the data file from being exchanged while it is opened."""
        with self._hold(self._swap, fcntl.LOCK_SH, _SWAP_BYTE, timeout):
            yield

    @contextlib.contextmanager
    def exchanging(self, timeout: float) -> Iterator[None]:
        """Keep everybody from opening the data file while it is exchanged."""
        with self._hold(self._swap, fcntl.LOCK_EX, _SWAP_BYTE, timeout):
            yield

    @contextlib.contextmanager
    def rebuilding(self) -> Iterator[None]:
        """Be the only one who builds a new data file, or raise Conflict at once."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._hold(self._rebuild, fcntl.LOCK_EX, _REBUILD_BYTE, 0.0))
            except Conflict as error:
                who = error.facts["pid"] or "unknown"
                raise Conflict(
                    f"the store {self._path.parent} is being rebuilt already, by process {who}",
                    **{**error.facts, "since": None},  # the holder's note is about writing
                    hint="Wait until that is done; it may be enough.",
                ) from None
            yield

    def close(self) -> None:
        """Close the file. In a forked child this leaves the parent's lock alone."""
        self.held = False
        descriptor, self._descriptor = self._descriptor, _NONE
        if descriptor != _NONE:
            os.close(descriptor)

    @contextlib.contextmanager
    def _hold(self, threads: threading.Lock, kind: int, byte: int, timeout: float) -> Iterator[None]:
        if not threads.acquire(timeout=bounded(timeout)):
            raise self._conflict(timeout, os.getpid(), None)
        try:
            if self._descriptor == _NONE and kind == fcntl.LOCK_SH:
                yield  # Nobody can write to this folder, so nobody exchanges its files.
                return
            if self._descriptor == _NONE:
                raise Unavailable(f"the store {self._path.parent} was closed", path=str(self._path.parent))
            began, how = _monotonic(), kind | fcntl.LOCK_NB
            try:
                _lockf(self._descriptor, how, 1, byte)
            except OSError as error:
                self._wait(error, how, byte, began, timeout)
            try:
                yield
            finally:
                if self._descriptor != _NONE:  # Closing it gave all locks back.
                    _lockf(self._descriptor, _UNLOCK, 1, byte)
        finally:
            threads.release()

    def _step_aside(self) -> None:
        """Let another process in if one waits and this one has had its turn.

        Who waits, polls, and would hardly ever hit the moments between the commits of a busy process: waits of two
        seconds were measured, 50 ms with this.
        """
        if self._due and holder(self._descriptor, fcntl.LOCK_EX, _WAIT_BYTE):
            time.sleep(2 * LOCK_POLL_SECONDS_MAX)

    def _begin_turn(self) -> None:
        """Write down who holds the lock; once a turn, as it costs a hundredth of a durable commit."""
        self._due = _monotonic() + LOCK_TURN_SECONDS
        self._since = time.time()
        note = f"pid {os.getpid()} host {self._host} since {_iso(self._since)}\n"
        # A disk without room for the note may well have room for the change.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, note.encode().ljust(_NOTE_BYTES), 0)

    def _wait_to_write(self, error: OSError, began: float, timeout: float) -> None:
        with contextlib.suppress(OSError):
            _lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _WAIT_BYTE)
        try:
            self._wait(error, _TRY, _WRITE_BYTE, began, timeout)
        finally:
            _lockf(self._descriptor, _UNLOCK, 1, _WAIT_BYTE)

    def _wait(self, error: OSError, how: int, byte: int, began: float, timeout: float) -> None:
        pause = LOCK_POLL_SECONDS_MIN
        while True:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise folder.unavailable(self._path, error.errno or 0) from error
            if _monotonic() - began >= timeout:
                raise self._conflict(timeout, *self._holder(how, byte)) from None
            time.sleep(pause)
            pause = min(pause * 2, LOCK_POLL_SECONDS_MAX)
            try:
                _lockf(self._descriptor, how, 1, byte)
                return
            except OSError as again:
                error = again

    def _holder(self, how: int, byte: int) -> tuple[int | None, float | None]:
        """Return who holds the lock and since when, as far as the kernel and the holder's note tell."""
        if self._descriptor == _NONE:
            return None, None
        pid, since = None, None
        found = _NOTE.match(os.pread(self._descriptor, _NOTE_BYTES, 0).decode(errors="replace"))
        if found:
            with contextlib.suppress(ValueError):
                pid, since = int(found[1]), datetime.fromisoformat(found[2]).timestamp()
        asked = holder(self._descriptor, how, byte) or 0
        if asked > 0 and asked != pid:
            return asked, None
        return pid, since

    def _conflict(self, timeout: float, pid: int | None, since: float | None) -> Conflict:
        if pid is None:
            who = "another process"
        elif pid == os.getpid():
            who = f"another thread of this process ({pid})"
        else:
            who = f"process {pid} on {self._host}"
        when = _iso(since) if since else None
        return Conflict(
            f"the store {self._path.parent} is locked by {who}{f' since {when}' if when else ''}"
            f" and was not free within {timeout:g} seconds",
            path=str(self._path.parent),
            pid=pid,
            host=self._host,
            since=when,
        )


def _open(path: Path, *, write: bool) -> int:
    """Open the lock file, making it if need be; `_NONE` when it is for reading and cannot be made."""
    with folder.explained(path):
        if not write:
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, folder.FILE_MODE)
        except OSError as error:
            if not write and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return _NONE
            raise
    folder.keep_private(path)
    return descriptor


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
