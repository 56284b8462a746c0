"""References: branches and their reflogs, names and tags, the trash, HEAD."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import ids, rows
from castlog.history import tables, timelines
from castlog.history.refs import Place
from castlog.ops.verify import places, scan
from castlog.ops.verify.inspection import DAMAGE, Inspection, Totals


def check_all(inspection: Inspection) -> None:
    """Check every reference, and add up what the branches count."""
    scan.each(inspection, rows.TRASH.letter, lambda txn, key, value: _visit_trash(inspection, txn, key, value))
    for number in scan.numbers(inspection, rows.REFS.letter, inspection.counters.branch):
        with inspection.core.read() as txn:
            try:
                _check_branch(inspection, txn, number)
            except DAMAGE as exc:
                inspection.damaged(exc)
                inspection.whole = False
    scan.each(inspection, _names_of(inspection), lambda txn, key, value: _visit_name(inspection, txn, key, value))
    with inspection.core.read() as txn:
        inspection.attempt(lambda: _check_head(inspection, txn))


def _names_of(inspection: Inspection) -> bytes:
    return rows.NAMES.letter + (inspection.only or b"")


def _visit_trash(inspection: Inspection, txn: ReadTxn, key: bytes, value: bytes) -> None:
    row = rows.TRASH.decode(key, value)
    inspection.use_number("trashed", int.from_bytes(key[1:], "big"))
    if inspection.only not in (None, row.session):
        return
    inspection.trash.add((row.session, row.branch))
    shown = ids.show_session(row.session)
    if row.branch:
        ref = tables.get(txn, rows.REFS, row.branch)
        deleted = ref.deleted if ref is not None and ref.session == row.session else None
        what = f"branch {row.branch}" if ref is None else f"the branch {ref.name!r}"
    else:
        session = inspection.session(txn, row.session)
        deleted, what = None if session is None else session.deleted, "the session"
    if deleted != row.deleted:
        inspection.found("wrong_trash", f"{what} lies in the trash and is not marked as deleted then", shown)


def _check_branch(inspection: Inspection, txn: ReadTxn, number: int) -> None:
    inspection.use_number("branch", number)
    ref = tables.get(txn, rows.REFS, number)
    if ref is None:
        if inspection.only is None:
            inspection.found("missing_branch", f"a reflog belongs to branch {number}, which is not there")
        return
    if inspection.only not in (None, ref.session):
        return
    totals = inspection.by_branches.setdefault(ref.session, Totals())
    if ref.events:
        totals.add(ref.events, ref.size, ref.active)
        inspection.expected_events += ref.events
    inspection.count("references")
    rev = f"{ids.show_session(ref.session)}/{ref.name}"
    session = inspection.session(txn, ref.session)
    if session is None:
        inspection.found("missing_session", f"the branch {ref.name!r} belongs to a session that is not there", rev)
        return
    where = _Where(inspection, txn, ref.session, session, rev)
    where.check(Place(ref.timeline, ref.seq, ref.id), f"the branch {ref.name!r}")
    inspection.attempt(lambda: _check_name(inspection, txn, number, ref, rev))
    _check_reflog(where, number, ref)
    beyond = _first_beyond(txn, number)
    if beyond is not None:
        inspection.found("unknown_row", f"the key {beyond.hex()} belongs to no table")


def _first_beyond(txn: ReadTxn, number: int) -> bytes | None:
    prefix = rows.REFS.letter + number.to_bytes(8, "big")
    return scan.first_key(txn, prefix + bytes((rows.REFLOG.kind + 1,)), rows.after(prefix))


def _check_name(inspection: Inspection, txn: ReadTxn, number: int, ref: rows.Ref, rev: str) -> None:
    """Check that a living branch has its name, and that a deleted one lies in the trash."""
    if ref.deleted is not None:
        if not inspection.in_trash(txn, ref.session, number):
            inspection.found("wrong_trash", f"the branch {ref.name!r} is deleted and not in the trash", rev)
        return
    key = rows.NAMES.of(ref.session, ref.name)
    value = txn.get(key)
    if value is None or rows.NAMES.decode(key, value).branch != number:
        inspection.found("wrong_name", f"the name {ref.name!r} does not lead to its branch, number {number}", rev)


class _Where:
    """The checks of places of one session, on behalf of one reference."""

    def __init__(self, inspection: Inspection, txn: ReadTxn, session: bytes, row: rows.Session, rev: str) -> None:
        self.inspection, self.txn, self.session, self.row, self.rev = inspection, txn, session, row, rev

    def check(self, place: Place, what: str) -> None:
        """Check that a place is one."""
        problem = self.inspection.attempt(
            lambda: places.problem(self.inspection, self.txn, self.session, self.row, place), self.rev
        )
        if problem is not None:
            message = f"{what} points at seq {place.seq} of timeline {place.timeline}: {problem}"
            self.inspection.found("broken_reference", message, self.rev)

    def leads_to(self, before: Place, after: Place) -> bool:
        """Return whether appends alone lead from one place to the other; yes when that cannot be read."""
        if before.seq > after.seq:
            return False
        try:
            return timelines.owner(self.txn, after.timeline, before.seq) == before.timeline
        except DAMAGE:
            return True


def _check_reflog(where: _Where, number: int, ref: rows.Ref) -> None:
    """Check the entries' places, and that between two entries there were only appends."""
    prefix = rows.REFLOG.prefix(number.to_bytes(8, "big"))
    at: Place | None = None  # where the last entry left the branch
    following, lowest = 0, ref.start
    for key, value in where.txn.scan(prefix, rows.after(prefix)):
        n = int.from_bytes(key[-8:], "big")
        if n != following:
            where.inspection.found("reflog_gap", f"entry {following} of the reflog is missing", where.rev)
            at, lowest = None, 0
        following = n + 1
        try:
            row = rows.REFLOG.decode(key, value)
        except DAMAGE as exc:
            where.inspection.damaged(exc, where.rev)
            at, lowest = None, 0
            continue
        old, new = Place(row.old_timeline, row.old_seq, row.old_id), Place(row.new_timeline, row.new_seq, row.new_id)
        for place in dict.fromkeys((old, new)):
            where.check(place, f"entry {n} of the reflog")
        if old.seq < lowest or (at is not None and not where.leads_to(at, old)):
            where.inspection.found("reflog_gap", f"the branch had moved before entry {n} of the reflog", where.rev)
        at, lowest = new, 0
    if ref.seq < lowest or (at is not None and not where.leads_to(at, Place(ref.timeline, ref.seq, ref.id))):
        where.inspection.found("reflog_gap", "the branch moved after the last entry of the reflog", where.rev)


def _visit_name(inspection: Inspection, txn: ReadTxn, key: bytes, value: bytes) -> None:
    row = rows.NAMES.decode(key, value)
    session, name = key[1:17], rows.NAMES.name_in(key)
    rev = f"{ids.show_session(session)}/{name}"
    found = inspection.session(txn, session)
    if found is None:
        inspection.found("missing_session", f"the name {name!r} belongs to a session that is not there", rev)
    elif not row.branch:
        inspection.count("references")
        place = Place(row.timeline, row.seq, row.id)
        _Where(inspection, txn, session, found, rev).check(place, f"the tag {name!r}")
    else:
        ref = tables.get(txn, rows.REFS, row.branch)
        if ref is None or (ref.session, ref.name, ref.deleted) != (session, name, None):
            inspection.found("wrong_name", f"the name {name!r} leads to no branch of that name", rev)


def _check_head(inspection: Inspection, txn: ReadTxn) -> None:
    head = tables.get(txn, rows.HEAD)
    if head is None or inspection.only not in (None, head.session):
        return
    ref = tables.get(txn, rows.REFS, head.branch)
    if ref is None or ref.session != head.session:
        shown = ids.show_session(head.session)
        inspection.found("stale_head", f"HEAD points at branch {head.branch}, which is none of its session", shown)
