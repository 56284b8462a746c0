"""Appending: the state of a branch, the chain of new events on it, and the rows that make them durable.

An append is one transaction: events, pieces, idempotency keys, the in-flight entry and, last, the branch's reference.
What costs time is done before it: `drafts` encodes and hashes payloads, `sealing` builds chunks for large batches on a
state read earlier. Inside, the state is read again, and what was prepared counts only if nothing moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, NotFound
from castlog.format import identity, ids, rows
from castlog.format.record import Record, TailRecord, encode_tail, header
from castlog.history import calls, reader, tables, timelines
from castlog.history.calls import InFlight
from castlog.history.drafts import Ready
from castlog.history.objects import Objects
from castlog.history.timelines import GENESIS


class State(msgspec.Struct, frozen=True):
    """A branch as an append finds it. `goes_on` says whether the head is its timeline's end."""

    branch: int
    ref: rows.Ref
    session: rows.Session
    tail: rows.Tail | None
    head_id: bytes

    @property
    def goes_on(self) -> bool:
        """Whether the next event belongs to the reference's own timeline."""
        return self.tail is not None and self.tail.last == self.ref.seq


class Entry(msgspec.Struct, frozen=True):
    """A new event with its place in the chain; `payload` is whole even where the record holds only its pieces."""

    seq: int
    tail: TailRecord
    size: int  # what it counts in an open chunk
    commitment: bytes = b""
    payload: bytes = b""


class Outcome(msgspec.Struct, frozen=True):
    """What an append comes to: the event of each draft, those that are new, and what they do to calls.

    `places` holds, for every draft, the (timeline, seq) of its event; timeline 0 stands for the one being written.
    `before` are the calls in flight at the head where a timeline begins there, else nobody has to know them; `changes`
    holds the seq from which a call is open now, or None for one that is closed.
    """

    places: list[tuple[int, int]]
    new: list[Entry]
    before: InFlight
    changes: dict[str, int | None]


def size_of(tail: TailRecord) -> int:
    """Return what an event counts in an open chunk: roughly the bytes it adds."""
    return len(tail.payload) + 32 * len(tail.pieces) + 100


def state(txn: ReadTxn, objects: Objects, branch: int) -> State:
    """Return a branch's state; raises NotFound for a deleted branch or session."""
    ref = tables.get(txn, rows.REFS, branch)
    if ref is None or ref.deleted is not None:
        raise NotFound("the branch was deleted", branch=ref.name if ref else branch)
    session = tables.get(txn, rows.SESSIONS, ref.session)
    if session is None or session.deleted is not None:
        raise NotFound("the session was deleted", session_id=ids.show_session(ref.session))
    tail = None if ref.timeline == GENESIS else reader.tail_of(txn, ref.timeline)
    head_id = ref.id or reader.id_at(txn, objects, session, ref.timeline, ref.seq)
    return State(branch, ref, session, tail, head_id)


def chain(txn: ReadTxn, objects: Objects, at: State, drafts: Sequence[Ready], expect: int | bytes | None) -> Outcome:
    """Return what appending `drafts` to a branch in this state comes to; writes nothing.

    Raises Conflict when `expect` is not the head, or a key is known with another type or payload.
    """
    places: list[tuple[int, int]] = []
    new: list[Entry] = []
    by_key: dict[str, Entry] = {}
    changes: dict[str, int | None] = {}
    seq, parent = at.ref.seq, at.head_id
    for draft in drafts:
        key = draft.record.key
        if key is not None:
            known = by_key.get(key)
            if known is not None:
                check_repeat(draft, known.tail.record, known.commitment, known.seq)
                places.append((GENESIS, known.seq))
                continue
            place = find_key(txn, at, key)
            if place is not None:
                run = reader.run_at(txn, objects, at.session.salt, *place)
                index = place[1] - run.first
                check_repeat(draft, run.records[index], run.commitment(index), place[1])
                places.append(place)
                continue
        if not new and expect is not None:
            _check_expected(at, expect)
        seq += 1
        entry = _entry(seq, parent, draft)
        parent = entry.tail.id
        new.append(entry)
        places.append((GENESIS, seq))
        if key is not None:
            by_key[key] = entry
        changes.update(calls.changes(seq, entry.tail.record))
    begins = bool(new) and not at.goes_on
    before = reader.calls_at_head(txn, objects, at.session, at.ref) if begins else {}
    return Outcome(places, new, before, changes)


def find_key(txn: ReadTxn, at: State, key: str) -> tuple[int, int] | None:
    """Return the place of the event that has this idempotency key in the branch's history, or None.

    Looks on the branch's own timeline first, then goes through the key's rows or the ancestors, whichever are fewer.
    """
    ref, digest = at.ref, rows.key_digest(key)
    if ref.timeline == GENESIS:
        return None

    def counts(timeline: int, row: rows.Seq | None) -> bool:
        return row is not None and row.seq <= ref.seq and timelines.owner(txn, ref.timeline, row.seq) == timeline

    own = tables.get(txn, rows.KEYS, ref.session, digest, ref.timeline)
    if own is not None and counts(ref.timeline, own):
        return ref.timeline, own.seq
    depth = timelines.depth(txn, ref.timeline)
    if depth == 1:
        return None
    held: list[tuple[int, rows.Seq]] = []
    for table_key, row in tables.scan(txn, rows.KEYS, ref.session + digest):
        timeline = rows.KEYS.fields(table_key)[2]
        assert isinstance(timeline, int)
        held.append((timeline, row))
        if len(held) > depth:
            break
    if len(held) <= depth:
        return next(((timeline, row.seq) for timeline, row in held if counts(timeline, row)), None)
    for timeline in timelines.ancestors(txn, ref.timeline):
        found = tables.get(txn, rows.KEYS, ref.session, digest, timeline)
        if found is not None and counts(timeline, found):
            return timeline, found.seq
    return None


def check_repeat(draft: Ready, record: Record, commitment: bytes, seq: int) -> None:
    """Raise Conflict unless a draft repeats, in type and payload, the event that has its key."""
    if record.type != draft.record.type or commitment != draft.commitment:
        key = draft.record.key
        raise Conflict(
            f"the key {key!r} is taken by seq {seq} with another type or payload; use a new key",
            key=key,
            seq=seq,
        )


def commit(txn: WriteTxn, at: State, outcome: Outcome, now: int) -> State:
    """Write an outcome's new events, open, behind the state it was made for; return the state they leave."""
    timeline, tail = extend_timeline(txn, at, outcome)
    size = tail.size
    for entry in outcome.new:
        put_record(txn, timeline, entry)
        size += entry.size
    return finish(txn, at, outcome, timeline, tail.sealed, size, now)


def put_record(txn: WriteTxn, timeline: int, entry: Entry) -> None:
    """Write an event into a timeline's open chunk."""
    key = rows.record_key(timeline, entry.seq)
    txn.put(key, rows.guard(key, encode_tail(entry.tail)))


def extend_timeline(txn: WriteTxn, at: State, outcome: Outcome) -> tuple[int, rows.Tail]:
    """Return the timeline new events of a branch go to, and its tail; opens one if the head is not its end."""
    if at.goes_on:
        assert at.tail is not None
        return at.ref.timeline, at.tail
    ref = at.ref
    timeline = timelines.create(txn, ref.session, ref.timeline, ref.seq, at.head_id)
    calls.write(txn, rows.OPEN_AT_FORK, timeline, outcome.before)
    return timeline, rows.Tail(ref.seq, at.head_id, ref.seq, 0)


def finish(txn: WriteTxn, at: State, outcome: Outcome, timeline: int, sealed: int, size: int, now: int) -> State:
    """Write what follows from new events: tail, keys, calls in flight, and the reference last; return the state."""
    last = outcome.new[-1]
    ref, session = at.ref, at.ref.session
    tail = rows.Tail(last.seq, last.tail.id, sealed, size)
    tables.put(txn, rows.TAILS, tail, timeline)
    payloads, active = 0, outcome.new[0].tail.record.ts
    for entry in outcome.new:
        record = entry.tail.record
        payloads += record.size
        active = max(active, record.ts)
        if record.key is not None:
            tables.put(txn, rows.KEYS, rows.Seq(entry.seq), session, rows.key_digest(record.key), timeline)
    if outcome.before or outcome.changes:
        calls.write(txn, rows.IN_FLIGHT, timeline, outcome.before | outcome.changes, fresh=not at.goes_on)
    moved = rows.Ref(
        session,
        ref.name,
        timeline,
        last.seq,
        last.tail.id,
        ref.created,
        ref.operation,
        ref.start,
        ref.note,
        ref.deleted,
        ref.events + len(outcome.new),
        ref.size + payloads,
        max(ref.active, active) if ref.events else active,
        now,
    )
    tables.put(txn, rows.REFS, moved, at.branch)
    return State(at.branch, moved, at.session, tail, last.tail.id)


def _entry(seq: int, parent: bytes, draft: Ready) -> Entry:
    record = draft.record
    if draft.needs_call_id:
        record = msgspec.structs.replace(record, call_ids=(f"c{seq}",))
    event_id = identity.event_id(parent, header(seq, record), draft.commitment)
    tail = TailRecord(parent, event_id, record, b"" if draft.pieces else draft.payload, draft.table)
    return Entry(seq, tail, size_of(tail), draft.commitment, draft.payload)


def _check_expected(at: State, expect: int | bytes) -> None:
    if expect in (at.ref.seq, at.head_id):
        return
    wanted = expect if isinstance(expect, int) else ids.show_digest(expect)
    raise Conflict(
        f"{at.ref.name} is at seq {at.ref.seq} and not at {wanted}; read what came and retry",
        expected=wanted,
        seq=at.ref.seq,
        id=ids.show_digest(at.head_id),
    )
