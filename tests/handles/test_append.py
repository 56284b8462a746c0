"""Appending: what an event is after `append` and `extend`, and that a refused batch leaves nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import castlog
from castlog import Draft, Invalid, NotFound, Raw


def test_an_appended_event_says_where_it_stands(session, main, clock) -> None:
    """The event that append returns has its session, branch, seq, type, time and payload."""
    before = clock.now
    event = main.append("user_message", {"text": "hi"})
    assert (event.session_id, event.branch, event.seq, event.parent_seq) == (session.id, "main", 1, 0)
    assert (event.type, event.payload, event.schema) == ("user_message", {"text": "hi"}, 1)
    assert before < event.ts <= clock.now
    assert (event.call_id, event.call_ids, event.key, event.harness_version) == (None, (), None, None)
    assert event.id.startswith("b3:")
    assert len(event.id) == 67
    assert not event.redacted


def test_what_append_returns_is_what_read_returns(main) -> None:
    """An event read back equals the one that append returned in every part."""
    for number in range(3):
        written = main.append("tool_call", {"n": number}, call_id=f"x{number}", schema=2, key=f"k{number}")
        read = main.read(written.seq)
        assert read == written
        assert read.to_json() == written.to_json()
        assert (read.raw, read.size, read.payload) == (written.raw, written.size, written.payload)


def test_seqs_count_from_one_without_gaps(main) -> None:
    """Events count 1, 2, 3 along a branch, and each names the seq before it."""
    seqs = [main.append("note", {}).seq for _ in range(3)] + [e.seq for e in main.extend([("note", {})] * 3)]
    assert seqs == [1, 2, 3, 4, 5, 6]
    assert [e.parent_seq for e in main.events()] == [0, 1, 2, 3, 4, 5]
    assert main.head.seq == 6


def test_the_head_is_the_last_event_and_read_live(store, session, main) -> None:
    """`head` is the genesis while a branch is empty and afterwards follows every append, through any handle."""
    empty = main.head
    assert (empty.session_id, empty.branch, empty.seq) == (session.id, "main", 0)
    assert empty.id.startswith("b3:")
    event = store.branch(main.rev).append("note", {})
    assert main.head == castlog.Point(session.id, "main", 1, event.id)
    assert main.head.rev == f"{session.id}/main@1"


def test_the_first_parent_differs_between_sessions(store) -> None:
    """Two sessions given the same events have no id in common, because each has a genesis of its own."""
    one, two = (store.create_session("same").branch("main") for _ in range(2))
    assert one.head.id != two.head.id
    assert one.append("note", {}, ts=5).id != two.append("note", {}, ts=5).id


def test_ids_depend_on_everything_an_event_says(session, main) -> None:
    """Changing type, payload, time, schema, call id or key changes the id; the same again gives the same id."""
    ids = set()
    variants = [
        Draft("note", {}, ts=1),
        Draft("other", {}, ts=1),
        Draft("note", {"a": 1}, ts=1),
        Draft("note", {}, ts=2),
        Draft("note", {}, ts=1, schema=2),
        Draft("note", {}, ts=1, call_id="c"),
        Draft("note", {}, ts=1, key="k"),
        Draft("note", {}, ts=1, harness_version="9"),
    ]
    for number, draft in enumerate(variants):
        ids.add(main.fork(f"f{number}").extend([draft])[0].id)
    assert len(ids) == len(variants)
    assert main.fork("again").extend([variants[0]])[0].id in ids


def test_extend_takes_drafts_pairs_and_events(main) -> None:
    """Drafts, (type, payload) pairs and events may be mixed in one batch, and keep their order."""
    first = main.append("note", {"n": 1})
    events = main.extend([Draft("note", {"n": 2}, call_id="c"), ("note", {"n": 3}), first])
    assert [e.payload["n"] for e in events] == [2, 3, 1]
    assert [e.seq for e in events] == [2, 3, 4]
    assert list(main.events()) == [first, *events]


def test_extend_takes_any_iterable_and_an_empty_one(main) -> None:
    """A generator is as good as a list; an empty batch writes nothing and returns nothing."""
    assert [e.seq for e in main.extend(("note", {"n": n}) for n in range(4))] == [1, 2, 3, 4]
    assert main.extend([]) == []
    assert main.head.seq == 4


def test_a_copied_event_is_new_where_it_lands(store, main) -> None:
    """Cherry-picking keeps type, payload bytes, call ids and schema; time is new and the key is dropped."""
    event = main.extend([Draft("tool_call", Raw(b' {"a" : 1}'), ts=5, schema=7, key="k", call_ids=("x", "y"))])[0]
    other = store.create_session("other").branch("main")
    copy = other.extend([event])[0]
    assert (copy.type, copy.raw, copy.call_ids, copy.schema) == (event.type, event.raw, event.call_ids, 7)
    assert copy.key is None
    assert copy.ts != event.ts
    assert copy.id != event.id


@pytest.mark.parametrize("bad", [3, "note", ("note",), ("note", {}, 1), None, {"type": "note"}])
def test_what_is_no_draft_is_refused(main, bad) -> None:
    """A batch may hold drafts, events and pairs; for anything else the sentence says so, and nothing is written."""
    with pytest.raises(Invalid, match="give a Draft, an Event or"):
        main.extend([("note", {}), bad])
    assert main.head.seq == 0


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_batch_with_one_bad_event_writes_nothing(session, main, place) -> None:
    """All or nothing: a refused value anywhere in a batch leaves branch, counts and keys as they were."""
    main.append("note", {})
    drafts = [Draft("note", {"n": n}, key=f"k{n}") for n in range(5)]
    drafts[place] = Draft("note", float("nan"))
    with pytest.raises(Invalid):
        main.extend(drafts)
    assert main.head.seq == 1
    assert session.info.events == 1
    assert [e.seq for e in main.extend([Draft("note", {"other": 1}, key=f"k{n}") for n in range(5)])] == [2, 3, 4, 5, 6]


def test_a_batch_whose_source_fails_writes_nothing(main) -> None:
    """When the caller's generator raises half-way, its exception passes and nothing was written."""

    def source() -> Iterator[tuple[str, object]]:
        yield "note", {}
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        main.extend(source())
    assert main.head.seq == 0


def test_the_callers_object_may_change_afterwards(main) -> None:
    """The payload is encoded once at the append: changing the object later changes no event."""
    payload = {"list": [1]}
    event = main.append("note", payload)
    payload["list"].append(2)
    assert event.payload == main.read(1).payload == {"list": [1]}


def test_the_clock_gives_the_time_unless_the_caller_does(main, clock) -> None:
    """`ts` is kept exactly to the nanosecond, also before 1970; without it the store's clock is asked."""
    before = clock.now
    assert before < main.append("note", {}).ts <= clock.now
    for ts in (0, -1, 1_700_000_000_123_456_789, (1 << 63) - 1, -(1 << 63)):
        assert main.append("note", {}, ts=ts).ts == ts
        assert main.read(main.head.seq).ts == ts


@pytest.mark.parametrize("ts", [1.5, "2026-01-01", True, 1 << 63, -(1 << 63) - 1])
def test_a_time_that_is_no_time_is_refused(main, ts) -> None:
    """A time is an int of nanoseconds in 64 bits; anything else is refused in a sentence."""
    with pytest.raises(Invalid, match=r"ts is .*nanoseconds"):
        main.append("note", {}, ts=ts)
    assert main.head.seq == 0


@pytest.mark.parametrize("schema", [0, -1, 1.0, "1", True, 1 << 31])
def test_a_schema_that_is_no_number_is_refused(main, schema) -> None:
    """A schema is a whole number from 1 on."""
    with pytest.raises(Invalid, match="schema is"):
        main.append("note", {}, schema=schema)
    assert main.head.seq == 0


def test_the_harness_version_is_stamped(open_store) -> None:
    """Every event carries the version the store was opened with, unless its draft names another."""
    store = open_store(harness_version="1.4.2")
    main = store.create_session("x").branch("main")
    main.append("note", {})
    main.extend([Draft("note", {}, harness_version="2.0"), ("note", {})])
    assert [e.harness_version for e in main.events()] == ["1.4.2", "2.0", "1.4.2"]


def test_a_bad_harness_version_is_refused_at_open(open_store) -> None:
    """An empty or overlong harness version never reaches an event."""
    for bad in ("", "v" * 300, "a\nb", 3):
        with pytest.raises(Invalid, match="harness version"):
            open_store(harness_version=bad)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("type", ""),
        ("type", "t" * 201),
        ("type", "a\x00b"),
        ("type", "\udc00"),
        ("type", None),
        ("call_id", ""),
        ("call_id", "c" * 501),
        ("call_id", 7),
        ("key", ""),
        ("key", "k" * 1001),
        ("key", "\ud800"),
        ("key", b"k"),
    ],
)
def test_identifiers_that_cannot_be_kept_are_refused(main, field, bad) -> None:
    """Types, call ids and keys are text within their bounds; what is not is refused and nothing is written."""
    fields = {"type": "note", "payload": {}, field: bad}
    with pytest.raises(Invalid) as caught:
        main.extend([Draft(**fields)])
    assert field.replace("_", " ") in str(caught.value)
    assert main.head.seq == 0


@pytest.mark.parametrize("letter", ["t", "ü"])
def test_a_type_at_its_bound_is_kept(main, letter) -> None:
    """Bounds count UTF-8 bytes and are inclusive."""
    kind = letter * (200 // len(letter.encode()))
    assert main.append(kind, {}).type == main.read(1).type == kind
    with pytest.raises(Invalid, match=r"20[12] bytes"):
        main.append(kind + letter, {})


def test_opening_types_get_a_call_id(main) -> None:
    """A call appended without an id is called c<seq>; other types get none."""
    kinds = ["tool_call", "note", "model_request", "hook_call", "tool_result", "model_response", "hook_decision"]
    events = main.extend([(kind, {}) for kind in kinds])
    assert [e.call_id for e in events] == ["c1", None, "c3", "c4", None, None, None]
    assert [e.call_id for e in main.events()] == [e.call_id for e in events]


def test_the_default_call_id_counts_along_the_branch(main) -> None:
    """On a fork the seq of the fork counts."""
    main.extend([("note", {})] * 3)
    assert main.fork("f", at=1).append("tool_call", {}).call_id == "c2"


def test_several_call_ids_are_kept_in_order(main) -> None:
    """A record may name several calls; `call_id` is the first, and one named twice counts once."""
    event = main.extend([Draft("tool_call", {}, call_ids=("z", "a", "z"))])[0]
    assert (event.call_id, event.call_ids) == ("z", ("z", "a"))
    assert main.read(1).call_ids == ("z", "a")


def test_call_id_and_call_ids_must_agree(main) -> None:
    """Naming one call and a list without it is a mistake, and refused."""
    assert main.extend([Draft("tool_call", {}, call_id="a", call_ids=("b", "a"))])[0].call_ids == ("b", "a")
    with pytest.raises(Invalid, match="call_ids"):
        main.extend([Draft("tool_call", {}, call_id="a", call_ids=("b",))])


def test_call_ids_given_as_one_string_are_refused(main) -> None:
    """A string in place of a list would open a call for each of its letters."""
    with pytest.raises(Invalid, match="call_ids"):
        main.extend([Draft("tool_call", {}, call_ids="abc")])
    assert main.head.seq == 0


def test_too_many_call_ids_are_refused(main) -> None:
    """An event names at most a thousand calls."""
    assert len(main.extend([Draft("note", {}, call_ids=tuple(map(str, range(1000))))])[0].call_ids) == 1000
    with pytest.raises(Invalid, match="1001 call ids"):
        main.extend([Draft("note", {}, call_ids=tuple(map(str, range(1001))))])


def test_appending_to_a_deleted_branch_or_session_is_not_found(session, main) -> None:
    """A handle on something deleted refuses to write and says that it was deleted."""
    main.fork("other")
    doomed = session.branch("other")
    doomed.delete()
    with pytest.raises(NotFound, match="deleted"):
        doomed.append("note", {})
    session.delete()
    with pytest.raises(NotFound, match=r"deleted|trash"):
        main.append("note", {})


def test_a_session_counts_what_was_written(session, main) -> None:
    """The listing's figures follow appends: events, payload bytes, and the newest event's time."""
    events = main.extend([Draft("note", {"n": n}, ts=1_000 + n) for n in range(3)])
    main.fork("f", at=1).append("note", {"text": "x" * 100}, ts=500)
    info = session.info
    assert info.events == 4
    assert info.size == sum(e.size for e in events) + main.fork("g").session.branch("f").read(2).size
    assert info.activity >= 1_002


def test_drafts_are_values(main) -> None:
    """Drafts compare by value and can be pickled and used twice."""
    draft = Draft("note", {"a": 1}, call_id="c")
    assert pickle.loads(pickle.dumps(draft)) == draft == Draft("note", {"a": 1}, call_id="c")
    assert [e.seq for e in main.extend([draft, draft])] == [1, 2]
