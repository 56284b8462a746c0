"""Branches: what can be appended to, forked, moved and followed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from castlog import limits
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, Error, Invalid
from castlog.event import Draft, Event
from castlog.format import ids, names, rows
from castlog.history import refs, sessions, timelines
from castlog.history.refs import Place
from castlog.view import View

if TYPE_CHECKING:
    from castlog.session import Session


class Move(msgspec.Struct, frozen=True):
    """An entry of a branch's reflog. `ts` is nanoseconds UTC; an id is None where nobody has needed it yet."""

    n: int
    ts: int
    op: str
    old_seq: int
    old_id: str | None
    new_seq: int
    new_id: str | None
    note: str


class Branch(View):
    """A named, movable reference inside a session. It holds on to the branch, whatever its name becomes."""

    def __init__(self, owner: Session, number: int) -> None:
        self._owner = owner
        self._core = owner._core
        self._session = owner._session
        self._row = owner._made_from
        self._number = number

    @property
    def name(self) -> str:
        """The branch's name, read now; raises NotFound once it is deleted."""
        with self._core.read() as txn:
            return self._ref(txn).name

    @property
    def rev(self) -> str:
        """The string that `store.branch` takes elsewhere."""
        return f"{ids.show_session(self._session)}/{self.name}"

    def append(
        self,
        type: str,  # noqa: A002 - the event's own word
        payload: Any,
        *,
        call_id: str | None = None,
        ts: int | None = None,
        schema: int | None = None,
        key: str | None = None,
        expect: int | str | None = None,
    ) -> Event:
        """Append one event and return it; durable on return.

        `key` is looked up before `expect`: the same key on the same history returns its first event and writes nothing.
        Raises Invalid for what cannot be kept, Conflict when `expect` (seq or event id) is not the head, when the key
        has another type or payload, or when the lock is not had in time; NotFound when the branch was deleted;
        Unavailable when the store cannot be written.
        """
        return self.extend([Draft(type, payload, call_id, ts, schema, key)], expect=expect)[0]

    def extend(
        self, drafts: Iterable[Draft | tuple[str, Any] | Event], *, expect: int | str | None = None
    ) -> list[Event]:
        """Append several events in one atomic commit and return them; durable on return. Raises as `append` does."""
        wanted = expected_head(expect)
        ready = self._core.prepare(self._number, self._row, drafts)
        return self._core.append(self._number, self._row, ready, wanted)

    def follow(self, after: int | None = None, timeout: float | None = None) -> Iterator[Event]:
        """Yield events after seq `after` (default: the head now) as they are appended, by any process.

        Ends quietly when nothing came for `timeout` seconds. Raises Conflict when the branch moved off what was
        yielded, NotFound when it was deleted. Wakes at most 20 times a second while nothing is written.
        """
        return self._follow(Follower(self, after, timeout))

    def seal(self) -> None:
        """Compress the newest events now instead of when their chunk is full; for a run that has come to its end."""
        self._core.seal(self._number, self._row)

    def reset(self, seq: int) -> None:
        """Move the head back to `seq`; what came after stays in the reflog.

        Raises Conflict(holder, since) while a `Run` has the branch.
        """
        now = self._core.clock()

        def change(txn: WriteTxn) -> None:
            ref = self._ref(txn)
            self._core.require_unowned(self._number, ref.name)
            refs.move(txn, self._number, refs.place_at(txn, ref, seq, ref.name), now=now, operation="reset")

        self._core.update(change)

    def rename(self, name: str) -> None:
        """Give the branch another name; raises Conflict when it is taken."""
        name = names.check_name(name, "branch name")
        now = self._core.clock()

        def change(txn: WriteTxn) -> None:
            self._ref(txn)
            refs.rename(txn, self._number, name, now)

        self._core.update(change)

    def delete(self) -> None:
        """Put the branch into the trash. Its forks are not touched.

        Raises Conflict(holder, since) while a `Run` has it.
        """
        now = self._core.clock()

        def change(txn: WriteTxn) -> None:
            self._core.require_unowned(self._number, self._ref(txn).name)
            refs.delete(txn, self._number, now)

        self._core.update(change)

    def reflog(self) -> list[Move]:
        """Return everything that moved this branch except appends, oldest first."""
        with self._core.read() as txn:
            moves = refs.reflog(txn, self._number)
        return [
            Move(n, m.ts, m.operation, m.old_seq, _shown(m.old_id), m.new_seq, _shown(m.new_id), m.note)
            for n, m in enumerate(moves)
        ]

    def __repr__(self) -> str:
        return f"<Branch {self._words()}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Branch):
            return NotImplemented
        return self._core is other._core and self._number == other._number

    def __hash__(self) -> int:
        return hash((id(self._core), self._number))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a Branch belongs to an open store; pass its rev ({self._words()}) and use store.branch there")

    def _words(self) -> str:
        """Return the rev, or what can be said of a branch that is gone."""
        try:
            return self.rev
        except Error:
            return f"{self._number} of {ids.show_session(self._session)}, deleted or closed"

    def _ref(self, txn: ReadTxn) -> rows.Ref:
        ref = refs.branch(txn, self._number)
        sessions.read(txn, self._session)
        return ref

    def _pinned(self) -> View:
        with self._core.read() as txn:
            return View(self._owner, *self._where(txn))

    def _where(self, txn: ReadTxn) -> tuple[str, Place]:
        ref = self._ref(txn)
        return ref.name, Place(ref.timeline, ref.seq, ref.id)

    def _follow(self, follower: Follower) -> Iterator[Event]:
        while True:
            found = False
            for page in follower.look():
                found = True
                yield from page
            if not found:
                pause = follower.pause()
                if pause is None:
                    return
                time.sleep(pause)


class Follower:
    """How far a branch has been followed, and how long to wait before the next look."""

    def __init__(self, branch: Branch, after: int | None, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise Invalid(f"the timeout is {timeout!r}; give seconds, or None to follow for ever", value=timeout)
        self._branch = branch
        self._timeout = timeout
        self._seen: int | None = None
        self._pause = limits.FOLLOW_SECONDS_MIN
        self._idle_since = time.monotonic()
        with branch._core.read() as txn:
            ref = branch._ref(txn)
            self._place = refs.place_at(txn, ref, ref.seq if after is None else after, ref.name)

    def look(self) -> Iterator[Iterator[Event]]:
        """Return pages of the events that are new, none when nothing is; they count once the last was taken."""
        version = self._branch._core.engine.version()
        if version != self._seen:
            self._seen = version
            yield from self._news()

    def pause(self) -> float | None:
        """Return the seconds to wait before the next look, or None when nothing came for too long."""
        left = None if self._timeout is None else self._idle_since + self._timeout - time.monotonic()
        if left is not None and left <= 0:
            return None
        pause, self._pause = self._pause, min(self._pause * 2, limits.FOLLOW_SECONDS_MAX)
        return pause if left is None else min(pause, left)

    def _news(self) -> Iterator[Iterator[Event]]:
        branch, place = self._branch, self._place
        with branch._core.read() as txn:
            ref = branch._ref(txn)
            stayed = ref.seq >= place.seq and timelines.owner(txn, ref.timeline, place.seq) == place.timeline
            if not stayed:
                head = branch._point(txn, Place(ref.timeline, ref.seq, ref.id))
                raise Conflict(f"{ref.name} moved off seq {place.seq}; it is at {head.seq} now", head=head)
            owners = timelines.segments(txn, ref.timeline, place.seq + 1, ref.seq)
        if owners:
            yield from branch._walk(owners, None, reverse=False)
            self._place = Place(ref.timeline, ref.seq, ref.id)
            self._pause = limits.FOLLOW_SECONDS_MIN
            self._idle_since = time.monotonic()


def expected_head(expect: int | str | None) -> int | bytes | None:
    """Return what a caller expects a head to be, a seq or an id's bytes; raises Invalid for anything else."""
    if expect is None or (type(expect) is int and expect >= 0):
        return expect
    if isinstance(expect, str):
        return ids.parse_digest(expect)
    raise Invalid(f"expect is {expect!r}; give a seq or an event id", value=expect)


def _shown(digest: bytes) -> str | None:
    return ids.show_digest(digest) if digest else None
