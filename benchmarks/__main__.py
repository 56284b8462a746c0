"""Run benchmarks: `python -m benchmarks [VERB...] [--quick] [--json]`."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks import append, fork, read, size
from benchmarks.figures import Row, machine

VERBS = {
    "append_sync": append.sync,
    "append_batch": append.batch,
    "append_threads": append.threads,
    "fork": fork.measure,
    "replay": read.replay,
    "read_random": read.read_random,
    "list_sessions": read.list_sessions,
    "size_plain": size.size_plain,
    "size_quadratic": size.size_quadratic,
}


def main() -> None:
    """Measure the verbs that were named, all of them by default, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("verbs", nargs="*", metavar="VERB", help=f"one of: {', '.join(VERBS)}")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under two minutes")
    parser.add_argument("--json", action="store_true", help="one object a line instead of tables")
    options = parser.parse_args()
    unknown = set(options.verbs) - set(VERBS)
    if unknown:
        parser.error(f"no such verb: {', '.join(sorted(unknown))}; there are {', '.join(VERBS)}")
    if options.json:
        print(json.dumps({"on": machine()}))
    else:
        print("  ".join(f"{name} {value}" for name, value in machine().items()))
    for verb in options.verbs or VERBS:
        with tempfile.TemporaryDirectory(prefix="castlog-bench-") as folder:
            rows = VERBS[verb](Path(folder), quick=options.quick)
        if options.json:
            for row in rows:
                print(json.dumps({"verb": verb, **row}))
        else:
            _print_table(verb, rows)


def _print_table(verb: str, rows: list[Row]) -> None:
    print(f"\n{verb}")
    names = list(rows[0])
    lines = [
        names,
        *([f"{row[name]:,}" if not isinstance(row[name], str) else row[name] for name in names] for row in rows),
    ]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(names))]
    for line in lines:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(line, widths, strict=True)))


main()
