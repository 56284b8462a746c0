"""Places in a history: whether a reference points at one, and the words that lead a person there."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import ids, rows
from castlog.history import reader, refs, tables, timelines
from castlog.history.refs import Place
from castlog.history.timelines import GENESIS
from castlog.ops.verify.inspection import DAMAGE, Inspection


def problem(inspection: Inspection, txn: ReadTxn, session: bytes, row: rows.Session, place: Place) -> str | None:
    """Return what is wrong with a place that a reference of this session points at, or None.

    An id that cannot be had because its chunk is damaged is no problem of the reference. Raises Corrupt for a row.
    """
    if place.timeline == GENESIS:
        return None if place.seq == 0 and place.id in (b"", row.genesis) else "it is not the session's beginning"
    line = tables.get(txn, rows.TIMELINES, place.timeline)
    tail = tables.get(txn, rows.TAILS, place.timeline)
    if line is None or tail is None:
        return f"timeline {place.timeline} is missing"
    if line.session != session:
        return f"timeline {place.timeline} is another session's"
    if not line.fork_seq < place.seq <= tail.last:
        return f"timeline {place.timeline} holds seqs {line.fork_seq + 1} to {tail.last}"
    if not place.id:
        return None
    try:
        found = reader.id_at(txn, inspection.objects, row, place.timeline, place.seq)
    except DAMAGE:
        return None
    return None if found == place.id else f"the event there is {ids.show_digest(found)[:19]}"


class Revs:
    """Revisions for places that checks come upon, by way of a branch or tag that reaches them."""

    def __init__(self) -> None:
        self._timeline = GENESIS
        self._ways: list[tuple[str, Place]] = []

    def at(self, txn: ReadTxn, session: bytes, timeline: int, seq: int) -> str:
        """Return `SESSION/NAME@SEQ` for a place its timeline owns; the session alone when no name leads there."""
        shown = ids.show_session(session)
        try:
            if timeline != self._timeline:
                self._ways = _ways(txn, session, timeline)
                self._timeline = timeline
            for name, end in self._ways:
                if end.seq >= seq and timelines.owner(txn, end.timeline, seq) == timeline:
                    return f"{shown}/{name}@{seq}"
        except DAMAGE:
            self._timeline = GENESIS
        return shown


def _ways(txn: ReadTxn, session: bytes, timeline: int) -> list[tuple[str, Place]]:
    """Return the names whose histories run through a timeline, branches first and the oldest of them foremost."""
    first = timelines.read(txn, timeline).fork_seq + 1
    ways = []
    for name, item in refs.names(txn, session):
        ref = tables.get(txn, rows.REFS, item.branch) if item.branch else None
        if item.branch and ref is None:
            continue
        end = Place(ref.timeline, ref.seq, ref.id) if ref else Place(item.timeline, item.seq, item.id)
        if end.seq >= first and timelines.owner(txn, end.timeline, first) == timeline:
            ways.append((item.branch or 1 << 64, name, end))
    return [(name, end) for _, name, end in sorted(ways, key=lambda way: way[:2])]
