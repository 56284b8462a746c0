"""Idempotency keys and `expect`: repeating an append of unknown outcome is safe, and a moved head is noticed."""

from __future__ import annotations

import pytest

import castlog
from castlog import Conflict, Draft, Invalid


def count(main) -> int:
    """Return how many events the branch has."""
    return sum(1 for _ in main.events())


def test_the_same_key_returns_the_first_event(session, main) -> None:
    """Repeating an append with its key writes nothing and returns the event that is there, with its first time."""
    first = main.append("note", {"a": 1}, key="k")
    main.append("note", {"b": 2})
    again = main.append("note", {"a": 1}, key="k")
    assert again == first
    assert (again.seq, again.ts, again.payload, again.key) == (1, first.ts, {"a": 1}, "k")
    assert count(main) == session.info.events == 2


def test_a_repeat_may_differ_in_time_schema_and_call_id(main) -> None:
    """Only type and payload must be the same: time and the rest are those of the first event."""
    first = main.append("tool_call", {"a": 1}, key="k", call_id="x")
    again = main.append("tool_call", {"a": 1}, key="k", ts=5, schema=3)
    assert (again.ts, again.schema, again.call_id) == (first.ts, 1, "x")


@pytest.mark.parametrize(
    ("kind", "payload"), [("note", {"a": 2}), ("other", {"a": 1}), ("note", castlog.Raw(b'{"a": 1}'))]
)
def test_the_same_key_with_other_content_is_a_conflict(main, kind, payload) -> None:
    """A key stands for one type and one payload, byte for byte; anything else is Conflict and names the seq."""
    main.append("note", {"a": 1}, key="k")
    with pytest.raises(Conflict, match="use a new key") as caught:
        main.append(kind, payload, key="k")
    assert (caught.value.key, caught.value.seq) == ("k", 1)
    assert count(main) == 1


def test_a_conflict_in_a_batch_writes_nothing_of_it(main) -> None:
    """One conflicting key undoes the whole batch."""
    main.append("note", {"a": 1}, key="k")
    with pytest.raises(Conflict):
        main.extend([("note", {}), Draft("note", {"a": 2}, key="k"), ("note", {})])
    assert count(main) == 1


def test_a_batch_repeated_with_its_keys_writes_nothing(main) -> None:
    """After a time-out the whole batch may be sent again."""
    drafts = [Draft("note", {"n": n}, key=f"k{n}") for n in range(5)]
    first = main.extend(drafts)
    assert main.extend(drafts) == first
    assert count(main) == 5


def test_a_batch_may_mix_known_and_new(main) -> None:
    """Known drafts give their first events and new ones are appended, in the order of the batch."""
    known = main.append("note", {"n": 0}, key="k0")
    main.append("note", {})
    events = main.extend([("note", {"x": 1}), Draft("note", {"n": 0}, key="k0"), Draft("note", {"n": 1}, key="k1")])
    assert [e.seq for e in events] == [3, 1, 4]
    assert events[1] == known
    assert count(main) == 4


def test_a_key_twice_in_one_batch(main) -> None:
    """Within a batch the second draft with a key is the first one's event; other content is Conflict."""
    events = main.extend([Draft("note", {"n": 0}, key="k"), ("note", {}), Draft("note", {"n": 0}, key="k")])
    assert [e.seq for e in events] == [1, 2, 1]
    assert events[0] == events[2]
    with pytest.raises(Conflict):
        main.extend([Draft("note", {"n": 0}, key="j"), Draft("note", {"n": 1}, key="j")])
    assert count(main) == 2


def test_a_fork_knows_the_keys_before_its_fork_point(main) -> None:
    """A key used at or before the fork point is known on both sides; one used after it only where it was used."""
    shared = main.append("note", {"n": 1}, key="shared")
    main.append("note", {})
    fork = main.fork("f", at=1)
    mine = main.append("note", {"n": 2}, key="later")
    assert fork.append("note", {"n": 1}, key="shared") == shared
    theirs = fork.append("note", {"other": True}, key="later")
    assert theirs != mine
    assert theirs.seq == 2
    assert fork.append("note", {"other": True}, key="later") == theirs
    assert main.append("note", {"n": 2}, key="later") == mine
    assert (count(main), count(fork)) == (3, 2)


def test_a_key_of_a_sibling_is_unknown_however_long_the_history(main, small_chunks) -> None:
    """What another branch used after the fork point is not in this history, also below this branch's head."""
    main.extend([("note", {})] * 3)
    fork = main.fork("f", at=2)
    main.append("note", {"main": 1}, key="k")
    fork.extend([("note", {"fork": n}) for n in range(9)])
    nested = fork.fork("nested", at=8)
    event = fork.append("note", {"mine": 1}, key="k")
    assert event.seq == 12
    nested.extend([("note", {})] * 9)
    assert nested.append("note", {"nested": 1}, key="k").seq == 18
    assert fork.append("note", {"mine": 1}, key="k") == event
    assert main.append("note", {"main": 1}, key="k").seq == 4


def test_a_key_is_free_again_after_a_reset_behind_it(main) -> None:
    """What a reset took away is no longer history: its key may be used for something else."""
    main.append("note", {"n": 1}, key="a")
    main.append("note", {"n": 2}, key="b")
    main.reset(1)
    assert main.append("note", {"n": 1}, key="a").seq == 1
    fresh = main.append("note", {"n": 3}, key="b")
    assert fresh.seq == 2
    assert main.append("note", {"n": 3}, key="b") == fresh
    with pytest.raises(Conflict):
        main.append("note", {"n": 2}, key="b")


def test_a_promoted_branch_brings_its_keys(session, main) -> None:
    """After a promotion the keys of the new history count, not those of the old."""
    main.append("note", {"n": 1})
    idea = main.fork("idea")
    old = main.append("note", {"n": 2}, key="k")
    new = idea.append("note", {"n": 3}, key="k")
    session.promote("idea", onto="main")
    assert main.append("note", {"n": 3}, key="k") == new
    with pytest.raises(Conflict):
        main.append("note", {"n": 2}, key="k")
    assert old != new


def test_keys_of_sessions_are_apart(store) -> None:
    """The same key in two sessions means two events."""
    one, two = (store.create_session("x").branch("main") for _ in range(2))
    assert one.append("note", {"n": 1}, key="k") != two.append("note", {"n": 2}, key="k")


def test_keys_are_found_through_many_forks_and_in_sealed_chunks(main, small_chunks) -> None:
    """A key is found wherever in a nested history its event lies, sealed or open."""
    branch, events = main, []
    for depth in range(12):
        for n in range(3):
            events.append(branch.append("note", {"d": depth, "n": n}, key=f"{depth}.{n}"))
        branch = branch.fork(f"f{depth}")
    for event in events:
        assert branch.append("note", event.payload, key=event.key) == event
        with pytest.raises(Conflict):
            branch.append("note", {"x": 1}, key=event.key)
    assert branch.head.seq == len(events)


def test_a_key_used_on_many_siblings_is_found_on_each(main) -> None:
    """A hundred forks may each use one key after the fork point; each has its own event."""
    main.append("note", {})
    forks = main.fork_many(40)
    events = [fork.append("note", {"n": n}, key="k") for n, fork in enumerate(forks)]
    assert [fork.append("note", {"n": n}, key="k") for n, fork in enumerate(forks)] == events
    deep = forks[7].fork("deep")
    deep.append("note", {})
    assert deep.append("note", {"n": 7}, key="k") == events[7]
    assert main.append("note", {"n": "main"}, key="k").seq == 2


@pytest.mark.parametrize("key", ["k" * 1000, "ü" * 500, "a b\u00a0c", "/@~"])
def test_keys_may_be_any_text_within_their_bound(main, key) -> None:
    """A key is up to 1,000 bytes of text."""
    event = main.append("note", {}, key=key)
    assert event.key == main.read(1).key == key
    assert main.append("note", {}, key=key) == event


# --- expect -------------------------------------------------------------------------------------


def test_expect_takes_the_seq_or_the_id_of_the_head(main) -> None:
    """An append that expects the head as it is goes through, by seq or by id, on an empty branch too."""
    assert main.append("note", {}, expect=0).seq == 1
    assert main.append("note", {}, expect=main.head.id).seq == 2
    assert main.append("note", {}, expect=2).seq == 3
    assert main.fork("f", at=1).append("note", {}, expect=main.read(1).id).seq == 2


def test_expect_takes_the_genesis_id_of_an_empty_branch(main) -> None:
    """The head's id of an empty branch is as good as seq 0."""
    assert main.append("note", {}, expect=main.head.id).seq == 1


@pytest.mark.parametrize("how", ["seq", "id", "genesis", "ahead"])
def test_a_head_that_is_elsewhere_is_a_conflict(main, how) -> None:
    """When the head is not what was expected nothing is written, and the error says where it is."""
    genesis = main.head.id
    first = main.append("note", {})
    second = main.append("note", {})
    expect = {"seq": 1, "id": first.id, "genesis": genesis, "ahead": 3}[how]
    with pytest.raises(Conflict, match="main is at seq 2") as caught:
        main.append("note", {}, expect=expect)
    assert (caught.value.seq, caught.value.id, caught.value.expected) == (2, second.id, expect)
    assert count(main) == 2


def test_expect_by_id_notices_another_history_of_equal_length(session, main) -> None:
    """Two histories may be equally long: the id tells them apart where the seq cannot."""
    main.append("note", {"n": 1})
    old = main.head
    idea = main.fork("idea", at=0)
    idea.append("note", {"n": 2})
    session.promote("idea", onto="main")
    assert main.head.seq == old.seq
    with pytest.raises(Conflict):
        main.append("note", {}, expect=old.id)
    assert main.append("note", {}, expect=old.seq).seq == 2


def test_keys_are_looked_up_before_expect(main) -> None:
    """A repeat is answered with its first event although the head has moved on since; a new event is not written."""
    first = main.append("note", {"n": 1}, key="k", expect=0)
    main.append("note", {})
    assert main.append("note", {"n": 1}, key="k", expect=0) == first
    with pytest.raises(Conflict):
        main.extend([Draft("note", {"n": 1}, key="k"), ("note", {})], expect=0)
    assert count(main) == 2


@pytest.mark.parametrize("expect", [-1, 1.0, True, "main", "b3:12", "B3:" + "0" * 64, b"x", [1]])
def test_an_expectation_that_is_no_head_is_refused(main, expect) -> None:
    """`expect` is a seq or a whole event id; anything else is a mistake of the caller."""
    main.append("note", {})
    with pytest.raises(Invalid):
        main.append("note", {}, expect=expect)
    assert count(main) == 1


def test_extend_checks_expect_once_for_the_batch(main) -> None:
    """The head is compared before the first new event of a batch, not before each."""
    assert [e.seq for e in main.extend([("note", {})] * 3, expect=0)] == [1, 2, 3]
    with pytest.raises(Conflict):
        main.extend([("note", {})] * 3, expect=1)
    assert count(main) == 3


def test_expect_holds_for_large_batches_too(main, small_chunks) -> None:
    """A batch that is sealed at once is checked like any other."""
    main.extend([("note", {"n": n}) for n in range(12)], expect=0)
    with pytest.raises(Conflict):
        main.extend([("note", {"n": n}) for n in range(12)], expect=11)
    assert count(main) == 12
