"""The engine in memory: same promises, nothing on disk. For tests, and for logs that nobody will want back.

A committed state is a sorted key list and a dict. A change collects in an overlay and is folded in at the end: in
place when nobody reads the state, else into a copy, so that a reader goes on seeing what it began with.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from types import TracebackType
from typing import TypeVar

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.engine.owner import Owners
from castlog.engine.turn import Turn
from castlog.errors import Conflict, Invalid, Unavailable
from castlog.limits import KEY_BYTES_MAX, LOCK_TIMEOUT_SECONDS, VALUE_BYTES_MAX

T = TypeVar("T")


class MemoryEngine:
    """One map in memory. Threads may share it; a forked process has no use of it."""

    __slots__ = ("_lock_timeout", "_pid", "_state", "_swap", "_turn", "notes", "owners", "read_only")

    def __init__(self, rows: Iterable[tuple[bytes, bytes]] = (), *, lock_timeout: float = LOCK_TIMEOUT_SECONDS) -> None:
        self.read_only = False
        self.notes: tuple[str, ...] = ()
        self.owners = Owners()
        self._pid = os.getpid()
        self._lock_timeout = lock_timeout
        self._turn = Turn()
        # Held for moments: a reader joins a state, or a change replaces it.
        self._swap = threading.Lock()
        first = _WriteTxn(_State([], {}, 0))
        for key, value in rows:
            first.put(key, value)
        self._state: _State | None = _folded(_State([], {}, 0), first.changes)

    def read(self) -> _ReadTxn:
        """Return a read transaction on the newest commit, begun when its `with` block is entered."""
        self._usable()
        return _ReadTxn(self)

    def update(self, change: Callable[[WriteTxn], T]) -> T:
        """Run `change` in the single write transaction and commit."""
        return self._writing(lambda: self._update(change))

    def _update(self, change: Callable[[WriteTxn], T]) -> T:
        txn = _WriteTxn(self._usable())
        try:
            result = change(txn)
        finally:
            txn.end()
        try:
            self._commit(txn.changes)
        except BaseException:
            self._commit(txn.changes)  # Else half of it might be there.
            raise
        return result

    def _commit(self, changes: dict[bytes, bytes | None]) -> None:
        with self._swap:
            self._state = _folded(self._usable(), changes)

    def replace(self, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]]) -> None:
        """Put what `rows` yields, in key order, in the place of all there is."""
        self._writing(lambda: self._replace(rows))

    def _replace(self, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]]) -> None:
        with self.read() as txn:
            new = _WriteTxn(_State([], {}, 0))
            last = b""
            for key, value in rows(txn):
                new.put(key, value)
                if key <= last:
                    raise Invalid("the rows of a rebuilt store must come in key order", key=key)
                last = key
        values = {key: value for key, value in new.changes.items() if value is not None}
        with self._swap:
            self._state = _State(list(values), values, self._usable().version + 1)

    def _writing(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, run while no other thread writes."""
        self._usable()
        if self._turn.mine():
            raise Invalid("this thread is inside an update of the store already")
        return self._turn.during(self._lock_timeout, self._take, work, lambda: None)

    def _take(self, seconds: float) -> None:
        if not self._turn.wait(seconds):
            pid = os.getpid()
            raise Conflict(
                f"the store in memory is locked by another thread of this process ({pid})"
                f" and was not free within {self._lock_timeout:g} seconds",
                pid=pid,
            )

    def version(self) -> int:
        """Return a number that grows with every commit that changes something."""
        return self._usable().version

    def stored_bytes(self) -> int:
        """Return how many bytes the keys and values have."""
        with self.read() as txn:
            return sum(len(key) + len(value) for key, value in txn.scan(b""))

    def problems(self) -> list[str]:
        """Return nothing: there is no structure on disk that could be damaged."""
        self._usable()
        return []

    def close(self) -> None:
        """Drop the map. Calling it again does nothing."""
        self._state = None

    def _usable(self) -> _State:
        state = self._state
        if state is None:
            raise Unavailable("the store in memory was closed")
        if self._pid != os.getpid():
            raise Unavailable(f"the store in memory belongs to process {self._pid}")
        return state

    def _join(self) -> _State:
        with self._swap:
            state = self._usable()
            state.readers += 1
            return state

    def _leave(self, state: _State) -> None:
        with self._swap:
            state.readers -= 1


class _State:
    """What one commit left: sorted keys and their values, and how many transactions read it."""

    __slots__ = ("keys", "readers", "values", "version")

    def __init__(self, keys: list[bytes], values: dict[bytes, bytes], version: int) -> None:
        self.keys = keys
        self.values = values
        self.version = version
        self.readers = 0

    def scan(self, start: bytes, stop: bytes | None, reverse: bool) -> Iterator[bytes]:
        first = bisect_left(self.keys, start)
        last = len(self.keys) if stop is None else bisect_left(self.keys, stop)
        indices = range(first, last)
        return (self.keys[index] for index in (reversed(indices) if reverse else indices))


class _ReadTxn:
    """A read transaction: begun on entering its block, dead after it."""

    __slots__ = ("_engine", "_state")

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._state: _State | None = None

    def __enter__(self) -> _ReadTxn:
        self._state = self._engine._join()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._engine._leave(state)

    def version(self) -> int:
        """Return the number of the commit this transaction sees."""
        return _alive(self._state).version

    def get(self, key: bytes) -> bytes | None:
        state = _alive(self._state)
        _require_key(key)
        return state.values.get(key)

    def scan(self, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        state = _alive(self._state)
        for key in state.scan(start, stop, reverse):
            yield key, state.values[key]
            _alive(self._state)


class _WriteTxn:
    """The write transaction: a state with an overlay of changes, where None means deleted."""

    __slots__ = ("_state", "_thread", "changes", "number", "touched")

    def __init__(self, state: _State) -> None:
        self._state: _State | None = state
        self._thread = threading.get_ident()
        self.changes: dict[bytes, bytes | None] = {}
        self.number = state.version + 1
        self.touched = 0

    def get(self, key: bytes) -> bytes | None:
        state = self._mine()
        _require_key(key)
        return self.changes[key] if key in self.changes else state.values.get(key)

    def scan(self, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        state = self._mine()
        changed = sorted(
            (key for key in self.changes if start <= key and (stop is None or key < stop)), reverse=reverse
        )
        before = None
        for key in merge(state.scan(start, stop, reverse), changed, reverse=reverse):
            if key == before:
                continue
            before = key
            value = self.get(key)
            if value is not None:
                yield key, value

    def put(self, key: bytes, value: bytes) -> None:
        self._mine()
        _require_key(key)
        if len(key) > KEY_BYTES_MAX:
            raise Invalid(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}", size=len(key))
        if len(value) > VALUE_BYTES_MAX:
            raise Invalid(f"a value has at most {VALUE_BYTES_MAX} bytes, not {len(value)}", size=len(value))
        self.touched += 1
        self.changes[bytes(key)] = bytes(value)

    def delete(self, key: bytes) -> bool:
        if self.get(key) is None:
            return False
        self.touched += 1
        self.changes[bytes(key)] = None
        return True

    def end(self) -> None:
        """Make the transaction unusable."""
        self._state = None

    def _mine(self) -> _State:
        state = _alive(self._state)
        if self._thread != threading.get_ident():
            raise Invalid("a write transaction must not be used by a second thread")
        return state


def _folded(state: _State, changes: dict[bytes, bytes | None]) -> _State:
    """Return the state after `changes`: the same object, unless somebody reads it.

    Interrupted on any line, it can be done again.
    """
    if not changes:
        return state
    if state.readers:
        state = _State(state.keys.copy(), state.values.copy(), state.version)
    for key, value in changes.items():
        index = bisect_left(state.keys, key)
        there = index < len(state.keys) and state.keys[index] == key
        if value is not None:
            state.values[key] = value
            if not there:
                state.keys.insert(index, key)
        else:
            state.values.pop(key, None)
            if there:
                del state.keys[index]
    state.version += 1
    return state


def _alive(state: _State | None) -> _State:
    if state is None:
        raise Invalid("the transaction is over: it must not be used outside its block")
    return state


def _require_key(key: bytes) -> None:
    if not key:
        raise Invalid(f"a key has 1 to {KEY_BYTES_MAX} bytes", size=0)
