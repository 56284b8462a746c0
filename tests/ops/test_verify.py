"""Verify: each finding, by making the store wrong in just that way, with good checksums where a bug would have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

import castlog
from castlog.engine.memory import MemoryEngine
from castlog.errors import Unavailable
from castlog.format import identity, rows
from castlog.format import objects as fmt
from castlog.format.chunk import ChunkHeader, OpenCall
from castlog.format.record import encode_tail, header
from castlog.format.snapshot import decode
from castlog.history import pieces, reader, tables
from castlog.ops.verify import KINDS

Break = Callable[[Any, pytest.MonkeyPatch], None]
BREAKS: list[tuple[str, str, Break]] = []


def breaks(name: str, words: str = "") -> Callable[[Break], Break]:
    """Register a way to make a store wrong, the finding that must come of it, and words its message must have."""

    def register(function: Break) -> Break:
        BREAKS.append((name, words, function))
        return function

    return register


# Bytes.


@breaks("damaged_pages")
def pages_with_problems(kept, patch) -> None:
    """The engine finds its own structure broken."""
    patch.setattr(MemoryEngine, "problems", lambda self: ["leaf page 4 overruns"])


@breaks("unchecked", "lies in damaged pages")
def pages_behind_which_nobody_looks(kept, patch) -> None:
    """With its structure broken a store is not walked."""
    pages_with_problems(kept, patch)


@breaks("damaged_pages", "a broken branch page")
def pages_that_cannot_be_read(kept, patch) -> None:
    """The engine meets a broken page among the timelines."""
    _unreadable(kept, patch, rows.TIMELINES.key(3), rows.TIMELINES.key(4))


@breaks("unchecked", "changes too fast")
def pages_nobody_can_check(kept, patch) -> None:
    """The engine cannot check its own structure now."""

    def problems(self: object) -> list[str]:
        raise Unavailable("the store changes too fast")

    patch.setattr(MemoryEngine, "problems", problems)


@breaks("damaged_row")
def a_flipped_bit_in_a_row(kept, patch) -> None:
    """A row fails its checksum."""
    kept.flip(kept.table(rows.TIMELINES)[2][0])


@breaks("damaged_object")
def a_flipped_bit_in_a_chunk(kept, patch) -> None:
    """An object does not match its digest."""
    kept.flip(rows.part_key(kept.decoded(rows.CHUNKS)[0][1].object, 0))


@breaks("damaged_object", "match its digest")
def a_flipped_bit_in_a_pack(kept, patch) -> None:
    """A pack does not match its digest, which deep verify sees."""
    kept.flip(rows.part_key(kept.decoded(rows.PIECES)[0][1].object, 0), 20)


@breaks("damaged_object", "lacks its beginning")
def an_object_without_a_beginning(kept, patch) -> None:
    """An object has a second part and no first."""
    kept.put(rows.part_key(1_000, 1), b"rest")


@breaks("damaged_record")
def a_flipped_bit_in_a_record(kept, patch) -> None:
    """The record of an open chunk fails its checksum."""
    kept.flip(kept.records()[0][0])


@breaks("damaged_payload")
def a_pack_with_other_bytes(kept, patch) -> None:
    """A sound pack holds other bytes than the pieces the events were cut into."""
    _other_pack(kept)


@breaks("damaged_piece")
def a_piece_that_is_another(kept, patch) -> None:
    """A stretch of a sound pack is not the piece the index says."""
    _other_pack(kept)


@breaks("damaged_snapshot", "do not match its digest")
def a_damaged_snapshot(kept, patch) -> None:
    """The object of a kept state is damaged; the state is folded from the events."""
    main = kept.session.branch("main")
    main.snapshot(COUNT)
    (_, row) = kept.decoded(rows.SNAPSHOTS)[0]
    kept.flip(rows.part_key(row.object, 0))
    restored = main.restore(COUNT)
    assert (restored.snapshot_seq, restored.state) == (0, main.head.seq)


@breaks("wrong_snapshot", "is not what its events fold to: ~ .")
def a_snapshot_of_another_fold(kept, patch) -> None:
    """A reducer was changed and kept its version, so that its snapshots are of another state."""
    kept.session.branch("inner").snapshot(castlog.reducer("count", 1, initial=0)(lambda state, event: state + 2))


@breaks("wrong_snapshot", "it is of another event")
def a_snapshot_of_another_event(kept, patch) -> None:
    """A snapshot lies where another event is."""
    main = kept.session.branch("main")
    main.snapshot(COUNT, at=4)
    (key, row) = kept.table(rows.SNAPSHOTS)[0]
    timeline, fold, seq = rows.SNAPSHOTS.fields(key)
    kept.delete(key)
    patch.setattr(
        "castlog.history.snapshots.decode", lambda data: msgspec.structs.replace(decode(data), seq=5, state=b"5")
    )
    moved = rows.SNAPSHOTS.key(timeline, fold, seq + 1)
    kept.put(moved, rows.SNAPSHOTS.encode(moved, rows.SNAPSHOTS.decode(key, row)))


@castlog.reducer("count", 1, initial=0)
def COUNT(state: int, event: castlog.Event) -> int:  # noqa: N802 - made a constant by the decorator
    """Count events."""
    return state + 1


@breaks("invalid_payload")
def a_payload_that_is_not_json(kept, patch) -> None:
    """An event was written whole, with its ids, but its payload is not JSON."""
    patch.setattr("castlog.format.codec.validate", lambda data: None)
    kept.session.branch("inner").append("note", castlog.Raw(b"{no json"))


# Histories.


@breaks("broken_chain", "does not follow the event before it")
def a_record_with_another_time(kept, patch) -> None:
    """A record is sound in itself, but the next one does not follow it."""
    key, value = kept.records()[0]
    old = reader.open_record(key, value)
    record = msgspec.structs.replace(old.record, ts=old.record.ts + 1)
    salt = kept.look(lambda txn: tables.get(txn, rows.SESSIONS, _session(kept))).salt
    commits = old.record.stored.commitment if old.record.stored else identity.commitment(salt, old.payload)
    event_id = identity.event_id(old.parent, header(rows.record_seq(key), record), commits)
    new = msgspec.structs.replace(old, record=record, id=event_id)
    kept.put(key, rows.guard(key, encode_tail(new)))


@breaks("broken_chain", "does not follow from seqs")
def a_chunk_with_another_time(kept, patch) -> None:
    """An event inside a sound chunk is not the one whose id is at the chunk's end."""

    def change(head: ChunkHeader, payloads: list[bytes]) -> tuple[ChunkHeader, list[bytes]]:
        changed = msgspec.structs.replace(head.records[1], ts=1)
        return msgspec.structs.replace(head, records=(head.records[0], changed, *head.records[2:])), payloads

    kept.reseal(kept.table(rows.CHUNKS)[1][0], change)


@breaks("broken_chain", "does not follow the event before it")
def a_chunk_with_another_parent(kept, patch) -> None:
    """A chunk and its row agree on a parent that is not the event before it."""
    key = kept.table(rows.CHUNKS)[1][0]
    kept.reseal(key, lambda head, payloads: (msgspec.structs.replace(head, parent=bytes(32)), payloads))
    kept.rewrite(rows.CHUNKS, key, parent=bytes(32))


@breaks("missing_chunk")
def a_chunk_row_that_is_gone(kept, patch) -> None:
    """No row leads to seqs that are sealed."""
    kept.delete(kept.table(rows.CHUNKS)[1][0])


@breaks("missing_chunk")
def the_last_chunk_row_that_is_gone(kept, patch) -> None:
    """No row leads to the last sealed seqs of a timeline."""
    kept.delete([key for key, _ in kept.table(rows.CHUNKS) if rows.CHUNKS.fields(key)[0] == 1][-1])


@breaks("missing_record")
def a_record_that_is_gone(kept, patch) -> None:
    """An open chunk lacks a record."""
    kept.delete(kept.records()[0][0])


@breaks("missing_record")
def the_last_record_that_is_gone(kept, patch) -> None:
    """An open chunk lacks its last record."""
    kept.delete(kept.records()[-1][0])


@breaks("missing_piece")
def a_piece_that_is_gone(kept, patch) -> None:
    """An event uses a piece that the index does not know."""
    kept.delete(kept.table(rows.PIECES)[0][0])


@breaks("misplaced_piece", "which has")
def a_piece_beyond_its_pack(kept, patch) -> None:
    """The index places a piece behind the end of its pack."""
    kept.rewrite(rows.PIECES, kept.table(rows.PIECES)[0][0], offset=1 << 20)


@breaks("misplaced_piece", "is missing")
def a_piece_in_no_pack(kept, patch) -> None:
    """The index places a piece in an object that is not there."""
    kept.rewrite(rows.PIECES, kept.table(rows.PIECES)[0][0], object=1_000)


@breaks("misplaced_piece", "is no pack")
def a_piece_in_a_chunk(kept, patch) -> None:
    """The index places a piece in an object that is no pack, which deep verify sees."""
    number = kept.decoded(rows.CHUNKS)[0][1].object
    kept.rewrite(rows.PIECES, kept.table(rows.PIECES)[0][0], object=number, offset=0, length=10)


@breaks("overlapping_chunks")
def a_chunk_that_begins_too_early(kept, patch) -> None:
    """A chunk's row claims a seq that the chunk before it holds."""
    key, row = kept.decoded(rows.CHUNKS)[1]
    kept.rewrite(rows.CHUNKS, key, first=row.first - 1)


@breaks("wrong_chunk", "is not the chunk")
def a_chunk_row_with_another_id(kept, patch) -> None:
    """A chunk's row says another id than the chunk's header."""
    kept.rewrite(rows.CHUNKS, kept.table(rows.CHUNKS)[0][0], last_id=bytes(32))


@breaks("wrong_chunk", "is not the chunk")
def a_chunk_of_another_session(kept, patch) -> None:
    """A chunk's header names another session."""
    key = kept.table(rows.CHUNKS)[0][0]
    kept.reseal(key, lambda head, payloads: (msgspec.structs.replace(head, session=bytes(16)), payloads))


@breaks("wrong_chunk", "as long as")
def a_chunk_with_too_many_payload_bytes(kept, patch) -> None:
    """The payloads of a chunk are not as long together as its records say."""
    key, row = kept.decoded(rows.CHUNKS)[0]
    data = bytearray(kept.look(lambda txn: kept.store._core.objects.read(txn, row.object)).data)
    data[-1:] = b" ]"
    data[8:16] = (int.from_bytes(data[8:16], "little") + 1).to_bytes(8, "little")
    _new_object(kept, fmt.CHUNK, bytes(data), rows.CHUNKS, [key], length=len(data))


@breaks("broken_timeline", "made after it")
def a_timeline_in_a_circle(kept, patch) -> None:
    """A timeline's parent is its own child."""
    timelines = kept.decoded(rows.TIMELINES)
    leaf, row = next((rows.TIMELINES.fields(key)[0], row) for key, row in timelines if row.parent > 1)
    kept.rewrite(rows.TIMELINES, rows.TIMELINES.key(row.parent), parent=leaf, jump=leaf)


@breaks("broken_timeline", "depth")
def a_timeline_of_another_depth(kept, patch) -> None:
    """A timeline's depth is not its parent's plus one."""
    kept.rewrite(rows.TIMELINES, kept.table(rows.TIMELINES)[1][0], depth=7)


@breaks("broken_timeline", "jump pointer")
def a_timeline_that_jumps_elsewhere(kept, patch) -> None:
    """A jump pointer is not the one its place in the tree asks for."""
    kept.rewrite(rows.TIMELINES, kept.table(rows.TIMELINES)[1][0], jump=0)


@breaks("broken_timeline", "another id")
def a_timeline_with_another_fork_id(kept, patch) -> None:
    """The id at a fork point is not that of the event there."""
    kept.rewrite(rows.TIMELINES, kept.table(rows.TIMELINES)[1][0], fork_id=bytes(32))


@breaks("broken_timeline", "at 10000")
def a_timeline_that_left_where_nothing_was(kept, patch) -> None:
    """A fork point lies beyond the parent's end."""
    kept.rewrite(rows.TIMELINES, kept.table(rows.TIMELINES)[1][0], fork_seq=10_000)


@breaks("broken_timeline", "which is another session")
def a_timeline_that_left_another_session(kept, patch) -> None:
    """A timeline's parent is another session's."""
    child = rows.TIMELINES.fields(kept.table(rows.TIMELINES)[-1][0])[0]
    key = kept.look(lambda txn: _add_timeline(txn, kept, child))
    kept.put(*key)


@breaks("broken_timeline", "has a fork point")
def a_first_timeline_that_forked(kept, patch) -> None:
    """A timeline without a parent says where it left it."""
    kept.rewrite(rows.TIMELINES, kept.table(rows.TIMELINES)[0][0], depth=2)


@breaks("broken_timeline", "genesis")
def a_first_timeline_without_its_genesis(kept, patch) -> None:
    """A timeline without a parent does not begin at the genesis."""
    kept.rewrite(rows.TIMELINES, kept.table(rows.TIMELINES)[0][0], fork_id=bytes(32))


@breaks("broken_timeline", "which is missing")
def a_timeline_whose_parent_is_gone(kept, patch) -> None:
    """A timeline left one that is not there."""
    parent = next(row.parent for _, row in kept.decoded(rows.TIMELINES) if row.parent > 1)
    kept.delete(rows.TIMELINES.key(parent))


@breaks("missing_timeline")
def a_timeline_that_is_gone(kept, patch) -> None:
    """Rows about a timeline remain without its own."""
    kept.delete(kept.table(rows.TIMELINES)[-1][0])


@breaks("wrong_tail", "is missing")
def an_end_that_is_gone(kept, patch) -> None:
    """No row says where a timeline ends."""
    kept.delete(kept.table(rows.TAILS)[0][0])


@breaks("wrong_tail", "another id")
def an_end_with_another_id(kept, patch) -> None:
    """The end's id is not that of the last event."""
    kept.rewrite(rows.TAILS, kept.table(rows.TAILS)[0][0], last_id=bytes(32))


@breaks("wrong_tail", "10000 and")
def an_end_before_what_is_sealed(kept, patch) -> None:
    """More is sealed than there is."""
    kept.rewrite(rows.TAILS, kept.table(rows.TAILS)[0][0], sealed=10_000)


@breaks("wrong_open_calls", "where it forked")
def a_call_at_a_fork_that_was_closed(kept, patch) -> None:
    """A fork point says a call is in flight that the log closed."""
    timeline = rows.TIMELINES.fields(kept.table(rows.TIMELINES)[1][0])[0]
    key = rows.OPEN_AT_FORK.key(timeline, rows.key_digest("call-0"))
    kept.put(key, rows.OPEN_AT_FORK.encode(key, OpenCall("call-0", 2)))


@breaks("wrong_open_calls", "before it")
def a_call_before_the_beginning(kept, patch) -> None:
    """A session's first timeline has calls in flight before it."""
    key = rows.OPEN_AT_FORK.key(1, rows.key_digest("call-0"))
    kept.put(key, rows.OPEN_AT_FORK.encode(key, OpenCall("call-0", 2)))


@breaks("wrong_open_calls", "by its chunk")
def a_chunk_with_another_open_call(kept, patch) -> None:
    """A chunk's header lists a call the log does not have open there."""
    key = kept.table(rows.CHUNKS)[1][0]
    call = (OpenCall("ghost", 1),)
    kept.reseal(key, lambda head, payloads: (msgspec.structs.replace(head, open=call), payloads))


@breaks("wrong_in_flight", "at the end")
def a_call_in_flight_that_is_gone(kept, patch) -> None:
    """The calls kept for a timeline's end lack one."""
    kept.delete(kept.table(rows.IN_FLIGHT)[0][0])


@breaks("wrong_in_flight")
def a_call_in_flight_that_is_not(kept, patch) -> None:
    """The calls kept for a timeline's end have one too many."""
    key = rows.IN_FLIGHT.key(kept.owners["inner", 9], rows.key_digest("ghost"))
    kept.put(key, rows.IN_FLIGHT.encode(key, OpenCall("ghost", 9)))


@breaks("missing_key")
def a_key_without_a_row(kept, patch) -> None:
    """A keyed event has no idempotency row."""
    kept.delete(kept.table(rows.KEYS)[0][0])


@breaks("wrong_key", "says seq")
def a_key_at_another_seq(kept, patch) -> None:
    """An idempotency row points at another event than the one with the key."""
    kept.rewrite(rows.KEYS, kept.table(rows.KEYS)[0][0], seq=2)


@breaks("wrong_key", "another key, or none")
def a_key_nobody_has(kept, patch) -> None:
    """An idempotency row points at an event that has no key."""
    key = rows.KEYS.key(_session(kept), rows.key_digest("ghost"), 1)
    kept.put(key, rows.KEYS.encode(key, rows.Seq(2)))


@breaks("wrong_key", "no such timeline")
def a_key_on_no_timeline(kept, patch) -> None:
    """An idempotency row names a timeline that is not there."""
    key = rows.KEYS.key(_session(kept), rows.key_digest("ghost"), 1_000)
    kept.put(key, rows.KEYS.encode(key, rows.Seq(2)))


@breaks("wrong_key", "no such seq")
def a_key_beyond_its_timeline(kept, patch) -> None:
    """An idempotency row points behind a timeline's end."""
    key = rows.KEYS.key(_session(kept), rows.key_digest("ghost"), 1)
    kept.put(key, rows.KEYS.encode(key, rows.Seq(10_000)))


# References.


@breaks("broken_reference", "holds seqs")
def a_branch_beyond_its_timeline(kept, patch) -> None:
    """A branch points at a seq its timeline does not hold."""
    kept.rewrite(rows.REFS, _ref(kept, "inner"), seq=10_000)


@breaks("broken_reference", "the event there is")
def a_branch_with_another_id(kept, patch) -> None:
    """A branch says another id than the event it points at has."""
    kept.rewrite(rows.REFS, _ref(kept, "inner"), id=bytes(32))


@breaks("broken_reference", "is missing")
def a_branch_on_no_timeline(kept, patch) -> None:
    """A branch points at a timeline that is not there."""
    kept.rewrite(rows.REFS, _ref(kept, "inner"), timeline=1_000)


@breaks("broken_reference", "another session's")
def a_branch_in_another_session(kept, patch) -> None:
    """A branch points into another session."""
    child = rows.TIMELINES.fields(kept.table(rows.TIMELINES)[-1][0])[0]
    kept.rewrite(rows.REFS, _ref(kept, "inner"), timeline=child, seq=1)


@breaks("broken_reference", "the event there is")
def a_tag_with_another_id(kept, patch) -> None:
    """A tag inside a chunk says another id than the event there has."""
    kept.rewrite(rows.NAMES, rows.NAMES.of(_session(kept), "first"), id=bytes(32))


@breaks("broken_reference", "the session's beginning")
def a_tag_at_no_beginning(kept, patch) -> None:
    """A tag at seq 0 has another id than the genesis."""
    kept.rewrite(rows.NAMES, rows.NAMES.of(_session(kept), "first"), timeline=0, seq=0, id=bytes(32))


@breaks("broken_reference", "of the reflog points")
def a_reflog_entry_to_nowhere(kept, patch) -> None:
    """A reflog entry points at a seq that is not there."""
    kept.rewrite(rows.REFLOG, kept.table(rows.REFLOG)[0][0], new_seq=10_000)


@breaks("wrong_name", "does not lead to its branch")
def a_branch_without_its_name(kept, patch) -> None:
    """A living branch's name does not lead to it."""
    kept.delete(rows.NAMES.of(_session(kept), "inner"))


@breaks("wrong_name", "no branch of that name")
def a_name_of_another_branch(kept, patch) -> None:
    """A name leads to a branch that is called otherwise."""
    number = kept.look(lambda txn: tables.get(txn, rows.REFS, *rows.REFS.fields(_ref(kept, "main")))).name
    assert number == "main"
    other = rows.REFS.fields(_ref(kept, "main"))[0]
    kept.rewrite(rows.NAMES, rows.NAMES.of(_session(kept), "inner"), branch=other)


@breaks("wrong_name", "no branch of that name")
def a_name_of_no_branch(kept, patch) -> None:
    """A name leads to a branch that is not there."""
    kept.rewrite(rows.NAMES, rows.NAMES.of(_session(kept), "inner"), branch=1_000)


@breaks("missing_branch", "a reflog belongs")
def a_reflog_without_its_branch(kept, patch) -> None:
    """The row of a branch is gone and its reflog is not."""
    kept.delete(_ref(kept, "moved"))


@breaks("missing_branch", "has no branch")
def a_session_without_a_branch(kept, patch) -> None:
    """A session has no name that leads to a branch."""
    child = kept.session.children()[0].id
    kept.delete(rows.NAMES.of(bytes.fromhex(child[5:]), "main"))


@breaks("missing_session", "the branch")
def a_session_that_is_gone(kept, patch) -> None:
    """Timelines, branches and names remain of a session."""
    child = kept.session.children()[0].id
    kept.delete(rows.SESSIONS.key(bytes.fromhex(child[5:])))


@breaks("missing_session", "the name")
def a_session_that_is_gone_under_a_name(kept, patch) -> None:
    """A name remains of a session."""
    a_session_that_is_gone(kept, patch)


@breaks("missing_session", "timeline")
def a_session_that_is_gone_under_a_timeline(kept, patch) -> None:
    """A timeline remains of a session."""
    a_session_that_is_gone(kept, patch)


@breaks("wrong_genesis")
def a_session_of_another_time(kept, patch) -> None:
    """A session's row says another time than its genesis covers."""
    kept.rewrite(rows.SESSIONS, rows.SESSIONS.key(_session(kept)), created=1)


@breaks("wrong_genesis")
def a_session_with_another_salt(kept, patch) -> None:
    """A session's salt is not the one its genesis covers."""
    child = rows.SESSIONS.key(bytes.fromhex(kept.session.children()[0].id[5:]))
    kept.rewrite(rows.SESSIONS, child, salt=bytes(32))


@breaks("wrong_origin")
def an_origin_that_is_gone(kept, patch) -> None:
    """A session's origin does not lead to it."""
    kept.delete(kept.table(rows.ORIGINS)[0][0])


@breaks("wrong_origin")
def an_origin_of_a_session_without_one(kept, patch) -> None:
    """An origin leads to a session that has none."""
    child = bytes.fromhex(kept.session.children()[0].id[5:])
    key = rows.ORIGINS.key(rows.key_digest("ghost"))
    kept.put(key, rows.ORIGINS.encode(key, rows.Origin("ghost", child)))


@breaks("low_counter")
def a_counter_that_would_repeat(kept, patch) -> None:
    """A counter would give out a number that is taken."""
    kept.rewrite(rows.COUNTERS, rows.COUNTERS.key(), timeline=2)


@breaks("low_counter")
def counters_that_are_gone(kept, patch) -> None:
    """Without their row all counters begin again."""
    kept.delete(rows.COUNTERS.key())


@breaks("wrong_child")
def a_child_that_is_not_listed(kept, patch) -> None:
    """A session is not among the children of the one that started it."""
    kept.delete(kept.table(rows.CHILDREN)[0][0])


@breaks("wrong_child")
def a_child_that_has_no_parent(kept, patch) -> None:
    """A session is listed as a child and was started by no call."""
    key = rows.CHILDREN.key(bytes(16), _session(kept))
    kept.put(key, rows.CHILDREN.encode(key, rows.Child("call-0")))


@breaks("missing_parent", "seq 3")
def a_parent_that_is_another_event(kept, patch) -> None:
    """The call that started a session is not where its row says."""
    key = rows.SESSIONS.key(bytes.fromhex(kept.session.children()[0].id[5:]))
    parent = kept.look(lambda txn: rows.SESSIONS.decode(key, txn.get(key))).parent
    kept.rewrite(rows.SESSIONS, key, parent=msgspec.structs.replace(parent, seq=3))


@breaks("wrong_trash", "not in the trash")
def a_deleted_branch_outside_the_trash(kept, patch) -> None:
    """A branch is deleted and cannot be brought back."""
    kept.delete(kept.table(rows.TRASH)[0][0])


@breaks("wrong_trash", "not in the trash")
def a_deleted_session_outside_the_trash(kept, patch) -> None:
    """A session is deleted and cannot be brought back."""
    kept.session.children()[0].delete()
    kept.delete(kept.table(rows.TRASH)[-1][0])


@breaks("wrong_trash", "the branch 'inner' lies in the trash")
def a_living_branch_in_the_trash(kept, patch) -> None:
    """A branch lies in the trash and is not deleted."""
    kept.rewrite(rows.TRASH, kept.table(rows.TRASH)[0][0], branch=rows.REFS.fields(_ref(kept, "inner"))[0])


@breaks("wrong_trash", "the session lies in the trash")
def a_living_session_in_the_trash(kept, patch) -> None:
    """A session lies in the trash and is not deleted."""
    kept.rewrite(rows.TRASH, kept.table(rows.TRASH)[0][0], branch=0)


@breaks("stale_head")
def a_head_of_no_branch(kept, patch) -> None:
    """HEAD names a branch that is not there."""
    kept.rewrite(rows.HEAD, rows.HEAD.key(), branch=1_000)


@breaks("stale_head")
def a_head_in_another_session(kept, patch) -> None:
    """HEAD names a branch and a session it does not belong to."""
    child = bytes.fromhex(kept.session.children()[0].id[5:])
    kept.rewrite(rows.HEAD, rows.HEAD.key(), session=child)


@breaks("reflog_gap", "of the reflog is missing")
def a_reflog_entry_that_is_gone(kept, patch) -> None:
    """An entry between others is missing."""
    kept.delete(kept.table(rows.REFLOG)[1][0])


@breaks("reflog_gap", "after the last entry")
def a_move_nobody_wrote_down(kept, patch) -> None:
    """A branch stands before where its last entry left it."""
    kept.rewrite(rows.REFS, _ref(kept, "moved"), timeline=1, seq=3, id=b"")


@breaks("reflog_gap", "after the last entry")
def a_branch_before_its_beginning(kept, patch) -> None:
    """A branch without entries stands before where it was made."""
    kept.rewrite(rows.REFS, _ref(kept, "inner"), timeline=1, seq=3, id=b"")


@breaks("reflog_gap", "had moved before entry")
def a_move_between_two_entries(kept, patch) -> None:
    """An entry begins elsewhere than the one before it ended."""
    kept.rewrite(rows.REFLOG, kept.table(rows.REFLOG)[-1][0], old_timeline=1, old_seq=2, old_id=b"")


@breaks("wrong_counts")
def a_branch_that_counts_too_many(kept, patch) -> None:
    """A branch counts more events than were written."""
    kept.rewrite(rows.REFS, _ref(kept, "inner"), events=100)


@breaks("wrong_counts")
def a_branch_that_counts_other_bytes(kept, patch) -> None:
    """A branch counts other bytes than were written."""
    kept.rewrite(rows.REFS, _ref(kept, "inner"), size=7)


@breaks("wrong_tail_size")
def an_open_chunk_of_another_size(kept, patch) -> None:
    """The size kept of an open chunk is not that of its records."""
    kept.rewrite(rows.TAILS, kept.table(rows.TAILS)[0][0], size=7)


@breaks("stray_row", "a record of seq 2")
def a_record_of_a_sealed_seq(kept, patch) -> None:
    """A record remains of a seq that was sealed."""
    key = rows.record_key(1, 2)
    kept.put(key, rows.guard(key, b""))


@breaks("stray_row", "a record of seq 10000")
def a_record_beyond_the_end(kept, patch) -> None:
    """A record lies behind the last one."""
    key = rows.record_key(1, 10_000)
    kept.put(key, rows.guard(key, b""))


@breaks("stray_row", "a chunk ends")
def a_chunk_beyond_what_is_sealed(kept, patch) -> None:
    """A chunk's row lies behind the last sealed seq."""
    key = rows.CHUNKS.key(1, 10_000)
    kept.put(key, rows.CHUNKS.encode(key, kept.decoded(rows.CHUNKS)[0][1]))


@breaks("unknown_row")
def a_row_of_no_table(kept, patch) -> None:
    """A key begins with no table's letter."""
    kept.put(b"~~~", b"?")


@breaks("unknown_row")
def a_row_of_no_kind_about_a_timeline(kept, patch) -> None:
    """A key about a timeline is of no table's kind."""
    kept.put(rows.TIMELINES.letter + (1).to_bytes(8, "big") + b"\x63", b"?")


@breaks("unknown_row")
def a_row_of_no_kind_about_a_branch(kept, patch) -> None:
    """A key about a branch is of no table's kind."""
    kept.put(_ref(kept, "inner")[:9] + b"\x63", b"?")


@breaks("unknown_row")
def a_key_too_short_for_its_table(kept, patch) -> None:
    """A key has a table's letter and nothing more."""
    kept.put(b"T\xff", b"?")


@breaks("missing_dictionary", "was compressed with dictionary 7")
def a_dictionary_without_a_row(kept, patch) -> None:
    """An object names a dictionary nobody knows."""
    core = kept.store._core
    blob = fmt.encode(core.objects.secret, fmt.PACK, b"?" * 99, dictionary=_dictionary(core))
    kept.engine.update(lambda txn: core.objects.write(txn, blob))


@breaks("missing_dictionary", "object 1000")
def a_dictionary_without_an_object(kept, patch) -> None:
    """The row of a dictionary leads to no object."""
    key = rows.DICTIONARIES.key(7)
    kept.put(key, rows.DICTIONARIES.encode(key, rows.Dictionary(1000)))


@breaks("damaged_object", "not a dictionary")
def a_dictionary_in_another_object(kept, patch) -> None:
    """The row of a dictionary leads to a chunk."""
    key = rows.DICTIONARIES.key(7)
    kept.put(key, rows.DICTIONARIES.encode(key, rows.Dictionary(1)))


# Remarks.


@breaks("unused_dictionary")
def a_dictionary_nobody_needs(kept, patch) -> None:
    """A dictionary is there and no object names it."""
    core = kept.store._core
    data = _dictionary(core).data
    number = kept.engine.update(
        lambda txn: core.objects.write(txn, fmt.encode(core.objects.secret, fmt.DICTIONARY, data))
    )
    key = rows.DICTIONARIES.key(7)
    kept.put(key, rows.DICTIONARIES.encode(key, rows.Dictionary(number)))


@breaks("unused_object")
def an_object_nobody_needs(kept, patch) -> None:
    """An object was written and nothing refers to it."""
    core = kept.store._core
    kept.engine.update(lambda txn: core.objects.write(txn, fmt.encode(core.objects.secret, fmt.PACK, b"?")))


@breaks("unused_piece")
def pieces_before_a_crash(kept, patch) -> None:
    """Pieces were written ahead of an event that never came."""
    core = kept.store._core
    cut = dict(pieces.cut(core.objects.secret, b"?" * 5_000))
    patch.setattr("castlog.limits.AHEAD_BYTES", 0)
    core._stage(cut)


@breaks("unmatched_result")
def a_result_of_no_call(kept, patch) -> None:
    """A result answers nothing."""
    kept.session.branch("inner").append("tool_result", {}, call_id="ghost")


@breaks("reopened_call")
def a_call_opened_twice(kept, patch) -> None:
    """A call id is used again before its result came."""
    kept.session.branch("inner").append("tool_call", {}, call_id="other")


def _dictionary(core) -> fmt.Dictionary:
    data = b"words that come again and again"
    return fmt.Dictionary(7, fmt.digest(core.objects.secret, fmt.DICTIONARY, data), data)


@pytest.mark.parametrize(("name", "words", "function"), BREAKS, ids=[item[2].__name__ for item in BREAKS])
def test_what_is_wrong_is_found(
    kept_in_memory, monkeypatch: pytest.MonkeyPatch, name: str, words: str, function: Break
) -> None:
    """The finding has its name and severity, says what is wrong, and decides whether the store is fine."""
    kept = kept_in_memory
    assert kept.found(deep=True) == {}
    function(kept, monkeypatch)
    report = kept.store.verify(deep=True, snapshots=[COUNT])
    found = [finding for finding in report.findings if finding.name == name and words in finding.message]
    assert found, report.findings
    assert {finding.severity for finding in found} == {KINDS[name][0]}
    assert report.ok == all(finding.severity == "note" for finding in report.findings)
    assert KINDS[name][0] == "note" or not report.ok
    for finding in report.findings:
        assert finding.rev is None or finding.rev.startswith("sess_")


def test_every_finding_has_its_test() -> None:
    """No finding is in the table that no store can bring about, and none is outside."""
    assert {name for name, _, _ in BREAKS} == set(KINDS)


def test_findings_name_the_first_event_affected(kept_in_memory) -> None:
    """A finding about a history gives a revision that `read` takes, at the first event it concerns."""
    kept = kept_in_memory
    key, row = next((key, row) for key, row in kept.decoded(rows.CHUNKS) if rows.CHUNKS.fields(key)[0] != 1)
    kept.flip(rows.part_key(row.object, 0))
    (finding,) = kept.store.verify().findings
    assert finding.rev == f"{kept.session.id}/inner@{row.first}"
    with pytest.raises(castlog.Corrupt):
        kept.store.view(finding.rev).read(row.first)
    assert key


def test_one_session_is_checked_without_the_others(kept_in_memory) -> None:
    """With a revision only its session is looked at; its damage is found, and no other session's."""
    kept = kept_in_memory
    other = kept.store.create_session("other")
    other.branch("main").extend([("note", {"n": n}) for n in range(9)])
    assert set(kept.found(rev=f"{other.id}/main")) == set()
    report = kept.store.verify(f"{other.id}/main")
    assert report.checked == {"sessions": 1, "references": 1, "timelines": 1, "chunks": 2, "events": 9}
    kept.flip(rows.part_key(kept.decoded(rows.CHUNKS)[0][1].object, 0))
    assert set(kept.found(rev=f"{other.id}/main")) == set()
    assert set(kept.found(rev=f"{kept.session.id}/inner")) == {"damaged_object"}


NOT_OWN = ("damaged_pages", "damaged_object", "damaged_piece", "misplaced_piece", "low_counter", "missing_dictionary")
NOT_OWN += ("missing_timeline", "missing_session", "missing_branch", "damaged_row", "wrong_origin")
OWN_TO_SESSIONS = {name for name, (severity, _) in KINDS.items() if severity == "error"} - set(NOT_OWN)


@pytest.mark.parametrize(
    ("name", "function"),
    [(name, function) for name, _, function in BREAKS if name in OWN_TO_SESSIONS],
    ids=[function.__name__ for name, _, function in BREAKS if name in OWN_TO_SESSIONS],
)
def test_one_session_is_checked_as_thoroughly(kept_in_memory, monkeypatch, name: str, function: Break) -> None:
    """What is a session's own is found too when only that session is asked for."""
    function(kept_in_memory, monkeypatch)
    session = kept_in_memory.session
    found = kept_in_memory.found(deep=True, rev=f"{session.id}/main")
    found.update(kept_in_memory.found(deep=True, rev=f"{session.children()[0].id}/main"))
    assert name in found


def test_circles_end(kept_in_memory) -> None:
    """Timelines that are each other's parent stop neither verify nor a reader, whatever else they say."""
    kept = kept_in_memory
    numbers = [rows.TIMELINES.fields(key)[0] for key, _ in kept.table(rows.TIMELINES)]
    for parent, child in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
        kept.rewrite(rows.TIMELINES, rows.TIMELINES.key(parent), parent=child, jump=child, fork_seq=parent)
    assert "broken_timeline" in kept.found(deep=True)
    for name, events in kept.truth.items():
        for seq in range(1, len(events)):
            with pytest.raises(castlog.Corrupt):
                kept.session.branch(name).read(seq)


def test_of_too_many_findings_the_first_are_kept_and_the_rest_counted(kept_in_memory, monkeypatch) -> None:
    """A name with more findings than anybody reads ends with one that says how many more there are."""
    monkeypatch.setattr("castlog.limits.FINDINGS_PER_NAME_MAX", 3)
    branch = kept_in_memory.session.branch("inner")
    branch.extend([castlog.Draft("tool_result", {}, call_id=f"ghost-{n}") for n in range(20)])
    findings = kept_in_memory.found()["unmatched_result"]
    assert len(findings) == 4
    assert findings[-1].message.startswith("17 more")
    assert findings[-1].severity == "note"


def test_progress_counts_events(kept_in_memory) -> None:
    """Progress goes up to the number of events stored, each counted once, and names sessions."""
    seen: list[castlog.Progress] = []
    report = kept_in_memory.store.verify(progress=seen.append)
    assert [step.done for step in seen] == sorted(step.done for step in seen)
    assert seen[-1].done == seen[-1].total == report.checked["events"]
    assert {step.unit for step in seen} == {"events"}
    assert all(step.item.startswith("sess_") for step in seen)


def test_deleted_and_forgotten_events_are_checked_too(kept_in_memory) -> None:
    """Events only the trash or a reflog reaches are verified; the finding names their session at least."""
    kept = kept_in_memory
    moved = kept.session.branch("moved")
    moved.append("note", {"only": "in the reflog"})
    moved.reset(2)
    kept.store.create_session("gone").branch("main").append("note", {"only": "in the trash"})
    gone = next(session for session in kept.store.sessions() if session.title == "gone")
    gone.delete()
    for text, shown in ((b"in the reflog", kept.session.id), (b"in the trash", gone.id)):
        ((key, value),) = [(key, value) for key, value in kept.records() if text in value]
        kept.flip(key)
        (finding,) = kept.found()["damaged_record"]
        assert finding.rev.startswith(shown)
        kept.put(key, value)


def test_findings_are_plain_values(kept_in_memory) -> None:
    """A finding goes through JSON as it is."""
    kept_in_memory.flip(kept_in_memory.records()[0][0])
    for finding in kept_in_memory.store.verify().findings:
        assert json.loads(msgspec.json.encode(finding))["name"] in KINDS


def test_a_parent_session_that_is_gone_is_found_from_the_child(kept_in_memory) -> None:
    """Checking only a sub-agent's session tells that the session which started it is not there."""
    kept = kept_in_memory
    child = kept.session.children()[0]
    kept.delete(rows.SESSIONS.key(_session(kept)))
    assert "missing_parent" in kept.found(rev=f"{child.id}/main")


def test_a_walk_goes_on_behind_a_page_that_cannot_be_read(kept_in_memory, monkeypatch) -> None:
    """What lies before and behind a broken page is still checked."""
    kept = kept_in_memory
    for timeline in (1, 4):
        kept.rewrite(rows.TAILS, rows.TAILS.key(timeline), last_id=bytes(32))
    _unreadable(kept, monkeypatch, rows.TIMELINES.key(2), rows.TIMELINES.key(3))
    found = kept.found()
    assert len(found["wrong_tail"]) == 2
    assert "damaged_pages" in found


def _unreadable(kept, patch, first: bytes, last: bytes) -> None:
    """Let the engine raise Corrupt where a reader comes upon keys of a range, as LMDB does at a broken page."""
    read = MemoryEngine.read

    class Broken:
        """A transaction over a map with a broken page."""

        def __init__(self, txn: Any) -> None:
            self.txn = txn

        def get(self, key: bytes) -> bytes | None:
            """Return a value, unless it lies in the broken page."""
            return self.txn.get(self.check(key))

        def scan(self, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Any]:
            """Yield pairs up to the broken page."""
            for key, value in self.txn.scan(start, stop, reverse=reverse):
                yield self.check(key), value

        def check(self, key: bytes) -> bytes:
            """Raise for a key in the broken page."""
            if first <= key < last:
                raise castlog.Corrupt("a broken branch page", path="memory:")
            return key

    @contextmanager
    def reading(self: MemoryEngine) -> Iterator[Broken]:
        with read(self) as txn:
            yield Broken(txn)

    patch.setattr(MemoryEngine, "read", reading)


def _session(kept) -> bytes:
    return bytes.fromhex(kept.session.id[5:])


def _ref(kept, name: str) -> bytes:
    """Return the key of a branch's row."""
    key = rows.NAMES.of(_session(kept), name)
    return rows.REFS.key(kept.look(lambda txn: rows.NAMES.decode(key, txn.get(key))).branch)


def _new_object(kept, kind: int, data: bytes, table: rows.Table[Any], keys: list[bytes], **fields: Any) -> None:
    """Write a sound object with other content, and let rows point at it."""
    objects = kept.store._core.objects
    number = kept.engine.update(lambda txn: objects.write(txn, fmt.encode(objects.secret, kind, data)))
    for key in keys:
        kept.rewrite(table, key, object=number, **fields)


def _other_pack(kept) -> None:
    """Let pieces lie in a pack of the same length with other bytes."""
    number = kept.decoded(rows.PIECES)[0][1].object
    keys = [key for key, row in kept.decoded(rows.PIECES) if row.object == number]
    data = kept.look(lambda txn: kept.store._core.objects.read(txn, number)).data
    _new_object(kept, fmt.PACK, data.replace(b"line", b"LINE"), rows.PIECES, keys)


def _add_timeline(txn: Any, kept: Any, parent: int) -> tuple[bytes, bytes]:
    """Return the row of a timeline of the session that leaves a timeline of another."""
    row = tables.get(txn, rows.TIMELINES, kept.owners["inner", 9])
    tail = tables.get(txn, rows.TAILS, parent)
    key = rows.TIMELINES.key(1_000)
    new = msgspec.structs.replace(row, parent=parent, fork_seq=1, fork_id=tail.last_id, depth=2, jump=parent)
    return key, rows.TIMELINES.encode(key, new)
