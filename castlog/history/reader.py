"""Reading a place in a history: the run that holds a seq, ids, and the calls in flight."""

from __future__ import annotations

from castlog import limits
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.format import chunk, rows
from castlog.format.record import TailRecord, decode_tail
from castlog.history import calls, tables, timelines
from castlog.history.calls import InFlight
from castlog.history.objects import Objects
from castlog.history.runs import OpenRun, Run, SealedRun
from castlog.history.timelines import GENESIS


def tail_of(txn: ReadTxn, timeline: int) -> rows.Tail:
    """Return where a timeline ends; raises Corrupt when its row is missing."""
    row = tables.get(txn, rows.TAILS, timeline)
    if row is None:
        raise Corrupt(f"the end of timeline {timeline} is missing", timeline=timeline)
    return row


def run_at(
    txn: ReadTxn,
    objects: Objects,
    salt: bytes,
    timeline: int,
    seq: int,
    *,
    wanted: int = 1,
    reverse: bool = False,
) -> Run:
    """Return a run of `timeline`'s own events that includes `seq`.

    A sealed event comes with its whole chunk; of an open chunk up to `wanted` events are read, from `seq` on, or up to
    it with `reverse`, and none beyond a damaged one. Raises Corrupt naming what fails.
    """
    tail = tail_of(txn, timeline)
    if seq > tail.last:
        raise Corrupt(f"timeline {timeline} ends at {tail.last}, before seq {seq}", seq=seq)
    if seq <= tail.sealed:
        return chunk_at(txn, objects, salt, timeline, seq, keep=wanted <= limits.WALK_KEPT_EVENTS)
    wanted = min(wanted, limits.TAIL_BATCH_EVENTS)
    first = max(tail.sealed + 1, seq - wanted + 1) if reverse else seq
    last = seq if reverse else min(tail.last, seq + wanted - 1)
    while True:
        try:
            return OpenRun(salt, first, open_records(txn, timeline, first, last))
        except Corrupt as exc:
            damaged = exc.facts.get("seq", seq)
            if first <= damaged < seq:
                first = damaged + 1
            elif seq < damaged <= last:
                last = damaged - 1
            else:
                raise


def open_records(txn: ReadTxn, timeline: int, first: int, last: int) -> list[TailRecord]:
    """Return the records `first` to `last` of an open chunk; raises Corrupt when one is missing."""
    if last < first:
        return []
    found: list[TailRecord] = []
    for key, value in txn.scan(rows.record_key(timeline, first), rows.record_key(timeline, last + 1)):
        if key == rows.record_key(timeline, first + len(found)):  # what else lies here was never written
            found.append(open_record(key, value))
    if len(found) != last - first + 1:
        missing = first + len(found)
        raise Corrupt(f"the record of seq {missing} is missing from timeline {timeline}", seq=missing)
    return found


def open_record(key: bytes, value: bytes) -> TailRecord:
    """Return the record in a row of an open chunk; raises Corrupt naming its seq."""
    seq = rows.record_seq(key)
    body = rows.guarded(key, value)
    if body is None:
        raise Corrupt(f"the record of seq {seq} fails its checksum", seq=seq)
    try:
        return decode_tail(body)
    except Corrupt as exc:
        raise Corrupt(f"seq {seq}: {exc}", seq=seq) from exc


def chunk_row(txn: ReadTxn, timeline: int, seq: int) -> tuple[int, rows.Chunk]:
    """Return the last seq and the row of the chunk that holds a sealed `seq`; raises Corrupt when there is none."""
    for key, value in txn.scan(rows.CHUNKS.key(timeline, seq), rows.record_key(timeline, 0)):
        row = rows.CHUNKS.decode(key, value)
        owner, last = rows.CHUNKS.fields(key)
        assert isinstance(last, int)
        if owner != timeline or not row.first <= seq <= last:
            break
        return last, row
    raise Corrupt(f"no chunk of timeline {timeline} holds seq {seq}", timeline=timeline, seq=seq)


def chunk_at(txn: ReadTxn, objects: Objects, salt: bytes, timeline: int, seq: int, *, keep: bool = True) -> SealedRun:
    """Return the chunk that holds a sealed `seq`, its object's digest checked; raises Corrupt naming the object.

    It stays in the cache if it is there already or `keep` says so.
    """
    last, row = chunk_row(txn, timeline, seq)

    def load() -> tuple[SealedRun, int]:
        data = objects.stretch(txn, row.object, row.offset, row.length)
        try:
            run = SealedRun(salt, *chunk.decode(data))
        except Corrupt as exc:
            raise Corrupt(f"object {row.object}: {exc}", object=row.object) from exc
        return run, run.size_in_memory()

    # The number alone could mean another chunk: one read inside a write transaction that was then given up.
    key = (row.object, row.offset, row.last_id)
    run: SealedRun = objects.cache.get(key, load) if keep else objects.cache.find(key) or load()[0]
    if (run.first, run.last, run.parent, run.head.last_id) != (row.first, last, row.parent, row.last_id):
        raise Corrupt(f"object {row.object} is not the chunk its row says", object=row.object)
    return run


def known_id(txn: ReadTxn, timeline: int, seq: int) -> bytes:
    """Return the id at a place if it can be had without reading a chunk, else b""."""
    tail = tail_of(txn, timeline)
    if seq == tail.last:
        return tail.last_id
    if seq > tail.sealed:
        return open_records(txn, timeline, seq, seq)[0].id
    last, row = chunk_row(txn, timeline, seq)
    return row.last_id if seq == last else b""


def id_at(txn: ReadTxn, objects: Objects, session: rows.Session, timeline: int, seq: int) -> bytes:
    """Return the event id at a place its timeline owns; the genesis digest at seq 0."""
    if timeline == GENESIS:
        return session.genesis
    found = known_id(txn, timeline, seq)
    if found:
        return found
    run = chunk_at(txn, objects, session.salt, timeline, seq)
    return run.event_id(seq - run.first)


def open_calls(txn: ReadTxn, objects: Objects, session: rows.Session, timeline: int, seq: int) -> InFlight:
    """Return the calls in flight at a place its timeline owns, scanning one chunk and what `calls_before` does."""
    if timeline == GENESIS:
        return {}
    tail = tail_of(txn, timeline)
    run: Run
    if seq > tail.sealed:
        first = tail.sealed + 1
        run = OpenRun(session.salt, first, open_records(txn, timeline, first, seq))
    else:
        run = chunk_at(txn, objects, session.salt, timeline, seq)
        if seq == run.last and run.open is not None:
            return calls.thaw(run.open)
    base = calls_before(txn, objects, session, timeline, run.first)
    return calls.fold(base, run.first, run.records[: seq - run.first + 1])


def calls_before(txn: ReadTxn, objects: Objects, session: rows.Session, timeline: int, first: int) -> InFlight:
    """Return the calls in flight where a chunk of `timeline`, sealed or open, begins.

    Reads the chunk before; where that lists no calls, as many as it takes to find a list, which is no more than a few
    for each of the calls found.
    """
    begins = timelines.read(txn, timeline).fork_seq + 1
    passed = []
    base = None
    while base is None:
        if first == begins:
            base = calls.read(txn, rows.OPEN_AT_FORK, timeline)
            break
        run = chunk_at(txn, objects, session.salt, timeline, first - 1)
        if run.open is not None:
            base = calls.thaw(run.open)
        else:
            passed.append(run)
            first = run.first
    for run in reversed(passed):
        base = calls.fold(base, run.first, run.records)
    return base


def calls_at_head(txn: ReadTxn, objects: Objects, session: rows.Session, ref: rows.Ref) -> InFlight:
    """Return the calls in flight at a branch's head; from the cache when the head is its timeline's end."""
    if ref.timeline == GENESIS:
        return {}
    if tail_of(txn, ref.timeline).last == ref.seq:
        return calls.read(txn, rows.IN_FLIGHT, ref.timeline)
    return open_calls(txn, objects, session, ref.timeline, ref.seq)
