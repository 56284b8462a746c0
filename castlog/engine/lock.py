"""The store's own write lock: one thread of one process at a time, waited for with a time-out.

LMDB's lock has no time-out and ignores Ctrl-C while it waits, so this one is taken first and LMDB's is then free.
Threads of one process queue at a `threading` lock, processes at a POSIX record lock on the file `write.lock`.

Why record locks and not `flock`: a record lock belongs to the process and dies with it. A `flock` belongs to the open
file, which forked children share, so that a child which outlives a killed parent would hold the store for ever. The
price of record locks is that closing *any* descriptor of the file drops them; hence one `WriteLock` a store and
process, kept by the registry in `disk`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from castlog.engine import folder
from castlog.errors import Conflict
from castlog.limits import LOCK_POLL_SECONDS_MAX, LOCK_POLL_SECONDS_MIN

_WRITE_BYTE = 0  # Held by the one writer.
_SWAP_BYTE = 1  # Shared while a data file is being opened, exclusive while it is being replaced.
_HOLDER_BYTES = 256  # The holder's note is padded to this, so that a shorter one leaves nothing of a longer one.

_get_ident = threading.get_ident


class WriteLock:
    """One process's hold on `write.lock`. Shared by all its handles on that store."""

    __slots__ = ("_descriptor", "_host", "_path", "_queue", "_since", "owner")

    def __init__(self, path: Path, *, create: bool) -> None:
        self._path = path
        # Reentrant only because its release is refused to threads that do not hold it: see `release`.
        self._queue = threading.RLock()
        self._host = socket.gethostname()[:64]
        self._since = 0.0
        self._descriptor = _open(path, create=create)
        self.owner = 0

    def acquire(self, timeout: float) -> None:
        """Take the lock within `timeout` seconds or raise Conflict, naming the holder.

        Call it inside the `try` whose `finally` calls `release`: an interrupt may come right after it is had.
        """
        deadline = time.monotonic() + timeout
        if not self._queue.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            raise self._conflict(timeout, {"pid": os.getpid(), "host": self._host, "since": _iso(self._since)})
        self.owner = _get_ident()
        pause = LOCK_POLL_SECONDS_MIN
        while not _try_lock(self._descriptor, fcntl.LOCK_EX, _WRITE_BYTE):
            if time.monotonic() >= deadline:
                raise self._conflict(timeout, self._holder())
            time.sleep(pause)
            pause = min(pause * 2, LOCK_POLL_SECONDS_MAX)
        self._since = time.time()
        note = f'{{"pid":{os.getpid()},"host":{json.dumps(self._host)},"since":"{_iso(self._since)}"}}\n'
        os.pwrite(self._descriptor, note.encode().ljust(_HOLDER_BYTES), 0)

    def release(self) -> None:
        """Give the lock back; do nothing when this thread does not hold it."""
        if self.owner != _get_ident():
            # The interrupt may have come between having the queue and noting the owner.
            with contextlib.suppress(RuntimeError):
                self._queue.release()
            return
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _WRITE_BYTE)
        finally:
            self.owner = 0
            self._queue.release()

    def renew(self) -> bool:
        """Open `write.lock` anew if another file has taken its name; return whether it had. Locks are lost then."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        here = os.fstat(self._descriptor)
        if there is not None and (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev):
            return False
        descriptor = _open(self._path, create=True)
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True

    @contextlib.contextmanager
    def swap(self, timeout: float, *, exclusive: bool = False) -> Iterator[None]:
        """Keep the data file from being replaced while it is opened; with `exclusive`, from being opened."""
        deadline = time.monotonic() + timeout
        how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        while not _try_lock(self._descriptor, how, _SWAP_BYTE):
            if time.monotonic() >= deadline:
                raise self._conflict(timeout, self._holder())
            time.sleep(LOCK_POLL_SECONDS_MAX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _SWAP_BYTE)

    def close(self) -> None:
        """Close the file. In a forked child this leaves the parent's lock alone."""
        os.close(self._descriptor)

    def _holder(self) -> dict[str, Any]:
        try:
            note = json.loads(os.pread(self._descriptor, _HOLDER_BYTES, 0))
        except ValueError:
            return {}
        return note if isinstance(note, dict) else {}

    def _conflict(self, timeout: float, holder: dict[str, Any]) -> Conflict:
        who = "another process"
        if holder.get("pid") == os.getpid():
            who = f"another thread of this process ({os.getpid()})"
        elif "pid" in holder:
            who = f"process {holder['pid']} on {holder.get('host')}"
        since = f" since {holder['since']}" if "since" in holder else ""
        return Conflict(
            f"the store is locked by {who}{since}, and stayed so for {timeout:g} seconds",
            path=str(self._path.parent),
            pid=holder.get("pid"),
            host=holder.get("host"),
            since=holder.get("since"),
        )


def _open(path: Path, *, create: bool) -> int:
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    with folder.explained(path):
        descriptor = os.open(path, flags | os.O_CLOEXEC, folder.FILE_MODE)
    if create:
        folder.keep_private(path)
    return descriptor


def _try_lock(descriptor: int, how: int, byte: int) -> bool:
    try:
        fcntl.lockf(descriptor, how | fcntl.LOCK_NB, 1, byte)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
