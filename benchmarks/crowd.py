"""append_threads, append_procs: many writers at once, each on a branch of its own, one event a commit."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import figures
from benchmarks.bars import BARS
from benchmarks.figures import Figure
from benchmarks.peers import maker
from benchmarks.peers.own import Castlog
from benchmarks.peers.plain import JsonLines, RawLmdb
from benchmarks.run import Run
from benchmarks.workload import Event, plain

CROWD = 16
ONE_THREAD, A_FILE = "lmdb, one thread", "jsonl, a file a thread"
_EACH = 4  # A single writer does so many times the work of one of a crowd, to be measured as long.

Append = Callable[[list[Event]], object]


def threads(run: Run) -> Iterator[Figure]:
    """1 to 16 threads, raw LMDB in one thread, and a JSON Lines file a thread."""
    events = list(plain(run.size(20, 60)))
    bars = {ONE_THREAD: BARS["append_threads_lmdb"], A_FILE: BARS["append_threads_jsonl"]}
    with _thread_stores(run) as (branches, raw, files):
        for count in run.size((4, CROWD), (1, 2, 4, 8, CROWD)):
            works = {"castlog": partial(_all_at_once, branches[:count], events)}
            if "lmdb" in run.peers:
                works[ONE_THREAD] = partial(_all_at_once, [raw], events * _EACH)
            if "jsonl" in run.peers:
                works[A_FILE] = partial(_all_at_once, files[:count], events)
            rounds = run.times(5, 11)
            times = figures.in_turn({n: itertools.repeat(w, rounds) for n, w in works.items()}, run.tell, _call)
            case = f"{count} thread{'s' if count > 1 else ''}"
            judged = bars if count == CROWD else None
            yield from figures.against_all("append_threads", case, times, figures.rate(1), bars=judged)


def procs(run: Run) -> Iterator[Figure]:
    """2 to 16 processes in castlog and in SQLite, and one process in raw LMDB."""
    each = run.size(20, 60)
    for count in run.size((4,), (2, 4, 8, CROWD)):
        with ExitStack() as stack:
            place = run.folder / str(count)
            names = ["castlog", *(name for name in ("sqlite", "lmdb") if name in run.peers)]
            crews = {name: stack.enter_context(_crew(place, name, count)) for name in names}
            if "lmdb" in run.peers:
                crews["lmdb, one process"] = stack.enter_context(_crew(place / "alone", "lmdb", 1))
            works = {
                name: itertools.repeat(partial(crew.append, each * (_EACH if crew.size == 1 else 1)), run.times(4, 8))
                for name, crew in crews.items()
            }
            times = figures.in_turn(works, run.tell, _call)
        yield from figures.against_all("append_procs", f"{count} processes", times, figures.rate(1))


class Crew:
    """Child processes that append when they are told to."""

    def __init__(self, workers: list[subprocess.Popen[str]]) -> None:
        self._workers = workers
        self.size = len(workers)

    def append(self, each: int) -> float:
        """Let each append so many events, and return the seconds from the first start to the last end, per event."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{each}\n")
            worker.stdin.flush()
        spans = [_answer(worker) for worker in self._workers]
        return (max(end for _, end in spans) - min(start for start, _ in spans)) / (each * self.size)


@contextmanager
def _thread_stores(run: Run) -> Iterator[tuple[list[Append], Append, list[Append]]]:
    """Open a store with a branch a thread, a raw LMDB, and a file a thread; yield how each of them appends."""
    with ExitStack() as stack:
        own = stack.enter_context(closing(Castlog(run.place("castlog"))))
        raw = stack.enter_context(closing(RawLmdb(run.place("lmdb"))))
        place = run.place("jsonl")
        files = [stack.enter_context(closing(JsonLines(place, number))) for number in range(CROWD)]
        branches = [own.branch, *own.branch.fork_many(CROWD - 1)]
        yield [branch.extend for branch in branches], raw.append, [file.append for file in files]


@contextmanager
def _crew(folder: Path, name: str, count: int) -> Iterator[Crew]:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    maker(name)(place).close()  # One makes the store before the others find it.
    command = [sys.executable, "-m", "benchmarks.children.writer", name, str(place)]
    workers: list[subprocess.Popen[str]] = []
    try:
        for number in range(1, count + 1):
            workers.append(
                subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for worker in workers:
            _answer(worker)
        yield Crew(workers)
    finally:
        for worker in workers:
            worker.communicate()


def _answer(worker: subprocess.Popen[str]) -> tuple[float, float]:
    assert worker.stdout is not None
    words = worker.stdout.readline().split()
    if len(words) != 2:
        raise RuntimeError(f"a writer ended with exit code {worker.wait()}")
    return float(words[0]), float(words[1])


def _call(work: Callable[[], float]) -> float:
    return work()


def _all_at_once(appends: Sequence[Append], events: list[Event]) -> float:
    """Append the events in a thread each, one a commit, and return the seconds per event."""
    ready = threading.Barrier(len(appends) + 1)

    def run(append: Append) -> None:
        ready.wait()
        for event in events:
            append([event])

    workers = [threading.Thread(target=run, args=(append,)) for append in appends]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - start) / (len(appends) * len(events))
