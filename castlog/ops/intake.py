"""Intake: a checked parcel becomes part of the store, with equal ids, adding only what is new.

A branch that is behind is fast-forwarded; one that went another way keeps its name, and the newcomer arrives as NAME-2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from castlog import limits
from castlog.core import Core
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, Corrupt
from castlog.event import Progress
from castlog.format import ids, rows
from castlog.history import reader, refs, sessions, tables, timelines
from castlog.history.drafts import Ready
from castlog.history.refs import Place
from castlog.ops import parcel
from castlog.ops.parcel import Head, Parcel
from castlog.ops.report import FileReport

BATCH_EVENTS = 1000
BATCH_BYTES = 4 * 1024 * 1024
_ROOM = 12  # bytes of a made-up name after its stem: a number, or what a tag's history is called


class _Found(msgspec.Struct, frozen=True):
    """A living branch of the store that a head of the parcel may belong to."""

    number: int
    name: str
    place: Place


def read_file(core: Core, path: str, progress: Callable[[Progress], None] | None) -> FileReport:
    """Import an export; nothing is written unless all of it is sound. Durable on return.

    Raises as `parcel.check` does, and Conflict when its origin belongs to another session or it is in the trash.
    """
    item = parcel.check(path, core.objects.secret, progress)
    known = core.update(lambda txn: _session(txn, item))
    intake = _Intake(core, item, progress)
    for head in item.heads:
        if not head.tag:
            intake.branch(head)
    for head in item.heads:
        if head.tag:
            intake.tag(head)
    shown = ids.show_session(item.session)
    rev = shown if item.bundle else f"{shown}/{intake.arrived[0]}" if intake.arrived else shown
    status = "new" if not known else "grown" if intake.added or intake.renamed else "unchanged"
    note = "; ".join(intake.renamed)
    return FileReport(path, "castlog", status, rev, shown, item.events, intake.added, note=note)


class _Intake:
    """The state of one import: where each of the parcel's timelines lies in the store, as far as it is known."""

    def __init__(self, core: Core, item: Parcel, progress: Callable[[Progress], None] | None) -> None:
        self._core = core
        self._item = item
        self._progress = progress
        self._located: dict[int, Place] = {}
        self.added = 0
        self.arrived: list[str] = []
        self.renamed: list[str] = []

    def branch(self, head: Head) -> None:
        """Bring a branch up to a head of the parcel, under its name or one made from it."""
        with self._core.read() as txn:
            candidates = _candidates(txn, self._item.session, head.name)
            common, place, found = self._common(txn, head, candidates)
            target = self._target(txn, head, candidates, place, common)
        if target is None:
            assert found is not None
            self.arrived.append(found.name)
        else:
            number, name = target
            if name != head.name:
                self.renamed.append(f"{head.name} diverged here; it arrived as {name}")
            if number is None:
                number = self._create(name, place)
            elif common == head.seq:
                self._forward(number, place)
            if common < head.seq:
                self._append(number, head, place)
            self.arrived.append(name)
            found = _Found(number, name, place)
        with self._core.read() as txn:
            ref = refs.branch(txn, found.number)
            self._locate(txn, head, Place(ref.timeline, ref.seq, ref.id))

    def tag(self, head: Head) -> None:
        """Set a tag of the parcel where its name is free."""
        timeline, seq = head.timeline, head.seq
        name = head.name
        with self._core.read() as txn:
            held = refs.look_up(txn, self._item.session, name)
            here = self._located.get(timeline)
            digest = self._item.id_at(timeline, seq)
            if held is not None and held.id == digest:
                return
            number = 2
            while held is not None:
                name = f"{_stem(head.name)}-{number}"
                held = refs.look_up(txn, self._item.session, name)
                if held is not None and held.id == digest:
                    return
                number += 1
        if name != head.name:
            self.renamed.append(f"the tag {head.name} stands elsewhere here; it arrived as {name}")
        if seq and (here is None or here.seq < seq):
            self.branch(Head(f"{_stem(name)}-history", timeline, seq, False))
        with self._core.read() as txn:
            place = self._place(txn, timeline, seq)
        now, fixed = self._core.clock(), Place(place.timeline, seq, digest)
        self._core.update(lambda txn: refs.tag(txn, self._item.session, name, fixed, now))

    def _common(self, txn: ReadTxn, head: Head, candidates: list[_Found]) -> tuple[int, Place, _Found | None]:
        """Return how far a head's history is in the store, where that is, and a branch that holds all of it."""
        best, place, holder = 0, Place(timelines.GENESIS, 0, self._item.row.genesis), None
        timeline, upto = head.timeline, head.seq
        while timeline:
            here = self._located.get(timeline)
            line = self._item.lines[timeline]
            if here is not None and min(here.seq, upto) > line.fork_seq:
                best = min(here.seq, upto)
                place = self._at(txn, here, best)
                break
            timeline, upto = line.parent, line.fork_seq
        for found in candidates:
            shared = self._shared(txn, head, found)
            if shared > best:
                best, place = shared, self._at(txn, found.place, shared)
            if shared == head.seq and holder is None:
                holder = found
        return best, place, holder

    def _shared(self, txn: ReadTxn, head: Head, found: _Found) -> int:
        """Return the last seq at which a branch and a head have one id; ids name histories, so halving finds it."""
        low, high = 0, min(head.seq, found.place.seq)
        while low < high:
            middle = (low + high + 1) // 2
            at = self._at(txn, found.place, middle)
            here = at.id or reader.id_at(txn, self._core.objects, self._item.row, at.timeline, middle)
            if here == self._item.id_at(head.timeline, middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _target(
        self, txn: ReadTxn, head: Head, candidates: list[_Found], place: Place, common: int
    ) -> tuple[int | None, str] | None:
        """Return the branch to write to, None for a new one, and its name; None alone when nothing is to be done."""
        names = {name for name, _ in refs.names(txn, self._item.session)}
        for found in candidates:
            holds = found.place.seq >= head.seq and self._shared(txn, head, found) == head.seq
            if holds and (found.name == head.name or head.name in names):
                return None
        if head.name not in names:
            return None, head.name
        for found in candidates:
            if found.place.seq <= common and self._shared(txn, head, found) == found.place.seq:
                same = (found.place.timeline, found.place.seq) == (place.timeline, place.seq)
                if same or common == head.seq:
                    return found.number, found.name
        base, number = _base(head.name), 2
        while f"{base}-{number}" in names:
            number += 1
        return None, f"{base}-{number}"

    def _create(self, name: str, place: Place) -> int:
        now, session = self._core.clock(), self._item.session
        return self._core.update(
            lambda txn: refs.create(txn, session, [name], place, now=now, operation="import", note=self._item.path)[0]
        )

    def _forward(self, number: int, place: Place) -> None:
        now = self._core.clock()
        self._core.update(lambda txn: refs.move(txn, number, place, now=now, operation="import"))

    def _append(self, number: int, head: Head, place: Place) -> None:
        """Append what a head has beyond a place, in batches; raises Conflict when somebody else appends meanwhile."""
        item = self._item
        expected = item.id_at(head.timeline, place.seq)
        for batch in _batches(self._missing(head, place.seq)):
            events = self._core.append(number, item.row, batch, expected)
            seq = events[-1].seq
            expected = item.id_at(head.timeline, seq)
            if events[-1].id != ids.show_digest(expected):
                raise Corrupt(f"seq {seq} came out with another id than {item.path} has; stop and verify", seq=seq)
            self.added += len(events)
            if self._progress is not None:
                self._progress(Progress(self.added, item.events, "events", item.row.title))

    def _missing(self, head: Head, after: int) -> Iterator[Ready]:
        path = []
        timeline, upto = head.timeline, head.seq
        while timeline and upto > after:
            line = self._item.lines[timeline]
            path.append((timeline, max(line.fork_seq, after) + 1, upto))
            timeline, upto = line.parent, line.fork_seq
        for timeline, first, last in reversed(path):
            yield from parcel.events(self._item, timeline, first, last, self._core.objects.secret)

    def _locate(self, txn: ReadTxn, head: Head, end: Place) -> None:
        """Note where the timelines of a head's history now lie."""
        timeline, upto = head.timeline, head.seq
        while timeline:
            old = self._located.get(timeline)
            if old is not None and old.seq >= upto:
                return
            self._located[timeline] = self._at(txn, end, upto)
            line = self._item.lines[timeline]
            timeline, upto = line.parent, line.fork_seq

    def _place(self, txn: ReadTxn, timeline: int, seq: int) -> Place:
        return self._at(txn, self._located[timeline], seq) if seq else Place(timelines.GENESIS, 0, b"")

    def _at(self, txn: ReadTxn, end: Place, seq: int) -> Place:
        return refs.place_at(txn, end, seq, "the import")


def _session(txn: WriteTxn, item: Parcel) -> bool:
    """Make the parcel's session if it is new; return whether it was known. Labels that are not there yet are added."""
    shown = ids.show_session(item.session)
    row = tables.get(txn, rows.SESSIONS, item.session)
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
        return False
    if row.deleted is not None:
        raise Conflict(f"{shown} is in the trash; undelete it, then import again", session_id=shown)
    if row.genesis != item.row.genesis:
        raise Conflict(f"{shown} is here with another genesis; this export is of another session", session_id=shown)
    merged = {**item.row.labels, **row.labels}
    if merged != row.labels:
        sessions.change(txn, item.session, labels=merged)
    return True


def _candidates(txn: ReadTxn, session: bytes, name: str) -> list[_Found]:
    """Return the branch of this name, then those that an earlier import may have named after it: BASE, BASE-2, ..."""
    base = _base(name)
    found = []
    for held, row in refs.names(txn, session):
        if row.branch and _base(held) == base:
            ref = refs.branch(txn, row.branch)
            order = (held != name, len(held), held)
            found.append((order, _Found(row.branch, held, Place(ref.timeline, ref.seq, ref.id))))
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def _base(name: str) -> str:
    """Return a branch name without the number that an import gave it, and with room for one."""
    base, dash, number = name.rpartition("-")
    return _stem(base if dash and base and number.isdecimal() else name)


def _stem(name: str) -> str:
    """Return as much of a name as leaves room for what an import puts behind it."""
    return name.encode()[: limits.NAME_BYTES_MAX - _ROOM].decode(errors="ignore")


def _batches(events: Iterator[Ready]) -> Iterator[list[Ready]]:
    batch: list[Ready] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event.payload)
        if len(batch) >= BATCH_EVENTS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
