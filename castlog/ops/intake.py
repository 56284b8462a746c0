"""Intake: a checked parcel becomes part of the store, with equal ids, adding only what is new.

A branch that is behind is fast-forwarded; one that went another way keeps its name, and the newcomer arrives as NAME-2.
What is to be done is decided first, on names read once; then the file is read again, and each timeline's events are
written through one branch. The branches that begin on a timeline are made in the transaction of its last events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from castlog import limits
from castlog.core import Core
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, Corrupt, Invalid
from castlog.event import Progress
from castlog.format import ids, rows
from castlog.history import refs, sessions, tables, timelines
from castlog.history.drafts import Ready
from castlog.history.refs import Place
from castlog.history.writer import Outcome
from castlog.ops import parcel
from castlog.ops.parcel import Head, Parcel
from castlog.ops.report import FileReport
from castlog.ops.trace import Traces

BATCH_EVENTS = 1000
BATCH_BYTES = 4 * 1024 * 1024
BATCH_NAMES = 1000
_ROOM = 12  # bytes of a made-up name after its stem: a number, or what a tag's history is called


class _Branch(msgspec.Struct, eq=False):
    """A branch of the store, or one to be made: number 0.

    `timeline` and `seq` are the last place of the parcel on its history, or where it is to be; `behind` says that it
    ends there. `place` is where it lies in the store.
    """

    number: int
    name: str
    place: Place
    timeline: int
    seq: int
    behind: bool


def read_file(core: Core, path: str, progress: Callable[[Progress], None] | None) -> FileReport:
    """Import an export; nothing is written unless all of it is sound. Durable on return.

    Raises as `parcel.check` does, and Conflict when its origin belongs to another session or it is in the trash.
    """
    with parcel.opened(path) as file:
        item = parcel.check(path, file, core.objects.secret, progress)
        with core.read() as txn:
            known = _known(txn, item) is not None
            plan = _Plan(txn, core, item)
        writing = _Writing(core, item, plan, progress)
        writing.run(file)
    shown = ids.show_session(item.session)
    rev = shown if item.bundle else f"{shown}/{plan.arrived[0]}" if plan.arrived else shown
    status = "new" if not known else "grown" if plan.goals or plan.tags else "unchanged"
    note = "; ".join(plan.renamed)
    return FileReport(path, "castlog", status, rev, shown, item.events, writing.added, note=note)


class _Plan:
    """What an import is to do: branches to make or to move, tags to set, how far each timeline is needed."""

    def __init__(self, txn: ReadTxn, core: Core, item: Parcel) -> None:
        self._item = item
        traces = Traces(txn, core.objects, item)
        self.needed: dict[int, int] = {}
        self.goals: dict[_Branch, None] = {}
        self.tags: list[tuple[str, Head]] = []
        self.arrived: list[str] = []
        self.renamed: list[str] = []
        self._names: dict[str, _Branch | bytes] = {}
        self._alike: dict[str, list[_Branch]] = {}
        self._numbers: dict[str, int] = {}
        for name, row in refs.names(txn, item.session):
            if row.branch:
                ref = refs.branch(txn, row.branch)
                timeline, seq = traces.joint(ref.timeline, ref.seq)
                place = Place(ref.timeline, ref.seq, ref.id)
                self._add(_Branch(row.branch, name, place, timeline, seq, seq == ref.seq))
            else:
                traces.joint(row.timeline, row.seq)
                self._names[name] = row.id
        self.located = traces.located()
        for head in item.heads:
            if not head.tag:
                self._branch(head)
        for head in item.heads:
            if head.tag:
                self._tag(head)

    def _branch(self, head: Head) -> None:
        """Decide which branch is to come up to a head: none, when one holds it already."""
        name = head.name
        behind = None
        if name in self._names:
            own = self._names[name]
            if isinstance(own, _Branch) and self._holds(own, head):
                self.arrived.append(name)
                return
            alike = self._in_order(name)
            held = next((branch for branch in alike if self._holds(branch, head)), None)
            if held is not None:
                self.arrived.append(held.name)
                return
            behind = next((branch for branch in alike if self._is_behind(branch, head)), None)
            name = self._free(_base(name)) if behind is None else behind.name
            if name != head.name:
                self.renamed.append(f"{head.name} diverged here; it arrived as {name}")
        if behind is None:
            behind = _Branch(0, name, Place(timelines.GENESIS, 0, self._item.row.genesis), 0, 0, True)
            self._add(behind)
        behind.timeline, behind.seq = head.timeline, head.seq
        self.goals[behind] = None
        self.arrived.append(name)
        self._need(head.timeline, head.seq)

    def _tag(self, head: Head) -> None:
        """Decide under which name a tag is to be set, and whether its events want a branch."""
        digest, name, number = self._item.id_at(head.timeline, head.seq), head.name, 2
        while (held := self._names.get(name)) is not None:
            if held == digest:
                return
            name, number = f"{_stem(head.name)}-{number}", number + 1
        if name != head.name:
            self.renamed.append(f"the tag {head.name} stands elsewhere here; it arrived as {name}")
        self._names[name] = digest
        if head.seq > max(self._reached(head.timeline), self.needed.get(head.timeline, 0)):
            self._branch(Head(f"{_stem(name)}-history", head.timeline, head.seq, False))
        self.tags.append((name, head))

    def _add(self, branch: _Branch) -> None:
        self._names[branch.name] = branch
        self._alike.setdefault(_base(branch.name), []).append(branch)

    def _in_order(self, name: str) -> list[_Branch]:
        """Return the branch of this name, then those that an earlier import may have named after it."""
        own = self._names[name]
        alike = self._alike.get(_base(name), [])
        return sorted(alike, key=lambda branch: (branch is not own, len(branch.name), branch.name))

    def _holds(self, branch: _Branch, head: Head) -> bool:
        return branch.seq >= head.seq and self._one(branch.timeline, head.timeline, head.seq)

    def _is_behind(self, branch: _Branch, head: Head) -> bool:
        if not branch.behind or branch in self.goals or branch.seq > head.seq:
            return False
        return self._one(branch.timeline, head.timeline, branch.seq)

    def _one(self, a: int, b: int, seq: int) -> bool:
        return a == b or self._item.id_at(a, seq) == self._item.id_at(b, seq)

    def _free(self, base: str) -> str:
        number = self._numbers.get(base, 2)
        while f"{base}-{number}" in self._names:
            number += 1
        self._numbers[base] = number
        return f"{base}-{number}"

    def _reached(self, timeline: int) -> int:
        return self.located[timeline].seq if timeline in self.located else 0

    def _need(self, timeline: int, seq: int) -> None:
        """Note that a history is to be in the store, as far as it is not."""
        while seq > max(self._reached(timeline), self.needed.get(timeline, 0)):
            self.needed[timeline] = seq
            line = self._item.lines[timeline]
            timeline, seq = line.parent, line.fork_seq


class _Writing:
    """A plan being carried out. `located` is kept up to date in what it says of each timeline of the parcel."""

    def __init__(self, core: Core, item: Parcel, plan: _Plan, progress: Callable[[Progress], None] | None) -> None:
        self._core = core
        self._item = item
        self._plan = plan
        self._progress = progress
        self._located = plan.located
        self._carriers = self._choose_carriers()
        self._waiting: dict[int, list[_Branch]] = {}
        self.added = 0

    def run(self, file: BinaryIO) -> None:
        """Write what the plan says; the session with the first of it."""
        at_once = self._anchor()
        needed = self._plan.needed
        missing = {timeline: range(self._start(timeline) + 1, needed[timeline] + 1) for timeline in self._carriers}
        batches = _batches(parcel.events(self._item, file, self._core.objects.secret, missing))
        batch = next(batches, None)  # read first: what fails here leaves no session behind
        for start in range(0, max(1, len(at_once)), BATCH_NAMES):
            self._begin(at_once[start : start + BATCH_NAMES])
        while batch is not None:
            self._append(*batch)
            batch = next(batches, None)
        for timeline in self._carriers:
            if self._start(timeline) < needed[timeline]:
                raise Corrupt(f"{self._item.path} has become shorter while it was read", path=self._item.path)
        for start in range(0, len(self._plan.tags), BATCH_NAMES):
            self._tag(self._plan.tags[start : start + BATCH_NAMES])

    def _choose_carriers(self) -> dict[int, _Branch]:
        """Return for each timeline with missing events the branch they are written through, parents first.

        It is one that is to be at their end, else the one that carries a timeline which goes on from there.
        """
        needed = self._plan.needed
        chosen: dict[int, _Branch] = {}
        for branch in self._plan.goals:
            if needed.get(branch.timeline) == branch.seq:
                chosen.setdefault(branch.timeline, branch)
        for timeline in sorted(needed, reverse=True):
            line = self._item.lines[timeline]
            if needed.get(line.parent) == line.fork_seq:
                chosen.setdefault(line.parent, chosen[timeline])
        return {timeline: chosen[timeline] for timeline in sorted(needed)}

    def _anchor(self) -> list[_Branch]:
        """Note for each branch where it is put before events go through it; return those whose place is there."""
        first: dict[_Branch, int] = {}
        for timeline, branch in self._carriers.items():
            first.setdefault(branch, timeline)
        at_once = []
        for branch in self._plan.goals:
            timeline, seq = branch.timeline, branch.seq
            if branch in first:
                timeline, seq = self._base(first[branch])
            branch.timeline, branch.seq = timeline, seq
            if seq <= self._start(timeline):
                at_once.append(branch)
            else:
                self._waiting.setdefault(timeline, []).append(branch)
        return at_once

    def _start(self, timeline: int) -> int:
        """Return the last seq of a timeline, or of what is before it, after which events are missing."""
        if timeline in self._located:
            return self._located[timeline].seq
        return self._item.lines[timeline].fork_seq if timeline else 0

    def _base(self, timeline: int) -> tuple[int, int]:
        """Return the place after which a timeline's events are missing."""
        if timeline in self._located:
            return timeline, self._located[timeline].seq
        line = self._item.lines[timeline]
        return line.parent, line.fork_seq

    def _begin(self, branches: list[_Branch]) -> None:
        now = self._core.clock()

        def change(txn: WriteTxn) -> list[tuple[int, Place]]:
            _session(txn, self._item)
            return [self._put(txn, branch, now) for branch in branches]

        self._set(branches, self._core.update(change))

    def _put(self, txn: WriteTxn, branch: _Branch, now: int) -> tuple[int, Place]:
        """Make a branch, or move it, and return its number and place."""
        place = self._place(txn, branch.timeline, branch.seq)
        if not branch.number:
            new, note = [branch.name], self._item.path
            return refs.create(txn, self._item.session, new, place, now=now, operation="import", note=note)[0], place
        if branch.place.seq == place.seq:  # one id, so one history, if on another timeline
            return branch.number, branch.place
        here = (branch.place.timeline, branch.place.seq)
        self._core.require_unowned(branch.number, branch.name)
        refs.move(txn, branch.number, place, now=now, operation="import", expect=here)
        return branch.number, place

    def _set(self, branches: list[_Branch], done: list[tuple[int, Place]]) -> None:
        for branch, (number, place) in zip(branches, done, strict=True):
            branch.number, branch.place = number, place

    def _append(self, timeline: int, batch: list[Ready]) -> None:
        """Append to what a timeline has; raises Conflict when somebody else appends meanwhile."""
        item, branch = self._item, self._carriers[timeline]
        before = self._start(timeline)
        seq = before + len(batch)
        wanted = [item.id_at(timeline, number) for number in range(before + 1, seq + 1)]
        ends = seq == self._plan.needed[timeline]
        waiting = self._waiting.get(timeline, []) if ends else []
        now = self._core.clock()
        placed: list[tuple[int, Place]] = []

        def check(txn: WriteTxn, outcome: Outcome, written: int) -> None:
            if [entry.tail.id for entry in outcome.new] != wanted:
                raise Corrupt(f"{item.path}: seqs {before + 1} to {seq} would get other ids than it has", seq=seq)
            self._core.require_unowned(branch.number, branch.name)
            self._located[timeline] = Place(written, seq, wanted[-1])
            placed[:] = [self._put(txn, other, now) for other in waiting]

        self._core.append(branch.number, item.row, batch, item.id_at(timeline, before), check)
        self._set(waiting, placed)
        branch.place = self._located[timeline]
        self.added += len(batch)
        if self._progress is not None:
            self._progress(Progress(self.added, item.events, "events", item.row.title))

    def _tag(self, tags: list[tuple[str, Head]]) -> None:
        now = self._core.clock()

        def change(txn: WriteTxn) -> None:
            for name, head in tags:
                place = self._place(txn, head.timeline, head.seq)
                fixed = Place(place.timeline, head.seq, self._item.id_at(head.timeline, head.seq))
                refs.tag(txn, self._item.session, name, fixed, now)

        self._core.update(change)

    def _place(self, txn: ReadTxn, timeline: int, seq: int) -> Place:
        """Return where a place of the parcel lies in the store."""
        if seq == 0:
            return Place(timelines.GENESIS, 0, self._item.row.genesis)
        return refs.place_at(txn, self._located[timeline], seq, "the import")


def _known(txn: ReadTxn, item: Parcel) -> rows.Session | None:
    """Return the row of a parcel's session if it is in the store; raises Conflict when it cannot be added to."""
    shown = ids.show_session(item.session)
    row = tables.get(txn, rows.SESSIONS, item.session)
    if row is None:
        return None
    if row.deleted is not None:
        raise Conflict(f"{shown} is in the trash; undelete it, then import again", session_id=shown)
    if row.genesis != item.row.genesis:
        raise Conflict(f"{shown} is here with another genesis; this export is of another session", session_id=shown)
    return row


def _session(txn: WriteTxn, item: Parcel) -> None:
    """Make the parcel's session if it is new. Labels that are not there yet are added."""
    row = _known(txn, item)
    if row is None:
        sessions.create(
            txn,
            item.session,
            item.row.salt,
            created=item.row.created,
            title=item.row.title,
            labels=item.row.labels,
            origin=item.row.origin,
            parent=item.row.parent,
        )
        return
    merged = {**item.row.labels, **row.labels}
    if merged != row.labels:
        sessions.change(txn, item.session, labels=merged)


def _base(name: str) -> str:
    """Return a branch name without the number that an import gave it, and with room for one."""
    base, dash, number = name.rpartition("-")
    return _stem(base if dash and base and number.isdecimal() else name)


def _stem(name: str) -> str:
    """Return as much of a name as leaves room for what an import puts behind it."""
    return name.encode()[: limits.NAME_BYTES_MAX - _ROOM].decode(errors="ignore")


def _batches(events: Iterator[tuple[int, Ready]]) -> Iterator[tuple[int, list[Ready]]]:
    """Yield events in batches, each of one timeline; raises Invalid when two in one have the same key."""
    at, size = 0, 0
    batch: list[Ready] = []
    keys: set[str] = set()
    for timeline, event in events:
        if batch and (timeline != at or len(batch) >= BATCH_EVENTS or size >= BATCH_BYTES):
            yield at, batch
            batch, size, keys = [], 0, set()
        if event.record.key in keys:
            raise Invalid(f"two events of one history have the key {event.record.key!r}", key=event.record.key)
        if event.record.key is not None:
            keys.add(event.record.key)
        at = timeline
        batch.append(event)
        size += len(event.payload)
    if batch:
        yield at, batch
