"""The contract every engine keeps: one ordered map of bytes to bytes, with transactions.

Keys are 1 to 511 bytes, ordered as unsigned bytes; values are at most `limits.VALUE_BYTES_MAX` bytes. Everything above
this room is written against these protocols only, so that a shared database can become one more engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from castlog.engine.owner import Owners

T = TypeVar("T")


class ReadTxn(Protocol):
    """A consistent view of the map as of one commit. Bytes it returns are copies and outlive it."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        ...

    def scan(self, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs with `start <= key < stop` in key order; `stop=None` means to the end of the map.

        With `reverse` the same pairs come in descending order. The iterator dies with the transaction. In a write
        transaction the map must not change while one of its scans is being consumed.
        """
        ...


class CommittedTxn(ReadTxn, Protocol):
    """A read transaction of its own, which sees what was committed and nothing else."""

    def version(self) -> int:
        """Return the engine's version as of the commit it sees: two that return the same see the same map."""
        ...


class WriteTxn(ReadTxn, Protocol):
    """The one transaction that may change the map. It sees its own changes."""

    touched: int
    """How many changes were made in it: who finds this unchanged knows that nothing was written meanwhile."""

    number: int
    """What `version` will say if this is committed with changes: one more than of the commit it builds on."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value`, replacing what was there."""
        ...

    def delete(self, key: bytes) -> bool:
        """Remove `key`; return whether it was there."""
        ...


class Engine(Protocol):
    """One open map. Handles may be shared by threads, never by forked processes."""

    read_only: bool
    notes: tuple[str, ...]
    """What the user should know about the place the map lies in; empty when there is nothing."""

    @property
    def owners(self) -> Owners:
        """Who owns which branch. A hold taken inside `update` comes either before or after any other change."""
        ...

    def read(self) -> AbstractContextManager[CommittedTxn]:
        """Open a read transaction on the newest commit; leave it within milliseconds.

        Raises Unavailable in a forked child, after `close`, or when the files were replaced.
        """
        ...

    def update(self, change: Callable[[WriteTxn], T]) -> T:
        """Run `change` in the single write transaction and commit; durable on return.

        `change` must be repeatable: it runs again from the start when the engine had to make room. An exception
        aborts the transaction, leaves the map as it was and is passed on. Raises Conflict when the lock is not had
        in time, Unavailable when the map is read-only or the disk is full. Nested calls in one thread are refused.
        """
        ...

    def replace(self, rows: Callable[[ReadTxn], Iterable[tuple[bytes, bytes]]]) -> None:
        """Put what `rows` yields, in key order, in the place of all there is, laid out afresh; durable on return.

        `rows` sees the newest commit and must be repeatable: it runs again, with writers waiting, when a commit came
        in between. Readers under way keep what they see. On failure nothing has changed. Raises Invalid when keys
        are out of order, Conflict when somebody else is at it or the lock is not had in time.
        """
        ...

    def version(self) -> int:
        """Return a number that grows with every commit of any process. Costs a few microseconds.

        A read begun afterwards sees at least that commit, so a follower that compares numbers misses nothing.
        """
        ...

    def stored_bytes(self) -> int:
        """Return how many bytes the map occupies where it lies, free pages included."""
        ...

    def problems(self) -> list[str]:
        """Check the map's own structure, not what is kept in it; return a sentence for each thing found wrong."""
        ...

    def close(self) -> None:
        """Release the map. Calling it again does nothing."""
        ...
