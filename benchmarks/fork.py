"""fork: what a fork, a read and a merge base cost by length of the history and by depth of nesting.

Each fork is timed in turn with one durable commit of raw LMDB that writes a row of the same size. The nested store is
built through the public interface: each branch is forked off the last one, and both go on by an event of their own,
so that each is a timeline.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import lmdb

import castlog
from benchmarks.figures import Row, Work, in_turn, medians

ROUNDS = 60


def measure(folder: Path, *, quick: bool) -> list[Row]:
    """Return a row for each length and depth: microseconds of a fork, of a commit, their ratio, of reads."""
    rows: list[Row] = []
    raw = lmdb.open(str(folder / "raw"), map_size=1 << 32)
    numbers = itertools.count()

    def commits() -> Iterator[Work]:
        for number in numbers:
            yield lambda number=number: _commit(raw, number)

    def row(what: str, size: int, store: castlog.Store, branch: castlog.Branch) -> None:
        head = branch.head.seq
        chance = random.Random(7)
        names = itertools.count()
        at = [chance.randrange(1, head) for _ in range(ROUNDS)]
        works = {
            "commit": itertools.islice(commits(), ROUNDS),
            "fork at head": [lambda: branch.fork(f"h{next(names)}") for _ in range(ROUNDS)],
            "fork in the middle": [lambda seq=seq: branch.fork(f"m{next(names)}", at=seq) for seq in at],
        }
        found = medians(in_turn(works))
        leaf = branch.fork("leaf", at=head // 2)
        leaf.append("note", {})
        reads = {
            "read": [lambda seq=seq: branch.read(seq) for seq in at],
            "merge base": [lambda: store.merge_base(branch, leaf) for _ in at],
        }
        found |= medians(in_turn(reads))
        rows.append(
            {"history": what, "size": size}
            | {f"{name} us": round(value, 1) for name, value in found.items()}
            | {
                "head / commit": round(found["fork at head"] / found["commit"], 2),
                "middle / commit": round(found["fork in the middle"] / found["commit"], 2),
            }
        )

    for events in (1_000, 10_000) if quick else (1_000, 100_000, 1_000_000):
        with castlog.open(folder / f"long-{events}") as store:
            branch = store.create_session("long").branch("main")
            for start in range(0, events, 1_000):
                branch.extend([("note", {"number": start + n, "text": "a step of the run " * 4}) for n in range(1_000)])
            row("events", events, store, branch)
    for depth in (1, 1_000) if quick else (1, 100, 10_000):
        with castlog.open(folder / f"deep-{depth}") as store:
            branch = store.create_session("deep").branch("main")
            branch.append("note", {"level": 0})
            for level in range(1, depth + 1):
                above, branch = branch, branch.fork(f"level-{level}")
                above.append("note", {"stays": level})
                branch.append("note", {"level": level})
            row("depth", depth, store, branch)
    raw.close()
    return rows


def _commit(raw: lmdb.Environment, number: int) -> None:
    with raw.begin(write=True) as txn:
        txn.put(number.to_bytes(8, "big"), b"x" * 100)
