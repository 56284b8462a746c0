"""Following: events as they come, from any thread or process, without busy waiting."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import castlog
from castlog import Conflict, NotFound

SOON = 5.0  # seconds within which something must have happened on the slowest machine


def later(seconds: float, act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread after a while."""

    def run() -> None:
        time.sleep(seconds)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def take(events: Iterator[castlog.Event], count: int) -> list[int]:
    """Return the seqs of the next events."""
    return [next(events).seq for _ in range(count)]


def test_what_is_there_already_comes_at_once(main, small_chunks) -> None:
    """From `after` on, everything already written is yielded first, in order, across chunks."""
    main.extend([("note", {"n": n}) for n in range(12)])
    assert [e.seq for e in main.follow(after=0, timeout=0)] == list(range(1, 13))
    assert [e.payload["n"] for e in main.follow(after=9, timeout=0)] == [9, 10, 11]
    assert list(main.follow(after=12, timeout=0)) == []


def test_without_after_only_what_is_new_comes(main) -> None:
    """The default begins behind the head as it is when `follow` is called."""
    main.append("note", {})
    events = main.follow(timeout=0.05)
    main.append("note", {"new": 1})
    assert [e.payload for e in events] == [{"new": 1}]


def test_another_threads_appends_come_as_they_are_written(main) -> None:
    """Each event comes once and in order while another thread appends."""

    def write() -> None:
        for n in range(20):
            main.append("note", {"n": n})

    thread = later(0.02, write)
    assert take(main.follow(after=0, timeout=SOON), 20) == list(range(1, 21))
    thread.join()


def test_an_event_comes_soon_after_it_was_written(main) -> None:
    """Even an idle follower learns of an append within a fraction of a second."""
    written: list[float] = []

    def write() -> None:
        written.append(time.monotonic())
        main.append("note", {})

    thread = later(0.4, write)
    next(main.follow(timeout=SOON))
    waited = time.monotonic() - written[0]
    thread.join()
    assert waited < 0.5


def test_another_processs_appends_come(disk_store, tmp_path: Path) -> None:
    """A process of its own appends to the branch, and the follower here sees it."""
    main = disk_store.create_session("x").branch("main")
    code = """
import castlog, sys
with castlog.open(sys.argv[1]) as store:
    for n in range(5):
        store.branch(sys.argv[2]).append("note", {"n": n})
"""
    with subprocess.Popen([sys.executable, "-c", code, disk_store.target, main.rev]) as process:
        assert take(main.follow(after=0, timeout=30), 5) == [1, 2, 3, 4, 5]
    assert process.returncode == 0


def test_it_ends_quietly_when_nothing_comes(main) -> None:
    """`timeout` counts from the last event, and the end is no error."""
    main.append("note", {})
    began = time.monotonic()
    thread = later(0.15, lambda: main.append("note", {}))
    assert [e.seq for e in main.follow(after=0, timeout=0.3)] == [1, 2]
    thread.join()
    assert 0.4 < time.monotonic() - began < SOON


def test_appends_elsewhere_do_not_keep_it_alive(session, main) -> None:
    """Only the branch's own events count against the time-out."""
    other = main.fork("other")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            other.append("note", {})
            time.sleep(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    began = time.monotonic()
    try:
        assert list(main.follow(timeout=0.2)) == []
    finally:
        stop.set()
        thread.join()
    assert time.monotonic() - began < SOON


def test_a_branch_that_moved_off_what_was_yielded_is_a_conflict(main) -> None:
    """After a reset behind it the follower is told where the head is; nothing false is yielded."""
    main.extend([("note", {"n": n}) for n in range(5)])
    events = main.follow(after=0, timeout=SOON)
    assert take(events, 5) == [1, 2, 3, 4, 5]
    main.reset(3)
    with pytest.raises(Conflict, match="moved off seq 5") as caught:
        next(events)
    assert caught.value.head == main.head


def test_a_rewritten_branch_of_equal_length_is_a_conflict(main) -> None:
    """It is the history that counts, not the number of events."""
    main.extend([("note", {"n": n}) for n in range(3)])
    events = main.follow(after=0, timeout=SOON)
    take(events, 3)
    main.reset(2)
    main.append("note", {"n": "other"})
    main.append("note", {"n": "more"})
    with pytest.raises(Conflict):
        next(events)


def test_a_promotion_that_shares_what_was_yielded_goes_on(session, main) -> None:
    """When the new history includes all that was yielded, its further events come."""
    main.extend([("note", {"n": n}) for n in range(3)])
    idea = main.fork("idea")
    idea.extend([("note", {"idea": n}) for n in range(2)])
    events = main.follow(timeout=SOON)
    session.promote("idea", onto="main")
    assert [next(events).payload, next(events).payload] == [{"idea": 0}, {"idea": 1}]
    main.append("note", {"after": 1})
    assert next(events).payload == {"after": 1}


def test_a_reset_ahead_of_the_follower_goes_on(main) -> None:
    """Moving the head to a place still ahead of what was yielded takes nothing back."""
    main.extend([("note", {"n": n}) for n in range(5)])
    events = main.follow(after=1, timeout=0.05)
    main.reset(3)
    assert [e.seq for e in events] == [2, 3]


def test_following_from_the_beginning_survives_a_reset_to_zero(main) -> None:
    """Who has seen nothing can lose nothing."""
    main.append("note", {"n": 0})
    events = main.follow(after=0, timeout=SOON)
    main.reset(0)
    main.append("note", {"n": 1})
    assert next(events).payload == {"n": 1}


def test_a_deleted_branch_is_not_found(main) -> None:
    """Deletion ends following with NotFound, whether it came before or during."""
    fork = main.fork("fork")
    events = fork.follow(timeout=SOON)
    thread = later(0.05, fork.delete)
    with pytest.raises(NotFound, match="deleted"):
        next(events)
    thread.join()
    with pytest.raises(NotFound):
        fork.follow()


def test_a_deleted_session_is_not_found(session, main) -> None:
    """The session's deletion ends it as well."""
    events = main.follow(timeout=SOON)
    session.delete()
    with pytest.raises(NotFound, match="trash"):
        next(events)


def test_a_renamed_branch_is_followed_on(main) -> None:
    """A follower holds on to the branch and not to its name."""
    events = main.follow(timeout=SOON)
    main.rename("trunk")
    main.append("note", {})
    assert next(events).branch == "trunk"


def test_a_place_that_is_not_there_is_refused_at_once(main) -> None:
    """`after` beyond the head is NotFound when `follow` is called."""
    main.append("note", {})
    for after in (2, -1):
        with pytest.raises(NotFound):
            main.follow(after=after)


def test_an_idle_follower_wakes_at_most_twenty_times_a_second(store, main, monkeypatch) -> None:
    """Counted over a second and a half in which nothing is written, the first moments included."""
    looks: list[float] = []
    engine = store._core.engine

    class Counting:
        """The engine, with its looks at the version counted."""

        def version(self) -> int:
            looks.append(time.monotonic())
            return engine.version()

        def __getattr__(self, name: str) -> object:
            return getattr(engine, name)

    monkeypatch.setattr(store._core, "engine", Counting())
    assert list(main.follow(timeout=1.5)) == []
    for began in looks:
        assert sum(1 for at in looks if began <= at < began + 1) <= 20
    assert len(looks) > 10


def test_a_follower_may_be_dropped(store, main) -> None:
    """Leaving the loop leaves nothing behind: the store goes on and closes."""
    main.append("note", {})
    for _ in main.follow(after=0):
        break
    main.append("note", {})
    store.close()
