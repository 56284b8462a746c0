"""Sessions: genesis, origins, parents and children, and what their branches count."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import identity, ids, rows
from castlog.history import tables
from castlog.ops.verify import scan
from castlog.ops.verify.inspection import Inspection, Totals


def check_all(inspection: Inspection) -> None:
    """Check every session's own rows, and collect the parents to be met among the events."""
    only = inspection.only or b""
    scan.each(inspection, rows.SESSIONS.letter + only, lambda *row: _visit_session(inspection, *row))
    scan.each(inspection, rows.CHILDREN.letter + only, lambda *row: _visit_child(inspection, *row))
    if inspection.only is None:
        scan.each(inspection, rows.ORIGINS.letter, lambda *row: _visit_origin(inspection, *row))


def check_parents(inspection: Inspection) -> None:
    """Report sessions whose parent was met nowhere."""
    for waiting in inspection.parents.values():
        for child, parent in waiting:
            if inspection.by_events.get(parent.session, Totals()).complete:
                message = (
                    f"the call that started it, seq {parent.seq} of {ids.show_session(parent.session)}, is not there"
                )
                inspection.found("missing_parent", message, ids.show_session(child))


def check_counts(inspection: Inspection) -> None:
    """Compare what branches count with the events that are there; a session written meanwhile is left alone."""
    nothing = Totals()
    odd = [
        session
        for session in {**inspection.by_branches, **inspection.by_events}
        if not inspection.by_events.get(session, nothing).agrees(inspection.by_branches.get(session, nothing))
        and inspection.by_events.get(session, nothing).complete
    ]
    if not odd or not inspection.whole:
        return
    now: dict[bytes, Totals] = {}

    def visit(txn: ReadTxn, key: bytes, value: bytes) -> None:
        if rows.REFS.owns(key):
            ref = rows.REFS.decode(key, value)
            if ref.events:
                now.setdefault(ref.session, Totals()).add(ref.events, ref.size, ref.active)

    scan.each(inspection, rows.REFS.letter, visit)
    for session in odd:
        there, said = inspection.by_events.get(session, nothing), inspection.by_branches.get(session, nothing)
        if now.get(session, nothing) == said:
            message = f"its branches count {said.events:,} events of {said.size:,} bytes, the newest at {said.active}"
            message += f"; there are {there.events:,} of {there.size:,}, the newest at {there.active}"
            inspection.found("wrong_counts", message, ids.show_session(session))


def _visit_session(inspection: Inspection, txn: ReadTxn, key: bytes, value: bytes) -> None:
    row = rows.SESSIONS.decode(key, value)
    session = key[1:]
    shown = ids.show_session(session)
    inspection.count("sessions")
    salt_digest = row.salt_digest or identity.salt_digest(row.salt)
    parent = None if row.parent is None else row.parent.id
    genesis = identity.Genesis(identity.GENESIS_VERSION, session, row.created, parent, salt_digest)
    if identity.genesis_digest(genesis) != row.genesis:
        inspection.found("wrong_genesis", "its genesis digest does not follow from its row", shown)
    for check in (_check_origin, _check_parent, _check_deleted, _check_branches):
        inspection.attempt(lambda check=check: check(inspection, txn, session, row), shown)  # type: ignore[misc]


def _check_origin(inspection: Inspection, txn: ReadTxn, session: bytes, row: rows.Session) -> None:
    if row.origin is not None:
        found = tables.get(txn, rows.ORIGINS, rows.key_digest(row.origin))
        if found is None or (found.origin, found.session) != (row.origin, session):
            message = f"its origin {row.origin!r} does not lead to it"
            inspection.found("wrong_origin", message, ids.show_session(session))


def _check_parent(inspection: Inspection, txn: ReadTxn, session: bytes, row: rows.Session) -> None:
    parent = row.parent
    if parent is None:
        return
    child = tables.get(txn, rows.CHILDREN, parent.session, session)
    if child is None or child.call_id != parent.call_id:
        message = f"it is not among the children of {ids.show_session(parent.session)}"
        inspection.found("wrong_child", message, ids.show_session(session))
    if inspection.only is None:
        inspection.parents.setdefault(parent.id, []).append((session, parent))
    elif inspection.session(txn, parent.session) is None:
        message = f"the session whose call started it, {ids.show_session(parent.session)}, is not there"
        inspection.found("missing_parent", message, ids.show_session(session))


def _check_deleted(inspection: Inspection, txn: ReadTxn, session: bytes, row: rows.Session) -> None:
    if row.deleted is not None and not inspection.in_trash(txn, session, 0):
        inspection.found("wrong_trash", "it is deleted and not in the trash", ids.show_session(session))


def _check_branches(inspection: Inspection, txn: ReadTxn, session: bytes, row: rows.Session) -> None:
    if not any(item.branch for _, item in tables.scan(txn, rows.NAMES, session)):
        inspection.found("missing_branch", "it has no branch", ids.show_session(session))


def _visit_child(inspection: Inspection, txn: ReadTxn, key: bytes, value: bytes) -> None:
    row = rows.CHILDREN.decode(key, value)
    parent, child = key[1:17], key[17:]
    found = inspection.session(txn, child)
    said = None if found is None or found.parent is None else (found.parent.session, found.parent.call_id)
    if said != (parent, row.call_id):
        message = f"{ids.show_session(child)} is listed as its child and has another parent, or none"
        inspection.found("wrong_child", message, ids.show_session(parent))


def _visit_origin(inspection: Inspection, txn: ReadTxn, key: bytes, value: bytes) -> None:
    row = rows.ORIGINS.decode(key, value)
    found = inspection.session(txn, row.session)
    if found is None or found.origin != row.origin or key != rows.ORIGINS.key(rows.key_digest(row.origin)):
        message = f"the origin {row.origin!r} leads to it, and is not its own"
        inspection.found("wrong_origin", message, ids.show_session(row.session))
