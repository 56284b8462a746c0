"""The engine on disk: LMDB, with every rule it needs kept in one place. Nothing else in castlog imports `lmdb`.

Handles of one process on one store share one environment, found by the folder's device and inode, because LMDB
refuses a second. Before anything is mapped the data file is compared with its own account of itself. `lock` says who
may write, `alone` lets a thread have the environment to itself, `watch` notices a file that was replaced or deleted.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import lmdb

from castlog.engine import folder
from castlog.engine.alone import Gate, Guest
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.engine.lock import WriteLock
from castlog.engine.owner import FileOwners, Owners
from castlog.engine.watch import Watch
from castlog.errors import Corrupt, Error, Invalid, NotFound, Unavailable
from castlog.limits import (
    KEY_BYTES_MAX,
    LOCK_TIMEOUT_SECONDS,
    LOOKS_MAX,
    MAP_BYTES,
    MAP_BYTES_MIN,
    QUIET_SECONDS,
    READER_CHECK_COMMITS,
    READERS_MAX,
    REBUILD_BATCH_BYTES,
    VALUE_BYTES_MAX,
)

T = TypeVar("T")

_get_ident = threading.get_ident
_getpid = os.getpid


def create(path: str | os.PathLike[str], rows: Iterable[tuple[bytes, bytes]]) -> bool:
    """Make a store at `path` holding `rows`; return False, changing nothing, when there is one already.

    The store appears whole or not at all and is durable on return. Of two processes that create at once one makes
    it. Raises NotFound when the parent folder is missing and Invalid when `path` is taken by something else.
    """
    _require_patched()
    target = folder.resolve(path)
    if folder.holds_store(target):
        return False
    folder.require_vacant(target)
    folder.placement_notes(target)
    aside = folder.make_aside(target)
    try:
        _fill(aside, rows, MAP_BYTES)
        return folder.put_in_place(aside, target)
    finally:
        folder.discard(aside)


def open_disk(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    check: Callable[[ReadTxn], object] | None = None,
    map_bytes: int = MAP_BYTES,
) -> DiskEngine:
    """Open the store at `path`.

    `check` sees the contents before anything in the folder is touched and refuses by raising; it may run several
    times. Raises NotFound when there is no store, Corrupt when the data file is damaged, Unavailable when it cannot
    be used here.
    """
    _require_patched()
    target = folder.resolve(path)
    if not folder.holds_store(target):
        raise NotFound(f"there is no store at {target}", path=str(target))
    notes = folder.placement_notes(target)
    with folder.explained(target):
        status = os.stat(target)
    key = (status.st_dev, status.st_ino)
    with _registry_lock:
        shared = _registry.get(key)
        if shared is None:
            # A folder that took another one's place is open under the other's key.
            shared = next((known for known in _registry.values() if known.path == target), None)
        if shared is None:
            if key in _stranded:
                raise Unavailable(
                    f"this process was forked in the middle of a transaction on {target}"
                    " and cannot open it; start a fresh process",
                    path=str(target),
                )
            _look(target, check)
            shared = _Shared(target, key, read_only=read_only, map_bytes=map_bytes, timeout=lock_timeout, check=check)
            _registry[key] = shared
        shared.handles += 1
    engine = DiskEngine(shared, read_only=read_only, lock_timeout=lock_timeout, notes=notes)
    try:
        if check is not None:
            with engine.read() as txn:
                check(txn)
        if not read_only:
            shared.make_writable()
            with contextlib.suppress(Error, OSError):
                shared.lengthen()
    except BaseException:
        engine.close()
        raise
    return engine


class DiskEngine:
    """One handle on a store on disk. Threads may share it; a forked process must open its own."""

    __slots__ = ("_lock_timeout", "_shared", "notes", "path", "read_only")

    def __init__(self, shared: _Shared, *, read_only: bool, lock_timeout: float, notes: tuple[str, ...]) -> None:
        self._shared: _Shared | None = shared
        self._lock_timeout = lock_timeout
        self.path = shared.path
        self.read_only = read_only
        self.notes = notes

    @property
    def owners(self) -> Owners:
        """The owned branches; raises Unavailable as `read` does."""
        shared = self._shared
        if shared is None or shared.pid != _getpid():
            raise self._unusable()
        return shared.owners

    def read(self) -> _ReadTxn:
        """Return a read transaction on the newest commit, begun when its `with` block is entered."""
        shared = self._shared
        if shared is None or shared.pid != _getpid():
            raise self._unusable()
        return _ReadTxn(shared)

    def update(self, change: Callable[[WriteTxn], T]) -> T:
        """Run `change` in the single write transaction and commit; durable on return."""
        shared, timeout = self._shared, self._lock_timeout
        if shared is None or self.read_only or shared.pid != _getpid() or shared.lock.mine():
            raise self._not_writable()
        return shared.lock.during(timeout, lambda: shared.update(change, timeout))

    def replace(self, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]]) -> None:
        """Build a new data file of `rows`, in key order, and put it in the old one's place; durable on return.

        It is built while others go on. If a commit came in between it is built once more while they wait, so `rows`
        must be repeatable. Other handles and processes go on with the new file. On failure nothing has changed.
        """
        shared = self._writable()
        with _registry_lock:
            shared.handles += 1  # closing this handle meanwhile leaves the files, and the locks, to the end of this
        try:
            shared.rebuild(rows, self._lock_timeout)
        finally:
            _release(shared)

    def version(self) -> int:
        """Return a number that grows with every commit; a read begun afterwards sees at least that commit."""
        with self.read() as txn:
            return txn.version()

    def stored_bytes(self) -> int:
        """Return the size of the data file, free pages included."""
        with folder.explained(self.path):
            return os.stat(self.path / folder.DATA).st_size

    def problems(self) -> list[str]:
        """Walk the data file's pages and return what is wrong with their structure, in LMDB's words.

        Reads the file without LMDB, so that damage cannot bring the process down. Others go on writing unless
        they keep coming in between; then they wait for the last look.
        """
        for _ in range(LOOKS_MAX):
            before = self.version()
            found = _walk(self.path)
            if not found or self.version() == before:
                return found
        return self._writable().lock.during(self._lock_timeout, lambda: _walk(self.path))

    def close(self) -> None:
        """Release the store; the last handle of the process closes the files. Calling it again does nothing."""
        shared = self._shared
        if shared is None or shared.pid != _getpid():
            self._shared = None
            return
        with _registry_lock:
            if shared.handles == 1 and shared.lock.mine():
                raise Invalid("this thread is inside an update of the store; close it afterwards", path=str(self.path))
            if self._shared is None:
                return
            self._shared = None
            _release(shared)

    def _writable(self) -> _Shared:
        shared = self._shared
        if shared is None or self.read_only or shared.pid != _getpid() or shared.lock.mine():
            raise self._not_writable()
        return shared

    def _not_writable(self) -> Error:
        if self._shared is None or self._shared.pid != _getpid():
            return self._unusable()
        if self.read_only:
            return Unavailable(f"the store {self.path} was opened for reading only", path=str(self.path))
        return Invalid("this thread is inside an update of the store already", path=str(self.path))

    def _unusable(self) -> Unavailable:
        if self._shared is None:
            return Unavailable(f"the store {self.path} was closed", path=str(self.path))
        return Unavailable(
            f"the store {self.path} was opened by process {self._shared.pid}; a forked process opens its own",
            path=str(self.path),
        )


# --- transactions -------------------------------------------------------------------------------


class _View(Guest):
    """What can be read inside one transaction of LMDB's."""

    __slots__ = ("_path", "_why", "raw")

    def __init__(self, path: Path, raw: lmdb.Transaction[bytes] | None = None) -> None:
        self.thread = _get_ident()
        self._path = path
        self.raw = raw
        # What failed first: LMDB refuses all that comes after it, without a reason.
        self._why: Error | None = None

    def get(self, key: bytes) -> bytes | None:
        raw = self.raw
        if raw is None:
            raise _over()
        try:
            return raw.get(key)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def scan(self, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        try:
            cursor = self._cursor()
            if reverse:
                yield from self._backward(cursor, start, stop)
                return
            if not cursor.set_range(start):
                return
            before = start
            for pair in cursor.iternext():
                key = pair[0]
                if stop is not None and key >= stop:
                    return
                if key < before:
                    raise self._out_of_order(key)
                before = key
                yield pair
                if self.raw is None:
                    raise _over()
        except lmdb.Error as error:
            raise self._failed(error) from error

    def _backward(self, cursor: lmdb.Cursor[bytes], start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        # The first pair is the one before `stop`: step back from where `stop` is or would be.
        there = cursor.last() if stop is None or not cursor.set_range(stop) else cursor.prev()
        if not there:
            return
        after = stop
        for pair in cursor.iterprev():
            key = pair[0]
            if key < start:
                return
            if after is not None and key >= after:
                raise self._out_of_order(key)
            after = key
            yield pair
            if self.raw is None:
                raise _over()

    def _cursor(self) -> lmdb.Cursor[bytes]:
        raw = self.raw
        if raw is None:
            raise _over()
        return raw.cursor()

    def _out_of_order(self, key: bytes) -> Corrupt:
        return Corrupt(
            f"the data file of {self._path} is damaged: its keys are out of order", path=str(self._path), key=key
        )

    def _failed(self, error: lmdb.Error) -> Error:
        if self.raw is None:
            return _over()
        if self._why is None or not isinstance(error, lmdb.BadTxnError):
            self._why = _translated(error, self._path)
        return self._why


class _ReadTxn(_View):
    """A read transaction: begun on entering its block, dead after it."""

    __slots__ = ("_shared", "_version_base")

    def __init__(self, shared: _Shared) -> None:
        self.thread = _get_ident()
        self._path = shared.path
        self._shared = shared
        self.raw = None
        self._why = None

    def __enter__(self) -> _ReadTxn:
        shared = self._shared
        if not shared.in_place():
            shared.follow_file()
        gate = shared.gate
        try:
            gate.enter(self)
            environment, self._version_base = shared.current
            self.raw = environment.begin()
        except lmdb.Error as error:
            gate.leave(self)
            self._begin_again(error)
        except BaseException:
            gate.leave(self)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raw = self.raw
        if raw is None:
            return
        self.raw = None
        try:
            raw.abort()
        except lmdb.Error:
            pass  # The environment was closed meanwhile, which ended the transaction.
        finally:
            self._shared.gate.leave(self)

    def version(self) -> int:
        """Return the number of the commit this transaction sees."""
        raw = self.raw
        if raw is None:
            raise _over()
        return self._version_base + raw.id()

    def _begin_again(self, error: lmdb.Error) -> None:
        shared = self._shared
        shared.mend(error)
        try:
            shared.gate.enter(self)
            environment, self._version_base = shared.current
            self.raw = environment.begin()
        except BaseException as again:
            shared.gate.leave(self)
            if isinstance(again, lmdb.Error):
                raise shared.failed(again) from again
            raise


class _WriteTxn(_View):
    """The write transaction: bound to its thread, because LMDB hangs when another one touches it."""

    __slots__ = ("ended", "full", "number", "touched")

    def __init__(self, path: Path, raw: lmdb.Transaction[bytes] | None = None) -> None:
        self.thread = _get_ident()
        self._path = path
        self.raw = raw
        self._why = None
        self.number = 0
        self.touched = 0
        self.ended = False
        # The map is full: whatever comes of this attempt, the change must run again.
        self.full = False

    def get(self, key: bytes) -> bytes | None:
        raw = self.raw
        if raw is None or self.thread != _get_ident():
            raise _misused(raw)
        try:
            return raw.get(key)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def put(self, key: bytes, value: bytes) -> None:
        raw = self.raw
        if raw is None or self.thread != _get_ident():
            raise _misused(raw)
        if len(value) > VALUE_BYTES_MAX or not 0 < len(key) <= KEY_BYTES_MAX:
            raise _unfit(key, value)
        self.touched += 1
        try:
            raw.put(key, value)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def delete(self, key: bytes) -> bool:
        raw = self.raw
        if raw is None or self.thread != _get_ident():
            raise _misused(raw)
        try:
            found = raw.delete(key)
        except lmdb.Error as error:
            self.touched += 1
            raise self._failed(error) from error
        self.touched += found
        return found

    def spoilt(self, error: lmdb.BadTxnError) -> Error:
        """Return why LMDB will not commit: the failure that `change` was told of and went on after."""
        return self._failed(error)

    def abort(self) -> None:
        """Undo the changes and make the transaction unusable."""
        raw = self.raw
        if raw is not None:
            with contextlib.suppress(lmdb.Error):  # It was committed.
                raw.abort()
            self.raw = None  # Last: an open transaction that nobody knows of would shut all writers out.

    def _cursor(self) -> lmdb.Cursor[bytes]:
        if self.raw is None or self.thread != _get_ident():
            raise _misused(self.raw)
        return self.raw.cursor()

    def _failed(self, error: lmdb.Error) -> Error:
        if isinstance(error, lmdb.MapFullError):
            self.full = True
        return super()._failed(error)


def _over() -> Invalid:
    return Invalid("the transaction is over: it must not be used outside its block")


def _misused(raw: lmdb.Transaction[bytes] | None) -> Invalid:
    if raw is None:
        return _over()
    return Invalid("a write transaction must not be used by a second thread")


def _unfit(key: bytes, value: bytes) -> Invalid:
    if not 0 < len(key) <= KEY_BYTES_MAX:
        return Invalid(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}", size=len(key))
    return Invalid(f"a value has at most {VALUE_BYTES_MAX} bytes, not {len(value)}", size=len(value))


# --- the environment ----------------------------------------------------------------------------


class _Shared:
    """One environment with its locks, shared by every handle of this process on the same store."""

    def __init__(
        self,
        path: Path,
        key: tuple[int, int],
        *,
        read_only: bool,
        map_bytes: int,
        timeout: float,
        check: Callable[[ReadTxn], object] | None,
    ) -> None:
        self._check = check
        self.path = path
        self.key = key
        self.pid = _getpid()
        self.handles = 0
        self.gate = Gate()
        self._closed = False
        # The write transaction begun last. It is open only under the write lock, or when interrupts left it so.
        self._begun: _WriteTxn | None = None
        self._read_only = read_only
        self._map_bytes = map_bytes
        self._timeout = timeout
        self._watch = Watch(path / folder.DATA)
        self.in_place = self._watch.in_place
        self.lock = WriteLock(path / folder.WRITE_LOCK, write=not read_only)
        self.owners = FileOwners(path / folder.RUN_LOCK)
        try:
            self._finish_exchange()
            with self.lock.opening(timeout):
                environment = self._open()
        except BaseException:
            self._watch.close()
            self.lock.close()
            raise
        # One tuple, so that a number is never added to the other environment's base. The numbers of a new file
        # begin again; the base keeps them growing.
        self.current: tuple[lmdb.Environment, int] = (environment, 0)

    def update(self, change: Callable[[WriteTxn], T], timeout: float) -> T:
        """Run `change` and commit. The caller holds the write lock."""
        begun = self._begun
        if begun is not None and not begun.ended and begun.thread == _get_ident():
            self._end(begun)  # Interrupts kept it from ending.
        while True:
            if not self.in_place():
                self._follow_under_lock(timeout)
            txn = self._begun = _WriteTxn(self.path)
            try:
                result = self._attempt(txn, change)
            except Exception:
                # A change that hides the full map behind an exception of its own runs again all the same.
                if not txn.full:
                    raise
            finally:
                if not txn.ended:
                    self._end(txn)  # An interrupt came while the first was at it.
            if not txn.full:
                break
            self._grow()
        if not self.in_place():
            raise Unavailable(
                f"the store {self.path} was removed or replaced while a change was committed; it may be lost",
                path=str(self.path),
            )
        return result

    def _attempt(self, txn: _WriteTxn, change: Callable[[WriteTxn], T]) -> T:
        """Begin `txn`, run `change` in it and commit unless the map is full."""
        try:
            self.gate.enter(txn)
            try:
                raw = txn.raw = self.current[0].begin(write=True)
            except lmdb.Error as error:
                raw = txn.raw = self._begin_again(txn, error)
            number = raw.id()
            txn.number = self.current[1] + number
            if not number % READER_CHECK_COMMITS:
                self.current[0].reader_check()
            result = change(txn)
            if not txn.full:
                try:
                    raw.commit()
                except lmdb.Error as error:
                    self._not_committed(txn, number, error)
                txn.raw = None
            return result
        finally:
            self._end(txn)

    def _end(self, txn: _WriteTxn) -> None:
        """Abort `txn` unless it was committed. Doing it again does nothing."""
        if txn.raw is not None:
            txn.abort()
        self.gate.leave(txn)
        txn.ended = True

    def _begin_again(self, txn: _WriteTxn, error: lmdb.Error) -> lmdb.Transaction[bytes]:
        while True:
            self.gate.leave(txn)
            self.mend(error)
            self.gate.enter(txn)
            try:
                return self.current[0].begin(write=True)
            except lmdb.Error as again:
                error = again

    def _not_committed(self, txn: _WriteTxn, number: int, error: lmdb.Error) -> None:
        if isinstance(error, lmdb.MapFullError):
            txn.full = True
            return
        if isinstance(error, lmdb.BadTxnError):
            raise txn.spoilt(error) from error
        # When its last step fails LMDB cannot tell whether that was done, so the file is asked.
        kept = folder.committed(self.path / folder.DATA)[0] >= number
        why = self.failed(error)
        end = "whether the change was kept is not certain" if kept else "the change was not kept"
        raise Unavailable(f"{why}; {end}", **{**why.facts, "kept": None if kept else False}) from error

    def mend(self, error: lmdb.Error) -> None:
        """Do what helps against a transaction that could not begin, or raise what is wrong."""
        if isinstance(error, lmdb.MapResizedError):
            # Another process made the map larger.
            with self.gate.alone("adopt the larger map", self._timeout):
                self.current[0].set_mapsize(0)
                self._map_bytes = self.current[0].info()["map_size"]
        elif isinstance(error, lmdb.PanicError):
            self._watch.forget()
            self.follow_file()
        elif not (isinstance(error, lmdb.ReadersFullError) and self.current[0].reader_check()):
            raise self.failed(error) from error

    def failed(self, error: lmdb.Error) -> Error:
        """Return castlog's word for `error`, and have the files opened anew if the system refused something."""
        if isinstance(error, lmdb.PanicError) or _code(error) > 0:
            self._watch.forget()
        return _translated(error, self.path)

    def _grow(self) -> None:
        size = self._map_bytes * 2
        with self.gate.alone("make the map larger", self._timeout):
            try:
                self.current[0].set_mapsize(size)
            except lmdb.Error as error:
                self._watch.forget()  # LMDB leaves an environment that could not be mapped unusable.
                raise _no_space_to_map(self.path, size) from error
        self._map_bytes = size

    # -- following the file --

    def follow_file(self) -> None:
        """Open the data file that now lies at the path, if it is another one than ours."""
        with self.gate.turn():
            if self._closed:
                raise Unavailable(f"the store {self.path} was closed", path=str(self.path))
            if self.in_place():
                return
            if not folder.holds_store(self.path):
                raise Unavailable(f"the store {self.path} is gone", path=str(self.path))
            self._reopen()

    def _follow_under_lock(self, timeout: float) -> None:
        self.follow_file()
        while not self.lock.held:
            # The whole folder was replaced, and with it the file that is locked.
            self.lock.again(timeout)
            self.follow_file()

    def make_writable(self) -> None:
        """Open for writing what an earlier handle of this process opened for reading."""
        with self.gate.turn():
            if self._read_only:
                self._read_only = False
                try:
                    self._reopen()
                except BaseException:
                    self._read_only = True
                    raise

    def _reopen(self) -> None:
        old, base = self.current
        with contextlib.suppress(lmdb.Error):
            base += old.info()["last_txnid"] + 1
        self.lock.renew(write=not self._read_only)
        self._finish_exchange()
        with self.lock.opening(self._timeout):
            if self._reader_table() != self._own_reader_table:
                # An exchanged file has a reader table of its own, so both environments may be open for a while:
                # transactions under way end on the old one, and the last of them closes it.
                new = self._open()
            else:
                with self.gate.alone(f"open the store {self.path} anew", self._timeout):
                    self.current = (old, base)  # In case it cannot be opened now, but later.
                    self._watch.forget()
                    old.close()
                    new = self._open()
        self.current = (new, base)

    def _finish_exchange(self) -> None:
        """Finish what somebody was killed at between the two files of an exchange."""
        if self._read_only or not folder.half_exchanged(self.path):
            return
        with self.lock.exchanging(self._timeout):
            if folder.half_exchanged(self.path):
                folder.finish_exchange(self.path)

    def _open(self) -> lmdb.Environment:
        data = self.path / folder.DATA
        with folder.explained(self.path):
            _require_whole(self.path)
            status = os.stat(data)
            environment, self._map_bytes = _open_environment(self.path, self._map_bytes, read_only=self._read_only)
            try:
                folder.keep_private(self.path / folder.READER_TABLE)
                environment.reader_check()
                _require_own_reader_table(environment, self.path)
                if self._check is not None:  # a file that took this one's place may be of a newer format
                    with environment.begin() as raw:
                        self._check(_View(self.path, raw))
                self._own_reader_table = self._reader_table()
            except BaseException:
                environment.close()
                raise
        self._watch.remember(status)
        return environment

    def _reader_table(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path / folder.READER_TABLE)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    # -- rebuilding --

    def rebuild(self, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]], timeout: float) -> None:
        """Build a data file of `rows` and exchange it for the one in place."""
        with self.lock.rebuilding():
            if self._exchanged_for(rows, timeout, wait=False) or self._exchanged_for(rows, timeout, wait=True):
                return
        raise Unavailable(f"the store {self.path} was replaced while it was rebuilt", path=str(self.path))

    def _exchanged_for(
        self, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]], timeout: float, *, wait: bool
    ) -> bool:
        """Build and exchange unless a commit came in between; with `wait` nobody can commit."""
        aside = folder.make_rebuild(self.path)
        try:
            if wait:
                return self.lock.during(timeout, lambda: self._exchange(aside, self._build(aside, rows), timeout))
            number = self._build(aside, rows)
            return self.lock.during(timeout, lambda: self._exchange(aside, number, timeout))
        finally:
            folder.discard(aside)

    def _build(self, aside: Path, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]]) -> int:
        """Fill the data file in `aside`; return the number of the commit it was built from."""
        with _ReadTxn(self) as txn:
            _fill(aside, rows(txn), max(self._map_bytes, MAP_BYTES_MIN), ordered=True)
            return txn.version()

    def _exchange(self, aside: Path, number: int, timeout: float) -> bool:
        """Exchange the files, under the write lock; return False when that commit is not the newest any more."""
        with _ReadTxn(self) as txn:
            if txn.version() != number or not self.lock.held:
                return False
        found = _walk(aside)
        if found:
            raise Corrupt(f"the rebuilt file {aside / folder.DATA} is damaged: {found[0]}", path=str(self.path))
        with self.lock.exchanging(timeout):
            if not self.lock.held:
                raise Unavailable(f"the store {self.path} was closed while it was rebuilt", path=str(self.path))
            folder.exchange(aside, self.path)
        self.follow_file()
        return True

    # -- the end --

    def lengthen(self) -> None:
        """Give a healthy file that is too short the length it claims, so that the next open need not walk it.

        A convenience that does not wait for the lock: the caller drops what it raises.
        """
        data = self.path / folder.DATA
        if self._read_only or self.lock.mine() or not self.in_place():
            return
        if os.stat(data).st_size >= folder.committed(data)[1]:
            return
        self.lock.during(0.0, lambda: folder.allocate(data, folder.committed(data)[1]))

    def close(self) -> None:
        """Close the files. Other threads that are still at it are waited for, but not for ever."""
        with contextlib.suppress(Error, OSError):
            self.lengthen()
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Unavailable):
                stack.enter_context(self.gate.alone("close the store", QUIET_SECONDS))
            self._closed = True
            self.current[0].close()
            self._watch.close()
            self.lock.close()
            self.owners.close()

    def forget(self, *, quiet: bool) -> None:
        """Let go of the parent's files in a forked child, changing nothing the parent can see.

        Ending an inherited transaction would free the parent's slot in the shared reader table, and closing the
        environment ends them all; closing it in the middle of somebody's call would wait for ever. So unless the
        fork found it quiet, everything is left to the end of the process.
        """
        inherited = self.gate.guests()
        for guest in inherited:
            if isinstance(guest, _View):
                _leak(guest.raw)
                guest.raw = None
        if inherited or not quiet:
            _leak(self.current[0])
            _stranded.add(self.key)
        else:
            self.current[0].close()
        self._watch.close()
        self.lock.close()
        self.owners.close()


def _open_environment(
    path: Path, map_bytes: int, *, read_only: bool, lock: bool = True
) -> tuple[lmdb.Environment, int]:
    """Open with as much address space as is to be had; return the environment and that size."""
    needed = max(os.stat(path / folder.DATA).st_size, MAP_BYTES_MIN)
    while True:
        try:
            environment = lmdb.open(
                str(path),
                map_size=map_bytes,
                readonly=read_only,
                create=False,
                mode=folder.FILE_MODE,
                max_readers=READERS_MAX,
                max_dbs=0,
                max_spare_txns=0,  # A spare transaction keeps a reader slot, which a forked child would free.
                lock=lock,
                lib_version=0,
            )
        except lmdb.MapResizedError:
            map_bytes *= 2
        except lmdb.MemoryError as error:
            if map_bytes <= needed:
                raise _no_space_to_map(path, map_bytes) from error
            map_bytes = max(map_bytes // 4, needed)
        except lmdb.Error as error:
            raise _translated(error, path) from error
        else:
            return environment, map_bytes


def _fill(aside: Path, rows: Iterable[tuple[bytes, bytes]], map_bytes: int, *, ordered: bool = False) -> None:
    """Write rows into the empty data file of a folder nobody else knows of. Rows in key order may be many."""
    environment, _ = _open_environment(aside, map_bytes, read_only=False, lock=False)
    raw = None
    try:
        raw = environment.begin(write=True)
        room = REBUILD_BATCH_BYTES
        for key, value in rows:
            if len(value) > VALUE_BYTES_MAX or not 0 < len(key) <= KEY_BYTES_MAX:
                raise _unfit(key, value)
            if not raw.put(key, value, append=ordered):
                raise Invalid("the rows of a rebuilt store must come in key order", key=key)
            room -= len(key) + len(value)
            if room < 0:
                raw.commit()
                raw = environment.begin(write=True)
                room = REBUILD_BATCH_BYTES
        raw.commit()
        raw = None
    except lmdb.Error as error:
        raise _translated(error, aside) from error
    finally:
        if raw is not None:
            with contextlib.suppress(lmdb.Error):
                raw.abort()
        environment.close()


def _look(path: Path, check: Callable[[ReadTxn], object] | None) -> None:
    """Let `check` see the contents without locks and without writing a byte anywhere.

    Nothing protects such a reader from two commits in a row, so what it finds wrong counts only if none came.
    """
    _require_whole(path)
    if check is None:
        return
    for left in reversed(range(LOOKS_MAX)):
        before, _ = folder.committed(path / folder.DATA)
        environment, _ = _open_environment(path, MAP_BYTES, read_only=True, lock=False)
        try:
            with environment.begin() as raw:
                check(_View(path, raw))
            return
        except (Error, lmdb.Error) as error:
            now, _ = folder.committed(path / folder.DATA)
            if now == before or not left:
                if isinstance(error, Error):
                    raise
                raise _translated(error, path) from error
        finally:
            environment.close()


def _require_whole(path: Path) -> None:
    """Raise Corrupt unless the data file holds all pages its newest commit uses: LMDB would die of a missing one.

    A healthy file may be shorter than its meta page says, when its last pages were freed by the very commit that
    would have written them. So a short file is walked before it is condemned.
    """
    data = path / folder.DATA
    for _ in range(LOOKS_MAX):
        number, needed = folder.committed(data)
        with folder.explained(data):
            size = os.stat(data).st_size
        if size >= needed:
            return
        found = _walk(path)
        if not found:
            return
        if folder.committed(data)[0] == number:
            raise Corrupt(
                f"{data} is cut off: it has {size} bytes of {needed}; {found[0]}",
                path=str(data),
                size=size,
                expected=needed,
            )
    raise Unavailable(f"{data} changes too fast to be checked", path=str(data))


def _walk(path: Path) -> list[str]:
    # Imported where it is needed: most processes never do.
    from lmdb.verify import VerifyError, verify

    try:
        with folder.explained(path):
            found: list[str] = verify(str(path / folder.DATA), subdir=False)  # type: ignore[no-untyped-call]
            return found
    except VerifyError as error:
        return [str(error)]


def _require_own_reader_table(environment: lmdb.Environment, path: Path) -> None:
    """Raise Unavailable when `lock.mdb` is still in use for another data file.

    Then its transaction number is the other file's, and LMDB would pick the wrong meta page by it. The number may
    lag one behind the meta page while a commit is under way.
    """
    earliest = environment.info()["last_txnid"] - 1
    with environment.begin() as raw:
        number = raw.id()
    latest = environment.info()["last_txnid"]
    if not earliest <= number <= latest:
        raise Unavailable(
            f"the data file of {path} was exchanged while other processes had the old one open: close them first",
            path=str(path),
        )


# --- one registry a process ---------------------------------------------------------------------

_registry: dict[tuple[int, int], _Shared] = {}
_registry_lock = threading.RLock()
# Stores that this process inherited in the middle of a transaction, by folder.
_stranded: set[tuple[int, int]] = set()
# What the last fork found: whether it had the registry to itself, and which environments were quiet.
_fork_had_registry = False
_fork_quiet: set[tuple[int, int]] = set()


def _release(shared: _Shared) -> None:
    """Give a handle back; the last one of the process closes the files."""
    with _registry_lock:
        shared.handles -= 1
        if not shared.handles:
            del _registry[shared.key]
            shared.close()


def _before_fork() -> None:
    """Wait, for a while, until only the forking thread has transactions, so that the child can let go of the files."""
    global _fork_had_registry
    deadline = time.monotonic() + QUIET_SECONDS
    _fork_had_registry = _registry_lock.acquire(timeout=QUIET_SECONDS)
    _fork_quiet.clear()
    for key, shared in list(_registry.items()):
        if shared.gate.close_for_fork(max(0.0, deadline - time.monotonic())):
            _fork_quiet.add(key)


def _after_fork_in_parent() -> None:
    for shared in list(_registry.values()):
        shared.gate.open_after_fork()
    if _fork_had_registry:
        _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()
    for key, shared in _registry.items():
        shared.forget(quiet=_fork_had_registry and key in _fork_quiet)
    _registry.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _leak(thing: object) -> None:
    """Keep `thing` from ever being deallocated, even at the end of the process."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


# --- failures -----------------------------------------------------------------------------------


# CURSOR_FULL is a tree that is too deep, as one that bites its tail is; BAD_TXN follows on such a failure.
_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.CursorFullError, lmdb.BadTxnError)


def _translated(error: lmdb.Error, path: Path) -> Error:
    if isinstance(error, _DAMAGE):
        return Corrupt(f"the data file of {path} is damaged: {error}", path=str(path))
    if isinstance(error, lmdb.BadValsizeError):
        return Invalid(f"a key has 1 to {KEY_BYTES_MAX} bytes", path=str(path))
    if isinstance(error, lmdb.MapFullError):
        return Unavailable(f"the map of {path} is full", path=str(path))
    if isinstance(error, lmdb.ReadersFullError):
        return Unavailable(f"{path} has {READERS_MAX} readers at once already", path=str(path))
    if _code(error) > 0:
        return folder.unavailable(path, _code(error))
    return Unavailable(f"{path} cannot be used: {error}", path=str(path))


def _code(error: lmdb.Error) -> int:
    """Return the system's error number, or a number below 1 when LMDB itself refused."""
    return getattr(error, "code", None) or 0


def _no_space_to_map(path: Path, size: int) -> Unavailable:
    return Unavailable(
        f"the store {path} needs {size} bytes of address space, more than this process may have",
        path=str(path),
        size=size,
    )


def _require_patched() -> None:
    global _warned
    if _warned:
        return
    _warned = True
    version = lmdb.version(subpatch=True)
    if len(version) < 4 or version[3] != 1:
        warnings.warn(
            f"py-lmdb {lmdb.__version__} runs on a system liblmdb {version}, which lacks the patches against damaged"
            " files; install the wheel of py-lmdb",
            RuntimeWarning,
            stacklevel=3,
        )


_warned = False
