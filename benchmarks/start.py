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

from benchmarks import figures
from benchmarks.figures import MILLISECONDS, Figure, Times
from benchmarks.peers import open_peers
from benchmarks.run import Run
from benchmarks.workload import plain

CHILDREN = Path(__file__).parent / "children"
BARE, IMPORT = "bare interpreter", "import castlog"
_TIMED = "import time; start = time.perf_counter(); import {0}; print(time.perf_counter() - start)"


def import_time(run: Run) -> Iterator[Figure]:
    """`import castlog`, the libraries it stands on, and a bare interpreter start."""
    rounds = run.times(12, 60)
    imports = {IMPORT: "castlog", "its libraries alone": "lmdb, blake3, zstandard, msgspec, pyfastcdc"}
    whole = {BARE: ["-c", "pass"], "interpreter and import castlog": ["-c", "import castlog"]}
    inside = {name: ["-c", _TIMED.format(words)] for name, words in imports.items()}
    works = {n: itertools.repeat(partial(_life, c), rounds) for n, c in whole.items()}
    works |= {n: itertools.repeat(partial(_inside, c), rounds) for n, c in inside.items()}
    times = figures.in_turn(works, run.tell, lambda work: work())
    bar = run.bar("import_time")
    for name, found in times.items():
        yield figures.value("import_time", "", name, found, MILLISECONDS, bar if name == IMPORT else None)


def open_(run: Run) -> Iterator[Figure]:
    """A process that opens a store, lists its sessions and reads one event."""
    times = _cold(run, "look", run.times(8, 30))
    yield from figures.against_all("open", f"{_history(run):,} events", times, MILLISECONDS, sense="time")


def restore_cold(run: Run) -> Iterator[Figure]:
    """A process that opens a store and folds all its events, since there are no snapshots yet."""
    times = _cold(run, "fold", run.times(3, 9))
    yield figures.left_out(
        "restore_cold", "restore from a snapshot", "castlog has no snapshots yet, so all events are folded"
    )
    yield from figures.against_all("restore_cold", f"{_history(run):,} events", times, MILLISECONDS, sense="time")


def _history(run: Run) -> int:
    return run.size(10_000, 100_000)


def _cold(run: Run, script: str, rounds: int) -> Times:
    """Fill castlog and SQLite, and time what a script of the same name does to each, and the start it cannot avoid."""
    events = plain(_history(run))
    with open_peers(run.folder, ("sqlite",)) as peers:
        while part := list(itertools.islice(events, 1_000)):
            for peer in peers.values():
                peer.append(part)
    commands: Mapping[str, list[str]] = {
        "castlog": [str(CHILDREN / f"{script}_castlog.py"), str(run.folder / "castlog" / "store")],
        "interpreter and import castlog": ["-c", "import castlog"],
        "sqlite": [str(CHILDREN / f"{script}_sqlite.py"), str(run.folder / "sqlite" / "events.db")],
        BARE: ["-c", "pass"],
    }
    works = {n: itertools.repeat(partial(_life, c), rounds) for n, c in commands.items()}
    return figures.in_turn(works, run.tell, lambda work: work())


def _life(command: list[str]) -> float:
    return figures.seconds(partial(_run, command))


def _inside(command: list[str]) -> float:
    return float(_run(command))


def _run(command: list[str]) -> str:
    return subprocess.run([sys.executable, "-P", *command], check=True, capture_output=True, text=True).stdout
