"""Compaction: everything reads as before, in fewer bytes, and nothing damaged is written down as sound."""

from __future__ import annotations

import errno
import io
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import castlog
from castlog.format import objects as fmt
from castlog.format import rows, snapshot
from castlog.ops import compact, usage
from castlog.ops.compact import dictionary
from castlog.ops.compact.layout import Frames
from castlog.ops.compact.rewrite import Rewrite

from .conftest import known

DICTIONARY = b"Z"


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch, small_chunks: None) -> None:
    """Put few chunks and pieces into a frame, and train dictionaries on little."""
    monkeypatch.setattr("castlog.limits.FRAME_BYTES", 4_000)
    monkeypatch.setattr("castlog.limits.DICTIONARY_RAW_BYTES_MIN", 1)
    monkeypatch.setattr("castlog.limits.DICTIONARY_BYTES", 2_000)
    monkeypatch.setattr("castlog.limits.SAMPLE_BYTES", 200)


def picture(store: castlog.Store) -> dict[str, Any]:
    """Return all that can be read of a store, of what is deleted too."""
    with store._core.read() as txn:
        numbers = [rows.REFS.fields(key)[0] for key, _ in txn.scan(b"R", b"S") if rows.REFS.owns(key)]
        moves = [(key, value) for key, value in txn.scan(b"A", b"N") if key[:1] != b"N"]
        moves += [*txn.scan(b"O", b"P"), *txn.scan(b"R", b"T")]
        moves += [row for row in txn.scan(b"T", b"U") if row[0][9] in (0, 4, 5)]
    found: dict[str, Any] = {"rows": moves, "branches": len(numbers), "trash": store.trash()}
    for item in store.sessions(sort="created"):
        for branch in item.branches():
            events = list(branch.events())
            found[branch.rev] = [known(event) for event in events]
            found[f"{branch.rev} in flight"] = [
                [call.seq for call in branch.in_flight(at=seq)] for seq in range(branch.head.seq + 1)
            ]
    return found


def size(store: castlog.Store) -> int:
    """Return the bytes of all keys and values."""
    with store._core.read() as txn:
        return sum(len(key) + len(value) for key, value in txn.scan(b""))


def dictionaries(store: castlog.Store) -> list[tuple[bytes, bytes]]:
    """Return the rows that lead to dictionaries."""
    with store._core.read() as txn:
        return list(txn.scan(DICTIONARY, b"["))


def sound(store: castlog.Store) -> bool:
    """Return whether verify finds nothing at all but what the log itself is odd about."""
    odd = {"unmatched_result", "reopened_call", "unused_piece"}
    return {finding.name for finding in store.verify(deep=True).findings} <= odd


def same_lines(store: castlog.Store, branch: castlog.Branch) -> bytes:
    """Return a branch's export."""
    file = io.BytesIO()
    store.export(branch, file)
    return file.getvalue()


def test_everything_reads_as_before(kept, small_frames: None) -> None:
    """Events, ids, calls in flight at every seq, tags, reflog and trash are those from before; verify agrees."""
    store = kept.store
    before, lines = picture(store), same_lines(store, kept.session.branch("main"))
    report = store.compact()
    assert picture(store) == before
    assert kept.unreadable() == kept.lost_by_walking(reverse=True) == set()
    assert same_lines(store, kept.session.branch("main")) == lines
    assert sound(store)
    assert report.chunks == len(kept.table(rows.CHUNKS))
    assert report.pieces == len(kept.table(rows.PIECES))
    assert report.objects == sum(1 for key, _ in kept.parts() if key.endswith(b"\0\0"))
    assert kept.records() == []


def test_what_was_deleted_comes_back(kept, small_frames: None) -> None:
    """A branch and a session can be brought back after the store was compacted."""
    kept.store.compact()
    restored = kept.store.undelete(f"{kept.session.id}/gone")
    assert [event.payload for event in restored.events()][-1] == {"gone": True}
    kept.session.delete()
    kept.store.compact()
    kept.store.undelete(kept.session.id)
    assert kept.unreadable() == set()


def test_it_goes_on(kept, small_frames: None) -> None:
    """Branches are appended to, forked and sealed as before, keys still hold, and it can be compacted again."""
    store, session = kept.store, kept.session
    for round_ in range(3):
        store.compact()
        main = session.branch("main")
        assert main.append("user_message", {"text": "question 0"}, key="ask-0").seq == 1
        head = main.head.seq
        main.extend([("note", {"round": round_, "n": n, "text": "x" * 150 * n}) for n in range(12)])
        fork = main.fork(f"fork-{round_}", at=head - 1)
        fork.append("note", {"fork": round_})
        main.seal()
        assert main.read(head + 12).payload["n"] == 11
        assert sound(store)
    before = picture(store)
    store.compact()
    assert picture(store) == before
    assert sound(store)


def test_compacting_again_does_not_grow(kept, small_frames: None) -> None:
    """A compacted store has nothing left to gain, and numbers of objects are never used twice."""
    kept.store.compact()
    first, numbers = size(kept.store), {key[1:9] for key, _ in kept.parts()}
    for _ in range(3):
        kept.store.compact()
        assert size(kept.store) <= first + 50  # numbers grow by a byte or so
        again = {key[1:9] for key, _ in kept.parts()}
        assert not numbers & again
        assert max(numbers) < min(again)
        numbers = again
        assert len(dictionaries(kept.store)) <= 1


def test_snapshots_stay(kept, small_frames: None) -> None:
    """Snapshots, whole and in pieces, are listed and restored from as before, twice; a lost piece of one is noticed."""

    @castlog.reducer("count", 1, initial=lambda: {"seen": 0, "fill": []})
    def count(state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
        return {"seen": state["seen"] + 1, "fill": [*state["fill"], f"line {event.seq} of the state " * 20]}

    main = kept.session.branch("main")
    for seq in (1, 7, main.head.seq):
        main.snapshot(count, at=seq)
    listed, inherited = main.snapshots(), kept.session.branch("leaf").snapshots()
    state = main.restore(count).state
    for _ in range(2):
        report = kept.store.compact()
        assert main.snapshots() == listed
        assert kept.session.branch("leaf").snapshots() == inherited
        assert main.restore(count).state == state
        assert report.objects == sum(1 for key, _ in kept.parts() if key.endswith(b"\0\0"))
        assert sound(kept.store)
    with kept.engine.read() as txn:
        used = {
            piece
            for _, row in kept.decoded(rows.SNAPSHOTS)
            for piece in snapshot.decode(kept.store._core.objects.read(txn, row.object).data).pieces
        }
    kept.delete(rows.PIECES.key(min(used)))
    with pytest.raises(castlog.Corrupt):
        kept.store.compact()


def test_an_empty_store_stays_empty(store: castlog.Store) -> None:
    """There is nothing to do, and it does nothing."""
    report = store.compact()
    assert (report.chunks, report.pieces, report.objects, report.raw) == (0, 0, 0, 0)
    store.create_session("x").branch("main")
    store.compact()
    assert sound(store)
    assert store.sessions()[0].branch("main").append("note", 1).seq == 1


def test_small_chunks_become_one(main: castlog.Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one timeline that fit together are one afterwards; full ones are kept."""
    monkeypatch.setattr("castlog.limits.SEAL_EVENTS", 5)
    store = main._core
    for number in range(23):
        main.append("note", {"n": number})
    main.seal()
    monkeypatch.setattr("castlog.limits.SEAL_EVENTS", 12)
    compact.run(store, None)
    with store.read() as txn:
        found = [rows.CHUNKS.decode(*row) for row in txn.scan(b"T", b"U") if rows.CHUNKS.owns(row[0])]
    assert [row.first for row in found] == [1, 11, 21]
    assert [event.payload["n"] for event in main.events()] == list(range(23))


def test_chunks_of_many_timelines_share_frames(session: castlog.Session) -> None:
    """Short forks do not have an object each, and each frame is decoded once for all the events in it."""
    main = session.branch("main")
    main.extend([("note", {"n": n}) for n in range(10)])
    for number in range(40):
        main.fork(f"fork-{number}", at=5).extend([("note", {"fork": number, "n": n}) for n in range(3)])
    report = compact.run(session._core, None)
    assert report.objects == 1
    objects = session._core.objects
    decoded = []
    read = objects.read
    objects.read = lambda txn, number: decoded.append(number) or read(txn, number)
    for branch in session.branches():
        assert len(list(branch.events())) in (8, 10)
    assert len(decoded) == 1


def test_a_dictionary_is_kept_where_it_pays(store: castlog.Store, small_frames: None) -> None:
    """Words that return in every session make a dictionary; noise makes none, and the old one goes."""
    words = [bytes(random.Random(n).choices(b"abcdefghijklm", k=60)).decode() for n in range(40)]
    session = store.create_session("x")
    for number in range(60):
        branch = session.branch("main").fork(f"f{number}", at=0)
        branch.extend([("note", {"text": " ".join(random.Random(number + n).choices(words, k=9))}) for n in range(9)])
    before = picture(store)
    report = store.compact()
    assert 0 < report.dictionary <= 2_000
    ((key, _),) = dictionaries(store)
    assert picture(store) == before
    assert sound(store)
    store.compact()
    ((again, _),) = dictionaries(store)
    assert again != key
    assert picture(store) == before
    limits_off = pytest.MonkeyPatch()
    limits_off.setattr("castlog.limits.DICTIONARY_RAW_BYTES_MIN", 1 << 60)
    try:
        assert store.compact().dictionary == 0
    finally:
        limits_off.undo()
    assert dictionaries(store) == []
    assert picture(store) == before
    assert sound(store)


def test_noise_makes_no_dictionary() -> None:
    """Where a dictionary saves less than it takes there is none."""
    noise = [random.Random(number).randbytes(4_000) for number in range(2_000)]
    assert dictionary.train(bytes(32), 1, len(noise), sum(map(len, noise)), noise.__getitem__) is None


def test_a_second_try_compresses_only_what_is_new(store: castlog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a commit came in between, frames that stayed the same are taken as they were made."""
    monkeypatch.setattr("castlog.limits.FRAME_BYTES", 1_000)
    branch = store.create_session("x").branch("main")
    branch.extend([("note", {"n": n, "text": random.Random(n).randbytes(400).hex()}) for n in range(600)])
    encode, made = fmt.encode, []
    monkeypatch.setattr(fmt, "encode", lambda *words, **more: made.append(words[1]) or encode(*words, **more))
    rewrite = Rewrite(store._core.objects.secret, None)
    with store._core.read() as txn:
        first = list(rewrite.rows(txn))
    frames = len(made)
    assert frames == rewrite.done.objects > 3
    with store._core.read() as txn:
        assert list(rewrite.rows(txn)) == first
    assert len(made) == frames
    branch.append("note", {"late": True})
    with store._core.read() as txn:
        assert list(rewrite.rows(txn)) != first
    assert len(made) == frames + 1
    rewrite.close()


@pytest.mark.parametrize("room", [0, 5_000])
def test_without_room_to_keep_frames_they_are_made_again(kept, small_frames: None, monkeypatch, room: int) -> None:
    """The temporary file is a convenience: full or damaged, the rows are the same."""
    monkeypatch.setattr("castlog.limits.COMPACT_KEPT_BYTES", room)
    rewrite = Rewrite(kept.store._core.objects.secret, None)
    with kept.engine.read() as txn:
        first = list(rewrite.rows(txn))
        assert list(rewrite.rows(txn)) == first
        assert rewrite._press is not None
        os.pwrite(rewrite._press._kept._file.fileno(), bytes(room), 0)
        assert list(rewrite.rows(txn)) == first
    rewrite.close()


def test_what_is_kept_lies_beside_the_store(kept_on_disk, small_frames: None, monkeypatch) -> None:
    """The temporary folder, often in memory, is used only where the store's own takes no file."""
    made: list[Any] = []
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **words: made.append(words["dir"]) or io.BytesIO())
    monkeypatch.setattr("castlog.limits.COMPACT_KEPT_BYTES", 0)
    kept_on_disk.store.compact()
    with castlog.open("memory:") as store:
        store.create_session("x").branch("main").append("note", 1)
        store.compact()
    assert made == [kept_on_disk.engine.path, None]


def test_without_any_place_for_a_file_all_goes_on(kept_on_disk, small_frames: None, monkeypatch) -> None:
    """No folder to write to, no descriptor left, a file that cannot be read: frames are made again instead."""
    before = picture(kept_on_disk.store)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", refuse)
        kept_on_disk.store.compact()
    assert picture(kept_on_disk.store) == before
    rewrite = Rewrite(kept_on_disk.store._core.objects.secret, None)
    with kept_on_disk.engine.read() as txn:
        first = list(rewrite.rows(txn))
        with monkeypatch.context() as patch:
            patch.setattr("castlog.ops.compact.press.os.pread", refuse)
            assert list(rewrite.rows(txn)) == first
    rewrite.close()


@pytest.mark.parametrize("started", [0, 1])
def test_without_threads_the_caller_compresses(kept, small_frames: None, monkeypatch, started: int) -> None:
    """Where the system refuses the first thread, or a later one, all goes on."""
    before, start, left = picture(kept.store), threading.Thread.start, [None] * started

    def refused(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        kept.store.compact()
    assert left == []
    assert picture(kept.store) == before
    assert sound(kept.store)


def test_what_the_system_refuses_is_unavailable(kept_on_disk, small_frames: None, monkeypatch) -> None:
    """The error names what failed, and nothing has changed; what the caller's own progress raises is passed on."""
    before = picture(kept_on_disk.store)

    def no_more(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "some/file")

    with monkeypatch.context() as patch:
        patch.setattr(kept_on_disk.engine.__class__, "replace", no_more)
        with pytest.raises(castlog.Unavailable, match=r"some/file: Too many open files") as caught:
            kept_on_disk.store.compact()
    assert caught.value.errno == errno.EMFILE

    def gone(progress: castlog.Progress) -> None:
        raise BrokenPipeError(errno.EPIPE, "the caller's")

    with pytest.raises(BrokenPipeError, match="the caller's"):
        kept_on_disk.store.compact(progress=gone)
    assert picture(kept_on_disk.store) == before


# --- damage -------------------------------------------------------------------------------------


def test_what_is_damaged_is_not_written_down_as_sound(kept_in_memory, small_frames: None) -> None:
    """With any one row damaged or gone, compact refuses and changes nothing, or what verify says stays the same."""
    kept = kept_in_memory
    every = [row for letter in (b"P", b"T", b"X", b"S", b"R") for row in kept.rows(letter)]
    for key, value in kept.during(every):
        kept.flip(key)
        with pytest.raises(castlog.Corrupt):
            kept.store.compact()
        kept.delete(key)
        findings = kept.found(deep=True)
        with kept.engine.read() as txn:
            before = list(txn.scan(b""))
        if refused(kept.store):
            with kept.engine.read() as txn:
                assert list(txn.scan(b"")) == before
        else:
            assert set(kept.found(deep=True)) == set(findings)
            return_to(kept, before, key, value)


def refused(store: castlog.Store) -> bool:
    """Return whether a store cannot be compacted for damage."""
    try:
        store.compact()
    except castlog.Corrupt as exc:
        return bool(exc.facts)
    return False


def return_to(kept, before: list[tuple[bytes, bytes]], key: bytes, value: bytes) -> None:
    """Put a store back to the rows it had."""
    kept.engine.replace(lambda txn: sorted({**dict(before), key: value}.items()))
    kept.forget()


@pytest.mark.parametrize("deep", [False, True])
def test_damage_to_a_compacted_store_is_found_and_confined(kept_in_memory, small_frames: None, deep: bool) -> None:
    """A damaged frame is found, loses no event outside of it, and stops no reader of the others."""
    kept = kept_in_memory
    kept.store.compact()
    for key, _ in kept.during(kept.parts()):
        kept.flip(key)
        names = set(kept.found(deep=deep))
        with kept.engine.read() as txn:
            first = txn.get(rows.part_key(int.from_bytes(key[1:9], "big"), 0))
        if deep or first[0] == fmt.CHUNK:
            assert names & {"damaged_object", "damaged_payload"}
        lost = kept.unreadable()
        assert len(lost) < sum(map(len, kept.truth.values()))


def test_a_lost_dictionary_loses_what_was_compressed_with_it(kept_in_memory, small_frames: None) -> None:
    """Without its dictionary an object is Corrupt, verify says why, and compact refuses."""
    kept = kept_in_memory
    branch = kept.session.branch("inner")
    branch.extend([("note", {"text": f"the same words in all of them, {n}"}) for n in range(300)])
    assert kept.store.compact().dictionary
    ((key, _),) = dictionaries(kept.store)
    kept.delete(key)
    assert {"missing_dictionary", "damaged_object"} <= set(kept.found())
    with pytest.raises(castlog.Corrupt, match="dictionary 1 is missing"):
        list(branch.events())
    with pytest.raises(castlog.Corrupt, match="dictionary 1 is missing"):
        kept.store.compact()


# --- others at work -----------------------------------------------------------------------------


def test_others_go_on_meanwhile(kept_on_disk, small_frames: None) -> None:
    """A writer, a reader, a follower and verify work through several compactions; nothing is lost or found wrong."""
    store = castlog.open(kept_on_disk.store.target)
    session = store.session(kept_on_disk.session.id)
    branch = session.branch("inner")
    start = branch.head.seq
    done, failures, written = threading.Event(), [], []
    seen: list[int] = []

    def work(step: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not done.is_set():
                    step()
            except BaseException as exc:
                failures.append(exc)
                raise

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write() -> None:
        written.append(branch.append("note", {"n": len(written)}).seq)
        done.wait(0.002)

    def read() -> None:
        assert kept_on_disk.unreadable() == set()

    def check() -> None:
        report = store.verify(deep=True)
        assert report.ok, report.findings

    def follow() -> None:
        seen.extend(event.seq for event in branch.follow(after=start + len(seen), timeout=0.05))

    threads = [work(write), work(read), work(check), work(follow)]
    for _ in range(8):
        kept_on_disk.store.compact()
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen == written[: len(seen)]
    assert written == list(range(start + 1, start + 1 + len(written)))
    assert [event.payload["n"] for event in branch.events(start=start + 1)] == list(range(len(written)))
    assert store.verify(deep=True).ok
    store.close()


def test_a_second_compaction_is_told_of_the_first(kept_on_disk, small_frames: None) -> None:
    """It says that one is under way and whose, in this process and in another, and the first one goes on."""
    target, told = kept_on_disk.store.target, []
    again = f"import castlog; castlog.open({target!r}).compact()"

    def meanwhile(progress: castlog.Progress) -> None:
        if not told:
            with pytest.raises(castlog.Conflict, match="is being rebuilt already") as caught:
                kept_on_disk.store.compact()
            told.append(caught.value)
            told.append(
                subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, check=False).stderr
            )

    assert kept_on_disk.store.compact(progress=meanwhile).objects
    assert told[0].pid == os.getpid()
    assert f"is being rebuilt already, by process {os.getpid()}" in told[1].splitlines()[-1]


def test_a_writer_that_is_in_the_way_is_no_compaction(kept_on_disk, small_frames: None) -> None:
    """When the lock for the exchange is not had in time, the error is about the lock."""
    store = castlog.open(kept_on_disk.store.target, lock_timeout=0.05)
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        kept_on_disk.engine.update(lambda txn: ready.set() or done.wait())

    writer = threading.Thread(target=hold)
    writer.start()
    ready.wait()
    try:
        with pytest.raises(castlog.Conflict, match="is locked by"):
            store.compact()
    finally:
        done.set()
        writer.join()
        store.close()


# --- accounts -----------------------------------------------------------------------------------


def test_usage_counts_shared_frames_once(kept, small_frames: None) -> None:
    """What the sessions take each adds up to about what all objects take."""
    store = kept.store
    logical = store.usage().logical
    store.compact()
    assert store.usage().logical == logical
    parts = sum(len(value) for _, value in kept.parts())
    each = [usage.measure(store._core, bytes.fromhex(item.id[5:])) for item in store.sessions()]
    held = sum(found.kinds["chunks"] + found.kinds["pieces"] for found in each)
    assert 0.5 * parts < held <= parts


def test_progress_is_told_to_the_end(kept, small_frames: None) -> None:
    """It counts the uncompressed bytes, from nothing to all of them."""
    told: list[castlog.Progress] = []
    report = kept.store.compact(progress=told.append)
    assert [item.done for item in told] == sorted(item.done for item in told)
    assert told[-1].done == told[-1].total == report.raw
    assert {item.unit for item in told} == {"bytes"}


def test_a_read_only_store_is_not_compacted(kept_on_disk) -> None:
    """It is Unavailable, and nothing has changed."""
    with castlog.open(kept_on_disk.store.target, read_only=True) as store, pytest.raises(castlog.Unavailable):
        store.compact()


@given(st.lists(st.integers(1, 400), max_size=60))
@settings(max_examples=100)
def test_frames_hold_about_what_is_wanted(lengths: list[int]) -> None:
    """Things lie end to end in their frame; each frame but the last is nearer to the size than without its last or
    with one more.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr("castlog.limits.FRAME_BYTES", 300)
    try:
        frames = Frames()
        for length in lengths:
            frames.add(length)
    finally:
        patch.undo()
    assert [index for frame in range(len(frames)) for index in frames.things(frame)] == list(range(len(lengths)))
    assert frames.bytes == sum(lengths)
    for frame in range(len(frames)):
        things = frames.things(frame)
        assert {frames.of(index) for index in things} == {frame}
        at = 0
        for index in things:
            assert frames.offsets[index] == at
            at += lengths[index]
        if len(things) > 1:
            assert abs(at - 300) <= abs(at - lengths[things[-1]] - 300)
        if frame + 1 < len(frames):
            assert abs(at - 300) <= abs(at + lengths[things[-1] + 1] - 300)
