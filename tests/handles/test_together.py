"""Many threads on one store: what each does is there once, whole and in order, whoever else writes meanwhile.

Guards against heads kept from before somebody else's commit, seqs with gaps, and events lost between a group commit
and the seals, forks and moves around it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import castlog

Opener = Callable[..., castlog.Store]


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Call `work` with 0 to `count` - 1 in as many threads that begin together; raise what one of them raised."""
    together = threading.Barrier(count)

    def begin(number: int) -> None:
        together.wait(30)
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(begin, number) for number in range(count)]:
            future.result(120)


def test_sixteen_threads_on_branches_of_their_own(store: castlog.Store, main: castlog.Branch) -> None:
    """Each finds its own events on its own branch, in its order, and no other's; where commits last they are shared."""
    main.append("note", "before")
    branches = main.fork_many(16)
    before = store._core.engine.version()
    in_threads(16, lambda thread: [branches[thread].append("note", [thread, n]) for n in range(12)])
    for thread, branch in enumerate(branches):
        assert [event.payload for event in branch.events(2)] == [[thread, n] for n in range(12)]
    assert store.target == "memory:" or store._core.engine.version() - before < 16 * 12
    assert store.verify(deep=True).ok


@pytest.mark.usefixtures("small_chunks")
def test_sixteen_threads_on_one_branch(store: castlog.Store, main: castlog.Branch) -> None:
    """Every event is there once, seqs have no gaps, each thread's are in its order, and every caller got its own."""
    told: list[castlog.Event] = []

    def write(thread: int) -> None:
        for n in range(12):
            if n % 4 == 3:
                told.extend(main.extend([("note", [thread, n, part]) for part in range(3)]))
            else:
                told.append(main.append("note", [thread, n, 0]))

    in_threads(16, write)
    events = list(main.events())
    assert [event.seq for event in events] == list(range(1, 16 * 18 + 1))
    assert {event.seq: (event.id, event.payload) for event in told} == {
        event.seq: (event.id, event.payload) for event in events
    }
    for thread in range(16):
        own = [event.payload[1:] for event in events if event.payload[0] == thread]
        assert own == sorted(own)
        assert len(own) == 18
    assert store.verify(deep=True).ok


def test_one_of_many_that_expect_the_same_head_wins(main: castlog.Branch) -> None:
    """`expect` holds inside a shared commit: of eight that meet at one head one writes and the others are told."""
    won: Counter[int] = Counter()

    def write(thread: int) -> None:
        for seq in range(10):
            try:
                main.append("note", thread, expect=seq)
                won[seq] += 1
            except castlog.Conflict:
                while main.head.seq <= seq:
                    pass

    in_threads(8, write)
    assert won == dict.fromkeys(range(10), 1)
    assert main.head.seq == 10


def test_a_key_that_many_use_at_once_is_written_once(main: castlog.Branch) -> None:
    """All of them get the first event."""
    told: list[str] = []
    in_threads(8, lambda thread: told.extend(main.append("note", n, key=f"k{n}").id for n in range(10)))
    assert sorted(told) == sorted(8 * [event.id for event in main.events()])
    assert main.head.seq == 10


class Gardener:
    """A thread's own branches, changed at random through any writer, beside a plain list of what is on each."""

    def __init__(self, number: int, root: castlog.Branch, writers: list[Callable[[str], Any]]) -> None:
        self.random = random.Random(number)
        self.writers = writers
        self.session = root.session
        self.count = 0
        self.number = number
        self.beds: dict[str, list[Any]] = {root.fork(f"g{number}-0", at=1).name: ["root"]}

    def step(self) -> None:
        """Do one thing to one branch, and see that its head is where it must be."""
        name = self.random.choice(sorted(self.beds))
        events = self.beds[name]
        branch = self.random.choice(self.writers)(f"{self.session.id}/{name}")
        verb = self.random.choice(["append"] * 4 + ["extend", "extend", "fork", "reset", "promote", "delete"])
        self.count += 1
        payload = [self.number, self.count]
        if verb == "append":
            assert branch.append("note", payload).seq == len(events) + 1
            events.append(payload)
        elif verb == "extend":
            size = self.random.choice([2, 4, 12])  # the last fills chunks of its own
            new = [[*payload, part, "x" * self.random.choice([1, 1500])] for part in range(size)]
            told = branch.extend([("note", item) for item in new], expect=len(events))
            assert [event.seq for event in told] == list(range(len(events) + 1, len(events) + size + 1))
            events += new
        elif verb == "fork" and len(self.beds) < 5:
            at = self.random.randint(1, len(events))
            new_name = f"g{self.number}-{self.count}"
            branch.fork(new_name, at=at)
            self.beds[new_name] = events[:at]
        elif verb == "reset":
            seq = self.random.randint(1, len(events))
            branch.reset(seq)
            del events[seq:]
        elif verb == "promote":
            other = self.random.choice(sorted(self.beds))
            branch.session.promote(other, onto=name)
            self.beds[name] = list(self.beds[other])
        elif verb == "delete" and len(self.beds) > 1:
            branch.delete()
            del self.beds[name]


class Outside:
    """A branch in another process: the verbs it has there, and this process's for the rest."""

    def __init__(self, child: Any, turn: threading.Lock, branch: castlog.Branch) -> None:
        self._child, self._turn, self._branch = child, turn, branch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._branch, name)

    def append(self, kind: str, payload: Any) -> Any:
        """Append one event there."""
        return self.extend([(kind, payload)])[0]

    def extend(self, drafts: list[tuple[str, Any]], expect: int | None = None) -> list[Any]:
        """Append there, and return what has the seqs."""
        items = [{"type": kind, "payload": payload} for kind, payload in drafts]
        with self._turn:
            said = self._child.ask("extend", rev=self._branch.rev, drafts=items, expect=expect)
        return [castlog.Point(self._branch.session.id, "", seq, digest) for seq, digest in said]


def gardened(store: castlog.Store, writers: list[Callable[[str], Any]]) -> Iterator[tuple[castlog.Branch, list[Any]]]:
    """Let six threads change branches of their own; yield each branch with what must be on it."""
    root = store.create_session("garden").branch("main")
    root.append("note", "root")
    gardeners = [Gardener(number, root, writers) for number in range(6)]
    in_threads(6, lambda number: [gardeners[number].step() for _ in range(40)])
    for gardener in gardeners:
        for name, events in gardener.beds.items():
            yield root.session.branch(name), events


@pytest.mark.usefixtures("small_chunks")
def test_threads_that_do_everything_at_once(store: castlog.Store) -> None:
    """Appends, forks, resets, promotes and deletes share commits, and each branch holds what its thread put there."""
    for branch, expected in gardened(store, [store.branch]):
        assert [event.payload for event in branch.events()] == expected
    assert store.verify(deep=True).ok


@pytest.mark.usefixtures("small_chunks")
def test_another_handle_and_another_process_write_to_the_same_branches(
    disk_store: castlog.Store, open_disk_store: Opener, child: Any
) -> None:
    """No handle appends behind a head it remembers from before somebody else's commit."""
    second = open_disk_store()
    small = {"SEAL_EVENTS": 5, "SEAL_BYTES": 2000, "PIECE_PAYLOAD_BYTES_MIN": 1000}
    child.ask("limits", values=small)
    child.ask("open", path=disk_store.target)
    turn = threading.Lock()
    writers = [disk_store.branch, second.branch, lambda rev: Outside(child, turn, disk_store.branch(rev))]
    for branch, expected in gardened(disk_store, writers):
        assert [event.payload for event in branch.events()] == expected
    child.ask("close")
    assert disk_store.verify(deep=True).ok
