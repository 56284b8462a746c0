"""Timing and printing: medians, ratios against a peer measured in turn, and what they were measured on."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Work = Callable[[], Any]
Row = dict[str, float | int | str]


def seconds(work: Work) -> float:
    """Return how long one call of `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(works: dict[str, Iterable[Work]]) -> dict[str, list[float]]:
    """Time several kinds of work in turn, one of each a round, so that a noisy moment falls on all of them."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for row in zip(*works.values(), strict=True):
        for name, work in zip(works, row, strict=True):
            times[name].append(seconds(work))
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each kind, in microseconds."""
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def machine() -> dict[str, str]:
    """Return what the figures were measured on: machine, versions, commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    names = ("castlog", "lmdb", "blake3", "zstandard", "msgspec")
    return {
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "commit": commit or "unknown",
    }
