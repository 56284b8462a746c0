"""Reading: single events, stretches in both directions, and what an Event is in the hands of its reader."""

from __future__ import annotations

import copy
import json
import pickle
import random
from typing import Any

import pytest

import castlog
from castlog import Corrupt, Draft, Invalid, NotFound, Raw, Unavailable
from castlog.format import rows


@pytest.fixture
def filled(main, small_chunks) -> list[castlog.Event]:
    """Twenty-three events of three types on main, in sealed chunks and an open one."""
    kinds = ["note", "user_message", "other"]
    return [main.append(kinds[n % 3], {"n": n, "text": "x" * (n * 20)}) for n in range(1, 24)]


def seqs(events: Any) -> list[int]:
    """Return the seqs of events."""
    return [event.seq for event in events]


@pytest.mark.parametrize(
    ("start", "until", "expected"),
    [
        (1, None, range(1, 24)),
        (0, None, range(1, 24)),
        (5, 5, [5]),
        (5, 12, range(5, 13)),
        (23, 23, [23]),
        (23, 99, [23]),
        (24, None, []),
        (24, 99, []),
        (9, 8, []),
        (1, 0, []),
        (0, 0, []),
        (6, 10, range(6, 11)),
        (20, None, range(20, 24)),
    ],
)
def test_bounds_are_inclusive(main, filled, start, until, expected) -> None:
    """`start` and `until` belong to what is yielded; beyond the head there is nothing."""
    assert seqs(main.events(start, until)) == list(expected)
    assert seqs(main.events(start, until, reverse=True)) == list(expected)[::-1]


def test_every_stretch_of_a_history_reads_as_its_slice(grove) -> None:
    """On every branch any bounds, either direction and any types give what the plain list gives."""
    rng = random.Random(1)
    for name, history in grove.histories.items():
        branch = grove.session.branch(name)
        assert list(branch.events()) == history
        for _ in range(10):
            start, until = rng.randint(0, len(history) + 2), rng.randint(0, len(history) + 2)
            types = rng.choice([None, {"note"}, {"tool_call", "tool_result"}, {"absent"}, set()])
            expected = [e for e in history if start <= e.seq <= until and (types is None or e.type in types)]
            assert list(branch.events(start, until, types=types)) == expected
            assert list(branch.events(start, until, types=types, reverse=True)) == expected[::-1]


def test_read_gives_every_event_of_every_branch(grove) -> None:
    """Random access agrees with the plain list wherever an event lies."""
    for name, history in grove.histories.items():
        branch = grove.session.branch(name)
        for expected in history:
            got = branch.read(expected.seq)
            assert got == expected
            assert (got.branch, got.payload, got.raw, got.key) == (name, expected.payload, expected.raw, expected.key)
            assert (got.type, got.ts, got.call_ids) == (expected.type, expected.ts, expected.call_ids)


@pytest.mark.parametrize("seq", [0, -1, 24, 10**30])
def test_a_seq_outside_the_branch_is_not_found(main, filled, seq) -> None:
    """Only 1 to the head can be read; the sentence says what there is."""
    with pytest.raises(NotFound, match="23"):
        main.read(seq)


@pytest.mark.parametrize("seq", ["1", 1.0, None, True, "main"])
def test_a_seq_that_is_no_whole_number_is_invalid(main, filled, seq) -> None:
    """Anything but an int is a mistake of the caller, not a missing event; also right after a read beside it."""
    for _ in range(2):
        with pytest.raises(Invalid, match="whole number"):
            main.read(seq)
        main.read(2)


@pytest.mark.parametrize("bounds", [{"start": -1}, {"until": -2}, {"start": "1"}, {"until": 2.0}, {"start": True}])
def test_bounds_that_are_no_seqs_are_invalid(main, filled, bounds) -> None:
    """A bound is refused when `events` is called, not when the first event is asked for."""
    with pytest.raises(Invalid, match="whole number"):
        main.events(**bounds)


def test_a_read_beside_the_last_one_sees_what_changed(main, filled, session) -> None:
    """What a read remembers for the next one is good for one commit: moves, renames and deletions show at once."""
    other = session.branch("main")
    side = main.fork("side", at=3)
    assert main.read(5) == filled[4]
    other.rename("trunk")
    assert main.read(6).branch == "trunk"
    other.reset(5)
    assert main.read(5) == filled[4]
    with pytest.raises(NotFound):
        main.read(6)
    assert other.append("note", "new").seq == 6
    assert main.read(6).payload == "new"
    assert main.read(3) == side.read(3) == filled[2]
    other.delete()
    with pytest.raises(NotFound):
        main.read(4)


def test_a_read_beside_the_last_one_follows_the_chunk_row(main, filled, store) -> None:
    """A chunk that another writer put in the place of one just read is not served from memory."""
    assert main.read(1) == filled[0]
    with store._core.read() as txn:
        key, _ = next(txn.scan(rows.CHUNKS.key(1, 1)))
    store._core.update(lambda txn: txn.delete(key))
    with pytest.raises(Corrupt):
        main.read(2)


def test_a_long_walk_does_not_push_out_what_others_read(main, filled, store, monkeypatch) -> None:
    """Chunks of a walk over more events than the cache is for are not kept; those of a short one are."""
    kept = store._core.objects.cache._entries
    kept.clear()
    monkeypatch.setattr("castlog.limits.WALK_KEPT_EVENTS", 0)
    assert [event.payload for event in main.events()] == [event.payload for event in filled]
    assert not kept
    monkeypatch.setattr("castlog.limits.WALK_KEPT_EVENTS", len(filled))
    assert [event.payload for event in main.events()] == [event.payload for event in filled]
    assert kept


def test_an_empty_branch_has_no_events(main) -> None:
    """Nothing to read, in any direction, and no event 0 or 1."""
    assert list(main.events()) == list(main.events(reverse=True)) == []
    for seq in (0, 1):
        with pytest.raises(NotFound):
            main.read(seq)


def test_types_may_be_any_collection_or_one_type(main, filled) -> None:
    """Types filter; a single type may be given as it is, and types nobody has give nothing."""
    expected = [e.seq for e in filled if e.type == "note"]
    for types in ({"note"}, ["note"], ("note",), "note", frozenset({"note", "absent"})):
        assert seqs(main.events(types=types)) == expected
    assert seqs(main.events(types={"absent"})) == seqs(main.events(types=())) == []


def test_the_head_is_fixed_when_reading_begins(main, filled) -> None:
    """Events appended, or taken away by a reset, while somebody iterates do not change what he gets."""
    got = []
    for event in main.events():
        got.append(event.seq)
        if event.seq == 3:
            main.append("note", {})
        if event.seq == 10:
            main.reset(2)
            main.append("note", {"other": True})
    assert got == list(range(1, 24))


def test_reading_goes_on_after_the_branch_was_deleted(main, filled) -> None:
    """An iteration that has begun ends in peace; a new one is NotFound."""
    fork = main.fork("fork")
    events = fork.events()
    next(events)
    fork.delete()
    assert len(list(events)) == 22
    with pytest.raises(NotFound):
        fork.events()


def test_iterating_holds_no_transaction(main, filled) -> None:
    """While the caller has an event he may append, seal and read in the same thread."""
    for event in main.events(until=20):
        main.append("note", {"seen": event.seq})
        assert main.read(event.seq) == event


def test_several_iterators_run_at_once(main, filled) -> None:
    """Iterators do not disturb each other."""
    both = list(zip(main.events(), main.events(reverse=True), strict=True))
    assert [(a.seq, b.seq) for a, b in both] == [(n, 24 - n) for n in range(1, 24)]


# --- events as values ---------------------------------------------------------------------------


def test_events_are_immutable(main) -> None:
    """No attribute of an event can be set or deleted."""
    event = main.append("note", {"a": 1})
    for name in ("seq", "type", "ts", "branch", "payload", "id", "call_ids", "new"):
        with pytest.raises(AttributeError):
            setattr(event, name, 1)
    with pytest.raises((AttributeError, TypeError)):
        del event.seq


def test_events_are_equal_when_their_ids_are(session, main) -> None:
    """The same event read through two branches is equal and hashes alike; with another history it is another event."""
    shared = main.append("note", {}, ts=1)
    fork = main.fork("f")
    same = fork.read(1)
    assert same == shared
    assert (same != shared) is False
    assert hash(same) == hash(shared)
    assert (same.branch, shared.branch) == ("f", "main")
    assert len({same, shared, main.append("note", {}, ts=1)}) == 2
    other = session.branch("f")
    other.append("note", {"n": 1})
    left, right = other.append("note", {}, ts=1), main.append("note", {}, ts=1)
    assert left.seq == right.seq
    assert left != right
    assert (left == right) is False
    assert shared != shared.id
    assert (shared == object()) is False


def test_payloads_are_not_shared_between_reads(main, small_chunks) -> None:
    """What one reader does to a payload no other reader sees, whichever way they read."""
    main.extend([("note", {"list": [n]}) for n in range(8)])
    readers = [
        lambda: list(main.events()),
        lambda: list(main.events(types={"note"})),
        lambda: list(main.events(reverse=True))[::-1],
        lambda: [main.read(n) for n in range(1, 9)],
    ]
    for spoil in readers:
        for event in spoil():
            event.payload["list"].append("spoilt")
            event.payload["more"] = 1
        for read in readers:
            assert [e.payload for e in read()] == [{"list": [n]} for n in range(8)]


def test_one_events_payload_is_decoded_once(main) -> None:
    """Asking an event twice gives the same object, so that a caller may hold on to it."""
    main.append("note", {"a": 1})
    event = main.read(1)
    assert event.payload is event.payload


def test_an_event_travels_by_pickle(main, small_chunks) -> None:
    """A pickled event has all it had, payload bytes and id included, without its store."""
    main.extend([Draft("tool_call", Raw(b' {"a": 1} '), call_ids=("x", "y"), key="k"), ("note", "t" * 3000)])
    for event in [*main.events(), main.read(1), *main.extend([("note", {})])]:
        for twin in (pickle.loads(pickle.dumps(event)), copy.copy(event), copy.deepcopy(event)):
            assert twin == event
            assert hash(twin) == hash(event)
            assert (twin.raw, twin.payload, twin.size) == (event.raw, event.payload, event.size)
            assert twin.to_json() == event.to_json()
            assert twin.call_ids == event.call_ids
            assert not twin.redacted
            assert main.fork(f"f{random.random()}").extend([twin])[0].raw == event.raw


def test_an_event_keeps_its_payload_after_its_branch_is_gone(session, main) -> None:
    """An event in hand can still be decoded after its branch moved, was deleted or was sealed."""
    fork = main.fork("f")
    event = fork.append("note", {"text": "y" * 20_000})
    read = fork.read(1)
    fork.reset(0)
    fork.delete()
    assert read.payload == event.payload == {"text": "y" * 20_000}


def test_an_event_of_a_closed_store_says_so(disk_store) -> None:
    """What was not fetched before the store was closed is Unavailable; what was fetched stays."""
    main = disk_store.create_session("x").branch("main")
    main.append("note", {"text": "y" * 20_000})
    had, had_not = main.read(1), main.read(1)
    assert had.payload["text"]
    disk_store.close()
    assert len(had.payload["text"]) == 20_000
    with pytest.raises(Unavailable, match="closed"):
        _ = had_not.payload


def test_to_json_is_one_line_with_the_fields_of_the_format(session, main) -> None:
    """The event line has all that is set and leaves out what is not; the payload's bytes are spliced in as they are."""
    main.extend(
        [
            Draft("tool_call", Raw(b'{"a":  1}'), call_id="c1", ts=1_700_000_000_123_000_000, harness_version="1.4.2"),
            Draft("note", {}, ts=1_700_000_000_000_000_001, key="k", call_ids=("a", "b"), schema=3),
            Draft("note", Raw('{\n"a": "ü"}'.encode()), ts=0),
        ]
    )
    first, second, third = (json.loads(line := e.to_json()) | {"line": line} for e in main.events())
    line = first.pop("line")
    assert '"payload":{"a":  1},' in line
    assert first == {
        "session_id": session.id,
        "branch": "main",
        "seq": 1,
        "ts": "2023-11-14T22:13:20.123Z",
        "type": "tool_call",
        "payload": {"a": 1},
        "parent_seq": 0,
        "harness_version": "1.4.2",
        "schema": 1,
        "call_id": "c1",
        "id": main.read(1).id,
    }
    assert (second["ts"], second["key"], second["call_ids"], second["schema"]) == (
        "2023-11-14T22:13:20.000000001Z",
        "k",
        ["a", "b"],
        3,
    )
    assert "call_id" not in second
    assert "harness_version" not in second
    assert "\n" not in third["line"]
    assert "payload" not in third
    assert third["payload_text"] == '{\n"a": "ü"}'
    assert third["ts"] == "1970-01-01T00:00:00.000Z"


def test_reading_types_decodes_no_payload_of_others(main, small_chunks, monkeypatch) -> None:
    """Skipping by type never touches the payloads of what is skipped."""
    main.extend([("note" if n % 2 else "other", {"n": n}) for n in range(12)])
    decoded = []
    from castlog.format import codec

    decode = codec.decode
    monkeypatch.setattr(codec, "decode", lambda data: decoded.append(data) or decode(data))
    assert [e.payload["n"] for e in main.events(types={"note"})] == [1, 3, 5, 7, 9, 11]
    assert len(decoded) == 6


# --- views --------------------------------------------------------------------------------------


def test_a_view_does_not_move(store, session, main) -> None:
    """A view of a branch, a tag or a point stays where it was while the branch goes on."""
    main.extend([("note", {"n": n}) for n in range(5)])
    session.tag("here", at=4)
    views = [store.view(f"{session.id}/main"), store.view(f"{session.id}/here"), store.view(f"{session.id}/main@2")]
    heads = [view.head.seq for view in views]
    main.append("note", {})
    main.reset(1)
    main.append("note", {"other": True})
    assert heads == [view.head.seq for view in views] == [5, 4, 2]
    assert [seqs(view.events()) for view in views] == [list(range(1, n + 1)) for n in heads]
    assert [view.read(2).payload for view in views] == [{"n": 1}] * 3
    with pytest.raises(NotFound):
        views[2].read(3)


def test_a_view_says_where_it_is(store, session, main) -> None:
    """Name, rev and session of a view lead back to it."""
    main.extend([("note", {})] * 3)
    session.tag("t", at=2)
    view = store.view(f"{session.id}/t")
    assert (view.name, view.rev, view.session) == ("t", f"{session.id}/t@2", session)
    assert store.resolve(view.rev) == view.head
    assert view.head.branch == "t"


def test_a_view_can_be_forked_from(store, session, main) -> None:
    """A fork may begin anywhere in a view's history."""
    main.extend([("note", {"n": n}) for n in range(5)])
    view = store.view(f"{session.id}/main@3")
    assert seqs(view.fork("a").events()) == [1, 2, 3]
    assert seqs(view.fork("b", at=1).events()) == [1]
    assert [b.head.seq for b in view.fork_many(2, prefix="c-")] == [3, 3]
    with pytest.raises(NotFound):
        view.fork("d", at=4)
