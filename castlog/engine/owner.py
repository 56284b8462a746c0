"""Who owns a branch: the one run that goes on with it, for as long as its process lives.

Threads of one process are kept apart by a registry, processes by POSIX record locks on the file `runs.lock`: the byte
at a branch's number is its lock. A record lock dies with its process and is not inherited by children (see `lock`);
the price is that closing any descriptor of the file drops them all, so that it is opened once a store and process.
What the file contains are only notes: who holds what since when, for people.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from weakref import ref

from castlog.engine import folder
from castlog.engine.holder import NOBODY, UNNAMED, holder
from castlog.limits import LOCK_POLL_SECONDS_MAX, NOTE_SECONDS

_NOTES_BYTE = 1 << 62  # held by who writes a note; no branch has that number
_NOTE_BYTES = 160  # notes have places of this length, so that each is written by itself
_NOTE = re.compile(r"branch (\d+) pid (\d+) host (\S+) since (\S+)\n")
_NONE = -1
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB


class Owner(NamedTuple):
    """Who owns a branch, as far as it is known; `since` is seconds since 1970."""

    pid: int | None
    host: str | None
    since: float | None


class Ownership:
    """One run's hold on a branch. It ends with `release`, with the last reference to it, or with the process."""

    def __init__(self, owners: Owners, branch: int) -> None:
        self._owners = owners
        self.branch = branch

    def take(self) -> Owner | None:
        """Take the branch and return None, or return who has it. Taking it again changes nothing."""
        return self._owners._take(self)

    def release(self) -> None:
        """Let go of the branch if it is held. In a forked child this leaves the parent's hold alone."""
        self._owners._release(self)

    def __del__(self) -> None:
        self.release()


class Owners:
    """The owned branches of one store, as this process sees them: here, those of its own threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._host = os.uname().nodename[:64] or "?"
        self._lock = threading.RLock()  # reentrant: a collected hold may be released at any line
        self._held: dict[int, tuple[ref[Ownership], Owner]] = {}

    def hold(self, branch: int) -> Ownership:
        """Return a hold on a branch, not yet taken."""
        return Ownership(self, branch)

    def of(self, branch: int) -> Owner | None:
        """Return who owns a branch now, or None."""
        with self._lock:
            mine = self._held.get(branch)
            return mine[1] if mine is not None and mine[0]() is not None else self._elsewhere(branch)

    def all(self) -> dict[int, Owner]:
        """Return the owned branches and who owns them."""
        with self._lock:
            mine = {branch: owner for branch, (hold, owner) in self._held.items() if hold() is not None}
            return self._all_elsewhere() | mine

    def close(self) -> None:
        """Let go of everything."""
        self._held.clear()

    def _take(self, hold: Ownership) -> Owner | None:
        with self._lock:
            other = self.of(hold.branch)
            if other is not None:
                return None if self._has(hold) else other
            owner = Owner(self._pid, self._host, time.time())
            try:
                other = self._shut_out(hold.branch, owner)
                if other is None:
                    self._held[hold.branch] = ref(hold), owner
            except BaseException:
                self._let_in(hold.branch)
                raise
            return other

    def _release(self, hold: Ownership) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            known = self._held.get(hold.branch)
            if known is not None and known[0]() in (hold, None):  # None: it is being collected
                del self._held[hold.branch]
                self._let_in(hold.branch)

    def _has(self, hold: Ownership) -> bool:
        known = self._held.get(hold.branch)
        return known is not None and known[0]() is hold

    def _elsewhere(self, branch: int) -> Owner | None:
        return None

    def _all_elsewhere(self) -> dict[int, Owner]:
        return {}

    def _shut_out(self, branch: int, owner: Owner) -> Owner | None:
        return None

    def _let_in(self, branch: int) -> None:
        pass


class FileOwners(Owners):
    """The owned branches of a store on disk, those of other processes too."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._descriptor = _NONE
        self._writable = False

    def close(self) -> None:
        """Let go of everything and close the file. In a forked child this leaves the parent's locks alone."""
        super().close()
        descriptor, self._descriptor = self._descriptor, _NONE
        if descriptor != _NONE:
            os.close(descriptor)

    def _elsewhere(self, branch: int) -> Owner | None:
        pid = self._locked_by(branch)
        if pid == NOBODY:
            return None
        for noted, owner in self._notes():
            if noted == branch and pid in (owner.pid, UNNAMED):
                return owner
        return Owner(None, None, None) if pid == UNNAMED else Owner(pid, self._host, None)

    def _all_elsewhere(self) -> dict[int, Owner]:
        found = {branch: self._elsewhere(branch) for branch in {branch for branch, _ in self._notes()}}
        return {branch: owner for branch, owner in found.items() if owner is not None}

    def _shut_out(self, branch: int, owner: Owner) -> Owner | None:
        self._open(write=True)
        try:
            fcntl.lockf(self._descriptor, _TRY, 1, branch)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise folder.unavailable(self._path, error.errno or 0) from error
            return self._elsewhere(branch) or Owner(None, None, None)
        self._write_note(branch, owner)
        return None

    def _let_in(self, branch: int) -> None:
        if self._descriptor == _NONE:
            return
        with contextlib.suppress(OSError):
            for place, (noted, owner) in enumerate(self._notes()):
                if noted == branch and owner.pid == self._pid:
                    os.pwrite(self._descriptor, b" " * _NOTE_BYTES, place * _NOTE_BYTES)
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, branch)

    def _locked_by(self, branch: int) -> int:
        """Return the other process that has a branch's lock, `NOBODY` or `UNNAMED`."""
        if not self._open(write=False):
            return NOBODY
        pid = holder(self._descriptor, fcntl.LOCK_EX, branch)
        if pid is not None:
            return pid
        how = _TRY if self._writable else fcntl.LOCK_SH | fcntl.LOCK_NB  # a shared one may be had by who only reads
        try:
            fcntl.lockf(self._descriptor, how, 1, branch)
        except OSError:
            return UNNAMED
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, branch)
        return NOBODY

    def _notes(self) -> list[tuple[int, Owner]]:
        """Return the notes by their places; branch 0 stands for an empty one. Dead processes leave theirs behind."""
        if not self._open(write=False):
            return []
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        return [_parsed(data[start : start + _NOTE_BYTES]) for start in range(0, len(data), _NOTE_BYTES)]

    def _write_note(self, branch: int, owner: Owner) -> None:
        """Write down who holds a branch, in a place nobody needs. Without the note the lock holds all the same."""
        since = datetime.fromtimestamp(owner.since or 0.0, UTC).isoformat(timespec="milliseconds")
        note = f"branch {branch} pid {owner.pid} host {owner.host} since {since}\n".encode()
        with contextlib.suppress(OSError), self._writing_notes():
            notes = self._notes()
            free = (place for place, (noted, _) in enumerate(notes) if self._is_stale(noted, branch))
            os.pwrite(self._descriptor, note.ljust(_NOTE_BYTES), next(free, len(notes)) * _NOTE_BYTES)

    def _is_stale(self, noted: int, branch: int) -> bool:
        if noted in (0, branch):
            return True
        return noted not in self._held and self._locked_by(noted) == NOBODY

    @contextlib.contextmanager
    def _writing_notes(self) -> Iterator[None]:
        deadline = time.monotonic() + NOTE_SECONDS
        while True:
            try:
                fcntl.lockf(self._descriptor, _TRY, 1, _NOTES_BYTE)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_POLL_SECONDS_MAX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _NOTES_BYTE)

    def _open(self, *, write: bool) -> bool:
        """Open the file if it is not open, as is needed; return False when it is not there and need not be."""
        if self._descriptor != _NONE and (self._writable or not write) and (self._held or self._in_place()):
            return True
        how = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        with folder.explained(self._path):
            try:
                new = os.open(self._path, how | os.O_CLOEXEC, folder.FILE_MODE)
            except FileNotFoundError:
                return False
        # Nothing is held through the old one: that needs one for writing, and nothing is opened while it is in use.
        old, self._descriptor, self._writable = self._descriptor, new, write
        if old != _NONE:
            os.close(old)
        if write:
            folder.keep_private(self._path)
        return True

    def _in_place(self) -> bool:
        """Tell whether the open file still has its name; one that was deleted keeps nobody out."""
        here = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _parsed(note: bytes) -> tuple[int, Owner]:
    found = _NOTE.match(note.decode(errors="replace"))
    if found is None:
        return 0, Owner(None, None, None)
    since = None
    with contextlib.suppress(ValueError):
        since = datetime.fromisoformat(found[4]).timestamp()
    return int(found[1]), Owner(int(found[2]), found[3], since)
