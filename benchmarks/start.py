"""import_time, open, restore_cold: what a process pays that has just been started.

Each is the whole life of a child process, in turn with the bare interpreter. The files are in the page cache.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import castlog
from benchmarks import figures
from benchmarks.bars import BARS
from benchmarks.children.restore_castlog import sizes
from benchmarks.figures import MILLISECONDS, Figure, Times
from benchmarks.peers import open_peers
from benchmarks.run import Run
from benchmarks.workload import plain

CHILDREN = Path(__file__).parent / "children"
SINCE_SNAPSHOT = 100
BARE, IMPORT, IMPORTED = "bare interpreter", "import castlog", "interpreter and import castlog"
_STARTS = {IMPORTED: ["-c", "import castlog"], BARE: ["-c", "pass"]}
_FILES = {"castlog": "store", "sqlite": "events.db"}
_TIMED = "import time; start = time.perf_counter(); import {0}; print(time.perf_counter() - start)"


def import_time(run: Run) -> Iterator[Figure]:
    """`import castlog`, the libraries it stands on, and a bare interpreter start."""
    rounds = run.times(12, 60)
    imports = {IMPORT: "castlog", "its libraries alone": "lmdb, blake3, zstandard, msgspec, pyfastcdc"}
    works = {n: itertools.repeat(partial(_life, c), rounds) for n, c in _STARTS.items()}
    inside = {name: ["-c", _TIMED.format(words)] for name, words in imports.items()}
    works |= {n: itertools.repeat(partial(_inside, c), rounds) for n, c in inside.items()}
    times = figures.in_turn(works, run.tell, lambda work: work())
    bar = run.bar("import_time")
    for name, found in times.items():
        yield figures.value("import_time", "", name, found, MILLISECONDS, bar if name == IMPORT else None)


def open_(run: Run) -> Iterator[Figure]:
    """A process that opens a store, lists its sessions and reads one event."""
    count = _fill(run)
    commands = {name: _script("look", run, name) for name in _stores(run)}
    times = _lives(run, {**commands, **_STARTS}, run.times(8, 30))
    yield from figures.against_all("open", f"{count:,} events", times, MILLISECONDS, sense="time")


def restore_cold(run: Run) -> Iterator[Figure]:
    """A process that opens a store and restores a state: from a snapshot near the head, and by folding all events."""
    count = _fill(run)
    case = f"{count:,} events"
    restore = _script("restore", run, "castlog")
    folds = {name: restore if name == "castlog" else _script("fold", run, name) for name in _stores(run)}
    times = _lives(run, folds, run.times(3, 7))
    yield from figures.against_all("restore_cold", f"{case}, all folded", times, MILLISECONDS, sense="time")
    with castlog.open(run.folder / "castlog" / "store") as store:
        branch = store.sessions()[0].branch("main")
        branch.snapshot(sizes, at=branch.head.seq - SINCE_SNAPSHOT)
    times = _lives(run, {"castlog": restore, **_STARTS}, run.times(8, 30))
    case = f"{case}, a snapshot {SINCE_SNAPSHOT} before the head"
    bars = {IMPORTED: BARS["restore_cold"]}
    yield from figures.against_all("restore_cold", case, times, MILLISECONDS, sense="time", bars=bars)


def _stores(run: Run) -> list[str]:
    """Return who is started: castlog, and SQLite unless it is left out."""
    return ["castlog", *(name for name in ("sqlite",) if name in run.peers)]


def _fill(run: Run) -> int:
    """Fill these stores with the same history and return its length."""
    count = run.size(10_000, 100_000)
    events = plain(count)
    with open_peers(run.folder, _stores(run)[1:]) as peers:
        while part := list(itertools.islice(events, 1_000)):
            for peer in peers.values():
                peer.append(part)
    return count


def _script(name: str, run: Run, peer: str) -> list[str]:
    return [str(CHILDREN / f"{name}_{peer}.py"), str(run.folder / peer / _FILES[peer])]


def _lives(run: Run, commands: Mapping[str, list[str]], rounds: int) -> Times:
    works = {name: itertools.repeat(partial(_life, command), rounds) for name, command in commands.items()}
    return figures.in_turn(works, run.tell, lambda work: work())


def _life(command: list[str]) -> float:
    return figures.seconds(partial(_run, command))


def _inside(command: list[str]) -> float:
    return float(_run(command))


def _run(command: list[str]) -> str:
    return subprocess.run([sys.executable, "-P", *command], check=True, capture_output=True, text=True).stdout
