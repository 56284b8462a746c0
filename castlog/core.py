"""What all handles of a store share: the engine, the secret, the clock; and the transactions of an append.

This is the one place that decides what happens before, inside and after the transaction of an append. It knows
nothing of names and revisions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET

from castlog import limits
from castlog.engine.base import CommittedTxn, Engine, WriteTxn
from castlog.engine.group import Group, Job
from castlog.engine.owner import Owner, Ownership
from castlog.errors import Conflict, Corrupt, Error
from castlog.event import Event, Source
from castlog.format import ids, rows
from castlog.format.record import Record
from castlog.format.snapshot import Snapshot
from castlog.history import drafts, pieces, reader, refs, sealing, snapshots, timelines, writer
from castlog.history.drafts import Ready
from castlog.history.objects import Objects
from castlog.history.recent import Needed, Recent
from castlog.history.runs import Page
from castlog.history.states import States
from castlog.history.writer import Outcome, State
from castlog.history.written import Written

T = TypeVar("T")
Check = Callable[[WriteTxn, Outcome, int], None]


class _Restage(Exception):
    """What an append was prepared on has changed, and it cannot go on without preparing again."""


class Applied(NamedTuple):
    """What an append came to in its transaction; `timeline` is 0 and `tail` None when nothing was new."""

    ref: rows.Ref
    outcome: Outcome
    timeline: int
    tail: rows.Tail | None


class Core:
    """The shared insides of a store's handles. Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        secret: bytes,
        *,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        harness_version: str | None,
    ) -> None:
        self.engine = engine
        self.objects = Objects(secret)
        self.clock = clock
        self.random = random
        self.harness_version = harness_version
        self._group = Group(self._commit)
        self._states = States(self.objects)
        self._recent = Recent()
        self._seals: list[sealing.Seal] = []
        self._lock = threading.Lock()

    def read(self) -> AbstractContextManager[CommittedTxn]:
        """Open a read transaction; leave it within milliseconds."""
        return self.engine.read()

    def update(self, change: Callable[[WriteTxn], T]) -> T:
        """Run a repeatable change in a write transaction, with the chunks that wait; durable on return.

        Changes of several threads share one transaction, in the order they came.
        """
        return self._group.update(change)

    def fetch(self, digests: Sequence[bytes]) -> bytes:
        """Return the payload that pieces make up, in a transaction of its own; raises Corrupt."""
        with self.read() as txn:
            return pieces.join(txn, self.objects, digests)

    def prepare(self, branch: int, session: rows.Session, items: Iterable[object]) -> list[Ready]:
        """Return drafts for a branch checked, encoded, committed to and cut; raises Invalid."""
        cuts: dict[str, pieces.Cut] = {}
        ready = []

        def last(kind: str) -> pieces.Cut:
            return cuts.get(kind) or self._recent.cut(branch, kind)

        for item in items:
            draft = drafts.prepare(
                item,
                salt=session.salt,
                secret=self.objects.secret,
                clock=self.clock,
                harness_version=self.harness_version,
                last=last,
            )
            if draft.pieces:
                cuts[draft.record.type] = draft.pieces
            ready.append(draft)
        return ready

    def append(
        self,
        branch: int,
        session: rows.Session,
        ready: Sequence[Ready],
        expect: int | bytes | None = None,
        check: Check | None = None,
    ) -> list[Event]:
        """Append to a branch in one transaction, all or nothing; durable on return. Returns every draft's event.

        `check` runs last in the transaction, with the outcome and the timeline it was written to (0 when nothing is
        new); it must be repeatable, and what it raises undoes the append.
        Raises Conflict (`expect`, keys, the lock), NotFound (deleted), Unavailable (disk, read-only).
        """
        if not ready:
            return []
        for _ in range(limits.APPEND_TRIES_MAX):
            try:
                applied = self._group.update(self._change(branch, ready, expect, check))
                return self._appended(branch, session, ready, applied)
            except _Restage:
                self._write_seals()  # else they would change, at each try, what it was prepared on
        raise Conflict(f"the branch moved {limits.APPEND_TRIES_MAX} times while a large append was prepared; retry")

    def submit(
        self,
        branch: int,
        session: rows.Session,
        ready: Sequence[Ready],
        expect: int | bytes | None = None,
        *,
        then: Callable[[], None] | None = None,
        linger: bool = False,
    ) -> Appending:
        """Put an append in line, behind all that came before, and return without waiting for it to be durable.

        `then` is called by another thread once `Appending.wait` has not to wait any more. With `linger` it may stay in
        line a few milliseconds, to share the commit of an append that somebody waits for.
        """
        job = self._group.submit(self._change(branch, ready, expect, None), then=then, linger=linger)

        def wait() -> list[Event]:
            try:
                applied = self._group.wait(job)
            except _Restage:
                return self.append(branch, session, ready, expect)
            return self._appended(branch, session, ready, applied)

        def brief() -> bool:
            applied = job.result
            if applied is None:
                return False
            tail, known = applied.tail, len(applied.outcome.places) - len(applied.outcome.new)
            return not known and (tail is None or not self._seal_is_due(applied.timeline, tail))

        return Appending(job, wait, brief)

    def own(self, branch: int) -> Ownership:
        """Return a hold on a branch that keeps others from running and from moving it; raises Conflict(holder, since).

        It is taken between two changes of the store, so that who reads the branch afterwards sees where it stays.
        """
        hold = self.engine.owners.hold(branch)

        def take(txn: WriteTxn) -> None:
            name = refs.branch(txn, branch).name
            other = hold.take()
            if other is not None:
                raise owned(name, other)

        self.update(take)
        return hold

    def require_unowned(self, branch: int, name: str) -> None:
        """Raise Conflict(holder, since) while somebody runs a branch; belongs into the transaction that moves it."""
        owner = self.engine.owners.of(branch)
        if owner is not None:
            raise owned(name, owner)

    def seal(self, branch: int, session: rows.Session) -> None:
        """Seal what is open on a branch's timeline now, however little it is; durable on return."""
        with self.read() as txn:
            at = writer.state(txn, self.objects, branch)
            timeline = at.ref.timeline
            seal = None
            if timeline != timelines.GENESIS:
                seal = sealing.prepare(txn, self.objects, session, timeline, whole=True)
        if seal is not None:
            self.update(lambda txn: sealing.apply(txn, self.objects, seal))

    def keep_snapshot(self, timeline: int, snapshot: Snapshot, now: int) -> None:
        """Write a snapshot, which holds its state whole, for a place its timeline owns; durable on return."""
        key = snapshots.fold_key(snapshot.name, snapshot.version, snapshot.upcasters)
        for _ in range(limits.APPEND_TRIES_MAX):
            with self.read() as txn:
                new = snapshots.prepare(txn, self.objects.secret, snapshot)
            if self.update(
                lambda txn, new=new: snapshots.write(txn, self.objects, timeline, snapshot.seq, key, new, now)  # type: ignore[misc]
            ):
                return
        raise Conflict("pieces of the snapshot vanished again and again while it was written; retry")

    def event(self, session_id: bytes, session: rows.Session, name: str, timeline: int, seq: int) -> Event:
        """Return the event at a place its timeline owns, as read through `name`; raises Corrupt."""
        with self.read() as txn:
            run = reader.run_at(txn, self.objects, session.salt, timeline, seq)
        index = seq - run.first
        page = Page(run, self.fetch, bulk=False)
        return make_event(ids.show_session(session_id), name, seq, run.records[index], page, index)

    def close(self) -> None:
        """Write what is in line and chunks that wait, if that can be done now, and release the engine."""
        self._group.close()
        if not self.engine.read_only:
            with suppress(Error):  # they are only another form of what is durable already
                self._write_seals()
        self.engine.close()

    def _commit(self, change: Callable[[WriteTxn], T]) -> T:
        """Run a change, or a group of them, in a transaction of the engine, behind the chunks that wait."""
        seals = self._seals  # never changed in place; a lock might be held by a thread that a fork left behind

        def whole(txn: WriteTxn) -> tuple[WriteTxn, T]:
            for seal in seals:
                sealing.apply(txn, self.objects, seal)
            return txn, change(txn)

        txn, result = self.engine.update(whole)
        self._states.settle(txn)
        if seals:
            with self._lock:
                self._seals = [seal for seal in self._seals if seal not in seals]
        return result

    def _write_seals(self) -> None:
        """Write chunks that wait now, in a transaction of their own."""
        if self._seals:
            self.update(lambda txn: None)

    def _change(
        self, branch: int, ready: Sequence[Ready], expect: int | bytes | None, check: Check | None
    ) -> Callable[[WriteTxn], Applied]:
        """Return the change that an append makes; whatever costs time is done here, before the transaction."""
        needed = self._recent.needed(branch, ready)
        packs = self._stage(needed.unsure)
        too_long, plan = self._plan(branch, ready, expect)
        now = self.clock()

        def change(txn: WriteTxn) -> Applied:
            at = self._states.of(txn, branch)
            good = plan if plan is not None and plan[0] == at else None
            outcome = good[1] if good else writer.chain(txn, self.objects, at, ready, expect)
            if not outcome.new:
                if check is not None:
                    check(txn, outcome, timelines.GENESIS)
                return Applied(at.ref, outcome, timelines.GENESIS, None)
            if too_long and good is None:
                raise _Restage
            if needed.pieces:
                self._write_pieces(txn, packs, needed, at)
            if good:
                after = sealing.commit_batch(txn, self.objects, at, outcome, good[2], now)
            else:
                after = writer.commit(txn, at, outcome, now)
            self._states.keep(txn, after)
            if check is not None:
                check(txn, outcome, after.ref.timeline)
            return Applied(at.ref, outcome, after.ref.timeline, after.tail)

        return change

    def _plan(
        self, branch: int, ready: Sequence[Ready], expect: int | bytes | None
    ) -> tuple[bool, tuple[State, Outcome, sealing.Seal] | None]:
        """Return whether a record must not be left open, and the chunks of a batch that fills some, on what it rests.

        Only while the branch is still at that state may they be written.
        """
        sizes = [draft.size for draft in ready]
        too_long = max(sizes) > limits.RECORD_BYTES_MAX
        if not too_long and sum(sizes) < limits.SEAL_BYTES and len(ready) < limits.SEAL_EVENTS:
            return False, None
        with self.read() as txn:
            before = writer.state(txn, self.objects, branch)
            planned = writer.chain(txn, self.objects, before, ready, expect)
            batch = None
            if planned.new:
                batch = sealing.prepare_batch(txn, self.objects, before, planned, whole=too_long)
        return too_long, None if batch is None else (before, planned, batch)

    def _write_pieces(self, txn: WriteTxn, packs: list[pieces.Pack], needed: Needed, at: State) -> None:
        """Write the pieces of an append; raises _Restage when others that it needs have gone meanwhile."""
        pieces.write(txn, self.objects, packs)
        lost = pieces.missing(txn, needed.doubtful(at.ref))
        if lost:
            if any(digest in lost for pack in packs for digest, _, _ in pack.places):
                raise Corrupt("a piece that was just written is not there; stop and verify")
            self._recent.forget(at.branch)
            raise _Restage

    def _appended(self, branch: int, session: rows.Session, ready: Sequence[Ready], applied: Applied) -> list[Event]:
        """Return the events of an append that is durable now, and encode the chunk that is full by it."""
        ref, outcome, timeline, tail = applied
        self._recent.keep(branch, ready, outcome.places, timeline)
        if tail is not None and self._seal_is_due(timeline, tail):
            self._prepare_seal(session, timeline)
        written = Written(outcome.new)
        first = outcome.new[0].seq if outcome.new else 0
        session_id = ids.show_session(ref.session)
        events = []
        for place, seq in outcome.places:
            if place != timelines.GENESIS:
                events.append(self.event(ref.session, session, ref.name, place, seq))
            else:
                record = outcome.new[seq - first].tail.record
                events.append(make_event(session_id, ref.name, seq, record, written, seq - first))
        return events

    def _stage(self, cut: Mapping[bytes, bytes]) -> list[pieces.Pack]:
        """Compress the pieces that are new; write those of very large appends ahead, and return the rest."""
        if not cut:
            return []
        with self.read() as txn:
            new = pieces.missing(txn, cut)
        packs = list(pieces.pack(self.objects.secret, new, cut))
        if sum(pack.size for pack in packs) <= limits.AHEAD_BYTES:
            return packs
        for pack in packs:
            self.update(lambda txn, pack=pack: pieces.write(txn, self.objects, [pack]))  # type: ignore[misc]
        return []

    def _seal_is_due(self, timeline: int, tail: rows.Tail) -> bool:
        """Return whether the open chunk is full and not encoded yet. Many appends of one commit may have filled it."""
        return sealing.due(tail) and not any(
            seal.timeline == timeline and seal.sealed >= tail.sealed for seal in self._seals
        )

    def _prepare_seal(self, session: rows.Session, timeline: int) -> None:
        """Encode a full open chunk; the next transaction writes it."""
        with self.read() as txn:
            seal = sealing.prepare(txn, self.objects, session, timeline)
        if seal is not None:
            with self._lock:
                self._seals = [old for old in self._seals if old.timeline != timeline] + [seal]


class Appending(NamedTuple):
    """An append in line. `wait` returns its events once they are durable, and raises what `append` would.

    `brief` tells, once the outcome is known, whether `wait` has nothing to do but to make events of it: it then returns
    at once and neither reads the store nor encodes a chunk.
    """

    job: Job[Applied]
    wait: Callable[[], list[Event]]
    brief: Callable[[], bool]


def owned(name: str, owner: Owner) -> Conflict:
    """Return the failure of who needs a branch that somebody else runs."""
    if owner.pid == os.getpid():
        holder = f"another run of this process ({owner.pid})"
    elif owner.pid is None:
        holder = "another process"
    else:
        holder = f"process {owner.pid} on {owner.host}"
    since = None if owner.since is None else datetime.fromtimestamp(owner.since, UTC).isoformat(timespec="milliseconds")
    when = f" since {since}" if since else ""
    return Conflict(
        f"{name} is being run by {holder}{when}; fork it to go on beside", holder=holder, pid=owner.pid, since=since
    )


def make_event(
    session_id: str, name: str, seq: int, record: Record, source: Source, index: int, payload: Any = UNSET
) -> Event:
    """Return an event from its record and the source of its payload and id; `payload` if it is decoded already."""
    return Event(
        session_id,
        name,
        seq,
        record.ts,
        record.type,
        record.schema,
        record.harness_version,
        record.call_ids,
        record.key,
        source,
        index,
        payload,
    )
