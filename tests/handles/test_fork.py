"""Forks: a branch that shares everything up to a seq, and that nothing done elsewhere changes."""

from __future__ import annotations

import pytest

import castlog
from castlog import Conflict, Invalid, NotFound


def payloads(view) -> list[object]:
    """Return all payloads of a history."""
    return [event.payload for event in view.events()]


@pytest.fixture
def twelve(main, small_chunks) -> list[castlog.Event]:
    """Twelve events on main: 1 to 10 in two sealed chunks, the rest open."""
    return [main.append("note", {"n": n}) for n in range(1, 13)]


@pytest.mark.parametrize("at", [0, 1, 4, 5, 6, 10, 11, 12, None])
def test_a_fork_shares_everything_up_to_its_seq(main, twelve, at) -> None:
    """At 0, in the middle or at the end of a chunk, sealed or open, at the head: the fork reads what its parent has."""
    seq = 12 if at is None else at
    fork = main.fork("fork", at=at)
    assert list(fork.events()) == twelve[:seq]
    assert fork.head.seq == seq
    assert fork.head.id == (twelve[seq - 1].id if seq else main.fork("empty", at=0).head.id)
    with pytest.raises(NotFound):
        fork.read(seq + 1)


@pytest.mark.parametrize("at", [0, 1, 4, 5, 6, 10, 11, 12])
def test_a_fork_goes_on_from_its_seq(main, twelve, at) -> None:
    """The fork's first event has the next seq, and its id follows from the shared history alone."""
    fork, twin = main.fork_many(2, at=at)
    event = fork.append("note", {"mine": True}, ts=1)
    assert event.seq == at + 1
    assert list(fork.events()) == [*twelve[:at], event]
    assert twin.append("note", {"mine": True}, ts=1) == event
    assert list(main.events()) == twelve


def test_a_fork_at_zero_begins_a_history_of_its_own(session, main, twelve) -> None:
    """Fork at 0 is allowed: it shares only the genesis."""
    fork = main.fork("fresh", at=0)
    assert (fork.head.seq, fork.head.id) == (0, session.branch("fresh").head.id)
    assert fork.append("note", {}).seq == 1
    assert fork.read(1).parent_seq == 0


def test_a_fork_of_an_empty_branch(main) -> None:
    """An empty branch can be forked, and both go their own way."""
    fork = main.fork("fork")
    assert fork.head.seq == 0
    main.append("note", {"n": "main"})
    fork.append("note", {"n": "fork"})
    assert payloads(main) == [{"n": "main"}]
    assert payloads(fork) == [{"n": "fork"}]


@pytest.mark.parametrize("at", [13, -1, 10**20])
def test_a_fork_beyond_the_head_is_not_found(session, main, twelve, at) -> None:
    """Nothing can be shared that is not there; no branch is made."""
    with pytest.raises(NotFound, match="0 to 12"):
        main.fork("fork", at=at)
    assert [b.name for b in session.branches()] == ["main"]


@pytest.mark.parametrize("at", ["4", 4.0, True, "main"])
def test_a_fork_point_is_a_whole_number(session, main, twelve, at) -> None:
    """Anything else is a mistake of the caller."""
    with pytest.raises(Invalid, match="whole number"):
        main.fork("fork", at=at)
    assert [b.name for b in session.branches()] == ["main"]


def test_forks_of_forks_of_forks(main, small_chunks) -> None:
    """Nested forks each share with all those above them, whatever those do afterwards."""
    branch, expected, made = main, [], []
    for depth in range(30):
        expected += [branch.append("note", {"depth": depth, "n": n}) for n in range(depth % 4)]
        made.append((branch, list(expected)))
        cut = max(0, len(expected) - depth % 3)
        branch = branch.fork(f"f{depth}", at=cut)
        expected = expected[:cut]
    for branch, history in made:
        assert list(branch.events())[: len(history)] == history
    for branch, history in made:
        branch.append("note", {"late": True})
        assert list(branch.events())[: len(history)] == history


def test_of_two_branches_at_one_head_the_first_to_append_goes_on(session, main) -> None:
    """The other starts a timeline of its own; neither sees the other's events, in either order of appending."""
    main.append("note", {"n": 1})
    early = main.fork("early")
    late = main.fork("late")
    early.append("note", {"n": "early"})
    main.append("note", {"n": "main"})
    late.append("note", {"n": "late"})
    for name, branch in (("early", early), ("main", main), ("late", late)):
        assert payloads(branch) == [{"n": 1}, {"n": name}]
        branch.append("note", {"more": name})
        assert payloads(branch) == [{"n": 1}, {"n": name}, {"more": name}]
    assert [node.fork_seq for node in session.tree()] == [0, 1, 1]


def test_a_fork_of_what_another_fork_wrote_on_the_shared_timeline(main) -> None:
    """When a fork went on first, a fork of it, and the old branch appending afterwards, still read only their own."""
    main.extend([("note", {"n": n}) for n in range(3)])
    fork = main.fork("fork")
    fork.extend([("note", {"fork": n}) for n in range(3)])
    nested = fork.fork("nested", at=4)
    main.append("note", {"main": 1})
    nested.append("note", {"nested": 1})
    assert payloads(main)[3:] == [{"main": 1}]
    assert payloads(fork)[3:] == [{"fork": 0}, {"fork": 1}, {"fork": 2}]
    assert payloads(nested)[3:] == [{"fork": 0}, {"nested": 1}]


def test_nothing_done_on_one_branch_changes_another(session, main, twelve) -> None:
    """Append, seal, reset, promote, rename and delete of a parent leave what its forks read, and the reverse."""
    fork = main.fork("fork", at=7)
    fork.append("note", {"fork": 1})
    before = list(fork.events())
    main.extend([("note", {"x": n}) for n in range(20)])
    assert list(fork.events()) == before
    main.reset(3)
    main.append("note", {"y": 1})
    assert list(fork.events()) == before
    main.rename("trunk")
    third = main.fork("third")
    main.delete()
    assert list(fork.events()) == before
    assert session.branch("fork").append("note", {}).seq == 9
    fork.reset(0)
    fork.delete()
    assert payloads(third)[:3] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_fork_reads_while_its_parents_open_chunk_is_sealed(main, small_chunks) -> None:
    """A fork made inside an open chunk goes on reading and appending when that chunk is sealed later."""
    main.extend([("note", {"n": n}) for n in range(3)])
    fork = main.fork("fork", at=2)
    main.extend([("note", {"n": n}) for n in range(3, 9)])
    assert payloads(fork) == [{"n": 0}, {"n": 1}]
    assert fork.head.id == main.read(2).id
    assert fork.append("note", {"fork": 1}, expect=main.read(2).id).seq == 3
    assert payloads(fork) == [{"n": 0}, {"n": 1}, {"fork": 1}]


# --- names and many -----------------------------------------------------------------------------


def test_a_taken_name_is_a_conflict(session, main) -> None:
    """Branches and tags share one name space per session; nothing is made when the name is taken."""
    main.append("note", {})
    main.fork("idea")
    session.tag("t")
    for name in ("main", "idea", "t"):
        with pytest.raises(Conflict, match=f"'{name}' is taken"):
            main.fork(name)
    assert [b.name for b in session.branches()] == ["idea", "main"]


def test_a_name_may_be_used_in_every_session(store) -> None:
    """Names belong to their session."""
    for title in ("a", "b"):
        store.create_session(title).branch("main").fork("idea")


def test_fork_many_makes_them_in_one_commit(store, session, main, twelve) -> None:
    """All are there, named prefix and number, at one place; the store's version grew by one commit."""
    before = store._core.engine.version()
    forks = main.fork_many(100, at=6, prefix="try-")
    assert store._core.engine.version() == before + 1
    assert [f.name for f in forks] == [f"try-{n}" for n in range(1, 101)]
    assert {f.head.seq for f in forks} == {6}
    assert len(session.branches()) == 101
    for fork in forks[::20]:
        fork.append("note", {"who": fork.name})
        assert fork.read(7).payload == {"who": fork.name}
    assert session.info.branches == 101


def test_fork_many_is_all_or_nothing(session, main) -> None:
    """One taken name among them and none is made."""
    main.fork("fork-3")
    with pytest.raises(Conflict, match="fork-3"):
        main.fork_many(5)
    assert [b.name for b in session.branches()] == ["fork-3", "main"]


@pytest.mark.parametrize("count", [0, -1, 10_001, 2.0, "3", True])
def test_fork_many_has_bounds(session, main, count) -> None:
    """It makes 1 to 10,000 at a time."""
    with pytest.raises(Invalid, match="1 to 10,000"):
        main.fork_many(count)
    assert len(session.branches()) == 1


def test_fork_many_checks_its_names(session, main) -> None:
    """A prefix that makes bad names is refused before anything is written."""
    for prefix in ("-x", "a b", "x" * 200, "../"):
        with pytest.raises(Invalid):
            main.fork_many(2, prefix=prefix)
    assert len(session.branches()) == 1


def test_a_fork_costs_the_same_anywhere(store, main, small_chunks) -> None:
    """The rows a fork writes are as many at seq 1 as at the head of a long, deep history."""

    def cost(act) -> int:
        puts = []
        engine = store._core.engine

        class Counting:
            """A transaction that counts what is put."""

            def __init__(self, txn) -> None:
                self.txn = txn

            def put(self, key: bytes, value: bytes) -> None:
                puts.append(len(key) + len(value))
                self.txn.put(key, value)

            def __getattr__(self, name: str) -> object:
                return getattr(self.txn, name)

        class Engine:
            """The engine, with counting transactions."""

            def update(self, change):
                return engine.update(lambda txn: change(Counting(txn)))

            def __getattr__(self, name: str) -> object:
                return getattr(engine, name)

        store._core.engine = Engine()
        try:
            act()
        finally:
            store._core.engine = engine
        return sum(puts)

    main.extend([("note", {"n": n}) for n in range(4)])
    first = cost(lambda: main.fork("a", at=1))
    branch = main
    for depth in range(40):
        branch.extend([("note", {"d": depth, "n": n}) for n in range(12)])
        branch = branch.fork(f"d{depth}")
    branch.extend([("note", {})] * 6)
    for name, at in (("b", 1), ("c", 200), ("d", branch.head.seq)):
        assert cost(lambda name=name, at=at: branch.fork(name, at=at)) <= first + 60
