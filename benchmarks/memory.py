"""memory: what a process needs while it replays a very long history."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks import figures
from benchmarks.figures import MEGABYTES, Figure
from benchmarks.peers import open_peers
from benchmarks.run import Run
from benchmarks.start import CHILDREN
from benchmarks.workload import plain

DISTINCT = 20_000  # The workload is made once and gone round.


def memory(run: Run) -> Iterator[Figure]:
    """Peak memory above imports while a child process replays, payloads decoded."""
    count = run.size(100_000, 1_000_000)
    events = itertools.cycle(list(plain(min(count, DISTINCT))))
    with open_peers(run.folder, ()) as peers:
        for done in range(0, count, 1_000):
            run.tell(f"write event {done:,}")
            peers["castlog"].append(list(itertools.islice(events, 1_000)))
    run.tell("replay")
    command = [sys.executable, str(CHILDREN / "replay.py"), str(run.folder / "castlog" / "store")]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    case = f"{count:,} events"
    bar = run.bar("memory")
    yield figures.value("memory", case, "castlog, at its highest", [found["highest"]], MEGABYTES, bar)
    yield figures.value("memory", case, "castlog, after a tenth", [found["early"]], MEGABYTES)
    yield figures.value("memory", case, "pages of the mapped file", [found["mapped"]], MEGABYTES)
