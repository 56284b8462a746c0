"""Idempotency rows against events.

The walk over the events looked up the row of every keyed event and counted them. Only where a session has more rows
than that is each row followed to its event, which costs a chunk.
"""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import ids, rows
from castlog.history import reader, tables
from castlog.ops.verify import scan
from castlog.ops.verify.inspection import DAMAGE, Inspection


def check_all(inspection: Inspection) -> None:
    """Check that every idempotency row points at an event having its key."""
    there: dict[bytes, int] = {}

    def visit(txn: ReadTxn, key: bytes, value: bytes) -> None:
        rows.KEYS.decode(key, value)
        there[key[1:17]] = there.get(key[1:17], 0) + 1

    scan.each(inspection, rows.KEYS.letter + (inspection.only or b""), visit)
    for session, count in there.items():
        if count != inspection.keyed.get(session, 0):
            scan.each(inspection, rows.KEYS.letter + session, lambda *row: _follow(inspection, *row))


def _follow(inspection: Inspection, txn: ReadTxn, key: bytes, value: bytes) -> None:
    row = rows.KEYS.decode(key, value)
    session, digest, timeline = key[1:17], key[17:33], int.from_bytes(key[33:], "big")
    try:
        problem = _problem(inspection, txn, session, digest, timeline, row.seq)
    except DAMAGE:
        return  # the event cannot be read, which was found before
    if problem is not None:
        message = f"the row of key {digest.hex()} points at seq {row.seq} of timeline {timeline}: {problem}"
        inspection.found("wrong_key", message, ids.show_session(session))


def _problem(
    inspection: Inspection, txn: ReadTxn, session: bytes, digest: bytes, timeline: int, seq: int
) -> str | None:
    line = tables.get(txn, rows.TIMELINES, timeline)
    found = inspection.session(txn, session)
    if found is None or line is None or line.session != session:
        return "the session has no such timeline"
    if not line.fork_seq < seq <= reader.tail_of(txn, timeline).last:
        return "the timeline holds no such seq"
    run = reader.run_at(txn, inspection.objects, found.salt, timeline, seq)
    key = run.records[seq - run.first].key
    return None if key is not None and rows.key_digest(key) == digest else "the event has another key, or none"
