"""Append to a peer: `python -m benchmarks.children.writer PEER FOLDER NUMBER`, then a count a line on stdin.

Answers each line, and its own readiness, with the monotonic times at which it started and ended.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from benchmarks.peers import maker
from benchmarks.workload import plain


def main() -> None:
    """Serve until stdin ends."""
    name, folder, number = sys.argv[1:]
    peer = maker(name)(Path(folder), int(number))
    events = itertools.cycle(list(plain(200, seed=int(number))))
    print(0.0, 0.0, flush=True)
    for asked in sys.stdin:
        start = time.perf_counter()
        for event in itertools.islice(events, int(asked)):
            peer.append([event])
        print(start, time.perf_counter(), flush=True)
    peer.close()


main()
