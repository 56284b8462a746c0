"""Several processes on one store, and processes that die in the middle of their work.

Guards against lost or doubled events when two write at once, and against the loss of anything acknowledged when a
writer is killed at any moment. The default form is short; CASTLOG_LONG=1 kills 200 processes of each kind.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import castlog

LONG = bool(os.environ.get("CASTLOG_LONG"))
WORKER = Path(__file__).with_name("worker.py")

_spec = importlib.util.spec_from_file_location("castlog_test_worker", WORKER)
assert _spec is not None
assert _spec.loader is not None
worker: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)


def start(*words: object) -> subprocess.Popen[bytes]:
    """Start a worker."""
    return subprocess.Popen([sys.executable, str(WORKER), *map(str, words)], stdout=subprocess.PIPE)


def numbers(branch: castlog.Branch) -> list[int]:
    """Return the operation numbers that a branch's events carry, oldest first."""
    return [e.payload[0] if isinstance(e.payload, list) else e.payload for e in branch.events()]


def state_of(session: castlog.Session) -> dict[str, list[int]]:
    """Return a session's branches as the script's model has them."""
    return {branch.name: numbers(branch) for branch in session.branches()}


# --- at once ------------------------------------------------------------------------------------


def test_two_processes_append_to_one_branch(disk_store) -> None:
    """Each appends its events: all are there, without gap or double, each process's in its order."""
    count = 5_000 if LONG else 1_500
    session = disk_store.create_session("x")
    workers = [start("append", disk_store.target, session.id, who, count) for who in ("a", "b")]
    assert [process.wait(120) for process in workers] == [0, 0]
    for process in workers:
        assert process.stdout is not None
        process.stdout.close()
    events = list(session.branch("main").events())
    assert [e.seq for e in events] == list(range(1, 2 * count + 1))
    for who in ("a", "b"):
        assert [e.payload["n"] for e in events if e.payload["who"] == who] == list(range(count))
    assert len({e.id for e in events}) == 2 * count
    assert session.info.events == 2 * count
    assert disk_store.verify(deep=True).findings == []


def test_with_expect_one_of_two_processes_wins_each_round(disk_store, child, second_child) -> None:
    """Both believe the same head and append at once: one event is written, and the other is told where the head is."""
    main = disk_store.create_session("x").branch("main")
    rounds = 300 if LONG else 60
    for process in (child, second_child):
        process.ask("open", path=disk_store.target)
    for seq in range(rounds):
        request = {"rev": main.rev, "expect": seq, "drafts": [{"type": "note", "payload": seq}]}
        child.send("extend", **request)
        second_child.send("extend", **request)
        said = [child.receive(), second_child.receive()]
        won = [answer for answer in said if answer[0] != "Conflict"]
        lost = [answer for answer in said if answer[0] == "Conflict"]
        assert [len(won), len(lost)] == [1, 1]
        assert won[0] == [[seq + 1, main.read(seq + 1).id]]
        assert f"main is at seq {seq + 1}" in lost[0][1]
    for process in (child, second_child):
        process.ask("close")
    assert [e.payload for e in main.events()] == list(range(rounds))


def test_two_processes_with_one_key(disk_store, child, second_child) -> None:
    """The same keyed append from both gives both the one event."""
    main = disk_store.create_session("x").branch("main")
    for process in (child, second_child):
        process.ask("open", path=disk_store.target)
    for n in range(30):
        request = {"rev": main.rev, "drafts": [{"type": "note", "payload": n, "key": f"k{n}"}]}
        child.send("extend", **request)
        second_child.send("extend", **request)
        assert child.receive() == second_child.receive()
    for process in (child, second_child):
        process.ask("close")
    assert [e.payload for e in main.events()] == list(range(30))


def test_two_processes_fork_under_one_name(disk_store, child, second_child) -> None:
    """One makes the branch, the other is told that the name is taken."""
    main = disk_store.create_session("x").branch("main")
    main.append("note", {})
    for process in (child, second_child):
        process.ask("open", path=disk_store.target)
    for n in range(20):
        for process in (child, second_child):
            process.send("fork", rev=main.rev, name=f"f{n}", at=n % 2)
        said = [child.receive(), second_child.receive()]
        assert sorted(type(answer).__name__ for answer in said) == ["str", "tuple"]
    for process in (child, second_child):
        process.ask("close")
    assert len(main.session.branches()) == 21


def test_processes_see_each_others_moves(disk_store, child) -> None:
    """A fork made here is read there, and what is appended there is read here, at once."""
    main = disk_store.create_session("x").branch("main")
    child.ask("open", path=disk_store.target)
    for n in range(20):
        fork = main.fork(f"f{n}")
        said = child.ask("extend", rev=fork.rev, drafts=[{"type": "note", "payload": n}])
        assert said == [[1, fork.read(1).id]]
        assert child.ask("read", rev=fork.rev) == [[fork.head.id, "note", n]]
        fork.rename(f"g{n}")
        assert child.ask("read", rev=f"{main.session.id}/f{n}")[0] == "NotFound"
        assert child.ask("read", rev=fork.rev) == [[fork.head.id, "note", n]]
    child.ask("close")


def test_processes_seal_the_same_branch(disk_store, child, small_chunks) -> None:
    """Two processes fill and seal one open chunk by turns, with different ideas of how full is full."""
    main = disk_store.create_session("x").branch("main")
    child.ask("limits", values={"SEAL_EVENTS": 7, "SEAL_BYTES": 3_000})
    child.ask("open", path=disk_store.target)
    expected = []
    rng = random.Random(3)
    for n in range(120):
        if rng.random() < 0.5:
            main.extend([("note", n)] * (n % 4))
        else:
            child.ask("extend", rev=main.rev, drafts=[{"type": "note", "payload": n}] * (n % 4))
        expected += [n] * (n % 4)
    assert [e.payload for e in main.events()] == expected
    assert [payload for _, _, payload in child.ask("read", rev=main.rev)] == expected
    child.ask("close")
    assert disk_store.verify(deep=True).findings == []


# --- killed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["append", "extend", "moves"])
def test_a_killed_writer_loses_nothing_it_acknowledged(open_disk_store, kind) -> None:
    """Killed at random moments: the store is as after the last operation that returned, or the one under way.

    Nothing is half there, the store verifies, others read and write at once, and the next append goes on. (An operation
    killed at its very end may show only when the next writer comes: LMDB's readers learn of a commit a moment later.)
    """
    rng = random.Random(kind)
    kills = 200 if LONG else {"append": 10, "extend": 8, "moves": 10}[kind]
    store = open_disk_store()
    done = 0
    for seed in range(kills):
        session = store.create_session(f"{kind} {seed}")
        process = start("script", store.target, session.id, seed, kind)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0, 0.06))
        process.kill()
        said = process.stdout.read()
        process.stdout.close()
        process.wait(30)
        acknowledged = max((int(line) for line in said.split(b"\n")[:-1]), default=0)
        done += acknowledged
        if seed % 3 == 0:
            store.close()
            store = open_disk_store()
            session = store.session(session.id)
        possible = [{"main": []}] if acknowledged == 0 else []
        for number, _, state in worker.script(seed, kind):
            if number >= acknowledged:
                possible.append(state)
            if number > acknowledged:
                break
        assert state_of(session) in possible
        main = session.branch("main")
        seq = main.append("note", 0).seq
        found = state_of(session)
        assert (len(found["main"]), found["main"].pop()) == (seq, 0)
        assert found in possible
        if seed % 5 == 4 or seed == kills - 1:
            assert [f for f in store.verify(deep=True).findings if f.severity != "note"] == []
    assert done > kills


def test_a_killed_compaction_leaves_one_of_two_whole_files(open_disk_store) -> None:
    """Killed at random moments while another process writes: nothing is lost and no left-overs pile up."""
    rng = random.Random(8)
    store = open_disk_store()
    session = store.create_session("x")
    main = session.branch("main")
    expected = [[n, "text " * (n % 50)] for n in range(400)]
    main.extend([("note", payload) for payload in expected])
    for number in range(20):
        main.fork(f"fork-{number}", at=100 + number).append("note", number)
    folder = Path(store.target)
    for kill in range(60 if LONG else 8):
        process = start("compact", store.target, session.id)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        until = time.monotonic() + rng.uniform(0, 0.15)
        while time.monotonic() < until:
            expected.append([len(expected), "late"])
            main.append("note", expected[-1])
        process.kill()
        process.stdout.close()
        process.wait(30)
        if kill % 2:
            store.close()
            store = open_disk_store()
            session = store.session(session.id)
            main = session.branch("main")
        assert [event.payload for event in main.events()] == expected
        assert session.branch("fork-7").read(108).payload == 7
        assert store.verify(deep=True).findings == []
        names = {path.name for path in folder.iterdir()}
        assert names <= {"data.mdb", "lock.mdb", "write.lock", ".gitignore", "rebuild.new"}
    before = store.usage().stored
    store.compact()
    assert not (folder / "rebuild.new").exists()
    assert store.usage().stored <= before
    assert [event.payload for event in main.events()] == expected


FULL = """
import resource, sys
import castlog
with castlog.open(sys.argv[1]) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    try:
        store.compact()
    except castlog.Unavailable as error:
        print("Unavailable", error)
"""


def test_a_full_disk_leaves_the_store_as_it_was(disk_store) -> None:
    """The new file does not fit: that is Unavailable, nothing has changed, and nothing is left over."""
    main = disk_store.create_session("x").branch("main")
    main.extend([("note", {"n": n, "text": random.Random(n).randbytes(300).hex()}) for n in range(300)])
    folder = Path(disk_store.target)
    before, names = (folder / "data.mdb").read_bytes(), {path.name for path in folder.iterdir()}
    ended = subprocess.run([sys.executable, "-c", FULL, disk_store.target], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("Unavailable")
    assert (folder / "data.mdb").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == names
    disk_store.compact()
    assert disk_store.verify(deep=True).findings == []


def test_two_compactions_do_not_meet(disk_store) -> None:
    """The second one is told at once who is at it; an interrupt ends the first, and nothing has changed."""
    main = disk_store.create_session("x").branch("main")
    main.extend([("note", {"n": n, "text": "x" * 100}) for n in range(2_000)])
    size = (Path(disk_store.target) / "data.mdb").stat().st_size
    other = castlog.open(disk_store.target)

    def interrupt(progress: castlog.Progress) -> None:
        with pytest.raises(castlog.Conflict, match="is being rebuilt already"):
            other.compact()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        disk_store.compact(progress=interrupt)
    other.close()
    assert (Path(disk_store.target) / "data.mdb").stat().st_size == size
    assert not (Path(disk_store.target) / "rebuild.new").exists()
    disk_store.compact()
    assert [event.payload["n"] for event in main.events()] == list(range(2_000))


def test_another_process_goes_on_with_a_compacted_store(disk_store, child) -> None:
    """It reads and appends through handles opened before, and each sees what the other wrote, compaction or not."""
    main = disk_store.create_session("x").branch("main")
    child.ask("open", path=disk_store.target)
    expected = []
    for n in range(12):
        drafts = [{"type": "note", "payload": [n, m]} for m in range(40)]
        child.ask("extend", rev=main.rev, drafts=drafts)
        expected += [draft["payload"] for draft in drafts]
        main.append("note", n)
        expected.append(n)
        disk_store.compact()
        assert [payload for _, _, payload in child.ask("read", rev=main.rev)] == expected
        assert [event.payload for event in main.events()] == expected
    child.ask("close")
    assert disk_store.verify(deep=True).findings == []


def test_a_killed_writer_leaves_the_lock(disk_store) -> None:
    """Right after the kill another process writes without waiting for a time-out."""
    session = disk_store.create_session("x")
    for seed in range(3):
        process = start("script", disk_store.target, session.id, seed, "append")
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.02)
        process.kill()
        began = time.monotonic()
        disk_store.create_session("next")
        assert time.monotonic() - began < 2
        process.stdout.close()
        process.wait(30)
        session = disk_store.create_session("x")


def test_a_killed_reader_disturbs_nobody(disk_store, child) -> None:
    """A process killed while it reads leaves writers and readers alone."""
    main = disk_store.create_session("x").branch("main")
    main.extend([("note", {"n": n}) for n in range(2_000)])
    code = "import castlog, sys\nwith castlog.open(sys.argv[1], read_only=True) as s:\n"
    code += "    print(1, flush=True)\n    while True: sum(1 for _ in s.branch(sys.argv[2]).events())\n"
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code, disk_store.target, main.rev], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.03)
        process.kill()
        process.stdout.close()
        process.wait(30)
        seq = main.head.seq
        assert main.append("note", {}).seq == seq + 1
    assert disk_store.verify().findings == []
