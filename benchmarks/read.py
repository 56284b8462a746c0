"""replay, read_random, list_sessions: what it costs to read."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import castlog
from benchmarks import figures
from benchmarks.figures import MILLISECONDS, Figure, Work
from benchmarks.peers import maker, open_peers
from benchmarks.peers.base import Peer, can
from benchmarks.peers.own import Castlog
from benchmarks.run import Run
from benchmarks.workload import plain

DECODED, LEFT_RAW = "castlog, decoded", "castlog, raw"
COMPACTED = "another chunk, compacted"
BURST = 20  # reads of one store before the next store's turn
A_READ = figures.Unit("us", lambda seconds: seconds / BURST * 1e6)
NEAR = range(41, 41 + BURST)  # events that lie in one chunk


def replay(run: Run) -> Iterator[Figure]:
    """Read a long session from the start: payloads decoded, and payloads left raw."""
    count = run.size(10_000, 100_000)
    grows = [name for name in run.peers if maker(name).appends_max is not None]
    for name in grows:
        yield figures.left_out("replay", name, "each append writes the whole history again")
    with _filled(run, count, [name for name in run.peers if name not in grows]) as peers:
        own = peers.pop("castlog")
        assert isinstance(own, Castlog)
        reads: dict[str, Work] = {DECODED: partial(_exhaust, own), LEFT_RAW: partial(_exhaust_raw, own)}
        reads |= {name: partial(_exhaust, peer) for name, peer in peers.items()}
        case, unit = f"{count:,} events", figures.rate(count)
        times = _rounds(run, reads)
        yield from figures.values("replay", case, times, unit)
        for name in peers:
            yield figures.ratio("replay", case, (DECODED, name), times, unit, bar=run.bar(f"replay_{name}"))
        if "jsonl" in times:
            yield figures.ratio("replay", case, (LEFT_RAW, "jsonl"), times, unit, bar=run.bar("replay_raw"))
        run.tell("compact")
        own.store.compact()
        times = _rounds(run, {name: reads[name] for name in (DECODED, LEFT_RAW, "jsonl") if name in reads})
        case = f"{case}, compacted"
        yield from figures.values("replay", case, times, unit)
        if "jsonl" in times:
            yield figures.ratio("replay", case, (DECODED, "jsonl"), times, unit)


def read_random(run: Run) -> Iterator[Figure]:
    """Read single events of a long session: each from another chunk, and all from one."""
    count = run.size(10_000, 100_000)
    names = [name for name in run.peers if can_read(name)]
    rounds = run.times(20, 100)
    chance = random.Random(3)
    far = [[chance.randrange(1, count) for _ in range(BURST)] for _ in range(rounds)]
    near = [list(NEAR)] * rounds
    with _filled(run, count, names) as peers:
        own = peers["castlog"]
        assert isinstance(own, Castlog)
        for case, key, bursts in (
            ("another chunk", "read_far", far),
            ("same chunk", "read_near", near),
            (COMPACTED, "read_far", far),
        ):
            if case == COMPACTED:
                run.tell("compact")
                own.store.compact()
            works = {name: [partial(_read, peer, seqs) for seqs in bursts] for name, peer in peers.items()}
            for name, found in figures.in_turn(works, run.tell).items():
                bar = run.bar(key) if name == "castlog" else None
                yield figures.value("read_random", case, name, found, A_READ, bar)


def list_sessions(run: Run) -> Iterator[Figure]:
    """List the newest 50 of many sessions, and all of them."""
    count = run.size(1_000, 10_000)
    with castlog.open(run.folder / "castlog") as store:
        for number in range(count):
            run.tell(f"make session {number:,}")
            store.create_session(f"session {number}", labels={"team": "web"}).branch("main").append("note", {})
        listings = {"castlog, all": None, "castlog, the newest 50": 50}
        rounds = run.times(8, 20)
        works = {n: itertools.repeat(partial(store.sessions, limit=m), rounds) for n, m in listings.items()}
        times = figures.in_turn(works, run.tell)
    for name, found in times.items():
        bar = run.bar("list_sessions", full_only=True) if listings[name] is None else None
        yield figures.value("list_sessions", f"{count:,} sessions", name, found, MILLISECONDS, bar)


def can_read(name: str) -> bool:
    """Return whether a peer reads an event by its number."""
    return can(maker(name), "read")


@contextmanager
def _filled(run: Run, count: int, names: Sequence[str]) -> Iterator[dict[str, Peer]]:
    """Open castlog and peers that hold the same events."""
    events = plain(count)
    with open_peers(run.folder, names) as peers:
        for done in range(0, count, 1_000):
            run.tell(f"write event {done:,}")
            part = list(itertools.islice(events, 1_000))
            for peer in peers.values():
                peer.append(part)
        yield dict(peers)


def _rounds(run: Run, reads: Mapping[str, Work]) -> figures.Times:
    rounds = run.times(5, 9)
    return figures.in_turn({name: itertools.repeat(read, rounds) for name, read in reads.items()}, run.tell)


def _read(peer: Peer, numbers: Sequence[int]) -> None:
    for number in numbers:
        peer.read(number)


def _exhaust(peer: Peer) -> None:
    for _ in peer.replay():
        pass


def _exhaust_raw(own: Castlog) -> None:
    for event in own.branch.events():
        _ = event.raw
