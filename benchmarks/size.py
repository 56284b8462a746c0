"""size_plain, size_quadratic, import_corpus: what events take on disk, and how fast a folder comes in."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import zstandard

import castlog
from benchmarks.figures import Row
from benchmarks.peers import PEERS
from benchmarks.workload import Event, plain, quadratic


def size_plain(folder: Path, *, quick: bool) -> list[Row]:
    """The plain workload, as sealed."""
    return _sizes(folder, list(plain(5_000 if quick else 20_000)))


def size_quadratic(folder: Path, *, quick: bool) -> list[Row]:
    """The session whose requests repeat the history."""
    return _sizes(folder, list(quadratic(60 if quick else 300)))


def _sizes(folder: Path, events: list[Event]) -> list[Row]:
    raw = b"".join(msgspec.json.encode((event.type, event.call_id, event.payload)) + b"\n" for event in events)
    rows: list[Row] = []

    def add(name: str, size: int) -> None:
        rows.append({"held by": name, "KB": round(size / 1e3), "of raw": round(size / len(raw), 4)})

    add("raw JSON Lines", len(raw))
    add("zstd -3 of the whole", len(zstandard.ZstdCompressor(level=3).compress(raw)))
    with castlog.open(folder / "castlog") as store:
        branch = store.create_session("benchmark").branch("main")
        for start in range(0, len(events), 100):
            branch.extend(events[start : start + 100])
        branch.seal()
        add("castlog, as sealed", (folder / "castlog" / "data.mdb").stat().st_size)
    for name in ("lmdb", "sqlite"):
        peer = PEERS[name](folder)
        for start in range(0, len(events), 100):
            peer.append(events[start : start + 100])
        peer.close()
        path = folder / "lmdb" / "data.mdb" if name == "lmdb" else folder / "events.db"
        add(name, path.stat().st_size)
    return rows


def import_folder(source: Path, folder: Path) -> list[Row]:
    """A folder of transcripts: how long the first and the second import take, and what they take on disk."""
    files = [path for path in source.rglob("*.jsonl") if path.is_file()]
    raw = sum(path.stat().st_size for path in files)
    alone = sum(len(zstandard.ZstdCompressor(level=3).compress(path.read_bytes())) for path in files)
    rows: list[Row] = []
    with castlog.open(folder / "castlog") as store:
        for what in ("first", "again"):
            start = time.perf_counter()
            report = store.import_from(source)
            passed = time.perf_counter() - start
            stored = (folder / "castlog" / "data.mdb").stat().st_size
            rows.append(
                {
                    "import": what,
                    "files": len(files),
                    "events added": report.added,
                    "MB/s": round(raw / passed / 1e6, 1),
                    "KB stored": round(stored / 1e3),
                    "of sum of zstd -3": round(stored / max(alone, 1), 2),
                }
            )
    return rows
