"""What only a store on disk can suffer: files, processes, locks, forks, full maps, damage.

Guards against: a process that dies of a damaged file, a store that others can read, a lock nobody can name or free,
and commits that go into a file without a name.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.engine.disk import DiskEngine, create, open_disk
from castlog.engine.folder import committed, mount_kind, placement_notes
from castlog.errors import Conflict, Corrupt, Error, Invalid, NotFound, Unavailable

from .interrupts import interrupted

ROWS = [(b"a", b"1"), (b"b", b"2")]
SMALL_MAP = 1 << 16

PREAMBLE = """
import os, signal, sys, threading, time
from castlog.engine.disk import create, open_disk
from castlog.errors import Conflict, Error, Unavailable

def say(*words):
    print(*words, flush=True)

def rows(engine):
    with engine.read() as txn:
        return dict(txn.scan(b""))

def put(engine, key, value=b""):
    engine.update(lambda txn: txn.put(key, value))

def add(engine):
    engine.update(lambda txn: txn.put(b"n", b"%d" % (int(txn.get(b"n") or b"0") + 1)))

path = sys.argv[1]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store with two rows."""
    target = tmp_path / "store"
    assert create(target, ROWS)
    return target


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., DiskEngine]]:
    """Return a function that opens that store; everything is closed in the end."""
    made: list[DiskEngine] = []

    def opener(**options: object) -> DiskEngine:
        engine = open_disk(path, **options)  # type: ignore[arg-type]
        made.append(engine)
        return engine

    yield opener
    for engine in made:
        engine.close()


@pytest.fixture
def start(path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Return a function that runs code in another process, with the store's path in `path`."""
    made: list[subprocess.Popen[str]] = []

    def starter(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        made.append(process)
        return process

    yield starter
    for process in made:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line a process says."""
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if not said:
        raise AssertionError(process.communicate()[1])
    return said


def tell(process: subprocess.Popen[str]) -> None:
    """Let a process that reads a line go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process that must succeed and return the rest of what it said."""
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return out.strip()


def contents(engine: DiskEngine) -> dict[bytes, bytes]:
    """Return all an engine holds."""
    with engine.read() as txn:
        return dict(txn.scan(b""))


def put(engine: DiskEngine, key: bytes, value: bytes = b"") -> None:
    """Write one pair."""

    def change(txn: WriteTxn) -> None:
        txn.put(key, value)

    engine.update(change)


def add(engine: DiskEngine) -> None:
    """Add one to a number kept in the store."""

    def change(txn: WriteTxn) -> None:
        txn.put(b"n", b"%d" % (int(txn.get(b"n") or b"0") + 1))

    engine.update(change)


def write_many(prefix: bytes, count: int, size: int) -> Callable[[WriteTxn], None]:
    """Return a change that writes `count` values of `size` bytes."""

    def change(txn: WriteTxn) -> None:
        for n in range(count):
            txn.put(b"%s%04d" % (prefix, n), b"v" * size)

    return change


def modes(folder: Path) -> dict[str, str]:
    """Return the modes of a folder and what is in it."""
    return {name: oct((folder / name).stat().st_mode & 0o777) for name in [".", *os.listdir(folder)]}


# --- making -------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_only_the_owner_can_enter_or_read(tmp_path: Path, umask: int) -> None:
    """The folder is 0700 and every file 0600, whatever the umask, before and after it is opened; git ignores it."""
    target = tmp_path / "store"
    before = os.umask(umask)
    try:
        create(target, ROWS)
        open_disk(target).close()
    finally:
        os.umask(before)
    assert modes(target) == {
        ".": "0o700",
        "data.mdb": "0o600",
        "lock.mdb": "0o600",
        "write.lock": "0o600",
        ".gitignore": "0o600",
    }
    assert (target / ".gitignore").read_text() == "*\n"


def test_creating_again_changes_nothing(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """A second create finds the store and leaves its rows alone."""
    assert create(path, [(b"other", b"")]) is False
    assert contents(opened()) == dict(ROWS)


def test_an_empty_folder_becomes_the_store(tmp_path: Path) -> None:
    """An empty folder at the path is taken over, and made private."""
    target = tmp_path / "store"
    target.mkdir(mode=0o755)
    assert create(target, ROWS)
    assert modes(target)["."] == "0o700"


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    """A file, or a folder with something in it, is Invalid and stays as it was."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(Invalid):
            create(tmp_path / name, ROWS)
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path / "folder") == ["mine"]
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_missing_parent_is_not_found(tmp_path: Path) -> None:
    """The folder above must be there; the sentence names it."""
    with pytest.raises(NotFound, match="nowhere"):
        create(tmp_path / "nowhere" / "store", ROWS)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("")])
def test_opening_what_is_not_there_is_not_found(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """Nothing, an empty folder and a file are no store, and opening makes none."""
    target = tmp_path / "store"
    make(target)
    before = sorted(os.walk(tmp_path))
    with pytest.raises(NotFound):
        open_disk(target)
    assert sorted(os.walk(tmp_path)) == before


def test_a_failed_create_leaves_nothing(tmp_path: Path) -> None:
    """When the first rows cannot be written there is no store and no litter."""

    def rows() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"1"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        create(tmp_path / "store", rows())
    with pytest.raises(Invalid):
        create(tmp_path / "store", [(b"", b"")])
    assert os.listdir(tmp_path) == []


def test_one_of_many_creators_wins(tmp_path: Path, start: Callable[[str], subprocess.Popen[str]]) -> None:
    """Of threads and processes that create at once exactly one makes the store; all open the same one."""
    target = tmp_path / "race"
    barrier = threading.Barrier(4)
    made: list[tuple[bool, bytes]] = []

    def work(name: bytes) -> None:
        barrier.wait()
        made.append((create(target, [(b"by", name)]), name))

    processes = [start(f"input(); say(create({str(target)!r}, [(b'by', b'{n}')]))") for n in ("p", "q")]
    threads = [threading.Thread(target=work, args=(b"%d" % n,)) for n in range(4)]
    for process in processes:
        tell(process)
    time.sleep(0.05)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for won, name in made if won]
    winners += [name for process, name in zip(processes, (b"p", b"q"), strict=True) if finish(process) == "True"]
    assert len(winners) == 1
    engine = open_disk(target)
    assert contents(engine) == {b"by": winners[0]}
    engine.close()
    assert sorted(os.listdir(tmp_path)) == ["race", "store"]


# --- damage -------------------------------------------------------------------------------------


def fill(path: Path) -> None:
    """Give a store enough rows for many pages."""
    engine = open_disk(path)
    engine.update(write_many(b"", 200, 3000))
    engine.close()


@pytest.mark.parametrize("size", [0, 1, 100, 151, 4095, 4096, 4200, 8191, 8192, 50_000, -4096, -1])
def test_a_cut_off_file_is_corrupt(path: Path, size: int) -> None:
    """A data file of any wrong length is Corrupt before it is mapped; the process lives."""
    fill(path)
    data = path / "data.mdb"
    os.truncate(data, size if size >= 0 else data.stat().st_size + size)
    for read_only in (False, True):
        with pytest.raises(Corrupt):
            open_disk(path, read_only=read_only)


@pytest.mark.parametrize(
    "content",
    [b"x", b"SQLite format 3\x00" * 1000, bytes(65_536), os.urandom(65_536)],
    ids=["one byte", "foreign", "zeros", "garbage"],
)
def test_a_foreign_file_is_corrupt(path: Path, content: bytes) -> None:
    """A data file that is none of LMDB's is Corrupt."""
    (path / "data.mdb").write_bytes(content)
    with pytest.raises(Corrupt):
        open_disk(path)


@pytest.mark.parametrize("offset", [16, 20, 40, 42, 4096 + 16, 4096 + 40])
def test_a_damaged_meta_page_is_corrupt(path: Path, offset: int) -> None:
    """Magic, version and page size are checked in both meta pages."""
    data = bytearray((path / "data.mdb").read_bytes())
    data[offset] ^= 0xFF
    (path / "data.mdb").write_bytes(data)
    with pytest.raises(Corrupt):
        open_disk(path)


def test_damage_inside_is_found_before_it_is_read(path: Path) -> None:
    """`problems` finds damage to pages without reading them through LMDB; where it finds none reading is safe."""
    fill(path)
    whole = (path / "data.mdb").read_bytes()
    random = Random(7)
    damaged = 0
    for step in range(40):
        data = bytearray(whole)
        for _ in range(1 + step % 4):
            # Headers and the offsets behind them are small and matter most.
            place = random.choice((random.randrange(24), random.randrange(4096)))
            data[random.randrange(2, len(data) // 4096) * 4096 + place] = random.randrange(256)
        (path / "data.mdb").write_bytes(data)
        engine = open_disk(path)
        try:
            if engine.problems():
                damaged += 1
            else:
                contents(engine)
        finally:
            engine.close()
    assert 0 < damaged < 40


def tree(path: Path) -> tuple[int, int]:
    """Return the page size and where in the data file the root page of the newest commit begins."""
    data = (path / "data.mdb").read_bytes()
    (size,) = struct.unpack_from("=I", data, 40)
    newest = max((struct.unpack_from("=Q", data, at + 144), at) for at in (0, size))[1]
    (root,) = struct.unpack_from("=Q", data, newest + 128)
    return size, root * size


def overwrite(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes of the data file wherever they occur."""
    data = (path / "data.mdb").read_bytes()
    assert old in data
    (path / "data.mdb").write_bytes(data.replace(old, new))


def test_a_tree_that_bites_its_tail_is_corrupt(tmp_path: Path) -> None:
    """Told to free space or to reopen, a user would go on with a damaged store. Each later answer says the same."""
    target = tmp_path / "deep"
    create(target, [(b"%05d" % n, b"v" * 500) for n in range(200)])
    size, root = tree(target)
    with open(target / "data.mdb", "r+b") as file:
        file.seek(root + 16)
        (node,) = struct.unpack("=H", file.read(2))
        file.seek(root + node)
        file.write(struct.pack("=HH", root // size, 0))  # The first child is the root itself.
    engine = open_disk(target)

    def change(txn: WriteTxn) -> None:
        for _ in range(2):
            with pytest.raises(Corrupt):
                txn.put(b"00000", b"")

    with pytest.raises(Corrupt):
        engine.update(change)
    with engine.read() as txn:
        for reverse in (False, True, False):
            with pytest.raises(Corrupt):
                list(txn.scan(b"", b"00001", reverse=reverse))
            with pytest.raises(Corrupt):
                txn.get(b"00000")
    engine.close()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("old", "new"), [(b"key-5", b"key-0"), (b"key-6", b"key-9")])
def test_keys_out_of_order_are_corrupt(tmp_path: Path, old: bytes, new: bytes, reverse: bool) -> None:
    """A scan never yields what it was not asked for, nor ends as if rows behind a damaged key were not there."""
    target = tmp_path / "disordered"
    create(target, [(b"key-%d" % n, b"") for n in range(10)])
    overwrite(target, old, new)
    engine = open_disk(target)
    with engine.read() as txn, pytest.raises(Corrupt, match="out of order"):
        list(txn.scan(b"key-", None, reverse=reverse))
    with engine.read() as txn, pytest.raises(Corrupt, match="out of order"):
        list(txn.scan(b"key-4", None) if new < old else txn.scan(b"", b"key-7", reverse=True))
    engine.close()


def test_a_healthy_file_may_be_shorter_than_it_says(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """Pages written and freed in one commit may be missing at the end; that is no damage."""

    def change(txn: WriteTxn) -> None:
        txn.put(b"big", b"v" * 60_000)
        txn.delete(b"big")
        txn.put(b"c", b"")

    def is_short() -> bool:
        return committed(path / "data.mdb")[1] > engine.stored_bytes()

    fill(path)
    engine = opened()
    for n in range(20):
        put(engine, b"k%d" % n, b"v" * 60_000)
        engine.update(change)
        if is_short():
            break
    assert is_short()
    before = contents(engine)
    short = path.with_name("short")
    shutil.copytree(path, short)
    assert engine.problems() == []
    engine.close()
    engine = opened()
    assert contents(engine) == before
    put(engine, b"c", b"v" * 60_000)
    assert contents(engine) == before | {b"c": b"v" * 60_000}
    # A copy that nobody closed: read as it is by one, given its length by the other.
    for read_only in (True, False):
        assert committed(short / "data.mdb")[1] > (short / "data.mdb").stat().st_size
        copy = open_disk(short, read_only=read_only)
        assert contents(copy) == before
        copy.close()
    assert committed(short / "data.mdb")[1] == (short / "data.mdb").stat().st_size


# --- looking before touching --------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, object]:
    """Return all that could change in a folder."""
    return {
        name: ((folder / name).stat().st_mtime_ns, (folder / name).read_bytes() if name != "." else b"")
        for name in [".", *os.listdir(folder)]
    }


def test_a_refused_store_is_not_touched(path: Path) -> None:
    """When the check refuses, not a byte or a name in the folder has changed."""

    def refuse(txn: ReadTxn) -> None:
        assert txn.get(b"a") == b"1"
        assert list(txn.scan(b"")) == ROWS
        raise Unavailable("newer format")

    before = snapshot(path)
    assert set(before) == {".", "data.mdb", "write.lock", ".gitignore"}
    for read_only in (False, True):
        with pytest.raises(Unavailable, match="newer format"):
            open_disk(path, check=refuse, read_only=read_only)
    assert snapshot(path) == before


def test_a_second_open_is_checked_too(opened: Callable[..., DiskEngine]) -> None:
    """A check that refuses while another handle is open leaves that one alone."""

    def refuse(txn: ReadTxn) -> None:
        raise Unavailable("newer format")

    first = opened()
    with pytest.raises(Unavailable, match="newer format"):
        opened(check=refuse)
    put(first, b"c")


def test_a_check_disturbed_by_commits_is_repeated(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """What a look without locks finds wrong counts only if no commit came in between."""
    calls: list[bytes | None] = []

    def check(txn: ReadTxn) -> None:
        calls.append(txn.get(b"a"))
        if len(calls) == 1:
            finish(start("put(open_disk(path), b'a', b'9')"))
            raise Corrupt("seen in the middle of a commit")

    opened(check=check)
    assert calls[0] == b"1"
    assert set(calls[1:]) == {b"9"}


# --- sharing ------------------------------------------------------------------------------------


def test_handles_of_one_process_share_the_store(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """A second open of the same store works by any path; closing one handle leaves the other."""
    first, second = opened(), opened()
    link = path.with_name("link")
    link.symlink_to(path)
    third = open_disk(link)
    put(third, b"c")
    assert set(contents(first)) == set(contents(second)) == {b"a", b"b", b"c"}
    first.close()
    third.close()
    put(second, b"d")
    assert b"d" in contents(second)


def test_a_read_only_handle_refuses_changes(opened: Callable[..., DiskEngine]) -> None:
    """It reads what the writable handle beside it writes, and changes nothing."""
    writer, reader = opened(), opened(read_only=True)
    put(writer, b"c")
    assert b"c" in contents(reader)
    uses: list[Callable[[], object]] = [lambda: put(reader, b"d"), lambda: reader.replace(everything)]
    for use in uses:
        with pytest.raises(Unavailable, match="reading only"):
            use()


def test_a_writable_handle_after_a_read_only_one(opened: Callable[..., DiskEngine]) -> None:
    """The order of opening does not matter."""
    reader = opened(read_only=True)
    assert contents(reader) == dict(ROWS)
    writer = opened()
    put(writer, b"c")
    assert b"c" in contents(reader)


def test_opening_and_closing_inside_an_update(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """Another handle may come and go inside a change; the last one is closed afterwards only."""
    engine = opened()

    def change(txn: WriteTxn) -> None:
        other = open_disk(path)
        assert contents(other) == dict(ROWS)
        with pytest.raises(Invalid):
            put(other, b"inner")
        other.close()
        with pytest.raises(Invalid):
            engine.close()
        txn.put(b"c", b"")

    engine.update(change)
    put(engine, b"d")
    assert set(contents(engine)) == {b"a", b"b", b"c", b"d"}


def test_opening_and_closing_leaks_nothing(path: Path) -> None:
    """No file stays open."""
    open_disk(path).close()
    before = len(os.listdir("/dev/fd"))
    for read_only in (True, False) * 5:
        engine = open_disk(path, read_only=read_only)
        contents(engine)
        engine.close()
    assert len(os.listdir("/dev/fd")) == before


def test_two_processes_write_one_after_the_other(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Read-modify-write in two processes loses nothing, and the version grows by what the other did."""
    engine = opened()
    process = start("e = open_disk(path); say('ready'); [add(e) for _ in range(60)]; e.close()")
    assert line(process) == "ready"
    for _ in range(60):
        add(engine)
    before = engine.version()
    finish(process)
    assert contents(engine)[b"n"] == b"120"
    assert engine.version() >= before


# --- the write lock -----------------------------------------------------------------------------

HOLD = """
e = open_disk(path)
def change(txn):
    say("held")
    sys.stdin.readline()
e.update(change)
"""


def test_the_conflict_names_the_holder_and_a_kill_frees_the_lock(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Waiting for another process ends after the time-out with its number; once it is killed writing goes on."""
    engine = opened(lock_timeout=0.1)
    holder = start(HOLD)
    assert line(holder) == "held"
    began = time.monotonic()
    with pytest.raises(Conflict, match=f"process {holder.pid} on") as caught:
        put(engine, b"c")
    assert 0.1 <= time.monotonic() - began < 2
    assert caught.value.pid == holder.pid
    assert caught.value.host == socket.gethostname()
    age = datetime.now().astimezone() - datetime.fromisoformat(caught.value.since)
    assert 0 <= age.total_seconds() < 60
    assert contents(engine) == dict(ROWS)
    holder.kill()
    holder.wait()
    put(engine, b"c")
    assert b"c" in contents(engine)


def test_a_released_lock_is_had_by_who_waits(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Whoever waits gets the lock soon after it is free."""
    engine = opened(lock_timeout=10)
    holder = start(HOLD)
    assert line(holder) == "held"
    threading.Timer(0.1, tell, [holder]).start()
    began = time.monotonic()
    put(engine, b"c")
    assert time.monotonic() - began < 5


def test_an_interrupt_ends_the_wait(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Ctrl-C while waiting for the lock works at once, for a process and for a thread's lock, and spoils nothing."""
    process = start("""
e = open_disk(path, lock_timeout=60)
for holder in ("process", "thread"):
    if holder == "thread":
        inside = threading.Event(); free = threading.Event()
        thread = threading.Thread(target=e.update, args=(lambda txn: (inside.set(), free.wait()),))
        thread.start(); inside.wait()
    say("waiting")
    try:
        put(e, b"c")
    except KeyboardInterrupt:
        say("interrupted")
    if holder == "thread":
        free.set(); thread.join()
    sys.stdin.readline()
put(e, b"d"); say("done")
""")
    engine = opened()

    def hold(txn: WriteTxn) -> None:
        assert line(process) == "waiting"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert line(process) == "interrupted"

    engine.update(hold)
    tell(process)
    assert line(process) == "waiting"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert line(process) == "interrupted"
    tell(process)
    assert line(process) == "done"
    assert contents(engine).keys() == {b"a", b"b", b"d"}


def test_after_an_interrupt_on_any_line_of_an_update_other_processes_can_write(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Ctrl-C at the end of an append does not keep the lock for the rest of the process's life."""
    process = start("""
e = open_disk(path, lock_timeout=2)
for said in sys.stdin:
    try:
        add(e); say("added")
    except Error as error:
        say(error)
""")
    engine = opened()
    count = 0
    for interrupt in interrupted(lambda: put(engine, b"c")):
        tell(process)
        assert line(process) == "added", interrupt
        count += 1
        assert contents(engine)[b"n"] == b"%d" % count
    assert count > 20


def test_a_child_that_outlives_its_killed_parent_does_not_hold_the_lock(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """The lock dies with the process that took it, whoever it forked."""
    process = start("""
e = open_disk(path)
def change(txn):
    if os.fork():
        say("forked")
        sys.stdin.readline()
    else:
        os.close(1); os.close(2)
        time.sleep(8)
        os._exit(0)
e.update(change)
""")
    engine = opened(lock_timeout=2)
    assert line(process) == "forked"
    process.kill()
    process.wait()
    put(engine, b"c")


def test_a_removed_lock_file_is_made_again(
    path: Path, opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Without `write.lock` the store still opens and writes, and LMDB's own lock keeps the writers apart."""
    engine = opened()
    (path / "write.lock").unlink()
    process = start("e = open_disk(path); say('ready'); [add(e) for _ in range(40)]; e.close()")
    assert line(process) == "ready"
    for _ in range(40):
        add(engine)
    finish(process)
    assert contents(engine)[b"n"] == b"80"
    assert modes(path)["write.lock"] == "0o600"


# --- forks --------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked child and return the child's exit code: 0 when it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except Unavailable:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_opens_its_own(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """A fresh open in the child works, sees the parent's commits and is seen by the parent."""
    engine = opened()
    put(engine, b"c")

    def work() -> None:
        mine = open_disk(path)
        assert b"c" in contents(mine)
        put(mine, b"d")
        mine.close()

    assert in_child(work) == 0
    assert b"d" in contents(engine)
    put(engine, b"e")
    assert in_child(work) == 0


def test_a_fork_inside_a_transaction(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """The child cannot use the transaction nor open the store; the parent's snapshot holds after the child's end."""
    engine = opened()
    with engine.read() as txn:
        scan = txn.scan(b"")
        next(scan)

        def use() -> None:
            for attempt in (lambda: txn.get(b"a"), lambda: next(scan), lambda: contents(engine)):
                with pytest.raises(Error):
                    attempt()
            open_disk(path)

        assert in_child(use) == 7
        for n in range(20):
            engine.update(write_many(b"", 30, 5000))
            put(engine, b"a", b"%d" % n)
        assert txn.get(b"a") == b"1"
        assert list(scan) == [(b"b", b"2")]


def test_the_end_of_a_child_does_not_free_the_parents_snapshot(
    start: Callable[[str], subprocess.Popen[str]],
) -> None:
    """Not even a child that ends like a program, tidying up, takes the parent's place among the readers."""
    process = start("""
e = open_disk(path)
with e.read() as txn:
    child = os.fork()
    if child == 0:
        sys.exit()
    os.waitpid(child, 0)
    for n in range(20):
        e.update(lambda w: [w.put(b"%d" % k, b"v" * 5000) for k in range(30)])
        put(e, b"a", b"%d" % n)
    assert txn.get(b"a") == b"1", txn.get(b"a")
    assert dict(txn.scan(b"")) == {b"a": b"1", b"b": b"2"}
say("ok")
""")
    assert finish(process) == "ok"


def test_forking_while_other_threads_write(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """A fork waits for the transactions of other threads, so that its child can open the store."""
    engine = opened()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            put(engine, b"n", b"v" * 100)
            contents(engine)
            engine.version()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_child(lambda: put(open_disk(path), b"child")) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# --- the map ------------------------------------------------------------------------------------


def test_a_full_map_grows_and_the_change_runs_again(opened: Callable[..., DiskEngine]) -> None:
    """A change too large for the map runs again in a larger one, from the start, and is kept once."""
    engine = opened(map_bytes=SMALL_MAP)
    runs: list[int] = []

    def change(txn: WriteTxn) -> str:
        runs.append(1)
        txn.put(b"n", b"%d" % (int(txn.get(b"n") or b"0") + 1))
        for n in range(40):
            txn.put(b"big%d" % n, b"v" * 50_000)
        return "done"

    assert engine.update(change) == "done"
    assert len(runs) > 1
    assert contents(engine)[b"n"] == b"1"
    assert len(contents(engine)) == 43


def test_a_change_that_hides_the_full_map_runs_again(opened: Callable[..., DiskEngine]) -> None:
    """Swallowing the failure, or raising another one for it, makes no difference."""
    engine = opened(map_bytes=SMALL_MAP)

    def swallow(txn: WriteTxn) -> None:
        for n in range(20):
            try:
                txn.put(b"s%d" % n, b"v" * 50_000)
            except Exception:
                return

    def exchange(txn: WriteTxn) -> None:
        try:
            for n in range(40):
                txn.put(b"x%d" % n, b"v" * 50_000)
        except Error as error:
            raise ValueError from error

    engine.update(swallow)
    engine.update(exchange)
    assert len(contents(engine)) == 62


def test_the_map_grows_while_other_threads_read(opened: Callable[..., DiskEngine]) -> None:
    """Growing waits for readers of other threads and never pulls the map from under them."""
    engine = opened(map_bytes=SMALL_MAP)
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                with engine.read() as txn:
                    assert txn.get(b"a") == b"1"
                    assert len(list(txn.scan(b""))) >= 2
                    with engine.read() as inner:
                        assert inner.get(b"b") == b"2"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(30):
        put(engine, b"big%d" % n, b"v" * 60_000)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(contents(engine)) == 32


def test_the_map_cannot_grow_under_a_read_of_the_same_thread(opened: Callable[..., DiskEngine]) -> None:
    """It is Unavailable at once instead of waiting for itself; afterwards the change goes through."""
    engine = opened(map_bytes=SMALL_MAP)
    change = write_many(b"big", 20, 50_000)
    with engine.read() as txn:
        with pytest.raises(Unavailable, match="this thread"):
            engine.update(change)
        assert txn.get(b"a") == b"1"
    engine.update(change)
    assert len(contents(engine)) == 22


def test_a_map_grown_by_another_process_is_adopted(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Reading and writing go on after another process filled more than this one had mapped."""
    grow = "e = open_disk(path); e.update(lambda t: [t.put(b'%s%d' % (k, n), b'v' * 50_000) for n in range(40)])"
    engine = opened(map_bytes=SMALL_MAP)
    finish(start(f"k = b'p'; {grow}"))
    assert len(contents(engine)) == 42
    finish(start(f"k = b'q'; {grow}"))
    put(engine, b"c")
    assert len(contents(engine)) == 83


def test_a_process_with_little_address_space_opens_the_store(start: Callable[[str], subprocess.Popen[str]]) -> None:
    """Where a large map is refused a smaller one is taken, and grown as far as it goes."""
    process = start("""
import resource
resource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20))
e = open_disk(path)
for n in range(100):
    put(e, b"%d" % n, b"v" * 60_000)
say(len(rows(e)))
""")
    assert finish(process) == "102"


def test_a_refused_write_is_unavailable_and_undone(start: Callable[[str], subprocess.Popen[str]]) -> None:
    """When the system refuses a write the change is not kept, says so, and the next one works once there is room."""
    process = start("""
import resource
e = open_disk(path)
size = e.stored_bytes()
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, resource.RLIM_INFINITY))
try:
    e.update(lambda txn: [txn.put(b"big%d" % n, b"v" * 60_000) for n in range(10)])
except Unavailable as error:
    say(error.kept, "not kept" in str(error))
say(len(rows(e)))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
put(e, b"c", b"v" * 60_000)
say(sorted(rows(e)), e.problems())
""")
    assert finish(process).splitlines() == ["False True", "2", "[b'a', b'b', b'c'] []"]


# --- replaced and removed -----------------------------------------------------------------------


def other_store(path: Path, rows: list[tuple[bytes, bytes]]) -> Path:
    """Make another store beside the first."""
    target = path.with_name("other")
    create(target, rows)
    return target


@pytest.mark.parametrize("age", [0.0, 0.15])
def test_a_replaced_data_file_is_followed(path: Path, opened: Callable[..., DiskEngine], age: float) -> None:
    """Reads and updates go to the file that was renamed into place, and the version grows."""
    engine = opened()
    time.sleep(age)
    contents(engine)
    before = engine.version()
    os.replace(other_store(path, [(b"new", b"1")]) / "data.mdb", path / "data.mdb")
    assert contents(engine) == {b"new": b"1"}
    assert engine.version() > before
    put(engine, b"c")
    engine.close()
    assert set(contents(opened())) == {b"new", b"c"}


def test_an_update_follows_a_replaced_data_file(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """A change that comes first after the rename is made in the new file."""
    engine = opened()
    os.replace(other_store(path, [(b"new", b"1")]) / "data.mdb", path / "data.mdb")
    put(engine, b"c")
    assert set(contents(engine)) == {b"new", b"c"}


def test_a_replaced_folder_is_followed(
    path: Path, opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """A whole store put in the other's place is used, under the lock it brings along."""
    engine = opened(lock_timeout=0.1)
    os.rename(path, path.with_name("old"))
    os.rename(other_store(path.with_name("old"), [(b"new", b"1")]), path)
    put(engine, b"c")
    assert set(contents(engine)) == set(contents(opened())) == {b"new", b"c"}
    holder = start(HOLD)
    assert line(holder) == "held"
    with pytest.raises(Conflict, match=str(holder.pid)):
        put(engine, b"d")


def test_a_removed_store_is_unavailable(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """Nothing is read from, or written to, a store whose folder is gone."""
    engine = opened()
    shutil.rmtree(path)
    for use in (lambda: contents(engine), lambda: put(engine, b"c"), engine.version):
        with pytest.raises(Unavailable, match="gone"):
            use()


@pytest.mark.parametrize("name", ["", "data.mdb"])
def test_a_store_removed_during_a_commit_is_noticed(path: Path, opened: Callable[..., DiskEngine], name: str) -> None:
    """A commit into a file that has lost its name is not reported as kept."""
    engine = opened()

    def change(txn: WriteTxn) -> None:
        txn.put(b"c", b"")
        if name:
            (path / name).unlink()
        else:
            shutil.rmtree(path)

    with pytest.raises(Unavailable, match="removed or replaced"):
        engine.update(change)


def test_an_exchange_under_other_processes_is_refused_until_they_are_gone(
    path: Path, opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """A bare rename leaves the others' reader table, whose numbers would lead LMDB astray; it is not used."""
    engine = opened()
    other = start("e = open_disk(path); rows(e); say('open'); sys.stdin.readline()")
    assert line(other) == "open"
    for n in range(5):
        put(engine, b"%d" % n)
    os.replace(other_store(path, [(b"new", b"1")]) / "data.mdb", path / "data.mdb")
    with pytest.raises(Unavailable, match="close them first"):
        contents(engine)
    tell(other)
    finish(other)
    assert contents(engine) == {b"new": b"1"}
    put(engine, b"c")


# --- rebuilding ---------------------------------------------------------------------------------


def everything(txn: ReadTxn) -> Iterator[tuple[bytes, bytes]]:
    """Return the rows of a store as they are."""
    return txn.scan(b"")


def test_a_rebuilt_file_is_smaller_and_private(path: Path, opened: Callable[..., DiskEngine]) -> None:
    """Rebuilding gives free pages back to the disk; modes and contents stay; nothing is left lying about."""
    engine = opened()
    engine.update(write_many(b"", 200, 5000))
    engine.update(lambda txn: [txn.delete(b"%04d" % n) for n in range(190)])
    size, version, before = engine.stored_bytes(), engine.version(), contents(engine)
    engine.replace(everything)
    assert engine.stored_bytes() < size / 3
    assert contents(engine) == before
    assert engine.version() > version
    assert engine.problems() == []
    put(engine, b"c")
    assert set(modes(path)) == {".", "data.mdb", "lock.mdb", "write.lock", ".gitignore"}
    assert set(modes(path).values()) == {"0o700", "0o600"}


def test_large_rebuilds_go_in_batches(opened: Callable[..., DiskEngine]) -> None:
    """More rows than one transaction should hold are written all the same."""
    engine = opened()
    value = b"v" * 60_000
    engine.replace(lambda txn: ((b"%06d" % n, value) for n in range(1200)))
    with engine.read() as txn:
        assert sum(1 for _ in txn.scan(b"")) == 1200
    assert engine.problems() == []


def test_handles_go_on_after_a_rebuild(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Other handles and processes follow to the new file while it is exchanged again and again; nothing is lost."""
    engine, reader = opened(), opened(read_only=True)
    process = start("""
e = open_disk(path)
say("ready")
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
count = 0
while not stop.is_set():
    add(e)
    count += 1
    assert rows(e)[b"n"] == b"%d" % count
say(count)
""")
    assert line(process) == "ready"
    with reader.read() as old:
        for _ in range(8):
            engine.replace(everything)
            time.sleep(0.02)
        assert dict(old.scan(b"")).keys() <= {b"a", b"b", b"n"}
        assert b"n" in contents(reader)
    tell(process)
    count = finish(process).encode()
    assert contents(engine)[b"n"] == contents(reader)[b"n"] == count


def test_a_handle_closed_during_a_rebuild_leaves_its_locks_to_it(
    path: Path,
    opened: Callable[..., DiskEngine],
    start: Callable[[str], subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What another process commits after the close is in the new file: nobody writes while files are exchanged."""
    from castlog.engine import disk

    engine, walk = opened(), disk._walk
    building, closed = threading.Event(), threading.Event()

    def slow_walk(at: Path) -> list[str]:
        found = walk(at)
        if at != path:
            building.set()
            assert closed.wait(10)
            time.sleep(0.3)  # the other process gets as far as it can
        return found

    monkeypatch.setattr(disk, "_walk", slow_walk)
    rebuild = threading.Thread(target=lambda: engine.replace(everything))
    rebuild.start()
    assert building.wait(10)
    engine.close()
    process = start("""
e = open_disk(path)
for _ in range(20):
    add(e)
say(rows(e)[b"n"].decode())
""")
    closed.set()
    rebuild.join()
    assert finish(process) == "20"
    assert contents(opened())[b"n"] == b"20"


def test_an_exchange_that_was_killed_halfway_is_finished(
    path: Path, opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """A new data file beside the old reader table keeps nobody out, though a process still has the old file open."""
    engine = opened()
    process = start("""
from castlog.engine import folder
folder._drop_reader_table = lambda target: os.kill(os.getpid(), signal.SIGKILL)
open_disk(path).replace(lambda txn: txn.scan(b""))
""")
    process.wait()
    other = start("""
e = open_disk(path)
add(e)
say(rows(e)[b"n"].decode())
""")
    assert finish(other) == "1"
    assert contents(engine)[b"n"] == b"1"
    put(engine, b"c")
    assert "rebuild.new" not in modes(path)


def test_killed_readers_do_not_keep_pages_for_ever(
    opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """The file of a store that is written to does not grow by what a killed reader saw."""
    engine = opened()
    engine.update(write_many(b"", 200, 5000))
    process = start("""
with open_disk(path).read() as txn:
    next(txn.scan(b""))
    say("reading")
    sys.stdin.readline()
""")
    assert line(process) == "reading"
    process.kill()
    process.wait()
    size = engine.stored_bytes()
    for number in range(400):
        put(engine, b"n%d" % (number % 7), b"v" * 20_000)
    assert engine.stored_bytes() < size + 200 * 20_000


def test_a_killed_rebuild_leaves_the_store_usable(
    path: Path, opened: Callable[..., DiskEngine], start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """What a killed builder left is in nobody's way and goes with the next rebuild."""
    process = start("""
e = open_disk(path)
def rows(txn):
    yield b"x", b""
    say("building")
    sys.stdin.readline()
e.replace(rows)
""")
    assert line(process) == "building"
    engine = opened()
    with pytest.raises(Conflict, match=str(process.pid)):
        engine.replace(everything)
    put(engine, b"c")
    process.kill()
    process.wait()
    assert "rebuild.new" in os.listdir(path)
    assert set(contents(engine)) == {b"a", b"b", b"c"}
    engine.replace(everything)
    assert "rebuild.new" not in os.listdir(path)
    assert set(contents(engine)) == {b"a", b"b", b"c"}


# --- where it lies ------------------------------------------------------------------------------

MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /mnt/share rw - nfs4 server:/export rw,vers=4.2
31 30 0:26 / /mnt/share/local rw shared:5 - tmpfs tmpfs rw
32 22 0:27 / /mnt/with\040space rw - 9p host rw
33 22 0:28 / /over rw - overlay overlay rw
34 33 0:29 / /over rw - ext4 /dev/vdb rw
35 22 0:30 / /layers rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/home/me/store", "ext4"),
        ("/mnt/share/store", "nfs4"),
        ("/mnt/sharestore", "ext4"),
        ("/mnt/share/local/store", "tmpfs"),
        ("/mnt/with space/store", "9p"),
        ("/over/store", "ext4"),
        ("/layers", "overlay"),
    ],
)
def test_the_mount_is_the_innermost_and_last(target: str, kind: str) -> None:
    """The longest mount point counts, and of several on one point the last."""
    assert mount_kind(Path(target), MOUNTS) == kind


def test_network_file_systems_are_refused_and_fleeting_ones_noted() -> None:
    """NFS and 9p are Unavailable; overlay and tmpfs give a note; a disk gives none."""
    for refused in ("/mnt/share/store", "/mnt/with space/store"):
        with pytest.raises(Unavailable, match="locks"):
            placement_notes(Path(refused), MOUNTS)
    assert len(placement_notes(Path("/layers/store"), MOUNTS)) == 1
    assert "memory" in placement_notes(Path("/mnt/share/local/store"), MOUNTS)[0]
    assert placement_notes(Path("/home/me/store"), MOUNTS) == ()
    assert placement_notes(Path("/home/me/store"), "") == ()
