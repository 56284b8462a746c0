"""Replay a branch and print what memory it took above imports, in bytes, at a tenth of the way and at its highest.

Memory that belongs to the process is counted, and the mapped file apart from it: the system takes its pages back
whenever it wants them.
"""

import json
import resource
import sys

import castlog

EVERY = 500


def memory() -> tuple[int, int]:
    """Return this process's own bytes in memory, and those of files it has mapped."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["RssAnon"].split()[0]) * 1024, int(lines["RssFile"].split()[0]) * 1024
    except (OSError, KeyError):  # not Linux: only the highest sum is told
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0


start = memory()
with castlog.open(sys.argv[1]) as store:
    branch = store.sessions()[0].branch("main")
    head = branch.head.seq
    early = highest = mapped = 0
    for event in branch.events():
        assert event.payload
        if event.seq % EVERY == 0:
            now = memory()
            highest, mapped = max(highest, now[0] - start[0]), max(mapped, now[1] - start[1])
            if event.seq <= head // 10:
                early = highest
print(json.dumps({"early": early, "highest": highest, "mapped": mapped}))
