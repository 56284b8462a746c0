"""append_sync, append_batch, append_threads: what it costs to make events durable."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import castlog
from benchmarks.figures import Row, Work, in_turn, medians
from benchmarks.peers import PEERS
from benchmarks.workload import plain

THREADS = 16


def sync(folder: Path, *, quick: bool) -> list[Row]:
    """One event a commit: castlog and each peer in turn, on the same events."""
    return _in_batches(folder, 1, 200 if quick else 2_000)


def batch(folder: Path, *, quick: bool) -> list[Row]:
    """100 events a commit."""
    return _in_batches(folder, 100, 20 if quick else 200)


def _in_batches(folder: Path, size: int, rounds: int) -> list[Row]:
    with castlog.open(folder / "castlog") as store:
        branch = store.create_session("benchmark").branch("main")
        peers = {name: make(folder) for name, make in PEERS.items()}
        events = plain(size * rounds)
        works: dict[str, list[Work]] = {"castlog": [], **{name: [] for name in peers}}
        for _ in range(rounds):
            part = list(itertools.islice(events, size))
            works["castlog"].append(lambda part=part: branch.extend(part))  # type: ignore[misc]
            for name, peer in peers.items():
                works[name].append(lambda peer=peer, part=part: peer.append(part))  # type: ignore[misc]
        found = medians(in_turn(works))
        for peer in peers.values():
            peer.close()
    return [
        {
            "store": name,
            "us a commit": round(value, 1),
            "events/s": round(size / value * 1e6),
            "rate of castlog's": round(found["castlog"] / value, 2),
        }
        for name, value in found.items()
    ]


def threads(folder: Path, *, quick: bool) -> list[Row]:
    """16 threads, each with its own branch and one event a commit, against raw LMDB in one thread."""
    each = 30 if quick else 200
    events = list(plain(each))
    rows: list[Row] = []
    with castlog.open(folder / "castlog") as store:
        session = store.create_session("threads")
        branches = [session.branch("main"), *session.branch("main").fork_many(THREADS - 1)]
        seconds = _all_at_once([lambda b=b: [b.extend([event]) for event in events] for b in branches])  # type: ignore[misc]
        rows.append({"store": "castlog, 16 threads", "events/s": round(THREADS * each / seconds)})
    raw = PEERS["lmdb"](folder)
    seconds = _all_at_once([lambda: [raw.append([event]) for event in events * 4]])
    raw.close()
    rows.append({"store": "lmdb, 1 thread", "events/s": round(4 * each / seconds)})
    files = []
    for number in range(THREADS):
        (folder / str(number)).mkdir()
        files.append(PEERS["jsonl"](folder / str(number)))
    seconds = _all_at_once([lambda f=f: [f.append([event]) for event in events] for f in files])  # type: ignore[misc]
    for file in files:
        file.close()
    rows.append({"store": "jsonl, a file a thread", "events/s": round(THREADS * each / seconds)})
    first = rows[0]["events/s"]
    assert isinstance(first, int)
    for row in rows:
        rate = row["events/s"]
        assert isinstance(rate, int)
        row["castlog / this"] = round(first / rate, 2)
    return rows


def _all_at_once(works: list[Work]) -> float:
    ready = threading.Barrier(len(works) + 1)

    def run(work: Work) -> None:
        ready.wait()
        work()

    workers = [threading.Thread(target=run, args=(work,)) for work in works]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start
