"""append_sync, append_batch, append_large: what it costs one caller to make events durable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

import castlog
from benchmarks import figures
from benchmarks.bars import BARS
from benchmarks.figures import MICROSECONDS, Figure, Work
from benchmarks.peers import PLAIN, open_peers
from benchmarks.peers.base import Peer, encode
from benchmarks.peers.own import Castlog
from benchmarks.peers.plain import RawLmdb
from benchmarks.run import Run
from benchmarks.workload import Event, plain, quadratic

BATCH = 100
LARGE_TURN = 80  # At turn 95 of the quadratic session a request has 300 KB.


def sync(run: Run) -> Iterator[Figure]:
    """One event a commit."""
    times = _in_batches(run, 1, run.times(150, 1_500))
    bars = {"lmdb": BARS["append_sync"]}
    yield from figures.against_all("append_sync", "one event a commit", times, MICROSECONDS, bars=bars)


def batch(run: Run) -> Iterator[Figure]:
    """100 events a commit."""
    times = _in_batches(run, BATCH, run.times(20, 150))
    bars = {"lmdb": BARS["append_batch_lmdb"], "sqlite": BARS["append_batch_sqlite"]}
    yield from figures.against_all("append_batch", f"{BATCH} events a commit", times, figures.rate(BATCH), bars=bars)


def large(run: Run) -> Iterator[Figure]:
    """A request of 300 KB that repeats the history, and a raw LMDB put of it.

    The peers encode it as castlog does; "bytes at hand" leaves that out on both sides. What else a turn holds is
    appended between the measurements.
    """
    turns = _turns(quadratic(LARGE_TURN + run.times(20, 40)))
    with (
        open_peers(run.folder, [name for name in run.peers if name in PLAIN]) as peers,
        closing(RawLmdb(run.place("raw-lmdb"))) as raw,
        closing(Castlog(run.place("raw-castlog"))) as own,
    ):
        for turn in turns[:LARGE_TURN]:
            for peer in (*peers.values(), raw, own):
                peer.append(turn)
        late = turns[LARGE_TURN:]
        works = {name: _requests(late, peer, partial(_append, peer)) for name, peer in peers.items()}
        works["castlog, bytes at hand"] = _requests(late, own, partial(_append_bytes, own))
        works["lmdb, bytes at hand"] = _requests(late, raw, partial(_put_bytes, raw))
        times = figures.in_turn(works, run.tell)
    smallest, largest = (len(encode(turn[1].payload)) // 1000 for turn in (late[0], late[-1]))
    case = f"requests of {smallest} to {largest} KB"
    bare = {name: times.pop(name) for name in list(times) if name not in peers}
    bars = {"lmdb": BARS["append_large"]}
    yield from figures.against_all("append_large", case, times, MICROSECONDS, bars=bars, sense="time")
    yield from figures.against_all(
        "append_large", case, bare, MICROSECONDS, sense="time", mine="castlog, bytes at hand"
    )


def _in_batches(run: Run, size: int, rounds: int) -> figures.Times:
    """Append the same batches to all; a peer that rewrites its history each time gets as many as it can take."""
    events = plain(size * rounds)
    parts = [list(itertools.islice(events, size)) for _ in range(rounds)]
    with open_peers(run.folder, run.peers) as peers:
        works = {
            name: [partial(peer.append, part) for part in parts[: peer.appends_max]] for name, peer in peers.items()
        }
        return figures.in_turn(works, run.tell)


def _turns(events: Iterable[Event]) -> list[list[Event]]:
    """Divide a quadratic session into its turns: what was said, the request, and what came of it."""
    turns: list[list[Event]] = []
    for event in events:
        if event.type == "user_message":
            turns.append([])
        turns[-1].append(event)
    return turns


def _requests(turns: Sequence[list[Event]], peer: Peer, request: Callable[[Event], Work]) -> Iterator[Work]:
    """Yield the appends of the requests; the rest of each turn is appended in between."""
    for said, asked, *rest in turns:
        peer.append([said])
        yield request(asked)
        peer.append(rest)


def _append(peer: Peer, event: Event) -> Work:
    return partial(peer.append, [event])


def _append_bytes(peer: Castlog, event: Event) -> Work:
    return partial(peer.append, [castlog.Draft(event.type, castlog.Raw(encode(event.payload)), event.call_id)])


def _put_bytes(peer: RawLmdb, event: Event) -> Work:
    return partial(peer.put, [encode(event.payload)])
