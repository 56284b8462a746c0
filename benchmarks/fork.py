"""fork: what a fork, a read and a merge base cost by length of the history and by depth of nesting.

Each fork is timed in turn with one durable commit of raw LMDB that writes a row of the size of a reference. The nested
store is built through the public interface: each branch is forked off the last one, and both go on by an event of
their own, so that each is a timeline.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from functools import partial

import castlog
from benchmarks import figures
from benchmarks.bars import BARS, Bar
from benchmarks.figures import MICROSECONDS, Figure, Times, Work
from benchmarks.peers import maker, open_peers
from benchmarks.peers.base import can
from benchmarks.peers.plain import RawLmdb
from benchmarks.run import Run
from benchmarks.workload import plain

HEAD, MIDDLE, COMMIT = "castlog, at the head", "castlog, in the middle", "lmdb commit"


def fork(run: Run) -> Iterator[Figure]:
    """Forks of long and of deeply nested histories, and forks in the peers that have them."""
    raw = RawLmdb(run.place("commit"))
    for events in run.size((1_000, 10_000), (1_000, 100_000, 1_000_000)):
        with castlog.open(run.folder / f"long-{events}") as store:
            run.tell(f"write {events:,} events")
            branch = grow(store.create_session("long").branch("main"), events)
            yield from cost(run, f"{events:,} events", store, branch, raw)
    for depth in run.size((1, 300), (1, 100, 10_000)):
        with castlog.open(run.folder / f"deep-{depth}") as store:
            branch = store.create_session("deep").branch("main")
            branch.append("note", {"level": 0})
            branch = nest(run, branch, range(1, depth + 1))
            yield from cost(run, f"depth {depth:,}", store, branch, raw, deep=depth > 1)
    raw.close()
    yield from _peers(run)


def grow(branch: castlog.Branch, count: int) -> castlog.Branch:
    """Append so many small events."""
    start = branch.head.seq
    for first in range(start, start + count, 1_000):
        numbers = range(first, min(first + 1_000, start + count))
        branch.extend([("note", {"number": number, "text": "a step of the run " * 4}) for number in numbers])
    return branch


def nest(run: Run, branch: castlog.Branch, levels: range) -> castlog.Branch:
    """Fork off the last branch again and again, and let both go on; returns the deepest."""
    for level in levels:
        run.tell(f"nest {level:,}")
        above, branch = branch, branch.fork(f"level-{level}")
        above.append("note", {"stays": level})
        branch.append("note", {"level": level})
    return branch


def cost(
    run: Run, case: str, store: castlog.Store, branch: castlog.Branch, raw: RawLmdb, *, deep: bool = False
) -> Iterator[Figure]:
    """Yield what forks and reads cost on a branch."""
    rounds = run.times(40, 200)
    head = branch.head.seq
    chance = random.Random(7)
    at = [chance.randrange(1, head) for _ in range(rounds)]
    mark = case.replace(" ", "-")
    works: Mapping[str, list[Work]] = {
        HEAD: [partial(branch.fork, f"head-of-{mark}-{number}") for number in range(rounds)],
        MIDDLE: [partial(branch.fork, f"middle-of-{mark}-{number}", at=seq) for number, seq in enumerate(at)],
        COMMIT: [partial(raw.fork, f"{mark}-{number}") for number in range(rounds)],
    }
    times = figures.in_turn(works, run.tell)
    yield from figures.values("fork", case, times, MICROSECONDS)
    for name in (HEAD, MIDDLE):
        yield figures.ratio("fork", case, (name, COMMIT), times, MICROSECONDS, bar=BARS["fork"], sense="time")
    yield from _looks(store, branch, at, case, BARS["read_deep"] if deep else None)


def _looks(store: castlog.Store, branch: castlog.Branch, at: list[int], case: str, bar: Bar | None) -> Iterator[Figure]:
    leaf = branch.fork(f"leaf-{case.replace(' ', '-')}", at=branch.head.seq // 2)
    leaf.append("note", {})
    works: Mapping[str, list[Work]] = {
        "castlog, read": [partial(branch.read, seq) for seq in at],
        "castlog, merge base": [partial(store.merge_base, branch, leaf) for _ in at],
    }
    for name, found in figures.in_turn(works).items():
        yield figures.value("fork", case, name, found, MICROSECONDS, bar)


def _peers(run: Run) -> Iterator[Figure]:
    """Yield what a fork at the head of 1,000 events costs in the peers that have something like it."""
    rounds = run.times(8, 20)
    names = [name for name in run.peers if name != "lmdb" and can(maker(name), "fork")]
    with open_peers(run.folder / "peers", names) as peers:
        events = plain(1_000)
        while part := list(itertools.islice(events, 100)):
            for peer in peers.values():
                peer.append(part)
        works = {n: [partial(peer.fork, f"fork-{k}") for k in range(rounds)] for n, peer in peers.items()}
        times: Times = figures.in_turn(works, run.tell)
    yield from figures.against_all("fork", "in peers, 1,000 events", times, MICROSECONDS)
