"""What every engine promises, checked on each of them: the contract in `castlog.engine.base`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castlog.engine.base import Engine, ReadTxn, WriteTxn
from castlog.errors import Conflict, Invalid, Unavailable
from castlog.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX

from .interrupts import interrupted

Opener = Callable[..., Engine]


def put(engine: Engine, *pairs: tuple[bytes, bytes]) -> None:
    """Write pairs in one transaction."""

    def change(txn: WriteTxn) -> None:
        for key, value in pairs:
            txn.put(key, value)

    engine.update(change)


def rows(engine: Engine) -> dict[bytes, bytes]:
    """Return all an engine holds."""
    with engine.read() as txn:
        return dict(txn.scan(b""))


class Refused(Exception):
    """What a change raises to be rolled back."""


# --- reading and writing ------------------------------------------------------------------------


def test_initial_rows_are_there(open_engine: Opener) -> None:
    """An engine begins with the rows it was made with."""
    assert rows(open_engine([(b"b", b"2"), (b"a", b"1")])) == {b"a": b"1", b"b": b"2"}


def test_get_returns_the_last_put(engine: Engine) -> None:
    """A later put replaces an earlier one; an absent key is None."""
    put(engine, (b"k", b"old"))
    put(engine, (b"k", b"new"))
    with engine.read() as txn:
        assert txn.get(b"k") == b"new"
        assert type(txn.get(b"k")) is bytes
        assert txn.get(b"other") is None


def test_update_returns_what_the_change_returns(engine: Engine) -> None:
    """The result of the change is the result of update."""
    assert engine.update(lambda txn: 42) == 42


def test_delete_tells_whether_the_key_was_there(engine: Engine) -> None:
    """Deleting returns True once and False when nothing is left."""
    put(engine, (b"k", b"v"))
    assert engine.update(lambda txn: (txn.delete(b"k"), txn.delete(b"k"))) == (True, False)
    assert rows(engine) == {}


def test_a_change_sees_its_own_writes(engine: Engine) -> None:
    """Inside the transaction get and scan see puts and deletes at once."""
    put(engine, (b"a", b"1"), (b"b", b"2"))

    def change(txn: WriteTxn) -> tuple[bytes | None, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
        txn.put(b"c", b"3")
        txn.put(b"a", b"9")
        txn.delete(b"b")
        return txn.get(b"b"), list(txn.scan(b"")), list(txn.scan(b"", reverse=True))

    gone, forward, backward = engine.update(change)
    assert gone is None
    assert forward == [(b"a", b"9"), (b"c", b"3")]
    assert backward == forward[::-1]


def test_an_empty_value_is_a_value(engine: Engine) -> None:
    """The empty value is kept and differs from None."""
    put(engine, (b"k", b""))
    with engine.read() as txn:
        assert txn.get(b"k") == b""
        assert list(txn.scan(b"")) == [(b"k", b"")]


def test_sizes_at_the_bounds_are_taken(engine: Engine) -> None:
    """The longest key and the longest value go in."""
    key, value = b"\xff" * KEY_BYTES_MAX, b"v" * VALUE_BYTES_MAX
    put(engine, (key, value))
    assert rows(engine) == {key: value}


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", b"v"), (b"k" * (KEY_BYTES_MAX + 1), b"v"), (b"k", b"v" * (VALUE_BYTES_MAX + 1))],
)
def test_sizes_past_the_bounds_are_refused(engine: Engine, key: bytes, value: bytes) -> None:
    """A key or value of a size that is not allowed is Invalid and changes nothing."""
    put(engine, (b"before", b"1"))
    with pytest.raises(Invalid):
        put(engine, (b"x", b"y"), (key, value))
    assert rows(engine) == {b"before": b"1"}


def test_get_of_an_impossible_key(engine: Engine) -> None:
    """The empty key is Invalid, an overlong one is simply not there."""
    with engine.read() as txn:
        with pytest.raises(Invalid):
            txn.get(b"")
        assert txn.get(b"k" * 600) is None


SCANS = [
    (b"", None, "abcd"),
    (b"b", None, "bcd"),
    (b"b", b"d", "bc"),
    (b"b", b"cc", "bc"),
    (b"bb", b"c", ""),
    (b"bb", b"cc", "c"),
    (b"", b"", ""),
    (b"c", b"b", ""),
    (b"e", None, ""),
    (b"", b"z", "abcd"),
    (b"d", b"d\x00", "d"),
    (b"k" * 600, None, ""),
    (b"a" * 600, b"c" * 600, "bc"),
]


@pytest.mark.parametrize(("start", "stop", "expected"), SCANS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_bounds(open_engine: Opener, start: bytes, stop: bytes | None, expected: str, reverse: bool) -> None:
    """A scan gives the keys from start to before stop, in either direction, in both kinds of transaction."""
    engine = open_engine([(letter.encode(), b"v") for letter in "abcd"])
    wanted = [letter.encode() for letter in expected]
    if reverse:
        wanted.reverse()
    with engine.read() as txn:
        assert [key for key, _ in txn.scan(start, stop, reverse=reverse)] == wanted
    assert engine.update(lambda txn: [key for key, _ in txn.scan(start, stop, reverse=reverse)]) == wanted


def test_keys_are_ordered_as_unsigned_bytes(engine: Engine) -> None:
    """0xff comes last, and a prefix comes before what it begins."""
    put(engine, *((key, b"") for key in (b"\xff", b"a", b"\x00", b"a\x00", b"\x7f", b"\x80")))
    assert list(rows(engine)) == [b"\x00", b"a", b"a\x00", b"\x7f", b"\x80", b"\xff"]


# --- transactions -------------------------------------------------------------------------------


def test_an_exception_undoes_the_change(engine: Engine) -> None:
    """What a change raises is passed on, and nothing of the change is kept."""
    put(engine, (b"k", b"1"))
    before = engine.version()

    def change(txn: WriteTxn) -> None:
        txn.put(b"k", b"2")
        txn.delete(b"k")
        txn.put(b"other", b"3")
        raise Refused

    with pytest.raises(Refused):
        engine.update(change)
    assert rows(engine) == {b"k": b"1"}
    assert engine.version() == before
    put(engine, (b"k", b"4"))
    assert rows(engine) == {b"k": b"4"}


def test_a_reader_keeps_its_snapshot(engine: Engine) -> None:
    """A transaction begun before a commit does not see it, not even in a scan begun later."""
    put(engine, (b"a", b"1"), (b"b", b"1"))
    with engine.read() as old:
        writer = threading.Thread(target=put, args=(engine, (b"a", b"2"), (b"c", b"2")))
        writer.start()
        writer.join()
        assert old.get(b"a") == b"1"
        assert dict(old.scan(b"")) == {b"a": b"1", b"b": b"1"}
        assert rows(engine) == {b"a": b"2", b"b": b"1", b"c": b"2"}
        engine.update(lambda txn: txn.delete(b"b"))
        assert dict(old.scan(b"", reverse=True)) == {b"a": b"1", b"b": b"1"}


def test_update_inside_a_read_of_the_same_thread(engine: Engine) -> None:
    """A thread may write while it reads; the read goes on with what it began with, and so does its scan."""
    put(engine, (b"a", b"1"), (b"b", b"1"))
    with engine.read() as txn:
        scan = txn.scan(b"")
        assert next(scan) == (b"a", b"1")
        put(engine, (b"b", b"2"))
        assert list(scan) == [(b"b", b"1")]
    assert rows(engine) == {b"a": b"1", b"b": b"2"}


def test_reads_nest(engine: Engine) -> None:
    """A read inside a read of the same thread sees the newest commit, and the outer one goes on."""
    put(engine, (b"k", b"1"))
    with engine.read() as outer:
        put(engine, (b"k", b"2"))
        with engine.read() as inner:
            assert inner.get(b"k") == b"2"
        assert outer.get(b"k") == b"1"


def test_a_read_inside_an_update_sees_the_last_commit(engine: Engine) -> None:
    """What is not committed yet is seen by the write transaction alone."""
    put(engine, (b"k", b"1"))

    def change(txn: WriteTxn) -> dict[bytes, bytes]:
        txn.put(b"k", b"2")
        return rows(engine)

    assert engine.update(change) == {b"k": b"1"}
    assert rows(engine) == {b"k": b"2"}


def test_nested_updates_are_refused(engine: Engine) -> None:
    """An update inside an update of the same thread is Invalid at once, and the outer one can go on."""

    def change(txn: WriteTxn) -> None:
        with pytest.raises(Invalid):
            put(engine, (b"inner", b""))
        txn.put(b"outer", b"")

    engine.update(change)
    assert rows(engine) == {b"outer": b""}


def test_a_transaction_is_dead_after_its_block(engine: Engine) -> None:
    """Every use of a transaction, or of its scan, after its end is Invalid."""
    put(engine, (b"a", b"1"), (b"b", b"1"))
    with engine.read() as reader:
        half = reader.scan(b"")
        next(half)
        untouched = reader.scan(b"")
    kept: list[WriteTxn] = []
    scans: list[Iterator[tuple[bytes, bytes]]] = []

    def change(txn: WriteTxn) -> None:
        kept.append(txn)
        scans.append(txn.scan(b""))
        next(scans[0])

    engine.update(change)
    (writer,) = kept
    uses: list[Callable[[], object]] = [
        lambda: reader.get(b"a"),
        lambda: list(reader.scan(b"")),
        lambda: next(half),
        lambda: next(untouched),
        lambda: writer.get(b"a"),
        lambda: writer.put(b"a", b"2"),
        lambda: writer.delete(b"a"),
        lambda: list(writer.scan(b"")),
        lambda: next(scans[0]),
    ]
    for use in uses:
        with pytest.raises(Invalid):
            use()
    assert rows(engine) == {b"a": b"1", b"b": b"1"}


def test_a_write_transaction_belongs_to_its_thread(engine: Engine) -> None:
    """Another thread that touches it gets Invalid at once, and the change goes on unharmed."""
    put(engine, (b"a", b"1"))
    outcomes: list[object] = []

    def change(txn: WriteTxn) -> None:
        txn.put(b"b", b"1")

        def intrude() -> None:
            uses: list[Callable[[], object]] = [
                lambda: txn.get(b"a"),
                lambda: txn.put(b"c", b""),
                lambda: txn.delete(b"a"),
                lambda: list(txn.scan(b"")),
            ]
            for use in uses:
                try:
                    use()
                except Invalid as error:
                    outcomes.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()

    engine.update(change)
    assert len(outcomes) == 4
    assert rows(engine) == {b"a": b"1", b"b": b"1"}


def test_threads_write_one_after_the_other(engine: Engine) -> None:
    """Read-modify-write in several threads loses nothing."""
    put(engine, (b"n", b"0"))

    def add(txn: WriteTxn) -> None:
        txn.put(b"n", b"%d" % (int(txn.get(b"n") or b"") + 1))

    def work() -> None:
        for _ in range(20):
            engine.update(add)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(engine) == {b"n": b"80"}


def test_a_lock_not_had_in_time_is_a_conflict(open_engine: Opener) -> None:
    """Waiting ends after the time-out and names who holds the lock; afterwards writing goes on."""
    engine = open_engine(lock_timeout=0.05)
    caught: list[Conflict] = []

    def wait() -> None:
        try:
            put(engine, (b"b", b""))
        except Conflict as error:
            caught.append(error)

    def change(txn: WriteTxn) -> None:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        txn.put(b"a", b"")

    engine.update(change)
    (error,) = caught
    assert error.pid == os.getpid()
    assert "0.05 seconds" in str(error)
    assert str(os.getpid()) in str(error)
    put(engine, (b"c", b""))
    assert set(rows(engine)) == {b"a", b"c"}


# --- replacing all there is ---------------------------------------------------------------------


def test_after_an_interrupt_on_any_line_of_an_update_everybody_can_write(open_engine: Opener) -> None:
    """Ctrl-C passes through, no acknowledged write is lost, and this thread, another one and `close` go on."""
    engine = open_engine(lock_timeout=1.0)
    acknowledged: dict[bytes, bytes] = {}
    places = []
    for interrupt in interrupted(lambda: put(engine, (b"interrupted", b"%d" % len(places)), (b"second", b""))):
        places.append(str(interrupt))
        for who, write in ((b"same", lambda work: work()), (b"other", in_thread)):
            pair = (b"%s %d" % (who, len(places)), b"")
            write(lambda pair=pair: put(engine, pair))
            acknowledged.update([pair])
        there = rows(engine)
        assert acknowledged.items() <= there.items(), interrupt
        assert (b"interrupted" in there) == (b"second" in there), interrupt
    assert len(places) > 20
    for _ in interrupted(lambda: put(engine, (b"last", b""))):
        break
    engine.close()


def in_thread(work: Callable[[], object]) -> None:
    """Run `work` in another thread; fail when it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_replace_puts_rows_in_the_place_of_all(engine: Engine) -> None:
    """The new rows are all there is afterwards; readers under way keep what they see; the version grows."""
    put(engine, (b"a", b"1"), (b"b", b"1"))
    version = engine.version()
    with engine.read() as old:
        engine.replace(lambda txn: [(key, value * 2) for key, value in txn.scan(b"b")] + [(b"c", b"")])
        assert dict(old.scan(b"")) == {b"a": b"1", b"b": b"1"}
        assert rows(engine) == {b"b": b"11", b"c": b""}
    assert engine.version() > version
    put(engine, (b"d", b""))
    assert list(rows(engine)) == [b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "new", [[(b"b", b""), (b"a", b"")], [(b"a", b""), (b"a", b"")], [(b"", b"")], [(b"a", b"v" * 70_000)]]
)
def test_replace_by_unfit_rows_changes_nothing(engine: Engine, new: list[tuple[bytes, bytes]]) -> None:
    """Rows out of order, or of sizes that are not allowed, are Invalid and leave the map as it was."""
    put(engine, (b"k", b"1"))
    version = engine.version()
    with pytest.raises(Invalid):
        engine.replace(lambda txn: new)
    assert rows(engine) == {b"k": b"1"}
    assert engine.version() == version
    put(engine, (b"k", b"2"))


def test_replace_loses_no_commit_that_came_in_between(engine: Engine) -> None:
    """When somebody commits while the rows are collected, they are collected again."""
    runs: list[int] = []

    def collect(txn: ReadTxn) -> list[tuple[bytes, bytes]]:
        runs.append(1)
        if len(runs) == 1:
            thread = threading.Thread(target=put, args=(engine, (b"late", b"1")))
            thread.start()
            thread.join(0.2)
        return list(txn.scan(b""))

    put(engine, (b"a", b"1"))
    engine.replace(collect)
    deadline = threading.Event()
    while b"late" not in rows(engine) and not deadline.wait(0.01):
        pass
    assert rows(engine) == {b"a": b"1", b"late": b"1"}


def test_replace_inside_an_update_is_refused(engine: Engine) -> None:
    """The write transaction must be over first."""

    def change(txn: WriteTxn) -> None:
        with pytest.raises(Invalid):
            engine.replace(lambda txn: [])

    engine.update(change)


# --- the engine itself --------------------------------------------------------------------------


def test_the_version_grows_with_each_commit(engine: Engine) -> None:
    """Each commit that changes something raises the number; one that changes nothing leaves it."""
    seen = [engine.version()]
    for number in range(3):
        put(engine, (b"k", b"%d" % number))
        seen.append(engine.version())
    assert seen == sorted(set(seen))
    engine.update(lambda txn: txn.get(b"k"))
    assert engine.version() == seen[-1]


def test_a_read_knows_which_commit_it_sees(engine: Engine) -> None:
    """The version of a read transaction is that of its commit and stays so when another one comes."""
    put(engine, (b"k", b"1"))
    before = engine.version()
    with engine.read() as txn:
        put(engine, (b"k", b"2"))
        assert txn.version() == before
        assert txn.get(b"k") == b"1"
    with engine.read() as txn:
        assert txn.version() == engine.version() > before


def test_stored_bytes_cover_the_values(engine: Engine) -> None:
    """The size counts at least what was put in."""
    put(engine, *((b"%d" % number, b"v" * 10_000) for number in range(10)))
    assert engine.stored_bytes() >= 100_000


def test_a_healthy_map_has_no_problems(engine: Engine) -> None:
    """The structure check finds nothing in a map that is in order."""
    put(engine, *((b"%d" % number, b"v" * 5_000) for number in range(100)))
    engine.update(lambda txn: [txn.delete(b"%d" % number) for number in range(0, 100, 2)])
    assert engine.problems() == []


def test_a_closed_engine_is_unavailable(engine: Engine) -> None:
    """After close every call is Unavailable; closing again does nothing."""
    engine.close()
    engine.close()
    uses: list[Callable[[], object]] = [
        lambda: rows(engine),
        lambda: put(engine, (b"k", b"")),
        engine.version,
    ]
    for use in uses:
        with pytest.raises(Unavailable):
            use()


def test_closing_under_other_threads_is_clean(engine: Engine) -> None:
    """Threads that are reading and writing while it is closed get Unavailable, and nobody hangs."""
    failures: list[BaseException] = []
    started = threading.Barrier(5)

    def work(use: Callable[[], object]) -> None:
        started.wait()
        try:
            while True:
                use()
        except Unavailable:
            pass
        except BaseException as error:
            failures.append(error)

    uses: list[Callable[[], object]] = [
        lambda: put(engine, (b"k", b"v")),
        lambda: put(engine, (b"l", b"v")),
        lambda: rows(engine),
        engine.version,
    ]
    threads = [threading.Thread(target=work, args=(use,)) for use in uses]
    for thread in threads:
        thread.start()
    started.wait()
    engine.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert not failures


def test_a_forked_child_is_refused(engine: Engine) -> None:
    """In a forked child reads, updates and version are Unavailable, and the parent goes on undisturbed."""
    put(engine, (b"k", b"1"))
    child = os.fork()
    if child == 0:
        code = 0
        uses: list[Callable[[], object]] = [
            lambda: rows(engine),
            lambda: put(engine, (b"k", b"2")),
            engine.version,
        ]
        for use in uses:
            try:
                use()
                code = 1
            except Unavailable:
                pass
            except BaseException:
                code = 2
        engine.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    put(engine, (b"k", b"3"))
    assert rows(engine) == {b"k": b"3"}


# --- against a plain dict -----------------------------------------------------------------------

KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from([b"k" * KEY_BYTES_MAX, b"\xff" * KEY_BYTES_MAX])
VALUES = st.binary(max_size=8) | st.sampled_from([b"v" * 3000, b"w" * VALUE_BYTES_MAX])
BOUNDS = st.binary(max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("scan"), BOUNDS, st.none() | BOUNDS, st.booleans()),
)
CHANGES = st.lists(st.tuples(st.lists(STEPS, max_size=12), st.booleans()), max_size=6)


def expected_scan(
    model: dict[bytes, bytes], start: bytes, stop: bytes | None, reverse: bool
) -> list[tuple[bytes, bytes]]:
    """Return what a scan of the model gives."""
    inside = [pair for pair in model.items() if start <= pair[0] and (stop is None or pair[0] < stop)]
    return sorted(inside, reverse=reverse)


def apply(txn: WriteTxn, model: dict[bytes, bytes], step: tuple[object, ...]) -> None:
    """Do one step on both and compare what it returns."""
    match step:
        case ("put", bytes(key), bytes(value)):
            txn.put(key, value)
            model[key] = value
        case ("delete", bytes(key)):
            assert txn.delete(key) == (model.pop(key, None) is not None)
        case ("get", bytes(key)):
            assert txn.get(key) == model.get(key)
        case ("scan", bytes(start), stop, bool(reverse)):
            assert stop is None or isinstance(stop, bytes)
            assert list(txn.scan(start, stop, reverse=reverse)) == expected_scan(model, start, stop, reverse)


def check(txn: ReadTxn, model: dict[bytes, bytes]) -> None:
    """Compare all of the map with the model, in both directions."""
    assert list(txn.scan(b"")) == sorted(model.items())
    assert list(txn.scan(b"", reverse=True)) == sorted(model.items(), reverse=True)


@given(changes=CHANGES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_like_a_plain_dict(open_engine: Opener, changes: list[tuple[list[tuple[object, ...]], bool]]) -> None:
    """Any sequence of changes, kept or undone, leaves what it leaves in a dict; readers keep their snapshot."""
    engine = open_engine()
    model: dict[bytes, bytes] = {}
    try:
        for steps, kept in changes:
            before = dict(model)

            def change(
                txn: WriteTxn,
                steps: list[tuple[object, ...]] = steps,
                kept: bool = kept,
                before: dict[bytes, bytes] = before,
            ) -> dict[bytes, bytes]:
                after = dict(before)
                for step in steps:
                    apply(txn, after, step)
                check(txn, after)
                if not kept:
                    raise Refused
                return after

            with engine.read() as old:
                try:
                    model = engine.update(change)
                except Refused:
                    model = before
                check(old, before)
            with engine.read() as txn:
                check(txn, model)
    finally:
        engine.close()
