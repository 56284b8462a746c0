"""Which engine a target names: `memory:`, `lmdb:PATH`, or a plain path."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from castlog.engine.base import Engine, ReadTxn
from castlog.errors import Invalid, NotFound

MEMORY = "memory:"
LMDB = "lmdb:"


def open_engine(
    target: str,
    *,
    create: bool,
    read_only: bool,
    lock_timeout: float,
    first_rows: Callable[[], Iterable[tuple[bytes, bytes]]],
    check: Callable[[ReadTxn], object],
) -> Engine:
    """Open the engine a target names; with `create`, make it holding `first_rows` if it is not there.

    `check` sees the contents before anything is touched, and refuses by raising.
    """
    if not target:
        raise Invalid("the store's path is empty; give a folder or memory:")
    _require_seconds(lock_timeout)
    if target == MEMORY:
        if not create:
            raise NotFound("memory: is a new store each time; open it for writing, or give a path")
        from castlog.engine.memory import MemoryEngine

        return MemoryEngine(first_rows(), lock_timeout=lock_timeout)
    from castlog.engine import disk

    path = target.removeprefix(LMDB)
    if create:
        disk.create(path, first_rows())
    return disk.open_disk(path, read_only=read_only, lock_timeout=lock_timeout, check=lambda txn: _seen(check(txn)))


def _require_seconds(lock_timeout: object) -> None:
    """Raise Invalid for a time-out that is no time."""
    if isinstance(lock_timeout, (int, float)) and not isinstance(lock_timeout, bool):
        with contextlib.suppress(OverflowError):
            if float(lock_timeout) >= 0:  # also false of NaN
                return
    raise Invalid("lock_timeout must be a number of seconds, 0 or more")


def _seen(_: object) -> None:
    """Drop what a check returned: only its raising counts."""
