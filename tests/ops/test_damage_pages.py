"""Bits flipped in the data file itself, at random places: no wrong event, and no damage that verify misses.

Guards against the engine's own structure leading to wrong bytes. LMDB can die of a broken offset in a page; verify
looks at the pages without it first. So each damaged copy is read in a process of its own, after it was verified.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import traceback
from pathlib import Path
from typing import Any

import lmdb

import castlog
from castlog.format import rows

POSITIONS = 60
SEED = 20

Truth = dict[str, list[list[Any]]]


def test_no_flipped_bit_gives_wrong_data_or_goes_unseen(kept_on_disk, tmp_path: Path) -> None:
    """Whatever bit of the file flips: what reads is true, and verify sees every flip that loses an event or a row."""
    truth = {branch.rev: [_told(event) for event in branch.events()] for branch in kept_on_disk.session.branches()}
    there = _rows(kept_on_disk.store)
    kept_on_disk.store.close()
    data = _compacted(Path(kept_on_disk.store.target), tmp_path / "compacted")
    choose = random.Random(SEED).randrange
    positions = {(choose(len(data)), choose(8)) for _ in range(POSITIONS)}
    results = [_damaged(tmp_path / f"{at}-{bit}", data, at, bit, truth) for at, bit in positions]
    assert sum(result.get("lost", 0) for result in results) > POSITIONS
    for result in results:
        assert "error" not in result, result["error"]
        if result["opened"]:
            assert not result.get("wrong"), result
            lost = "lost" not in result or result["lost"] or result["other"] or result["rows"] not in (there, None)
            assert not (result["ok"] and lost), {name: result[name] for name in result if name != "rows"}


def _damaged(path: Path, data: bytes, at: int, bit: int, truth: Truth) -> dict[str, Any]:
    """Flip a bit of a copy, verify and read it in a child; return what that found until it ended, however it ended."""
    path.mkdir()
    (path / "data.mdb").write_bytes(data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :])
    says = path / "says.json"
    child = os.fork()
    if not child:
        faulthandler.disable()
        signal.alarm(30)
        try:
            for result in _verified_and_read(path, truth):
                says.write_text(json.dumps(result))
        except BaseException:
            says.write_text(json.dumps({"error": f"byte {at} bit {bit}: {traceback.format_exc()}"}))
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    result = json.loads(says.read_text()) if says.exists() else {"error": "it ended before verify did"}
    return {"error": f"byte {at} bit {bit}: endless"} if ended == -signal.SIGALRM else result


def _verified_and_read(path: Path, truth: Truth) -> Any:
    """Yield what is known so far: whether it opens, whether verify is content, and after that what was read."""
    try:
        store = castlog.open(path, read_only=True)
    except castlog.Error:
        yield {"opened": False}
        return
    result: dict[str, Any] = {"opened": True, "ok": store.verify(deep=True).ok}
    yield result
    lost, wrong, other = 0, [], []
    for rev, events in truth.items():
        for seq, expected in enumerate(events, 1):
            try:
                if _told(store.branch(rev).read(seq)) != expected:
                    wrong.append([rev, seq])
            except castlog.Corrupt:
                lost += 1
            except castlog.Error as exc:
                other.append(f"{type(exc).__name__}: {exc}")
    yield {**result, "lost": lost, "wrong": wrong, "other": other, "rows": _rows(store)}


def _told(event: castlog.Event) -> list[Any]:
    return [event.id, event.type, event.ts, event.raw.decode(), event.size, event.redacted]


def _rows(store: castlog.Store) -> list[list[str]] | None:
    """Return all rows but the parts of objects: some bits of a compressed frame change nothing of what it holds."""
    parts = rows.part_key(0, 0)[:1]
    with store._core.engine.read() as txn:
        try:
            return [[key.hex(), value.hex()] for key, value in txn.scan(b"\0") if key[:1] != parts]
        except castlog.Corrupt:
            return None


def _compacted(path: Path, target: Path) -> bytes:
    """Return a store's data file without free pages, so that most of its bytes are in use."""
    target.mkdir()
    with lmdb.open(str(path), readonly=True, lock=False) as environment:
        environment.copy(str(target), compact=True)
    return (target / "data.mdb").read_bytes()
