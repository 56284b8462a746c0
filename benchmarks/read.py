"""replay, read_random, list_sessions: what it costs to read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import castlog
from benchmarks.figures import Row, medians, seconds
from benchmarks.peers import PEERS
from benchmarks.workload import plain

ROUNDS = 5


def replay(folder: Path, *, quick: bool) -> list[Row]:
    """Read a long session from the start: payloads decoded, and payloads left raw."""
    count = 10_000 if quick else 100_000
    peers = {name: make(folder) for name, make in PEERS.items()}
    with castlog.open(folder / "castlog") as store:
        branch = store.create_session("benchmark").branch("main")
        events = list(plain(count))
        for start in range(0, count, 1_000):
            part = events[start : start + 1_000]
            branch.extend(part)
            for peer in peers.values():
                peer.append(part)
        works: dict[str, Callable[[], Any]] = {
            "castlog, decoded": lambda: [None for event in branch.events() if event.payload is None],
            "castlog, raw": lambda: [None for event in branch.events() if event.raw is None],
        }
        for name, peer in peers.items():
            works[name] = lambda peer=peer: [None for payload in peer.replay() if payload is None]  # type: ignore[misc]
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, work in works.items():
                times[name].append(seconds(work))
    for peer in peers.values():
        peer.close()
    found = medians(times)
    return [
        {
            "read": name,
            "ms": round(value / 1e3),
            "events/s": round(count / value * 1e6),
            "castlog decoded / this": round(value / found["castlog, decoded"], 2),
            "castlog raw / this": round(value / found["castlog, raw"], 2),
        }
        for name, value in found.items()
    ]


def read_random(folder: Path, *, quick: bool) -> list[Row]:
    """Read single events of a long session: each from another chunk, and all from one."""
    count = 10_000 if quick else 100_000
    with castlog.open(folder / "castlog") as store:
        branch = store.create_session("benchmark").branch("main")
        events = list(plain(count))
        for start in range(0, count, 1_000):
            branch.extend(events[start : start + 1_000])
        chance = random.Random(3)
        far = [chance.randrange(1, count) for _ in range(1_000)]
        found = medians(
            {
                "another chunk": [seconds(lambda seq=seq: branch.read(seq).payload) for seq in far],  # type: ignore[misc]
                "same chunk": [seconds(lambda seq=seq: branch.read(seq).payload) for seq in range(41, 61)] * 50,  # type: ignore[misc]
            }
        )
    return [{"read": name, "us": round(value, 1)} for name, value in found.items()]


def list_sessions(folder: Path, *, quick: bool) -> list[Row]:
    """List the newest 50 of many sessions, and all of them."""
    count = 1_000 if quick else 10_000
    with castlog.open(folder / "castlog") as store:
        for number in range(count):
            store.create_session(f"session {number}", labels={"team": "web"}).branch("main").append("note", {})
        rows: list[Row] = []
        for name, limit in (("the newest 50", 50), ("all", None)):
            times = []
            for _ in range(7):
                start = time.perf_counter()
                found = store.sessions(limit=limit)
                times.append(time.perf_counter() - start)
            rows.append({"of": count, "listed": len(found), "what": name, "ms": round(sorted(times)[3] * 1e3, 1)})
    return rows
