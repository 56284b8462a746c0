"""Calls in flight, at any seq of any branch, against a plain fold over the whole history."""

from __future__ import annotations

import pytest

from castlog import Draft, Invalid, NotFound

OPENING = {"tool_call", "model_request", "hook_call"}
CLOSING = {"tool_result", "model_response", "hook_decision"}


def fold(history) -> list[int]:
    """Return the seqs of the events whose calls are in flight after a history, by the rule of the design."""
    opened: dict[str, int] = {}
    for event in history:
        for call_id in event.call_ids:
            if event.type in OPENING:
                opened[call_id] = event.seq
            elif event.type in CLOSING:
                opened.pop(call_id, None)
    return sorted(set(opened.values()))


def seqs(events) -> list[int]:
    """Return the seqs of events."""
    return [event.seq for event in events]


def test_every_seq_of_every_branch_agrees_with_the_fold(grove) -> None:
    """Across forks, seals, resets and promotions, `in_flight(at)` is the fold of the history up to there."""
    for name, history in grove.histories.items():
        branch = grove.session.branch(name)
        assert seqs(branch.in_flight()) == fold(history)
        for at in range(len(history) + 1):
            got = branch.in_flight(at)
            assert seqs(got) == fold(history[:at])
            assert got == [history[seq - 1] for seq in seqs(got)]


def test_the_session_listing_agrees_with_the_fold(store, grove) -> None:
    """A session is listed as in flight when some branch's head has an open call."""
    expected = any(fold(history) for history in grove.histories.values())
    assert (store.sessions(in_flight=True) == [grove.session]) is expected


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("tool_call", "tool_result"), ("model_request", "model_response"), ("hook_call", "hook_decision")],
)
def test_a_call_is_in_flight_until_its_result(main, opening, closing) -> None:
    """From the event that opens it to the one that closes it, for each kind of call."""
    main.append("user_message", {})
    call = main.append(opening, {"x": 1}, call_id="c")
    main.append("note", {}, call_id="c")
    assert main.in_flight() == [call]
    assert main.in_flight()[0].payload == {"x": 1}
    main.append(closing, {}, call_id="c")
    assert main.in_flight() == []
    assert [seqs(main.in_flight(at)) for at in range(5)] == [[], [], [2], [2], []]


def test_a_result_closes_by_call_id_only(main) -> None:
    """A result with another id, or without one, closes nothing; the id decides and not the kind."""
    main.append("tool_call", {}, call_id="a")
    main.append("tool_result", {}, call_id="b")
    main.append("tool_result", {})
    assert seqs(main.in_flight()) == [1]
    main.append("model_response", {}, call_id="a")
    assert main.in_flight() == []


def test_a_call_without_an_id_is_closed_by_its_default_id(main) -> None:
    """The id c<seq> that castlog gave is what the result names."""
    call = main.append("tool_call", {})
    main.append("tool_result", {}, call_id=call.call_id)
    assert main.in_flight() == []


def test_an_id_may_be_used_again(main) -> None:
    """After its result the same id opens a new call; the first result closes only the first."""
    for _ in range(3):
        main.append("tool_call", {}, call_id="again")
        main.append("tool_result", {}, call_id="again")
    main.append("tool_call", {}, call_id="again")
    assert seqs(main.in_flight()) == [7]
    main.append("tool_result", {}, call_id="again")
    main.append("tool_result", {}, call_id="again")
    assert main.in_flight() == []


def test_parallel_calls_are_listed_oldest_first(main) -> None:
    """Several open calls come in the order they were opened, whatever order they are closed in."""
    main.extend([Draft("tool_call", {}, call_id=name) for name in "abcd"])
    assert seqs(main.in_flight()) == [1, 2, 3, 4]
    main.append("tool_result", {}, call_id="c")
    main.append("tool_result", {}, call_id="a")
    assert seqs(main.in_flight()) == [2, 4]


def test_a_record_that_opens_several_calls_is_listed_until_all_are_closed(main) -> None:
    """A foreign record names all its calls, and is one event in the list."""
    main.extend([Draft("tool_call", {}, call_ids=("a", "b"))])
    main.append("tool_result", {}, call_id="a")
    assert seqs(main.in_flight()) == [1]
    main.append("tool_result", {}, call_id="b")
    assert main.in_flight() == []


def test_a_fork_between_call_and_result_has_the_call_in_flight(main) -> None:
    """On the fork it stays open whatever the parent does, and closing it there closes it only there."""
    main.append("tool_call", {}, call_id="c")
    fork = main.fork("fork")
    empty = main.fork("empty", at=0)
    main.append("tool_result", {}, call_id="c")
    assert seqs(fork.in_flight()) == [1]
    fork.append("note", {})
    assert seqs(fork.in_flight()) == [1]
    assert fork.in_flight()[0].branch == "fork"
    nested = fork.fork("nested")
    fork.append("tool_result", {}, call_id="c")
    assert (seqs(main.in_flight()), seqs(fork.in_flight()), seqs(nested.in_flight())) == ([], [], [1])
    assert empty.in_flight() == []


def test_calls_stay_in_flight_across_many_seals(main, small_chunks) -> None:
    """A call opened long ago is found from the last chunk alone, and closed from there."""
    main.append("tool_call", {"old": True}, call_id="old")
    for n in range(40):
        main.append("note", {"n": n})
    assert seqs(main.in_flight()) == [1]
    assert [seqs(main.in_flight(at)) for at in (1, 5, 6, 17, 39)] == [[1]] * 5
    main.append("tool_result", {}, call_id="old")
    assert main.in_flight() == []
    assert seqs(main.in_flight(41)) == [1]


def test_a_batch_sealed_at_once_keeps_count(main, small_chunks) -> None:
    """Calls opened and closed within one large batch, and across it, come out right at each of its seqs."""
    drafts = [Draft("tool_call" if n % 3 else "tool_result", {}, call_id=f"c{n % 4}") for n in range(33)]
    events = main.extend(drafts)
    for at in range(34):
        assert seqs(main.in_flight(at)) == fold(events[:at])


def test_in_flight_reads_at_most_two_chunks(store, main, small_chunks) -> None:
    """However long the history, the answer for its end or its middle costs the same few reads."""
    for n in range(200):
        main.append("tool_call" if n == 0 else "note", {}, call_id="x" if n == 0 else None)
    reads = []
    engine = store._core.engine

    class Counting:
        """A read transaction that counts its look-ups."""

        def __init__(self, txn) -> None:
            self.txn = txn

        def get(self, key: bytes):
            reads.append(key)
            return self.txn.get(key)

        def scan(self, *words, **options):
            for pair in self.txn.scan(*words, **options):
                reads.append(pair[0])
                yield pair

    class Engine:
        """The engine, with counting transactions."""

        def read(self):
            from contextlib import contextmanager

            @contextmanager
            def inside():
                with engine.read() as txn:
                    yield Counting(txn)

            return inside()

        def __getattr__(self, name: str) -> object:
            return getattr(engine, name)

    store._core.engine = Engine()
    try:
        for at in (None, 199, 100, 101, 7):
            reads.clear()
            assert seqs(main.in_flight(at)) == [1]
            assert len(reads) < 30
    finally:
        store._core.engine = engine


def test_in_flight_of_views(store, session, main) -> None:
    """A tag or a point answers for its own place."""
    main.append("tool_call", {}, call_id="c")
    session.tag("open")
    main.append("tool_result", {}, call_id="c")
    assert seqs(store.view(f"{session.id}/open").in_flight()) == [1]
    assert seqs(store.view(f"{session.id}/main@1").in_flight()) == [1]
    assert store.view(f"{session.id}/main").in_flight() == []


def test_a_place_that_is_not_there_is_refused(main) -> None:
    """`at` is a seq of the branch."""
    main.append("note", {})
    for at in (2, -1):
        with pytest.raises(NotFound):
            main.in_flight(at)
    with pytest.raises(Invalid):
        main.in_flight("1")


def test_a_reset_opens_the_call_again(main) -> None:
    """Taking back the result puts the call back in flight, also after more appends."""
    main.append("tool_call", {}, call_id="c")
    main.append("tool_result", {}, call_id="c")
    main.reset(1)
    assert seqs(main.in_flight()) == [1]
    main.append("note", {})
    assert seqs(main.in_flight()) == [1]
    main.append("tool_result", {}, call_id="c")
    assert main.in_flight() == []
