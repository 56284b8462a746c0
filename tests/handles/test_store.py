"""Stores and handles: opened, shared by threads, left to forked children, pickled, closed."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time

import pytest

import castlog
from castlog import Conflict, Invalid, NotFound, Unavailable

# --- opening ------------------------------------------------------------------------------------


def test_a_store_is_created_on_first_use_and_found_again(tmp_path) -> None:
    """A path, with or without `lmdb:`, as text or as a Path."""
    path = tmp_path / "runs.castlog"
    with castlog.open(path) as store:
        rev = store.create_session("x").branch("main").append("note", {"a": 1}) and store.sessions()[0].id
        assert not store.read_only
        assert store.target == str(path)
    for target in (path, str(path), f"lmdb:{path}"):
        with castlog.open(target, create=False) as store:
            assert store.view(rev).read(1).payload == {"a": 1}


def test_nothing_is_created_unless_asked(tmp_path) -> None:
    """With create off, or read only, what is not there is NotFound and is not made."""
    path = tmp_path / "nothing"
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(NotFound):
            castlog.open(path, **options)
        with pytest.raises(NotFound):
            castlog.open("memory:", **options)
    assert not path.exists()


@pytest.mark.parametrize("target", ["", "lmdb:"])
def test_an_empty_target_is_refused(target) -> None:
    """It is a mistake and not the current folder."""
    with pytest.raises(castlog.Error):
        castlog.open(target)


def test_memory_stores_are_apart() -> None:
    """Each opening of `memory:` is a store of its own, gone when it is closed."""
    with castlog.open("memory:") as one, castlog.open("memory:") as two:
        one.create_session("x")
        assert two.sessions() == []
        assert one.target == "memory:"


def test_a_read_only_store_reads_and_refuses_to_write(open_disk_store) -> None:
    """All reading works; each write is Unavailable and says that the store was opened for reading."""
    with open_disk_store() as store:
        session = store.create_session("x")
        session.branch("main").append("note", {})
    store = open_disk_store(read_only=True)
    session, main = store.session(session.id), store.branch(session.id)
    assert store.read_only
    assert [e.seq for e in main.events()] == [1]
    assert store.verify().ok
    for use in (
        lambda: main.append("note", {}),
        lambda: main.fork("x"),
        lambda: main.reset(0),
        lambda: main.rename("x"),
        lambda: session.tag("t"),
        lambda: session.rename("y"),
        lambda: session.delete(),
        lambda: store.create_session("z"),
        lambda: store.checkout(main.rev),
    ):
        with pytest.raises(Unavailable, match="reading"):
            use()


def test_two_handles_on_one_store_see_each_others_commits(open_disk_store) -> None:
    """In one process the same store may be opened twice; closing one leaves the other."""
    one, two = open_disk_store(), open_disk_store()
    main = one.create_session("x").branch("main")
    main.append("note", {"n": 1})
    other = two.branch(main.rev)
    assert other.read(1).payload == {"n": 1}
    other.append("note", {"n": 2})
    one.close()
    assert [e.payload["n"] for e in other.events()] == [1, 2]
    with pytest.raises(Unavailable):
        main.append("note", {})


def test_a_closed_stores_handles_say_so(open_store) -> None:
    """After close every use is Unavailable; closing again does nothing; a representation is still had."""
    store = open_store()
    session = store.create_session("x")
    main = session.branch("main")
    main.append("note", {})
    events = main.events()
    view = store.view(main.rev)
    store.close()
    store.close()
    for use in (
        lambda: main.append("note", {}),
        lambda: main.head,
        lambda: main.read(1),
        lambda: next(events),
        lambda: view.head,
        lambda: session.title,
        lambda: session.branches(),
        lambda: store.sessions(),
        lambda: store.resolve(session.id),
        lambda: store.current,
        lambda: store.create_session("y"),
        lambda: main.follow(),
    ):
        with pytest.raises(Unavailable, match="closed"):
            use()
    for handle in (store, session, main, view):
        assert repr(handle)


def test_the_context_manager_closes(tmp_path) -> None:
    """Leaving the block closes the store, with and without an exception, which passes."""
    with castlog.open(tmp_path / "s") as store:
        main = store.create_session("x").branch("main")
    with pytest.raises(Unavailable):
        main.append("note", {})

    def fail() -> None:
        nonlocal main
        with castlog.open(tmp_path / "s") as store:
            main = store.sessions()[0].branch("main")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(Unavailable):
        main.append("note", {})


def test_a_lock_not_had_in_time_is_a_conflict(open_disk_store) -> None:
    """`lock_timeout` bounds the wait for another writer, and the error names the holder."""
    store, impatient = open_disk_store(), open_disk_store(lock_timeout=0.05)
    main = impatient.create_session("x").branch("main")
    caught: list[Conflict] = []

    def write() -> None:
        try:
            main.append("note", {})
        except Conflict as error:
            caught.append(error)

    def hold(txn: object) -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    store._core.update(hold)
    assert caught[0].pid == os.getpid()
    assert main.append("note", {}).seq == 1


# --- representation, comparison, pickling -------------------------------------------------------


def test_representations_name_the_thing(store, session, main) -> None:
    """What a person sees in a debugger says which one it is, also after it is gone."""
    main.append("tool_call", {"a": 1}, call_id="c1")
    assert repr(main) == f"<Branch {session.id}/main>"
    assert session.id in repr(session)
    assert "fix the login bug" in repr(session)
    assert store.target in repr(store)
    assert "main@1" in repr(main.read(1))
    assert "tool_call" in repr(main.read(1))
    assert f"{session.id}/main@1" in repr(store.view(f"{session.id}/main@1"))
    fork = main.fork("fork")
    fork.delete()
    assert session.id in repr(fork)


def test_handles_cannot_be_pickled_and_say_what_to_pass(store, session, main) -> None:
    """A TypeError that points to `rev` (or id, or target), for pickle and for copy."""
    main.append("note", {})
    view = store.view(f"{session.id}/main@1")
    expected = {
        store: store.target,
        session: session.id,
        main: main.rev,
        view: view.rev,
    }
    for handle, word in expected.items():
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError) as caught:
                act(handle)
            assert word in str(caught.value)
    for handle in (main, view):
        with pytest.raises(TypeError, match="rev"):
            pickle.dumps(handle)


def test_a_handle_of_a_closed_store_is_still_a_type_error(open_store) -> None:
    """Whoever passes a handle of a store that was closed meanwhile learns the same."""
    store = open_store()
    main = store.create_session("x").branch("main")
    store.close()
    with pytest.raises(TypeError, match="rev"):
        pickle.dumps(main)


def test_values_can_be_pickled(store, session, main) -> None:
    """Points, infos, moves, nodes and errors travel to other processes."""
    main.append("note", {})
    session.tag("t")
    with pytest.raises(NotFound) as caught:
        main.read(9)
    values = [main.head, session.info, main.reflog()[0], session.tree()[0], store.usage(), *session.tags().values()]
    for value in values:
        assert pickle.loads(pickle.dumps(value)) == value
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (type(twin), str(twin), twin.facts, twin.seq) == (NotFound, str(caught.value), caught.value.facts, 9)


def test_errors_have_one_root_and_their_facts_as_attributes(main) -> None:
    """Every refusal is a castlog.Error; what it is about can be had without parsing the sentence."""
    with pytest.raises(castlog.Error) as caught:
        main.append("note", {}, expect=4)
    assert (caught.value.seq, caught.value.expected) == (0, 4)
    assert caught.value.facts["seq"] == 0
    with pytest.raises(AttributeError):
        _ = caught.value.nothing


# --- forked children ----------------------------------------------------------------------------


def in_child(act) -> None:
    """Run `act` in a forked child and fail unless it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_in_a_forked_child_inherited_handles_raise_and_open_is_fresh(open_disk_store) -> None:
    """The child's copies are Unavailable with what to do; a store it opens itself works; the parent goes on."""
    store = open_disk_store()
    session = store.create_session("x")
    main = session.branch("main")
    main.append("note", {"who": "parent"})
    events = main.events()

    def child() -> None:
        for use in (
            lambda: main.append("note", {}),
            lambda: main.read(1),
            lambda: main.head,
            lambda: next(events),
            lambda: store.sessions(),
            lambda: store.create_session("y"),
            lambda: session.title,
        ):
            with pytest.raises(Unavailable, match="process"):
                use()
        store.close()
        with castlog.open(store.target) as fresh:
            assert fresh.branch(f"{session.id}/main").append("note", {"who": "child"}).seq == 2

    in_child(child)
    assert [e.payload["who"] for e in main.events()] == ["parent", "child"]
    assert main.append("note", {"who": "parent"}).seq == 3
    assert next(events).seq == 1


def test_a_memory_store_is_of_no_use_in_a_child() -> None:
    """There it raises instead of diverging silently."""
    with castlog.open("memory:") as store:
        main = store.create_session("x").branch("main")

        def child() -> None:
            with pytest.raises(Unavailable, match="process"):
                main.append("note", {})

        in_child(child)
        assert main.append("note", {}).seq == 1


def test_many_children_at_once(open_disk_store) -> None:
    """Children forked while the parent has the store open append to one branch, each through its own handle."""
    store = open_disk_store()
    main = store.create_session("x").branch("main")
    rev = main.rev
    children = []
    for who in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with castlog.open(store.target) as own:
                    branch = own.branch(rev)
                    for n in range(10):
                        branch.append("note", {"who": who, "n": n})
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
        main.append("note", {"who": "parent", "n": who})
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    got = [(e.payload["who"], e.payload["n"]) for e in main.events()]
    assert len(got) == len(set(got)) == 44
    for who in range(4):
        assert [n for w, n in got if w == who] == list(range(10))


# --- threads ------------------------------------------------------------------------------------


def run_threads(count: int, act) -> None:
    """Run `act(number)` in several threads at once and raise what any of them raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


def test_threads_share_a_store_and_a_branch(main, small_chunks) -> None:
    """Appends of eight threads to one branch: none lost, none twice, each thread's in its order."""

    def write(who: int) -> None:
        for n in range(25):
            event = main.append("note", {"who": who, "n": n}, key=f"{who}.{n}")
            assert main.read(event.seq) == event

    run_threads(8, write)
    got = [(e.payload["who"], e.payload["n"]) for e in main.events()]
    assert len(got) == len(set(got)) == 200
    for who in range(8):
        assert [n for w, n in got if w == who] == list(range(25))


def test_threads_on_branches_of_their_own(session, main, small_chunks) -> None:
    """Each thread's branch reads as if it were alone, while others seal and fork beside it."""
    main.extend([("note", {"n": n}) for n in range(7)])

    def work(who: int) -> None:
        branch = main.fork(f"t{who}", at=who)
        for n in range(12):
            branch.extend([("note", {"who": who, "n": n}), ("note", "x" * 300)])
            branch.fork(f"t{who}.{n}")
        own = [e.payload for e in branch.events(who + 1)]
        assert own == [p for n in range(12) for p in ({"who": who, "n": n}, "x" * 300)]

    run_threads(6, work)
    assert len(session.branches()) == 1 + 6 + 6 * 12
    assert [e.payload["n"] for e in main.events()] == list(range(7))


def test_readers_beside_a_writer(main, small_chunks) -> None:
    """Whoever reads while another thread appends and seals sees an unbroken beginning of the history."""
    stop = threading.Event()

    def work(who: int) -> None:
        if who == 0:
            try:
                for n in range(150):
                    main.append("note", {"n": n + 1, "pad": "p" * (n % 7) * 100})
            finally:
                stop.set()
            return
        last = 0
        while not stop.is_set():
            seqs = [(e.seq, e.payload["n"]) for e in main.events()]
            assert seqs == [(n, n) for n in range(1, len(seqs) + 1)]
            assert len(seqs) >= last
            last = len(seqs)
            if last:
                assert main.read(last).payload["n"] == last
                assert main.in_flight() == []

    run_threads(4, work)
    assert main.head.seq == 150


def test_with_expect_one_of_many_threads_wins_each_round(main) -> None:
    """All believe the same head; exactly one append goes through."""
    for round_ in range(10):
        outcomes: list[str] = []

        def race(who: int, round_: int = round_, outcomes: list[str] = outcomes) -> None:
            try:
                main.append("note", {"who": who}, expect=round_)
                outcomes.append("won")
            except Conflict:
                outcomes.append("lost")

        run_threads(5, race)
        assert sorted(outcomes) == ["lost"] * 4 + ["won"]
    assert main.head.seq == 10


def test_one_key_from_many_threads_is_one_event(session, main) -> None:
    """However many send it at once."""
    seqs: list[int] = []
    run_threads(8, lambda who: seqs.append(main.append("note", {"same": 1}, key="k").seq))
    assert seqs == [1] * 8
    assert session.info.events == 1


def test_forks_of_one_name_from_many_threads(session, main) -> None:
    """One makes it, the others are told that the name is taken."""
    outcomes: list[str] = []

    def fork(who: int) -> None:
        try:
            main.fork("same")
            outcomes.append("made")
        except Conflict:
            outcomes.append("taken")

    run_threads(6, fork)
    assert sorted(outcomes) == ["made"] + ["taken"] * 5
    assert len(session.branches()) == 2


def test_writing_inside_an_update_is_refused(store, main) -> None:
    """A thread inside a transaction cannot begin another; the sentence says so, and nothing hangs."""
    began = time.monotonic()
    with pytest.raises(Invalid, match="inside"):
        store._core.update(lambda txn: main.append("note", {}))
    assert time.monotonic() - began < 5
    assert main.append("note", {}).seq == 1


def test_an_exception_in_an_append_leaves_the_store_usable(main, monkeypatch) -> None:
    """An interrupt in the middle of a transaction undoes it and gives the lock back."""
    from castlog.history import writer

    finish = writer.finish

    def interrupted(*words: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main.append("note", {}, key="k")
    monkeypatch.setattr(writer, "finish", finish)
    assert main.head.seq == 0
    assert main.append("note", {"other": 1}, key="k").seq == 1
