"""States along a history in any order, and the first bad one of them, in few folds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import castlog
from castlog import limits


@castlog.reducer("numbers", 1, initial={"sum": 0, "seen": []})
def numbers(state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
    """Add up what the notes say, and keep the last few."""
    state["sum"] += event.payload["n"]
    state["seen"] = [*state["seen"][-4:], event.payload["n"]]
    return state


class Folds:
    """A reducer that counts how many events it folded."""

    def __init__(self) -> None:
        self.events = 0
        self.reducer = castlog.reducer("numbers", 1, initial={"sum": 0, "seen": []})(self._fold)

    def _fold(self, state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
        self.events += 1
        return numbers(state, event)


@pytest.fixture
def main() -> Iterator[castlog.Branch]:
    """A branch of 300 numbers."""
    with castlog.open("memory:") as store:
        branch = store.create_session("numbers").branch("main")
        branch.extend([("note", {"n": n}) for n in range(1, 301)])
        yield branch


def bisect(branch: castlog.Branch, check: Callable[[Any, int], bool | None], **options: Any) -> castlog.Bisection:
    """Bisect a branch with the reducer of this file."""
    return branch._core and castlog.Store(branch._core, "memory:").bisect(branch, numbers, check, **options)


def replay(branch: castlog.Branch, reducer: castlog.Reducer[Any] = numbers) -> castlog.Replay[Any]:
    """Return the states along a branch."""
    return castlog.Store(branch._core, "memory:").replay(branch, reducer)


def test_states_come_in_any_order_and_are_those_of_a_restore(main: castlog.Branch) -> None:
    """Whatever was asked for before, with snapshots or without, each state is the one restored."""
    states = replay(main)
    order = random.Random(7)
    for seq in [300, 0, *(order.randrange(301) for _ in range(60))]:
        if seq == 100:
            main.snapshot(numbers, at=100)
        found = states.at(seq)
        assert found.state == main.restore(numbers, at=seq).state
        assert found.snapshot_seq + found.replayed == seq == found.seq
        found.state["sum"] = "spoiled by the caller"
    with pytest.raises(castlog.NotFound, match="its seqs are 0 to 300"):
        states.at(301)


def test_going_back_folds_little(main: castlog.Branch) -> None:
    """The first of a hundred steps back folds the history once more, the others fold a few events each."""
    folds = Folds()
    states = replay(main, folds.reducer)
    states.at(300)
    folds.events = 0
    for seq in range(299, 199, -1):
        states.at(seq)
    assert folds.events < 300 + 100 * 8


def test_a_snapshot_that_is_nearer_than_what_is_kept_is_taken(main: castlog.Branch) -> None:
    """And what is kept is taken where that is nearer."""
    main.snapshot(numbers, at=150)
    states = replay(main)
    assert states.at(10).snapshot_seq == 0
    assert states.at(160).snapshot_seq == 150
    assert states.at(161).snapshot_seq == 160


def test_states_kept_in_memory_are_bounded(main: castlog.Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for, the bytes kept stay within the limit."""
    monkeypatch.setattr(limits, "REPLAY_BYTES", 500)
    states = replay(main)
    for seq in range(0, 301, 7):
        assert states.at(seq).state == main.restore(numbers, at=seq).state
        assert states._size == sum(map(len, states._kept.values())) <= 500


def test_the_history_is_that_of_the_moment(main: castlog.Branch) -> None:
    """Appends and resets of the branch do not change what is replayed."""
    states = replay(main)
    main.append("note", {"n": 1})
    main.reset(5)
    assert states.head.seq == 300
    assert states.at(300).state["sum"] == 300 * 301 // 2


def test_an_event_tells_what_it_changed(main: castlog.Branch) -> None:
    """Alone or in a row, the changes are those between the state before and after it."""
    states = replay(main)
    alone = states.changes(47)
    ((event, in_a_row),) = list(states.walk(47, 47))
    assert event.seq == 47
    assert alone == in_a_row
    assert [(step.sign, step.where, step.old, step.new) for step in alone] == [
        ("~", "sum", 46 * 47 // 2, 47 * 48 // 2),
        *(("~", f"seen[{n}]", 42 + n, 43 + n) for n in range(5)),
    ]
    assert [event.seq for event, _ in states.walk(299, 300)] == [299, 300]
    assert list(states.walk(5, 4)) == []
    for seq in (0, 301):
        with pytest.raises(castlog.NotFound):
            states.changes(seq)
    with pytest.raises(castlog.NotFound):
        list(states.walk(300, 301))


@pytest.mark.parametrize("first_bad", [1, 2, 37, 150, 151, 299, 300])
def test_the_first_bad_event_is_found_wherever_it_is(main: castlog.Branch, first_bad: int) -> None:
    """Each probe halves what is left; the event found is the first whose state is bad."""
    told: list[castlog.Probe] = []
    found = bisect(main, lambda state, seq: state["sum"] < first_bad * (first_bad + 1) // 2, probed=told.append)
    assert found.first_bad is not None
    assert (found.good, found.bad, found.first_bad.seq) == (first_bad - 1, first_bad, first_bad)
    assert found.probes == told
    assert len(told) <= 9 + 1


def test_bisecting_folds_about_as_much_as_one_restore(main: castlog.Branch) -> None:
    """Each probe goes on from a state met before, so that all of them together fold no more than twice the history."""
    folds = Folds()
    store = castlog.Store(main._core, "memory:")
    for first_bad in (1, 120, 300):
        folds.events = 0
        store.bisect(main, folds.reducer, lambda state, seq, bad=first_bad: seq < bad)  # type: ignore[misc]
        assert folds.events <= 2 * 300


def test_a_hundred_thousand_events_take_18_checks_at_most() -> None:
    """With snapshots in the store, wherever the bad event is."""
    count = 100_000
    with castlog.open("memory:") as store:
        branch = store.create_session("long").branch("main")
        for start in range(0, count, 10_000):
            branch.extend([("note", {"n": 1})] * 10_000)
            branch.snapshot(numbers, at=start + 5_000)
        for first_bad in (1, 65_537, 99_999, count):
            calls = []

            def check(state: Any, seq: int, bad: int = first_bad, calls: list[int] = calls) -> bool:
                calls.append(seq)
                return state["sum"] < bad

            found = store.bisect(branch, numbers, check)
            assert found.bad == first_bad
            assert len(calls) <= 18
        assert len(branch.snapshots()) == 10


def test_what_cannot_be_told_is_passed_over(main: castlog.Branch) -> None:
    """States without an answer narrow the search no further; where only such are left both ends are told."""
    found = bisect(main, lambda state, seq: None if 140 <= seq <= 160 else seq < 200)
    assert found.bad == 200
    found = bisect(main, lambda state, seq: None if 140 <= seq <= 160 else seq < 150)
    assert (found.good, found.bad, found.first_bad) == (139, 161, None)
    tried = [probe.seq for probe in found.probes]
    assert len(tried) == len(set(tried))


def test_a_long_stretch_that_cannot_be_told_does_not_try_every_state(main: castlog.Branch) -> None:
    """After a number of tries in a row without an answer it ends."""
    found = bisect(main, lambda state, seq: None if 0 < seq < 300 else seq == 0)
    assert (found.good, found.bad, found.first_bad) == (0, 300, None)
    assert len(found.probes) == limits.BISECT_SKIPS_MAX + 2


def test_ends_that_are_not_what_they_were_said_to_be_are_named(main: castlog.Branch) -> None:
    """Where all rests on an end it is tried itself."""
    with pytest.raises(castlog.Invalid, match="seq 300, which was to be bad, is good"):
        bisect(main, lambda state, seq: True)
    with pytest.raises(castlog.Invalid, match="seq 10, which was to be good, is bad"):
        bisect(main, lambda state, seq: False, good=10)


@pytest.mark.parametrize(("good", "bad"), [(5, 5), (6, 5), (-1, 5), (0, 301)])
def test_bounds_that_enclose_nothing_are_refused(main: castlog.Branch, good: int, bad: int) -> None:
    """Good comes before bad, and both are in the history."""
    with pytest.raises(castlog.Invalid, match="give 0 <= good < bad <= 300"):
        bisect(main, lambda state, seq: True, good=good, bad=bad)
