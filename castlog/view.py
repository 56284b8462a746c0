"""Views: what can be done from any place in a history, a tag as well as a branch: read it, and fork from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar
from weakref import ref

from msgspec import UNSET

from castlog import limits, schema
from castlog.core import make_event
from castlog.engine.base import CommittedTxn, ReadTxn, WriteTxn
from castlog.errors import Corrupt, Invalid, NotFound
from castlog.event import Event, Point
from castlog.format import ids, names, snapshot
from castlog.history import reader, refs, sessions, snapshots, timelines
from castlog.history.refs import Place
from castlog.history.runs import Page, Run

if TYPE_CHECKING:
    from castlog.branch import Branch
    from castlog.session import Session
    from castlog.state import Reducer, Restored, Snapshot


S = TypeVar("S")


class _Near(NamedTuple):
    """Where the last event was read, for the next one: of that commit, `first` to `last` lie in `run`.

    The reference is weak, so that the cache decides what stays in memory.
    """

    version: int
    name: str
    first: int
    last: int
    run: ref[Run]

    def run_at(self, seq: int, version: int) -> Run | None:
        """Return the run if it holds `seq` of that commit, and still is in memory."""
        fits = self.version == version and type(seq) is int and self.first <= seq <= self.last
        return self.run() if fits else None


class View:
    """A history as seen from one place that does not move: a tag, a point, a branch as it was.

    `name` is the branch or tag it is read through.
    """

    _near: _Near | None = None

    def __init__(self, owner: Session, name: str, place: Place, *, stray: bool = False) -> None:
        self._owner = owner
        self._core = owner._core
        self._session = owner._session
        self._row = owner._made_from
        self._name = name
        self._fixed = place
        self._stray = stray

    @property
    def name(self) -> str:
        """The branch or tag this is read through."""
        return self._name

    @property
    def session(self) -> Session:
        """The session this belongs to."""
        return self._owner

    @property
    def rev(self) -> str:
        """The revision string that names this place in any process that opens the store."""
        at = self.head.id if self._stray else self._fixed.seq
        return f"{ids.show_session(self._session)}/{self._name}@{at}"

    @property
    def head(self) -> Point:
        """The last point of the history, read now; an empty one is at seq 0 with the genesis digest."""
        with self._core.read() as txn:
            place = self._place(txn)
            return self._point(txn, place)

    def read(self, seq: int) -> Event:
        """Return the event at `seq`; raises NotFound outside 1 to the head, Corrupt when it cannot be verified."""
        with self._core.read() as txn:
            near = self._near
            run = None if near is None else near.run_at(seq, txn.version())
            if near is None or run is None:
                near, run = self._look_near(txn, seq)
        index = seq - run.first
        page = Page(run, self._core.fetch, bulk=False)
        return make_event(ids.show_session(self._session), near.name, seq, run.records[index], page, index)

    def events(
        self,
        start: int = 1,
        until: int | None = None,
        *,
        reverse: bool = False,
        types: Collection[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events from `start` to `until`, both included, of the head as it is now; oldest first.

        Events of other types are skipped without decoding anything of theirs. No transaction is open while the caller
        has an event. Raises Corrupt at the first event that cannot be verified.
        """
        return chain.from_iterable(self._pages(start, until, reverse=reverse, types=types))

    def _pages(
        self, start: int, until: int | None, *, reverse: bool, types: Collection[str] | None
    ) -> Iterator[Iterator[Event]]:
        """Return what `events` does, in pages: only the next page reads the store, its events are at hand."""
        wanted = None if types is None else frozenset([types] if isinstance(types, str) else types)
        for bound in (start, until):
            if bound is not None and (type(bound) is not int or bound < 0):
                raise Invalid(f"{bound!r} is no seq; give a whole number", value=bound)
        with self._core.read() as txn:
            place = self._place(txn)
            last = place.seq if until is None else min(until, place.seq)
            owners = timelines.segments(txn, place.timeline, max(start, 1), last)
        return self._walk(owners, wanted, reverse)

    def in_flight(self, at: int | None = None) -> list[Event]:
        """Return the events that opened the calls in flight at `at` (default: the head), oldest first."""
        with self._core.read() as txn:
            name, place = self._where(txn)
            if at is not None:
                place = refs.place_at(txn, place, at, name)
            calls = reader.open_calls(txn, self._core.objects, self._row, place.timeline, place.seq)
            owners = {seq: timelines.owner(txn, place.timeline, seq) for seq in calls.values()}
        return [self._core.event(self._session, self._row, name, owner, seq) for seq, owner in sorted(owners.items())]

    def restore(self, reducer: Reducer[S], at: int | None = None) -> Restored[S]:
        """Return the state at `at` (default: the head): the newest usable snapshot, and the events since folded on it.

        A snapshot that cannot be verified is passed over. Raises Unavailable for an event that newer code wrote,
        Corrupt for one that cannot be verified.
        """
        with self._core.read() as txn:
            name, place = self._where(txn)
            if at is not None:
                place = refs.place_at(txn, place, at, name)
        return self._restore(reducer, place)

    def snapshot(self, reducer: Reducer[S], at: int | None = None) -> Snapshot:
        """Keep the state at `at` (default: the head), for every branch that shares that event; durable on return.

        What it costs is restoring the state, and writing what of it the last snapshot does not have. Raises as
        `restore` does, and Invalid for a state that is no JSON value, or at seq 0.
        """
        from castlog.state import Snapshot

        with self._core.read() as txn:
            name, place = self._where(txn)
            if at is not None:
                place = refs.place_at(txn, place, at, name)
            point = self._point(txn, place)
        if place.seq == 0:
            raise Invalid(f"{name} at seq 0 has no events to fold; make a snapshot of a later seq", seq=0)
        state = reducer.encode(self._restore(reducer, place).state)
        now = self._core.clock()
        upcasters = schema.fingerprint()
        kept = snapshot.Snapshot(
            reducer.name, reducer.version, upcasters, place.seq, ids.parse_digest(point.id), len(state), state
        )
        self._core.keep_snapshot(place.timeline, kept, now)
        return Snapshot(kept.seq, point.id, kept.name, kept.version, kept.size, now, True)

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots in this history, its own and inherited ones, newest first; damaged ones are left out."""
        from castlog.state import Snapshot

        listed = []
        with self._core.read() as txn:
            place = self._place(txn)
            for found in snapshots.listing(txn, place.timeline, place.seq):
                with suppress(Corrupt):
                    kept, _ = snapshots.read(txn, self._core.objects, found)
                    listed.append(
                        Snapshot(
                            kept.seq,
                            ids.show_digest(kept.id),
                            kept.name,
                            kept.version,
                            kept.size,
                            found.row.created,
                            kept.upcasters == schema.fingerprint(),
                        )
                    )
        return sorted(listed, key=lambda snapshot: snapshot.seq, reverse=True)

    def drop_snapshots(self, at: int | None = None) -> int:
        """Forget the snapshots at `at` (default: the head), for every branch that shares that event; durable on return.

        Returns how many there were. The states are folded from events again, or from an earlier snapshot.
        """

        def change(txn: WriteTxn) -> int:
            name, place = self._where(txn)
            if at is not None:
                place = refs.place_at(txn, place, at, name)
            return snapshots.drop(txn, place.timeline, place.seq)

        return self._core.update(change)

    def fork(self, name: str, at: int | None = None) -> Branch:
        """Make a branch that shares everything up to `at` (default: the head); costs one reference."""
        return self._fork([names.check_name(name, "branch name")], at)[0]

    def fork_many(self, count: int, at: int | None = None, prefix: str = "fork-") -> list[Branch]:
        """Make `count` branches named `prefix` and 1 to `count`, in one commit."""
        if type(count) is not int or not 1 <= count <= limits.FORKS_PER_COMMIT_MAX:
            raise Invalid(f"{count!r} forks; make 1 to {limits.FORKS_PER_COMMIT_MAX:,} at a time", value=count)
        return self._fork([names.check_name(f"{prefix}{n}", "branch name") for n in range(1, count + 1)], at)

    def __repr__(self) -> str:
        return f"<View {self.rev}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a View belongs to an open store; pass its rev ({self.rev!r}) and use store.view there")

    def _where(self, txn: ReadTxn) -> tuple[str, Place]:
        """Return the name this is read through and the place it ends at."""
        return self._name, self._fixed

    def _place(self, txn: ReadTxn) -> Place:
        return self._where(txn)[1]

    def _restore(self, reducer: Reducer[S], place: Place, *, fresh: bool = False) -> Restored[S]:
        """Return the state at a place; `fresh` folds it from the first event on, without any snapshot."""
        from castlog.state import Restored

        with self._core.read() as txn:
            found = None if fresh else self._newest(txn, reducer, place, 0)
            state, taken = (reducer.initial(), 0) if found is None else found
            owners = timelines.segments(txn, place.timeline, taken + 1, place.seq)
            calls = reader.open_calls(txn, self._core.objects, self._row, place.timeline, place.seq)
            opened = {seq: timelines.owner(txn, place.timeline, seq) for seq in calls.values()}
        for event in chain.from_iterable(self._walk(owners, None, reverse=False)):
            state = reducer.fold(state, event)
        in_flight = [
            self._core.event(self._session, self._row, self.name, owner, seq) for seq, owner in sorted(opened.items())
        ]
        return Restored(state, place.seq, taken, place.seq - taken, in_flight)

    def _newest(self, txn: ReadTxn, reducer: Reducer[S], place: Place, after: int) -> tuple[S, int] | None:
        """Return the newest usable snapshot of a history beyond seq `after`, and its seq, or None."""
        key = snapshots.fold_key(reducer.name, reducer.version, schema.fingerprint())
        for found in snapshots.along(txn, place.timeline, place.seq, key):
            if found.seq <= after:
                break
            with suppress(Corrupt):
                return reducer.decode(snapshots.read(txn, self._core.objects, found)[1]), found.seq
        return None

    def _snapshot_before(self, reducer: Reducer[S], seq: int, after: int) -> tuple[S, int] | None:
        """Return the newest usable snapshot at or before a seq and beyond seq `after`, and its seq, or None."""
        with self._core.read() as txn:
            name, place = self._where(txn)
            return self._newest(txn, reducer, refs.place_at(txn, place, seq, name), after)

    def _pinned(self) -> View:
        """Return this history as it is now, for who has to find it the same again."""
        return self

    def _look_near(self, txn: CommittedTxn, seq: int) -> tuple[_Near, Run]:
        """Return the run that holds `seq` and remember it for the next read."""
        name, place = self._where(txn)
        owner = refs.owner_at(txn, place, seq, name)
        if owner == timelines.GENESIS:
            raise NotFound(f"{name} has no event 0; its events are 1 to {place.seq}", seq=seq)
        run = reader.run_at(txn, self._core.objects, self._row.salt, owner, seq)
        last = min(run.last, place.seq) if owner == place.timeline else seq
        near = self._near = _Near(txn.version(), name, run.first, last, ref(run))
        return near, run

    def _fork(self, new: list[str], at: int | None) -> list[Branch]:
        now = self._core.clock()

        def change(txn: WriteTxn) -> list[int]:
            sessions.read(txn, self._session)
            name, place = self._where(txn)
            if at is not None:
                place = refs.place_at(txn, place, at, name)
            note = f"from {name}@{place.seq}"
            return refs.create(txn, self._session, new, place, now=now, operation="fork", note=note)

        numbers = self._core.update(change)
        return [self._owner._branch(number) for number in numbers]

    def _point(self, txn: ReadTxn, place: Place) -> Point:
        digest = place.id or reader.id_at(txn, self._core.objects, self._row, place.timeline, place.seq)
        return Point(ids.show_session(self._session), self.name, place.seq, ids.show_digest(digest))

    def _walk(
        self, owners: list[timelines.Segment], wanted: frozenset[str] | None, reverse: bool
    ) -> Iterator[Iterator[Event]]:
        core, salt, name = self._core, self._row.salt, self.name
        for owner in reversed(owners) if reverse else owners:
            seq = owner.last if reverse else owner.first
            while owner.first <= seq <= owner.last:
                left = seq - owner.first + 1 if reverse else owner.last - seq + 1
                with core.read() as txn:
                    run = reader.run_at(txn, core.objects, salt, owner.timeline, seq, wanted=left, reverse=reverse)
                low, high = (max(run.first, owner.first), seq) if reverse else (seq, min(run.last, owner.last))
                seqs = range(high, low - 1, -1) if reverse else range(low, high + 1)
                yield self._read_off(name, run, seqs, wanted)
                seq = low - 1 if reverse else high + 1

    def _read_off(self, name: str, run: Run, seqs: range, wanted: frozenset[str] | None) -> Iterator[Event]:
        session_id = ids.show_session(self._session)
        records, first = run.records, run.first
        most = 2 * len(seqs) >= len(records)  # singly a payload costs twice as much
        page = Page(run, self._core.fetch, bulk=wanted is None and most)
        for seq in seqs:
            record = records[seq - first]
            if wanted is None or record.type in wanted:
                index = seq - first
                decoded = page.decoded  # there once the caller has asked for one payload of the page
                payload = UNSET if decoded is None else decoded[index]
                if schema.is_old(record.type, record.schema):
                    payload = UNSET  # the event lifts it
                yield make_event(session_id, name, seq, record, page, index, payload)
