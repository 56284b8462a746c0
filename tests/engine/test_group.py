"""Group commit: changes of several threads share a transaction, and each caller gets its own outcome, always.

Guards against callers that wait for ever, changes lost, doubled or out of order, and one caller's failure told to
another.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from castlog import limits
from castlog.engine.base import Engine, WriteTxn
from castlog.engine.disk import create, open_disk
from castlog.engine.group import Group, Job
from castlog.errors import Conflict, Error, Invalid, Unavailable

from .interrupts import interrupted

Opener = Callable[..., Engine]
Change = Callable[[WriteTxn], int]


class Engined(Group):
    """A group that writes to an engine and counts the transactions it begins."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(self._counted)
        self.engine = engine
        self.began = 0

    def _counted(self, change: Callable[[WriteTxn], object]) -> object:
        self.began += 1
        return self.engine.update(change)


@pytest.fixture
def group(engine: Engine) -> Iterator[Engined]:
    """A group on each engine."""
    group = Engined(engine)
    yield group
    group.close()


def add(key: bytes, value: bytes = b"") -> Change:
    """Return a change that puts a row and returns how many rows there were before it."""

    def change(txn: WriteTxn) -> int:
        before = sum(1 for _ in txn.scan(b""))
        txn.put(key, value)
        return before

    return change


def refuse(txn: WriteTxn) -> int:
    """Fail before anything is written."""
    raise Invalid("refused")


def spoil(txn: WriteTxn) -> int:
    """Fail after something was written."""
    txn.put(b"spoilt", b"")
    raise Invalid("spoilt")


def keys(engine: Engine) -> list[bytes]:
    """Return the keys an engine holds."""
    with engine.read() as txn:
        return [key for key, _ in txn.scan(b"")]


@contextmanager
def busy(engine: Engine) -> Iterator[None]:
    """Keep the write lock inside the block, so that what is submitted there gathers."""
    inside, free = threading.Event(), threading.Event()

    def hold(txn: WriteTxn) -> None:
        inside.set()
        assert free.wait(30)

    thread = threading.Thread(target=engine.update, args=(hold,))
    thread.start()
    assert inside.wait(30)
    try:
        yield
    finally:
        free.set()
        thread.join()


def outcome(job: Job[int]) -> object:
    """Return what a job came to, its result or its error; fail when it is not answered."""
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(job.wait).result(30)
        except Error as error:
            return error


def committers() -> list[threading.Thread]:
    """Return the threads of groups that live."""
    return [thread for thread in threading.enumerate() if thread.name == "castlog commits"]


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait until something is so; fail when it does not come."""
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- together -----------------------------------------------------------------------------------


def test_who_is_alone_commits_in_its_own_thread(group: Engined) -> None:
    """Without company a change runs in the caller's thread, and no other is started."""
    who = []
    group.update(lambda txn: who.append(threading.current_thread()))
    assert who == [threading.current_thread()]
    assert committers() == []


def test_what_waits_shares_one_transaction_in_the_order_it_came(group: Engined) -> None:
    """Ten changes that came while another was written are one transaction; each caller gets its own result."""
    with busy(group.engine):
        jobs = [group.submit(add(b"%d" % number)) for number in reversed(range(10))]
        assert not any(job.done for job in jobs)
    assert [outcome(job) for job in jobs] == list(range(10))
    assert group.began == 1
    assert len(keys(group.engine)) == 10


def test_a_thread_with_company_waits_for_the_shared_commit(group: Engined) -> None:
    """Updates of threads that meet return their own results, durable."""
    with ThreadPoolExecutor(8) as pool:
        with busy(group.engine):
            futures = [pool.submit(group.update, add(b"%d" % number)) for number in range(8)]
            wait_for(lambda: group.began > 0)
        assert sorted(future.result(30) for future in futures) == list(range(8))
    assert len(keys(group.engine)) == 8


def test_a_change_submitted_before_an_update_is_written_before_it(group: Engined) -> None:
    """What one thread hands in stays in its order, whatever way it hands it in."""
    for number in range(0, 60, 3):
        lingering = group.submit(add(b"%02d" % number), linger=True)
        hasty = group.submit(add(b"%02d" % (number + 1)))
        assert group.update(add(b"%02d" % (number + 2))) == number + 2
        assert (outcome(lingering), outcome(hasty)) == (number, number + 1)


def test_more_than_a_transaction_takes_goes_into_the_next(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long queue is written in bounded transactions, without a pause to linger in between."""
    monkeypatch.setattr(limits, "GROUP_CHANGES_MAX", 3)
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60)
    with busy(group.engine):
        jobs = [group.submit(add(b"%d" % number)) for number in range(8)]
    assert [outcome(job) for job in jobs] == list(range(8))
    assert group.began == 3


# --- failures -----------------------------------------------------------------------------------


def test_a_change_that_fails_leaves_the_others_untouched(group: Engined) -> None:
    """Whether a change fails before or after it wrote, the others are written once and it not at all."""
    changes = [refuse, add(b"a"), spoil, add(b"b"), refuse, spoil, add(b"c")]
    with busy(group.engine):
        jobs = [group.submit(change) for change in changes]
    found = [outcome(job) for job in jobs]
    assert [said if isinstance(said, int) else str(said) for said in found] == [
        "refused", 0, "spoilt", 1, "refused", "spoilt", 2,
    ]  # fmt: skip
    assert keys(group.engine) == [b"a", b"b", b"c"]


def test_a_group_of_nothing_but_failures_writes_nothing(group: Engined) -> None:
    """Each caller gets an error of its own, and the version does not grow."""
    before = group.engine.version()
    with busy(group.engine):
        jobs = [group.submit(change) for change in (refuse, spoil, spoil, refuse)]
    found = [outcome(job) for job in jobs]
    assert len({id(error) for error in found}) == 4
    assert {type(error) for error in found} == {Invalid}
    assert group.engine.version() == before


@pytest.mark.parametrize("runs", [True, False], ids=["after the changes ran", "before they ran"])
def test_a_commit_that_fails_answers_everybody(group: Engined, monkeypatch: pytest.MonkeyPatch, runs: bool) -> None:
    """Each caller gets an instance of its own of what the commit came to, and the next group is none the worse."""

    def full(change: Callable[[WriteTxn], object]) -> None:
        if runs:
            group.engine.update(lambda txn: (change(txn), refuse(txn)))
        raise Unavailable("the disk is full", kept=False)

    def failing(change: Callable[[WriteTxn], object]) -> None:
        with pytest.raises(Invalid):
            full(change)
        raise Unavailable("the disk is full", kept=False)

    with monkeypatch.context() as patch:
        patch.setattr(group, "_update", failing if runs else full)
        found = [outcome(job) for job in [group.submit(add(b"%d" % number)) for number in range(5)]]
    assert [(type(error), str(error), error.kept) for error in found] == [  # type: ignore[attr-defined]
        (Unavailable, "the disk is full", False)
    ] * 5
    assert len({id(error) for error in found}) == 5
    assert keys(group.engine) == []
    assert outcome(group.submit(add(b"next"))) == 0


def test_a_lock_that_is_not_had_in_time_is_told_to_all_who_waited(open_engine: Opener) -> None:
    """Conflict for everybody in line, once the time is over; afterwards the group goes on."""
    engine = open_engine(lock_timeout=0.05)
    group = Engined(engine)
    with busy(engine):
        found = [outcome(job) for job in [group.submit(add(b"%d" % number)) for number in range(5)]]
    assert {type(error) for error in found} == {Conflict}
    assert group.update(add(b"next")) == 0
    assert keys(engine) == [b"next"]
    group.close()


def test_a_store_for_reading_only_refuses_a_group_too(tmp_path: Path) -> None:
    """Nobody waits for a commit that cannot be."""
    create(tmp_path / "store", [])
    engine = open_disk(tmp_path / "store", read_only=True)
    group = Engined(engine)
    found = [outcome(job) for job in [group.submit(add(b"%d" % number)) for number in range(3)]]
    assert {type(error) for error in found} == {Unavailable}
    group.close()
    engine.close()


def test_a_map_that_grows_in_the_middle_of_a_group(tmp_path: Path) -> None:
    """The group runs again in a larger map, and every change is in it once, those that fail not at all."""
    create(tmp_path / "store", [])
    engine = open_disk(tmp_path / "store", map_bytes=1 << 17)
    group = Engined(engine)
    with busy(engine):
        jobs = [
            group.submit(spoil if number % 10 == 5 else add(b"%03d" % number, b"v" * 40_000)) for number in range(100)
        ]
    found = [outcome(job) for job in jobs]
    assert [said for said in found if isinstance(said, int)] == list(range(90))
    assert keys(engine) == [b"%03d" % number for number in range(100) if number % 10 != 5]
    group.close()
    engine.close()


# --- callbacks ----------------------------------------------------------------------------------


def test_then_is_called_once_the_outcome_is_known(group: Engined) -> None:
    """For a change that succeeded as for one that failed, exactly once, when `wait` no longer has to wait."""
    called: list[tuple[int, bool]] = []
    jobs: list[Job[int]] = []
    with busy(group.engine):
        for number, change in enumerate([add(b"a"), refuse, spoil]):
            jobs.append(group.submit(change, then=lambda number=number: called.append((number, jobs[number].done))))
    group.close()
    assert called == [(0, True), (1, True), (2, True)]


def test_then_may_raise(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback that fails is reported as a thread's failure is, and keeps nobody from being called or answered."""
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    called = []

    def fail() -> None:
        raise ZeroDivisionError

    with busy(group.engine):
        first = group.submit(add(b"a"), then=fail)
        second = group.submit(add(b"b"), then=lambda: called.append("second"))
        lingering = group.submit(add(b"c"), linger=True)
    assert [outcome(first), outcome(second), outcome(lingering)] == [0, 1, 2]
    assert outcome(group.submit(add(b"d"))) == 3
    assert called == ["second"]
    assert reported == [ZeroDivisionError]


# --- lingering ----------------------------------------------------------------------------------


def test_a_lingering_change_is_written_by_itself(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody need ask for it."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.02)
    assert outcome(group.submit(add(b"a"), linger=True)) == 0


def test_a_lingering_change_goes_with_the_next(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody in a hurry takes along what lingers, in one transaction."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60)
    jobs = [group.submit(add(b"%d" % number), linger=True) for number in range(5)]
    time.sleep(0.01)
    assert not any(job.done for job in jobs)
    assert group.update(add(b"5")) == 5
    assert [job.wait() for job in jobs] == list(range(5))
    assert group.began == 1


def test_waiting_for_a_lingering_change_hurries_it(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's `wait` does not sit out the time; asked again it says the same."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60)
    for number in range(20):
        job = group.submit(add(b"%d" % number), linger=True)
        assert group.wait(job) == number
        assert group.wait(job) == number


# --- the thread that commits --------------------------------------------------------------------


def test_a_quiet_group_has_no_thread(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committer ends when nothing comes, and another one begins when something does."""
    monkeypatch.setattr(limits, "COMMITTER_SECONDS", 0.01)
    for number in range(3):
        assert outcome(group.submit(add(b"%d" % number))) == number
        wait_for(lambda: not committers())


def test_nothing_is_lost_while_a_committer_ends(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that come just as the committer ends or falls asleep are answered all the same."""
    monkeypatch.setattr(limits, "COMMITTER_SECONDS", 0.000_05)
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.000_05)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(0.000_01)

    def hand_in(thread: int) -> None:
        for number in range(60):
            change = add(b"%d-%d" % (thread, number))
            if number % 3 == 0:
                group.update(change)
            else:
                group.submit(change, linger=number % 3 == 1).wait()

    try:
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(hand_in, thread) for thread in range(4)]:
                future.result(60)
    finally:
        sys.setswitchinterval(switch)
    assert len(keys(group.engine)) == 240


def test_without_threads_to_be_had_the_caller_commits(group: Engined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may start no more threads can still write."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        jobs = [group.submit(add(b"a"), linger=True), group.submit(add(b"b"))]
        assert [job.wait() for job in jobs] == [0, 1]
        assert group.update(add(b"c")) == 2
        group.close()


def test_an_update_from_inside_an_update_is_refused_at_once(group: Engined) -> None:
    """It would wait for itself, also when others are in line."""

    def nested(txn: WriteTxn) -> None:
        other = group.submit(add(b"a"))
        began = time.monotonic()
        with pytest.raises(Invalid):
            group.update(add(b"b"))
        assert time.monotonic() - began < 5
        assert not other.done

    group.update(nested)
    group.close()
    assert keys(group.engine) == [b"a"]


# --- the end ------------------------------------------------------------------------------------


def test_close_commits_what_is_in_line(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was handed in a moment ago is durable once `close` returns, and the thread is gone."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60)
    for count in (0, 1, 3):
        for _ in range(5):
            engine = open_engine()
            group = Engined(engine)
            jobs = [group.submit(add(b"%d" % number), linger=True) for number in range(count)]
            group.close()
            assert [job.done for job in jobs] == [True] * count
            wait_for(lambda: not committers())
            group.close()
            engine.close()


def test_close_returns_although_others_go_on(group: Engined) -> None:
    """Threads that write without a pause do not keep `close` from returning, and lose nothing."""
    stop = threading.Event()
    written: list[bytes] = []

    def write(thread: int) -> None:
        number = 0
        while not stop.is_set():
            key = b"%d-%d" % (thread, number)
            group.update(lambda txn, key=key: txn.put(key, b""))  # type: ignore[misc]
            written.append(key)
            number += 1

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(written) >= 20)
    closing = threading.Thread(target=group.close)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert sorted(written) == keys(group.engine)


def test_after_the_engine_is_closed_nobody_waits(group: Engined) -> None:
    """Late changes get the engine's own words."""
    group.close()
    group.engine.close()
    with pytest.raises(Unavailable):
        group.update(add(b"a"))
    found = [outcome(job) for job in [group.submit(add(b"b")), group.submit(add(b"c"), linger=True)]]
    assert {type(error) for error in found} == {Unavailable}


def test_close_from_a_callback_does_not_wait_for_itself(group: Engined) -> None:
    """The committer may close the group it works for."""
    closed = threading.Event()
    group.submit(add(b"a"), then=lambda: (group.close(), closed.set())[0])
    assert closed.wait(30)


# --- interrupts and forks -----------------------------------------------------------------------


@pytest.mark.parametrize("company", [False, True], ids=["alone", "in company"])
def test_after_an_interrupt_on_any_line_everybody_is_answered(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch, company: bool
) -> None:
    """Ctrl-C passes through; this thread and another go on, nothing acknowledged is lost, and the group can close."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.001)
    engine = open_engine(lock_timeout=5.0)
    group = Engined(engine)
    acknowledged: set[bytes] = set()
    places = []

    def work() -> None:
        if company:
            group.submit(lambda txn: txn.put(b"first", b""), linger=True)
        group.update(lambda txn: (txn.put(b"second %d" % len(places), b""), txn.put(b"third %d" % len(places), b"")))

    for interrupt in interrupted(work):
        places.append(str(interrupt))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(group.update, add(b"other %d" % len(places))).result(30)
        lingering = group.submit(add(b"lingers %d" % len(places)), linger=True)
        group.update(add(b"same %d" % len(places)))
        acknowledged |= {b"%s %d" % (who, len(places)) for who in (b"other", b"lingers", b"same")}
        assert isinstance(outcome(lingering), int)
        there = set(keys(engine))
        assert acknowledged <= there, interrupt
        assert {key[7:] for key in there if key[:6] == b"second"} == {key[6:] for key in there if key[:5] == b"third"}
    assert len(places) > 20
    assert any("group.py" in place for place in places)
    group.close()


def test_ctrl_c_ends_the_wait_at_once(group: Engined) -> None:
    """Whoever waits in line is interrupted, not answered; what stood in line is written in its place."""
    main = threading.get_ident()
    with busy(group.engine):
        first = group.submit(add(b"a"))
        threading.Timer(0.02, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            group.update(add(b"b"))
        last = group.submit(add(b"c"))
    assert [outcome(first), outcome(last)] == [0, 2]
    assert group.update(add(b"d")) == 3


def run(script: str, path: Path) -> str:
    """Run a program with a group on a store at `path`; return what it prints, and fail on anything else."""
    head = """
import os, sys, threading, time
from castlog import limits
from castlog.engine.disk import create, open_disk
from castlog.engine.group import Group
from castlog.errors import Error
path = sys.argv[1]
create(path, [])
engine = open_disk(path)
group = Group(engine.update)
"""
    done = subprocess.run(
        [sys.executable, "-c", head + script, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def test_in_a_forked_child_nobody_waits(tmp_path: Path) -> None:
    """What the parent had in line is the parent's, and the child's own changes are refused, however they come."""
    said = run(
        """
limits.LINGER_SECONDS = limits.COMMITTER_SECONDS = 60
group.submit(lambda txn: txn.put(b"before", b"")).wait()
lingering = group.submit(lambda txn: txn.put(b"lingers", b""), linger=True)
child = os.fork()
if not child:
    for way in group.update, lambda change: group.submit(change).wait(), lambda change: group.wait(lingering):
        try:
            way(lambda txn: txn.put(b"child", b""))
        except Error as error:
            print(type(error).__name__, flush=True)
    group.close()
    engine.close()
    os._exit(0)
os.waitpid(child, 0)
group.wait(lingering)
with engine.read() as txn:
    print(*(key.decode() for key, _ in txn.scan(b"")))
group.close()
""",
        tmp_path / "store",
    )
    assert said == "Unavailable\nUnavailable\nUnavailable\nbefore lingers\n"


def test_a_program_may_end_with_changes_in_line(tmp_path: Path) -> None:
    """It ends at once and quietly; what nobody waited for may be lost, and the store is sound."""
    run(
        """
limits.LINGER_SECONDS = 60
group.submit(lambda txn: txn.put(b"durable", b"")).wait()
for number in range(50):
    group.submit(lambda txn: txn.put(b"%d" % number, b""), linger=number % 2 == 1)
""",
        tmp_path / "store",
    )
    engine = open_disk(tmp_path / "store")
    assert b"durable" in keys(engine)
    assert engine.problems() == []
    engine.close()
