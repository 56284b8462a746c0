"""The engine on disk: LMDB, with every rule it needs kept in one place. Nothing else in castlog imports `lmdb`.

Handles of one process on one store share one environment, found by the folder's device and inode, because LMDB
refuses a second. Each transaction announces itself in `_Shared.live` before it begins and then looks at the gate;
whoever must have the environment to himself (a larger map, a replaced file, a fork) closes the gate and waits until
the others' announcements are gone. The data file is compared with its path at every transaction, so a file that was
replaced by `replace` in any process is picked up, and a store that was deleted does not swallow commits.
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
from weakref import ref

import lmdb

from castlog.engine import folder
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.engine.lock import WriteLock
from castlog.errors import Corrupt, Error, Invalid, NotFound, Unavailable
from castlog.limits import (
    KEY_BYTES_MAX,
    LOCK_POLL_SECONDS_MIN,
    LOCK_TIMEOUT_SECONDS,
    LOOKS_MAX,
    MAP_BYTES,
    MAP_BYTES_MIN,
    QUIET_SECONDS,
    READERS_MAX,
    VALUE_BYTES_MAX,
)

T = TypeVar("T")

_get_ident = threading.get_ident
_getpid = os.getpid
_stat = os.stat
_NO_FILE = (-1, -1)


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
        status = _stat(target)
    key = (status.st_dev, status.st_ino)
    with _registry_lock:
        shared = _registry.get(key)
        if shared is None:
            if key in _stranded:
                raise Unavailable(
                    f"this process was forked in the middle of a transaction on {target}"
                    " and cannot open it; start a fresh process",
                    path=str(target),
                )
            _look(target, check)
            shared = _Shared(target, key, read_only=read_only, map_bytes=map_bytes, timeout=lock_timeout)
            _registry[key] = shared
        shared.handles += 1
    engine = DiskEngine(shared, read_only=read_only, lock_timeout=lock_timeout, notes=notes)
    try:
        if check is not None:
            with engine.read() as txn:
                check(txn)
        if not read_only:
            shared.make_writable()
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

    def read(self) -> _ReadTxn:
        """Return a read transaction on the newest commit, begun when its `with` block is entered."""
        shared = self._shared
        if shared is None or shared.pid != _getpid():
            raise self._unusable()
        return _ReadTxn(shared)

    def update(self, change: Callable[[WriteTxn], T]) -> T:
        """Run `change` in the single write transaction and commit; durable on return."""
        shared = self._shared
        if shared is None or shared.pid != _getpid():
            raise self._unusable()
        if self.read_only:
            raise Unavailable(f"the store {self.path} was opened for reading only", path=str(self.path))
        lock = shared.lock
        if lock.owner == _get_ident():
            raise Invalid("this thread is inside an update of the store already", path=str(self.path))
        try:
            lock.acquire(self._lock_timeout)
            return shared.update(change, self._lock_timeout)
        finally:
            lock.release()

    def version(self) -> int:
        """Return a number that grows with every commit; a read begun afterwards sees at least that commit."""
        with self.read() as txn:
            return txn.version()

    def stored_bytes(self) -> int:
        """Return the size of the data file, free pages included."""
        with folder.explained(self.path):
            return _stat(self.path / folder.DATA).st_size

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
        shared = self._shared
        if shared is None or self.read_only:
            raise Unavailable(f"the store {self.path} changes too fast to be checked", path=str(self.path))
        try:
            shared.lock.acquire(self._lock_timeout)
            return _walk(self.path)
        finally:
            shared.lock.release()

    def close(self) -> None:
        """Release the store; the last handle of the process closes the files. Calling it again does nothing."""
        shared, self._shared = self._shared, None
        if shared is None or shared.pid != _getpid():
            return
        with _registry_lock:
            shared.handles -= 1
            if not shared.handles:
                del _registry[shared.key]
                shared.close()

    def _unusable(self) -> Unavailable:
        if self._shared is None:
            return Unavailable(f"the store {self.path} was closed", path=str(self.path))
        return Unavailable(
            f"the store {self.path} was opened by process {self._shared.pid}; a forked process opens its own",
            path=str(self.path),
        )


# --- transactions -------------------------------------------------------------------------------


class _View:
    """What can be read inside one transaction of LMDB's."""

    __slots__ = ("__weakref__", "_path", "_raw", "_thread")

    def __init__(self, path: Path, raw: lmdb.Transaction[bytes] | None) -> None:
        self._path = path
        self._raw = raw
        self._thread = _get_ident()

    def get(self, key: bytes) -> bytes | None:
        raw = self._raw
        if raw is None:
            raise _over()
        try:
            value = raw.get(key)
        except lmdb.Error as error:
            raise _translated(error, self._path) from error
        return value

    def scan(self, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        try:
            cursor = self._cursor()
            if reverse:
                yield from self._backward(cursor, start, stop)
                return
            if not cursor.set_range(start):
                return
            for pair in cursor.iternext():
                if stop is not None and pair[0] >= stop:
                    return
                yield pair
                if self._raw is None:
                    raise _over()
        except lmdb.Error as error:
            raise _translated(error, self._path) from error

    def _backward(self, cursor: lmdb.Cursor[bytes], start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        # The first pair is the one before `stop`: step back from where `stop` is or would be.
        if stop is None or not cursor.set_range(stop):
            there = cursor.last()
        else:
            there = cursor.prev()
        if not there:
            return
        for pair in cursor.iterprev():
            if pair[0] < start:
                return
            yield pair
            if self._raw is None:
                raise _over()

    def _cursor(self) -> lmdb.Cursor[bytes]:
        raw = self._raw
        if raw is None:
            raise _over()
        return raw.cursor()


class _ReadTxn(_View):
    """A read transaction: begun on entering its block, dead after it."""

    __slots__ = ("_shared",)

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._path = shared.path
        self._raw = None
        self._thread = _get_ident()

    def __enter__(self) -> _ReadTxn:
        shared = self._shared
        if not shared.in_place():
            shared.follow_file()
        shared.live[id(self)] = ref(self)
        try:
            if shared.gate:
                shared.pass_gate(self)
            self._raw = shared.environment.begin()
        except lmdb.Error as error:
            shared.begin_again(self, error)
        except BaseException:
            shared.live.pop(id(self), None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raw = self._raw
        if raw is None:
            return
        self._raw = None
        try:
            raw.abort()
        except lmdb.Error:
            pass  # The environment was closed or remapped meanwhile, which ended the transaction.
        finally:
            self._shared.live.pop(id(self), None)

    def version(self) -> int:
        """Return the number of the commit this transaction sees."""
        raw = self._raw
        if raw is None:
            raise _over()
        return self._shared.version_base + int(raw.id())


class _WriteTxn(_View):
    """The write transaction: bound to its thread, because LMDB hangs when another one touches it."""

    __slots__ = ("full",)

    def __init__(self, path: Path, raw: lmdb.Transaction[bytes] | None) -> None:
        super().__init__(path, raw)
        self.full = False

    def get(self, key: bytes) -> bytes | None:
        if self._thread != _get_ident():
            raise _misused(self._raw)
        return super().get(key)

    def put(self, key: bytes, value: bytes) -> None:
        raw = self._raw
        if raw is None or self._thread != _get_ident():
            raise _misused(raw)
        if len(value) > VALUE_BYTES_MAX or not 0 < len(key) <= KEY_BYTES_MAX:
            raise _unfit(key, value)
        try:
            raw.put(key, value)
        except lmdb.MapFullError:
            self.full = True
            raise
        except lmdb.Error as error:
            raise _translated(error, self._path) from error

    def delete(self, key: bytes) -> bool:
        raw = self._raw
        if raw is None or self._thread != _get_ident():
            raise _misused(raw)
        try:
            return bool(raw.delete(key))
        except lmdb.MapFullError:
            self.full = True
            raise
        except lmdb.Error as error:
            raise _translated(error, self._path) from error

    def _cursor(self) -> lmdb.Cursor[bytes]:
        if self._thread != _get_ident():
            raise _misused(self._raw)
        return super()._cursor()

    def commit(self) -> None:
        raw = self._raw
        assert raw is not None
        try:
            raw.commit()
        except lmdb.MapFullError:
            self.full = True

    def end(self) -> None:
        """Make the transaction unusable; what was not committed is undone."""
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(lmdb.Error):
                raw.abort()


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
    """One environment and its locks, shared by every handle of this process on the same store."""

    def __init__(self, path: Path, key: tuple[int, int], *, read_only: bool, map_bytes: int, timeout: float) -> None:
        self.path = path
        self.key = key
        self.pid = _getpid()
        self.data = str(path / folder.DATA)
        self._folder = str(path)
        # The data file that is open, by device and inode; no file's when it must be opened anew.
        self.file = _NO_FILE
        # The folder's change time at which the file was in its place, or -1 while that is too young to be trusted.
        self._settled = -1
        self.handles = 0
        self.read_only = read_only
        # Transactions under way, by identity. Weak, so that one lost to an interrupt does not stay for ever.
        self.live: dict[int, ref[_View]] = {}
        # The thread that wants to be alone, or 0.
        self.gate = 0
        self.version_base = 0
        self._alone = threading.RLock()
        self._map_bytes = map_bytes
        self._timeout = timeout
        self.lock = WriteLock(path / folder.WRITE_LOCK, create=not read_only or not _present(path))
        try:
            self.environment = self._open()
        except BaseException:
            self.lock.close()
            raise

    def update(self, change: Callable[[WriteTxn], T], timeout: float) -> T:
        """Run `change` and commit. The caller holds the write lock."""
        while True:
            if not self.in_place():
                self._follow_locked(timeout)
            txn = _WriteTxn(self.path, None)
            try:
                self._begin_write(txn)
                result = change(txn)
                if not txn.full:
                    txn.commit()
            except lmdb.Error as error:
                if not txn.full:
                    raise self._failed(error) from error
            except Exception:
                # A change that hides the full map behind an exception of its own still runs again.
                if not txn.full:
                    raise
            finally:
                txn.end()
                self.live.pop(id(txn), None)
            if not txn.full:
                break
            self._grow()
        if not self.in_place():
            raise Unavailable(
                f"the store {self.path} was removed or replaced while a change was committed",
                path=str(self.path),
            )
        return result

    def _begin_write(self, txn: _WriteTxn) -> None:
        self.live[id(txn)] = ref(txn)
        if self.gate:
            self.pass_gate(txn)
        try:
            txn._raw = self.environment.begin(write=True)
        except lmdb.Error as error:
            self.begin_again(txn, error, write=True)

    def _follow_locked(self, timeout: float) -> None:
        """Follow a replaced file under the write lock, which was replaced too if the whole folder was."""
        self.follow_file()
        while self.lock.renew():
            self.lock.release()
            self.lock.acquire(timeout)
            self.follow_file()

    def begin_again(self, txn: _View, error: lmdb.Error, *, write: bool = False) -> None:
        """Mend what kept a transaction from beginning and begin it, or raise what is wrong."""
        self.live.pop(id(txn), None)
        if not self._mended(error):
            raise self._failed(error) from error
        self.live[id(txn)] = ref(txn)
        try:
            txn._raw = self.environment.begin(write=write)
        except BaseException as again:
            self.live.pop(id(txn), None)
            if isinstance(again, lmdb.Error):
                raise self._failed(again) from again
            raise

    def _mended(self, error: lmdb.Error) -> bool:
        """Do what helps against `error`; return whether trying again makes sense."""
        if isinstance(error, lmdb.MapResizedError):
            # Another process made the map larger.
            with self._quiet("adopt the larger map"):
                self.environment.set_mapsize(0)
            return True
        if isinstance(error, lmdb.ReadersFullError):
            return bool(self.environment.reader_check())
        if isinstance(error, lmdb.PanicError):
            self._lose_file()
            self.follow_file()
            return True
        return False

    def _failed(self, error: lmdb.Error) -> Error:
        """Return castlog's word for `error`. After a failed write of a meta page the files are opened anew."""
        if isinstance(error, lmdb.PanicError) or getattr(error, "code", 0) > 0:
            self._lose_file()
        return _translated(error, self.path)

    def _grow(self) -> None:
        """Make the map larger. LMDB wants no transaction open in this process."""
        size = self._map_bytes * 2
        with self._quiet("make the map larger"):
            try:
                self.environment.set_mapsize(size)
            except lmdb.Error as error:
                self._lose_file()  # LMDB leaves an environment that could not be mapped unusable.
                raise Unavailable(
                    f"the store {self.path} needs more address space than this process may have",
                    path=str(self.path),
                    size=size,
                ) from error
        self._map_bytes = size

    # -- being alone --

    def pass_gate(self, txn: _View) -> None:
        """Wait while somebody wants to be alone, unless this thread is who they wait for."""
        me = _get_ident()
        while self.gate and self.gate != me:
            if any(other is not txn and other._thread == me for other in self.living()):
                return
            self.live.pop(id(txn), None)
            time.sleep(LOCK_POLL_SECONDS_MIN)
            self.live[id(txn)] = ref(txn)

    def living(self) -> list[_View]:
        """Return the transactions under way in this process."""
        return [txn for reference in list(self.live.values()) if (txn := reference()) is not None]

    @contextlib.contextmanager
    def _quiet(self, purpose: str) -> Iterator[None]:
        with self._alone:
            self.gate = me = _get_ident()
            try:
                if any(txn._thread == me for txn in self.living()):
                    raise Unavailable(
                        f"cannot {purpose} while this thread has a transaction of the store open",
                        path=str(self.path),
                    )
                if not self.wait_for_others(time.monotonic() + self._timeout):
                    raise Unavailable(
                        f"cannot {purpose}: other threads keep transactions of the store open",
                        path=str(self.path),
                    )
                yield
            finally:
                self.gate = 0

    def wait_for_others(self, deadline: float) -> bool:
        """Wait until only this thread has transactions; return whether that came true in time."""
        me = _get_ident()
        while any(txn._thread != me for txn in self.living()):
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_POLL_SECONDS_MIN)
        return True

    # -- following the file --

    def in_place(self) -> bool:
        """Tell whether the data file at the path is still the one that is open.

        Asks the folder, not the file: its change time tells of every name put, moved or removed in it and cannot be
        set back. (A look at the file's own times makes Linux, since 6.13, write a new one at the next commit, which
        then costs a tenth more.) While the change time is young, another change might get the same, so then the
        file is looked at too.
        """
        try:
            status = _stat(self._folder)
            if status.st_ctime_ns == self._settled and status.st_ino == self.key[1]:
                return True
            there = _stat(self.data)
        except OSError:
            return False
        if (there.st_ino, there.st_dev) != self.file:
            return False
        self._settled = status.st_ctime_ns if _is_settled(status.st_ctime_ns) else -1
        return True

    def _lose_file(self) -> None:
        """Have the next transaction open the file anew."""
        self.file = _NO_FILE
        self._settled = -1

    def follow_file(self) -> None:
        """Open the data file that now lies at the path, if it is another one than ours."""
        with self._alone:
            if self.in_place():
                return
            try:
                _stat(self.data)
            except FileNotFoundError as error:
                raise Unavailable(f"the store {self.path} is gone", path=str(self.path)) from error
            except OSError as error:
                raise folder.unavailable(self.path, error.errno or 0) from error
            self._reopen()

    def make_writable(self) -> None:
        """Open for writing what an earlier handle of this process opened for reading."""
        with self._alone:
            if self.read_only:
                self.read_only = False
                try:
                    self._reopen()
                except BaseException:
                    self.read_only = True
                    raise

    def _reopen(self) -> None:
        old = self.environment
        seen = self.version_base + old.info()["last_txnid"]
        if self._reader_table() != self.reader_table:
            # A file that was replaced as it should has a reader table of its own, so both environments may be
            # open for a while: transactions under way end on the old one, and the last of them closes it.
            self.environment = self._open()
        else:
            with self._quiet("open the store anew"):
                old.close()
                self.environment = self._open()
        self.version_base = max(self.version_base, seen + 1 - self.environment.info()["last_txnid"])

    def _open(self) -> lmdb.Environment:
        with self.lock.swap(self._timeout), folder.explained(self.path):
            _require_whole(self.path)
            status = _stat(self.data)
            environment, self._map_bytes = _open_environment(self.path, self._map_bytes, read_only=self.read_only)
            try:
                folder.keep_private(self.path / folder.READER_TABLE)
                environment.reader_check()
                _require_own_reader_table(environment, self.path)
            except BaseException:
                environment.close()
                raise
        self.file = (status.st_ino, status.st_dev)
        self._settled = -1
        self.reader_table = self._reader_table()
        return environment

    def _reader_table(self) -> tuple[int, int] | None:
        try:
            status = _stat(self.path / folder.READER_TABLE)
        except OSError:
            return None
        return status.st_ino, status.st_dev

    def close(self) -> None:
        """Close the files."""
        self.environment.close()
        self.lock.close()

    def forget(self) -> None:
        """Let go of the parent's files in a forked child, changing nothing the parent can see.

        Ending an inherited transaction would free the parent's slot in the shared reader table, and closing the
        environment ends them; so with one under way everything is left to the end of the process.
        """
        inherited = self.living()
        for txn in inherited:
            if txn._raw is not None:
                _leak(txn._raw)
            txn._raw = None
            txn._thread = 0
        if inherited:
            _leak(self.environment)
            _stranded.add(self.key)
        else:
            self.environment.close()
        self.lock.close()


def _is_settled(change_time: int) -> bool:
    """Tell whether a change made from now on gets another change time.

    Kernels stamp with a clock that ticks every 1 to 10 ms; file systems that keep whole seconds keep two at worst.
    """
    age = time.time_ns() - change_time
    return age > (100_000_000 if change_time % 1_000_000_000 else 2_500_000_000)


def _present(path: Path) -> bool:
    return (path / folder.WRITE_LOCK).exists()


def _open_environment(
    path: Path, map_bytes: int, *, read_only: bool, lock: bool = True
) -> tuple[lmdb.Environment, int]:
    """Open with as much address space as is to be had; return the environment and that size."""
    needed = max(_stat(path / folder.DATA).st_size, MAP_BYTES_MIN)
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
                max_spare_txns=0,  # A spare transaction keeps a reader slot that a forked child would free.
                lock=lock,
                lib_version=0,
            )
        except lmdb.MapResizedError:
            map_bytes *= 2
        except lmdb.MemoryError as error:
            if map_bytes <= needed:
                raise Unavailable(
                    f"the store {path} needs more address space than this process may have",
                    path=str(path),
                    size=map_bytes,
                ) from error
            map_bytes = max(map_bytes // 4, needed)
        except lmdb.Error as error:
            raise _translated(error, path) from error
        else:
            return environment, map_bytes


def _fill(aside: Path, rows: Iterable[tuple[bytes, bytes]], map_bytes: int) -> None:
    environment, _ = _open_environment(aside, map_bytes, read_only=False, lock=False)
    txn = None
    try:
        txn = _WriteTxn(aside, environment.begin(write=True))
        for key, value in rows:
            txn.put(key, value)
        txn.commit()
    except lmdb.Error as error:
        raise _translated(error, aside) from error
    finally:
        if txn is not None:
            txn.end()
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
        view = None
        try:
            view = _View(path, environment.begin())
            check(view)
            return
        except (Error, lmdb.Error) as error:
            now, _ = folder.committed(path / folder.DATA)
            if now == before or not left:
                if isinstance(error, Error):
                    raise
                raise _translated(error, path) from error
        finally:
            if view is not None:
                view._raw = None
            environment.close()


def _require_whole(path: Path) -> None:
    """Raise Corrupt unless the data file holds all pages its newest commit uses: LMDB would die of a missing one.

    A healthy file may be shorter than its meta page says, when the last pages were freed by the commit that
    would have written them. So a short file is walked before it is condemned.
    """
    data = path / folder.DATA
    for _ in range(LOOKS_MAX):
        number, needed = folder.committed(data)
        with folder.explained(data):
            size = _stat(data).st_size
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
    with environment.begin() as txn:
        number = txn.id()
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
_fork_has_registry = False


def _before_fork() -> None:
    """Wait, for a while, until only the forking thread has transactions, so that the child can let go of the rest."""
    global _fork_has_registry
    deadline = time.monotonic() + QUIET_SECONDS
    _fork_has_registry = _registry_lock.acquire(timeout=QUIET_SECONDS)
    for shared in list(_registry.values()):
        shared.gate = _get_ident()
        shared.wait_for_others(deadline)


def _after_fork_in_parent() -> None:
    for shared in list(_registry.values()):
        shared.gate = 0
    if _fork_has_registry:
        _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()
    for shared in _registry.values():
        shared.forget()
    _registry.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _leak(thing: object) -> None:
    """Keep `thing` from ever being deallocated, even at the end of the process."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


# --- failures -----------------------------------------------------------------------------------


def _translated(error: lmdb.Error, path: Path) -> Error:
    if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)):
        return Corrupt(f"the data file of {path} is damaged: {error}", path=str(path))
    if isinstance(error, lmdb.BadValsizeError):
        return Invalid(f"a key has 1 to {KEY_BYTES_MAX} bytes", path=str(path))
    if isinstance(error, lmdb.MapFullError):
        return Unavailable(f"the map of {path} is full", path=str(path))
    if isinstance(error, lmdb.ReadersFullError):
        return Unavailable(f"{path} has {READERS_MAX} readers at once already", path=str(path))
    code = getattr(error, "code", 0)
    if code > 0:
        return folder.unavailable(path, code)
    return Unavailable(f"{path} cannot be used: {error}", path=str(path))


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
