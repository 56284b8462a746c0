"""Walks over everything reachable: each stored stretch of events once, however many branches share it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from castlog.core import Core, make_event
from castlog.engine.base import ReadTxn
from castlog.event import Event
from castlog.format import ids, rows
from castlog.history import reader, refs, sessions, tables, timelines
from castlog.history.refs import Place
from castlog.history.runs import Page, Run
from castlog.history.timelines import GENESIS


class Stretch(msgspec.Struct, frozen=True):
    """Events `first` to `last` of one timeline, and the branch or tag they are read through."""

    session: bytes
    row: rows.Session
    name: str
    timeline: int
    first: int
    last: int


def of_session(txn: ReadTxn, session: bytes, row: rows.Session) -> list[Stretch]:
    """Return what a session's branches and tags reach, each event in one stretch; costs one step a timeline."""
    ends = []
    for name, item in refs.names(txn, session):
        if item.branch:
            ref = refs.branch(txn, item.branch)
            ends.append((item.branch, name, Place(ref.timeline, ref.seq, ref.id)))
        else:
            ends.append((1 << 64, name, Place(item.timeline, item.seq, item.id)))
    return of_places(txn, session, row, [(name, place) for _, name, place in sorted(ends, key=lambda end: end[:2])])


def of_places(txn: ReadTxn, session: bytes, row: rows.Session, places: list[tuple[str, Place]]) -> list[Stretch]:
    """Return what places of one session reach, each event in the stretch of the first place that reaches it."""
    reached: dict[int, int] = {}  # timeline -> up to which seq somebody reached it
    found: list[Stretch] = []
    for name, place in places:
        at, last = place.timeline, place.seq
        mine = []
        while at != GENESIS and reached.get(at, 0) < last:
            start = timelines.read(txn, at)
            before = reached.get(at)
            first = start.fork_seq + 1 if before is None else before + 1
            mine.append(Stretch(session, row, name, at, first, last))
            reached[at] = last
            if before is not None:
                break
            at, last = start.parent, start.fork_seq
        found += reversed(mine)
    return found


def living(txn: ReadTxn) -> list[tuple[bytes, rows.Session]]:
    """Return all sessions that are not in the trash, oldest first."""
    return [(key[1:], row) for key, row in tables.scan(txn, rows.SESSIONS) if row.deleted is None]


def everything(core: Core) -> Iterator[Stretch]:
    """Yield the stretches of all living sessions, in a short transaction a session."""
    with core.read() as txn:
        known = living(txn)
    for session, _ in known:
        with core.read() as txn:
            row = sessions.read(txn, session, deleted=True)
            stretches = of_session(txn, session, row)
        yield from stretches


def runs(core: Core, stretch: Stretch) -> Iterator[tuple[Run, int, int]]:
    """Yield a stretch's runs, oldest first, each with the first and last seq of it that belongs to the stretch."""
    seq = stretch.first
    while seq <= stretch.last:
        with core.read() as txn:
            run = reader.run_at(
                txn, core.objects, stretch.row.salt, stretch.timeline, seq, wanted=stretch.last - seq + 1
            )
        last = min(run.last, stretch.last)
        yield run, seq, last
        seq = last + 1


def events(core: Core, stretch: Stretch) -> Iterator[Event]:
    """Yield a stretch's events, oldest first."""
    session_id = ids.show_session(stretch.session)
    for run, first, last in runs(core, stretch):
        page = Page(run, core.fetch, bulk=False)
        for seq in range(first, last + 1):
            index = seq - run.first
            yield make_event(session_id, stretch.name, seq, run.records[index], page, index)
