"""Timelines: who owns a seq and where two histories part, against walking parents one by one, however deep.

The default form nests 2,000 forks; CASTLOG_LONG=1 nests the 10,000 that are promised.
"""

from __future__ import annotations

import os
import random
import sys
import time

import pytest

from castlog import Corrupt
from castlog.engine.memory import MemoryEngine
from castlog.history import timelines
from castlog.history.timelines import GENESIS

DEPTH = 10_000 if os.environ.get("CASTLOG_LONG") else 2_000
SESSION = b"s" * 16


class Forest:
    """Timelines in an engine, and beside them a plain dict of parents and fork seqs."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine
        self.rows: dict[int, tuple[int, int]] = {}

    def add(self, parent: int, fork_seq: int) -> int:
        """Make a timeline that leaves the owner of `fork_seq` in the history of `parent`."""
        owner = self.owner(parent, fork_seq)
        number = self.engine.update(lambda txn: timelines.create(txn, SESSION, owner, fork_seq, b"i" * 32))
        self.rows[number] = (owner, fork_seq)
        return number

    def owner(self, timeline: int, seq: int) -> int:
        """Return who owns a seq, by walking up."""
        while timeline != GENESIS and self.rows[timeline][1] >= seq:
            timeline = self.rows[timeline][0]
        return timeline if seq else GENESIS

    def path(self, timeline: int, seq: int) -> list[tuple[int, int]]:
        """Return (owner, seq) of every event of a history."""
        found = []
        while seq:
            timeline = self.owner(timeline, seq)
            found.append((timeline, seq))
            seq -= 1
        return found[::-1]


@pytest.fixture
def forest() -> Forest:
    """No timelines yet."""
    return Forest(MemoryEngine())


@pytest.mark.parametrize("seed", range(6))
def test_owner_and_merge_base_in_random_forests(forest, seed) -> None:
    """Bushy and deep forests, from the genesis and from anywhere: both answers are those of the plain walk."""
    rng = random.Random(seed)
    for _ in range(120):
        known = list(forest.rows)
        if not known or rng.random() < 0.05:
            forest.add(GENESIS, 0)
            continue
        parent = known[-1] if rng.random() < 0.6 else rng.choice(known)
        low = forest.rows[parent][1] + 1
        forest.add(parent, rng.randint(1, low) if rng.random() < 0.2 else rng.randint(low, low + 4))
    ends = [(t, forest.rows[t][1] + rng.randint(1, 4)) for t in rng.sample(list(forest.rows), 30)]
    with forest.engine.read() as txn:
        paths = {end: forest.path(*end) for end in ends}
        for end in ends:
            assert [timelines.owner(txn, end[0], seq) for _, seq in paths[end]] == [owner for owner, _ in paths[end]]
            low, high = sorted((rng.randint(1, end[1]), rng.randint(1, end[1])))
            got = [
                (s.timeline, seq)
                for s in timelines.segments(txn, *(end[0], low, high))
                for seq in range(s.first, s.last + 1)
            ]
            assert got == paths[end][low - 1 : high]
        for left in ends:
            for right in ends:
                shared = [a for a, b in zip(paths[left], paths[right], strict=False) if a == b]
                assert timelines.merge_base(txn, left, right) == (shared[-1] if shared else (GENESIS, 0))


class Counting:
    """A read transaction that counts its look-ups."""

    def __init__(self, txn) -> None:
        self.txn = txn
        self.count = 0

    def get(self, key: bytes) -> bytes | None:
        """Look up, and count."""
        self.count += 1
        return self.txn.get(key)


def test_the_steps_grow_with_the_logarithm_of_the_depth(forest) -> None:
    """At a depth of 4,000 an owner or a base is found in some dozens of look-ups, from wherever to wherever."""
    chain = [forest.add(GENESIS, 0)]
    for depth in range(1, 4_000):
        chain.append(forest.add(chain[-1], 2 * depth))
    rng = random.Random(1)
    with forest.engine.read() as txn:
        for _ in range(200):
            a, b = rng.randrange(4_000), rng.randrange(4_000)
            seq = rng.randint(1, 2 * a + 2)
            counting = Counting(txn)
            assert timelines.owner(counting, chain[a], seq) == chain[min(a, (seq - 1) // 2)]
            assert counting.count <= 120
            counting = Counting(txn)
            assert timelines.merge_base(counting, (chain[a], 2 * a + 1), (chain[b], 2 * b + 1))[1] == 2 * min(a, b) + 1
            assert counting.count <= 300


def test_a_seq_nobody_owns_is_corrupt(forest) -> None:
    """A history that does not reach down to its first seq, or goes in circles, is damage and not a hang."""
    from castlog.format import rows
    from castlog.history import tables

    number = forest.add(GENESIS, 0)
    broken = rows.Timeline(SESSION, number + 5, 3, b"i" * 32, 2, number + 5)
    forest.engine.update(lambda txn: tables.put(txn, rows.TIMELINES, broken, number))
    with forest.engine.read() as txn, pytest.raises(Corrupt):
        timelines.owner(txn, number, 1)


def test_deeply_nested_forks(store) -> None:
    """Forks of forks, thousands deep: reads anywhere, bases, calls and keys agree with arithmetic, without recursion.

    Level k appends the events 2k+1 and 2k+2 and is forked at 2k+2, except that every third level forks at 2k+1 and
    leaves its second event behind.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(150 + len_of_stack())
    try:
        main = store.create_session("deep").branch("main")
        branch, branches, starts = main, [], []
        for level in range(DEPTH):
            starts.append(branch.head.seq)
            branch.extend([("tool_call" if level % 500 == 0 else "first", level), ("second", level)])
            branches.append(branch)
            branch = branch.fork(f"f{level}", at=branch.head.seq - (level % 3 == 2))
        leaf = branches[-1]
        rng = random.Random(2)
        began = time.perf_counter()
        for _ in range(300):
            level = rng.randrange(DEPTH)
            event = leaf.read(starts[level] + 1)
            assert event.payload == level
            other = rng.randrange(DEPTH)
            low = min(level, other)
            end = starts[low] + 2 - (low % 3 == 2 and level != other)
            assert store.merge_base(branches[level], branches[other]).seq == end
        spent = time.perf_counter() - began
        assert spent / 600 < 0.02
        assert [e.payload for e in leaf.events(types={"first", "tool_call"})] == list(range(DEPTH))
        assert leaf.head.seq == starts[-1] + 2
        assert [e.payload for e in leaf.in_flight()] == list(range(0, DEPTH, 500))
        assert leaf.read(1) == main.read(1)
        assert len(leaf.session.tree()) == DEPTH + 1
        assert store.usage().events == 2 * DEPTH
        assert sum(1 for _ in store.grep("7", [leaf], types={"first", "tool_call"})) == sum(
            "7" in str(n) for n in range(DEPTH)
        )
    finally:
        sys.setrecursionlimit(limit)


def len_of_stack() -> int:
    """Return how many frames are in use now."""
    frame, count = sys._getframe(), 0
    while frame is not None:
        count += 1
        frame = frame.f_back
    return count
