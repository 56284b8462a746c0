"""One owner a branch, among threads, handles and processes; known to others; gone with its process, not inherited."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

import castlog
from castlog.engine.owner import FileOwners

HOLD = """
import sys, castlog
store = castlog.open(sys.argv[1])
branch = store.branch(sys.argv[2])
hold = store._core.own(branch._number)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(disk_store: castlog.Store):
    """Return a function that starts a process which holds a branch until it is told to end."""
    started = []

    def start(branch: castlog.Branch) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, disk_store.target, branch.rev],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_branch_is_held_once(store, main) -> None:
    """A second hold is refused, naming who has it since when, until the first lets go; other branches are free."""
    hold = store._core.own(main._number)
    with pytest.raises(castlog.Conflict, match=r"main is being run by another run of this process") as refused:
        store._core.own(main._number)
    assert refused.value.pid == os.getpid()
    assert refused.value.since.endswith("+00:00")
    assert [(running.rev, running.pid) for running in store.running()] == [(main.rev, os.getpid())]
    other = store._core.own(main.fork("other")._number)
    hold.release()
    hold.release()
    assert [running.branch for running in store.running()] == ["other"]
    store._core.own(main._number).release()
    other.release()
    assert store.running() == []


def test_a_hold_nobody_refers_to_has_ended(store, main) -> None:
    """Who forgets to let go keeps nobody out for ever."""
    hold = store._core.own(main._number)
    del hold
    gc.collect()
    store._core.own(main._number).release()


@pytest.mark.parametrize(
    "move",
    [
        lambda session, main: main.reset(1),
        lambda session, main: main.delete(),
        lambda session, main: session.promote("idea", onto="main"),
        lambda session, main: session.delete(),
    ],
    ids=["reset", "delete", "promote", "delete the session"],
)
def test_a_held_branch_is_not_moved(store, session, main, move) -> None:
    """Reset, promote and delete are refused while it is held; appends, forks and renaming are not."""
    main.extend([("note", {"n": n}) for n in range(3)])
    main.fork("idea", at=2)
    hold = store._core.own(main._number)
    with pytest.raises(castlog.Conflict, match="being run by") as refused:
        move(session, main)
    assert {"holder", "since"} <= refused.value.facts.keys()
    assert main.append("note", {}).seq == 4
    main.fork("more")
    hold.release()
    move(session, main)


def test_another_process_is_kept_out_and_named(disk_store, holder) -> None:
    """The holder's pid and since are told, by who only reads too; when it is killed the branch is free at once."""
    main = disk_store.create_session("x").branch("main")
    process = holder(main)
    with pytest.raises(castlog.Conflict, match=f"being run by process {process.pid} on .* since 20") as refused:
        disk_store._core.own(main._number)
    assert refused.value.pid == process.pid
    with castlog.open(disk_store.target, read_only=True) as reader:
        (running,) = reader.running()
    assert (running.rev, running.pid, running.host) == (main.rev, process.pid, os.uname().nodename)
    process.kill()
    process.wait()
    assert disk_store.running() == []
    disk_store._core.own(main._number).release()


def test_what_a_dead_process_noted_goes(disk_store, holder) -> None:
    """The notes of processes that were killed make room for others: the file does not grow."""
    main = disk_store.create_session("x").branch("main")
    for _ in range(3):
        process = holder(main)
        process.kill()
        process.wait()
    hold = disk_store._core.own(main._number)
    assert os.stat(os.path.join(disk_store.target, "runs.lock")).st_size == 160
    assert os.stat(os.path.join(disk_store.target, "runs.lock")).st_mode & 0o777 == 0o600
    hold.release()


def test_a_child_inherits_no_hold(disk_store) -> None:
    """A forked child is kept out like anybody else, and lets the parent's hold alone when it ends."""
    main = disk_store.create_session("x").branch("main")
    hold = disk_store._core.own(main._number)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            hold.release()
            with castlog.open(disk_store.target) as store:
                try:
                    store._core.own(main._number)
                    os.write(write, b"had it")
                except castlog.Conflict as error:
                    os.write(write, str(error.pid).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100).decode() == str(os.getpid())
    os.close(read)
    os.close(write)
    assert disk_store.running()[0].pid == os.getpid()
    hold.release()


def test_two_handles_of_a_process_share_the_locks(open_disk_store) -> None:
    """Closing one of two handles on a store drops no lock taken through the other."""
    first, second = open_disk_store(), open_disk_store()
    main = first.create_session("x").branch("main")
    hold = first._core.own(main._number)
    with pytest.raises(castlog.Conflict, match="this process"):
        second._core.own(main._number)
    second.close()
    code = "import sys, castlog; castlog.open(sys.argv[1])._core.own(int(sys.argv[2]))"
    argv = [sys.executable, "-c", code, first.target, str(main._number)]
    tried = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert f"being run by process {os.getpid()}" in tried.stderr
    hold.release()
    assert subprocess.run(argv, capture_output=True, timeout=60).returncode == 0


def test_without_the_kernels_word_locks_are_tried(disk_store, holder, monkeypatch) -> None:
    """Where the system does not say who holds a lock it still says that somebody does."""
    main = disk_store.create_session("x").branch("main")
    holder(main)
    monkeypatch.setattr("castlog.engine.owner.holder", lambda *args: None)
    with pytest.raises(castlog.Conflict, match="being run by"):
        disk_store._core.own(main._number)
    with castlog.open(disk_store.target, read_only=True) as reader:
        assert len(reader.running()) == 1


def test_a_lock_file_that_was_deleted_is_made_anew(tmp_path) -> None:
    """A file without a name would keep nobody out."""
    owners = FileOwners(tmp_path / "runs.lock")
    hold = owners.hold(1)
    assert hold.take() is None
    hold.release()
    os.unlink(tmp_path / "runs.lock")
    assert hold.take() is None
    assert (tmp_path / "runs.lock").exists()
    assert owners.of(1).pid == os.getpid()
    owners.close()
