"""scale_events, scale_forks, scale_depth: one store that grows, and what things cost at each step of the way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import castlog
from benchmarks import figures
from benchmarks.figures import MICROSECONDS, Figure, rate
from benchmarks.fork import cost, grow, nest
from benchmarks.peers.base import bytes_of
from benchmarks.peers.plain import RawLmdb
from benchmarks.run import Run

PER_BYTE = figures.Unit("bytes", lambda size: size)


def events(run: Run) -> Iterator[Figure]:
    """1,000 to 1,000,000 events: appends, forks, reads, bytes an event."""
    raw = RawLmdb(run.place("commit"))
    with castlog.open(run.folder / "castlog") as store:
        branch = store.create_session("long").branch("main")
        for goal in run.size((1_000, 10_000), (1_000, 10_000, 100_000, 1_000_000)):
            case = f"{goal:,} events"
            run.tell(case)
            new = goal - branch.head.seq
            seconds = figures.seconds(partial(grow, branch, new))
            yield figures.value("scale_events", case, "appended, 1,000 a commit", [seconds], rate(new))
            yield from _size("scale_events", case, bytes_of(run.folder / "castlog"), goal, "a stored event")
            yield from _under("scale_events", cost(run, case, store, branch, raw))
    raw.close()


def forks(run: Run) -> Iterator[Figure]:
    """1 to 10,000 forks with an event of their own: making, writing, listing them, bytes a fork."""
    with castlog.open(run.folder / "castlog") as store:
        session = store.create_session("wide")
        main = grow(session.branch("main"), 1_000)
        main.seal()
        made = 0
        for goal in run.size((1, 10, 100), (1, 10, 100, 1_000, 10_000)):
            case = f"{goal:,} fork{'s' if goal > 1 else ''}"
            run.tell(case)
            new, before = goal - made, bytes_of(run.folder / "castlog")
            found: list[castlog.Branch] = []
            making = partial(main.fork_many, new, prefix=f"of-{goal}-")
            forking = figures.seconds(lambda into=found, make=making: into.extend(make()))  # type: ignore[misc]
            writing = figures.seconds(lambda those=found: [fork.append("note", {}) for fork in those])  # type: ignore[misc]
            listing = [figures.seconds(session.branches) for _ in range(5)]
            made = goal
            yield figures.value("scale_forks", case, "forks made in one commit", [forking / new], MICROSECONDS)
            yield figures.value("scale_forks", case, "first event of each", [writing / new], MICROSECONDS)
            yield figures.value("scale_forks", case, "list the branches", listing, figures.MILLISECONDS)
            yield from _size(
                "scale_forks", case, bytes_of(run.folder / "castlog") - before, new, "a fork with an event"
            )


def depth(run: Run) -> Iterator[Figure]:
    """Nesting 1 to 10,000 deep: forks, reads, merge bases."""
    raw = RawLmdb(run.place("commit"))
    with castlog.open(run.folder / "castlog") as store:
        branch = store.create_session("deep").branch("main")
        branch.append("note", {"level": 0})
        done = 0
        for goal in run.size((1, 10, 100), (1, 10, 100, 1_000, 10_000)):
            case = f"depth {goal:,}"
            branch = nest(run, branch, range(done + 1, goal + 1))
            done = goal
            yield from _under("scale_depth", cost(run, case, store, branch, raw, deep=goal > 1))
    raw.close()


def _size(verb: str, case: str, size: int, count: int, what: str) -> Iterator[Figure]:
    yield figures.value(verb, case, what, [size / count], PER_BYTE)


def _under(verb: str, found: Iterator[Figure]) -> Iterator[Figure]:
    """Yield another verb's figures under this one's name."""
    for figure in found:
        yield figures.renamed(figure, verb)
