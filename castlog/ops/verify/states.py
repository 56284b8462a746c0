"""Snapshots, compared with the states that their events fold to: each event is folded once, whoever shares it.

A fork goes on from its parent's state at the fork, so a tree of branches costs no more than its events. Only snapshots
of the reducers given can be checked; all others are passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from castlog import schema
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.event import Event
from castlog.format import codec, ids, rows
from castlog.history import snapshots, tables, timelines
from castlog.history.timelines import GENESIS
from castlog.ops import walk
from castlog.ops.paths import changes
from castlog.ops.verify import scan
from castlog.ops.verify.inspection import DAMAGE, Inspection
from castlog.ops.verify.places import Revs
from castlog.state import Reducer

_SHOWN = 3  # paths that differ, named in a finding


def check_all(inspection: Inspection, reducers: Sequence[Reducer[Any]], *, drop: bool) -> None:
    """Check the snapshots of these reducers; with `drop` those that are wrong are taken away."""
    inspection.checked["snapshots"] = 0
    for reducer in reducers:
        kept = _kept(inspection, snapshots.fold_key(reducer.name, reducer.version, schema.fingerprint()))
        for session, seqs in kept.items():
            check = _Session(inspection, reducer, session, seqs)
            inspection.attempt(check.run, ids.show_session(session))
            if drop:
                check.drop_wrong()


def _kept(inspection: Inspection, fold: bytes) -> dict[bytes, dict[int, set[int]]]:
    """Return the seqs at which there are snapshots of one fold, by session and timeline."""
    found: dict[int, set[int]] = defaultdict(set)

    def visit(txn: ReadTxn, key: bytes, value: bytes) -> None:
        timeline, of, seq = rows.SNAPSHOTS.fields(key)
        if of == fold:
            assert isinstance(timeline, int)
            assert isinstance(seq, int)
            found[timeline].add(seq)

    scan.each(inspection, rows.SNAPSHOTS.letter, visit)
    by_session: dict[bytes, dict[int, set[int]]] = defaultdict(dict)
    for timeline, seqs in found.items():
        with inspection.core.read() as txn:
            row = inspection.attempt(lambda txn=txn, timeline=timeline: timelines.read(txn, timeline))  # type: ignore[misc]
        if row is not None and inspection.only in (None, row.session):
            by_session[row.session][timeline] = seqs
    return by_session


class _Session:
    """One session's snapshots of one reducer. `wrong` are those that differ: timeline, seq and object."""

    def __init__(
        self, inspection: Inspection, reducer: Reducer[Any], session: bytes, seqs: dict[int, set[int]]
    ) -> None:
        self._inspection = inspection
        self._reducer = reducer
        self._session = session
        self._seqs = seqs
        self._key = snapshots.fold_key(reducer.name, reducer.version, schema.fingerprint())
        self._revs = Revs()
        self.wrong: list[tuple[int, int, int]] = []

    def run(self) -> None:
        """Fold what leads to the snapshots, and compare each on the way. Raises Corrupt for rows that are damaged."""
        with self._inspection.core.read() as txn:
            row = self._inspection.session(txn, self._session)
            lines = {at: timelines.read(txn, at) for of in self._seqs for at in timelines.ancestors(txn, of)}
        if row is None:
            return
        leaving: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, line in lines.items():
            leaving[line.parent][line.fork_seq].append(number)
        beginnings: dict[int, bytes | None] = dict.fromkeys(leaving[GENESIS][0])
        for number in sorted(lines):  # a timeline is made after the one it left
            if number not in beginnings:
                continue  # what leads there could not be folded
            stops = self._seqs.get(number, set()) | leaving[number].keys()
            stretch = walk.Stretch(self._session, row, "main", number, lines[number].fork_seq + 1, max(stops))
            for event, data in self._fold(beginnings.pop(number), stretch, stops):
                beginnings.update(dict.fromkeys(leaving[number][event.seq], data))
                if event.seq in self._seqs.get(number, ()):
                    self._compare(number, event, data)

    def drop_wrong(self) -> None:
        """Take away the snapshots that were found to be wrong, unless others took their place meanwhile."""
        for timeline, seq, number in self.wrong:
            self._inspection.core.update(
                lambda txn, timeline=timeline, seq=seq, number=number: snapshots.drop(txn, timeline, seq, number)  # type: ignore[misc]
            )

    def _fold(self, beginning: bytes | None, stretch: walk.Stretch, stops: set[int]) -> Iterator[tuple[Event, bytes]]:
        """Yield the state after each event in `stops`; ends at an event that cannot be read or folded."""
        reducer, inspection = self._reducer, self._inspection
        seq = stretch.first
        try:
            state = reducer.initial() if beginning is None else reducer.decode(beginning)
            for event in walk.events(inspection.core, stretch):
                seq = event.seq
                state = reducer.fold(state, event)
                if seq in stops:
                    yield event, reducer.encode(state)
                inspection.tell_folded(self._session)
        except Exception as exc:  # a reducer may raise anything; what it cannot fold is no damage of the store
            with inspection.core.read() as txn:
                rev = self._revs.at(txn, self._session, stretch.timeline, seq)
            message = f"snapshots of {reducer.name} {reducer.version} from seq {seq} on: {type(exc).__name__}: {exc}"
            inspection.found("unchecked", message, rev)

    def _compare(self, timeline: int, event: Event, folded: bytes) -> None:
        inspection = self._inspection
        with inspection.core.read() as txn:
            row = tables.get(txn, rows.SNAPSHOTS, timeline, self._key, event.seq)
            if row is None:
                return
            try:
                kept, data = snapshots.read(txn, inspection.objects, snapshots.Found(timeline, event.seq, row))
            except DAMAGE as exc:
                if inspection.only is not None:  # else it was found among the objects
                    inspection.found("damaged_snapshot", f"the snapshot of seq {event.seq}: {exc}")
                return
            inspection.count("snapshots")
            difference = "" if data == folded else _difference(data, folded)
            if kept.id != ids.parse_digest(event.id):
                difference = "it is of another event"
            if difference:
                self.wrong.append((timeline, event.seq, row.object))
                message = f"the snapshot of {kept.name} {kept.version} is not what its events fold to: {difference}"
                inspection.found("wrong_snapshot", message, self._revs.at(txn, self._session, timeline, event.seq))


def _difference(kept: bytes, folded: bytes) -> str:
    """Return where two states differ, or nothing if they are the same JSON written differently."""
    try:
        found = changes(codec.decode(folded), codec.decode(kept))
    except Corrupt as exc:
        return str(exc)
    if not found:
        return ""
    named = ", ".join(f"{change.sign} {change.where}" for change in found[:_SHOWN])
    return named + (f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else "")
