"""Events one after another along a timeline: ids, payloads, calls, keys. The only code that runs once an event."""

from __future__ import annotations

import msgspec

from castlog.engine.base import ReadTxn
from castlog.format import chunk, codec, identity, rows
from castlog.format.record import ENCRYPTED, TOMBSTONE, Record, header
from castlog.history import calls, tables
from castlog.history.calls import InFlight
from castlog.history.runs import Run, covers
from castlog.ops.verify.inspection import DAMAGE, Inspection
from castlog.ops.verify.places import Revs


class Line(msgspec.Struct, frozen=True):
    """A timeline under inspection."""

    number: int
    row: rows.Timeline
    session: rows.Session


class Chain:
    """How far a timeline was checked, and what holds there.

    `seq` is the last seq checked or given up, `id` its id (b"" unknown), `calls` the calls in flight after it (None
    unknown).
    """

    def __init__(self, inspection: Inspection, line: Line, revs: Revs, at_fork: InFlight | None) -> None:
        self.line = line
        self.seq = line.row.fork_seq
        self.id = line.row.fork_id
        self.calls = at_fork
        self.complete = True
        self._inspection = inspection
        self._revs = revs

    def rev(self, txn: ReadTxn, seq: int) -> str:
        """Return the revision that names a seq of this timeline."""
        return self._revs.at(txn, self.line.row.session, self.line.number, seq)

    def found(self, txn: ReadTxn, name: str, seq: int, message: str) -> None:
        """Keep a finding about a seq."""
        rev = None if self._inspection.findings.full(name) else self.rev(txn, seq)
        self._inspection.found(name, message, rev)

    def lose(self, seq: int, event_id: bytes = b"") -> None:
        """Give up the events up to `seq`; what comes after is checked from `event_id`, if that is known."""
        self.seq, self.id, self.calls, self.complete = seq, event_id, None, False

    def follow(self, txn: ReadTxn, run: Run, known: int = 0) -> None:
        """Check a run behind the last seq: all but what takes reading pieces and decoding JSON.

        Of its events the first `known` were checked already; the next follows the last seq.
        """
        inspection, salt, session = self._inspection, self.line.session.salt, self.line.row.session
        event_id = self.id or (run.event_id(known - 1) if known else run.parent)
        parents, totals = inspection.parents, inspection.by_events[session]
        size, active = 0, -(1 << 63)
        for index in range(known, len(run.records)):
            seq, record = run.first + index, run.records[index]
            if record.stored is None:
                commits = identity.commitment(salt, run.inline(index))
            else:
                commits = record.stored.commitment
                if record.stored.form & TOMBSTONE:
                    totals.redacted = True
                self._check_stored(txn, run, index, record)
            event_id = identity.event_id(event_id, header(seq, record), commits)
            if record.call_ids:
                self._apply_calls(txn, seq, record)
            if record.key is not None:
                self._check_key(txn, seq, record.key)
            if event_id in parents:
                _claim(parents, event_id, session, seq)
            size += record.size
            active = max(active, record.ts)
        self.id, self.seq = event_id, run.last
        inspection.count("events", len(run.records) - known)
        totals.add(len(run.records) - known, size, active)

    def read_payloads(self, run: Run) -> None:
        """Read every payload of a run, compare it with its commitment and decode it, one at a time."""
        for index, record in enumerate(run.records):
            seq = run.first + index
            try:
                raw = run.raw(index, self._inspection.fetch)
            except DAMAGE as exc:
                self._found_later("damaged_payload", seq, f"seq {seq}: {exc}")
                continue
            if raw and not (record.stored and record.stored.form & ENCRYPTED):
                try:
                    codec.decode(raw)
                except DAMAGE as exc:
                    self._found_later("invalid_payload", seq, f"seq {seq}: {exc}")

    def _check_stored(self, txn: ReadTxn, run: Run, index: int, record: Record) -> None:
        """Check a payload that is not simply inline: its pieces exist, its inline bytes are those committed to."""
        stored, seq = record.stored, run.first + index
        assert stored is not None
        if stored.recipe:
            for digest in run.pieces(index):
                problem = self._inspection.pieces.use(txn, digest)
                if problem is not None:
                    self.found(txn, "missing_piece", seq, f"seq {seq} uses piece {digest.hex()[:16]}: {problem}")
                    return
        elif stored.data or chunk.lies_inline(record):
            data = stored.data or run.inline(index)
            if len(data) != record.size or not covers(stored, run.salt, data):
                self.found(txn, "damaged_payload", seq, f"the payload of seq {seq} is not what was committed to")

    def _apply_calls(self, txn: ReadTxn, seq: int, record: Record) -> None:
        in_flight = self.calls
        if in_flight is None:
            return
        if record.type in calls.OPENING:
            for call_id in record.call_ids:
                if call_id in in_flight:
                    before = in_flight[call_id]
                    self.found(txn, "reopened_call", seq, f"call {call_id!r} is in flight since seq {before}")
        elif record.type in calls.CLOSING:
            for call_id in record.call_ids:
                if call_id not in in_flight:
                    self.found(txn, "unmatched_result", seq, f"no call {call_id!r} is open before this {record.type}")
        calls.apply(in_flight, seq, record)

    def _check_key(self, txn: ReadTxn, seq: int, key: str) -> None:
        session = self.line.row.session
        try:
            row = tables.get(txn, rows.KEYS, session, rows.key_digest(key), self.line.number)
        except DAMAGE as exc:
            self._inspection.damaged(exc, self.rev(txn, seq))
            return
        if row is None:
            self.found(txn, "missing_key", seq, f"the key {key!r} of seq {seq} has no row")
        elif row.seq != seq:
            self.found(txn, "wrong_key", seq, f"the row of the key {key!r} says seq {row.seq} and not {seq}")
        else:
            self._inspection.keyed[session] = self._inspection.keyed.get(session, 0) + 1

    def _found_later(self, name: str, seq: int, message: str) -> None:
        with self._inspection.core.read() as txn:
            self.found(txn, name, seq, message)


def _claim(
    parents: dict[bytes, list[tuple[bytes, rows.ParentCall]]], event_id: bytes, session: bytes, seq: int
) -> None:
    """Take the children off the list whose parent is this very event."""
    waiting = [item for item in parents[event_id] if (item[1].session, item[1].seq) != (session, seq)]
    if waiting:
        parents[event_id] = waiting
    else:
        del parents[event_id]
