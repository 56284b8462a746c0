"""Crashes by construction: an engine that fails at write N of a transaction, for every N there is.

Guards against a change that is half there: after each failure the store holds, byte for byte, what it held before,
its handles go on, and what they remember of the failed transaction misleads nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import castlog
from castlog import Draft


class Crash(Exception):
    """What the engine raises in place of a write."""


class Txn:
    """A write transaction that fails at one of its writes."""

    def __init__(self, engine: Engine, txn: Any) -> None:
        self._engine = engine
        self._txn = txn

    def put(self, key: bytes, value: bytes) -> None:
        """Write, or crash."""
        self._engine.count()
        self._txn.put(key, value)

    def delete(self, key: bytes) -> bool:
        """Remove, or crash."""
        self._engine.count()
        return self._txn.delete(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


class Engine:
    """The engine of a store, failing at the N-th write from now on."""

    def __init__(self, engine: Any, left: int) -> None:
        self._engine = engine
        self._left = left

    def count(self) -> None:
        """Crash when it is time."""
        if self._left == 0:
            raise Crash
        self._left -= 1

    def update(self, change: Callable[[Any], Any]) -> Any:
        """Run a change whose writes are counted."""
        return self._engine.update(lambda txn: change(Txn(self, txn)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.fixture
def stage(store: castlog.Store, small_chunks: None) -> castlog.Session:
    """A session with sealed and open events, forks, a tag, a key, calls in flight, and something in the trash."""
    session = store.create_session("x", labels={"a": "b"})
    main = session.branch("main")
    main.extend([Draft("tool_call", {"n": n}, call_id=f"c{n}", key=f"k{n}") for n in range(7)])
    idea = main.fork("idea", at=3)
    idea.append("note", {"text": "idea " * 300})
    main.fork("young", at=4)
    main.fork("gone", at=2).delete()
    session.tag("t", at=4)
    main.append("tool_result", {}, call_id="c0")
    return session


ACTS: dict[str, Callable[[castlog.Store, castlog.Session], object]] = {
    "append": lambda store, s: s.branch("main").append("note", {"a": 1}),
    "append with all there is": lambda store, s: s.branch("main").append("tool_call", {"a": 1}, call_id="x", key="new"),
    "append closing a call": lambda store, s: s.branch("main").append("tool_result", {}, call_id="c1"),
    "append on a new timeline": lambda store, s: s.branch("young").append("note", {}),
    "append in pieces": lambda store, s: s.branch("main").append("note", {"text": "".join(map(str, range(2000)))}),
    "batch": lambda store, s: s.branch("main").extend([("note", {"n": n}) for n in range(3)]),
    "batch that is sealed": lambda store, s: s.branch("main").extend(
        [Draft("note", {"n": n, "pad": "p" * 100 * n}, key=f"b{n}") for n in range(17)]
    ),
    "batch that is sealed on a new timeline": lambda store, s: s.branch("young").extend(
        [("note", {"n": n}) for n in range(11)]
    ),
    "fork": lambda store, s: s.branch("main").fork("new", at=6),
    "fork many": lambda store, s: s.branch("main").fork_many(5),
    "tag": lambda store, s: s.tag("new", at=2),
    "delete a tag": lambda store, s: s.delete_tag("t"),
    "reset": lambda store, s: s.branch("main").reset(2),
    "promote": lambda store, s: s.promote("idea", onto="main"),
    "rename a branch": lambda store, s: s.branch("main").rename("trunk"),
    "delete a branch": lambda store, s: s.branch("idea").delete(),
    "undelete a branch": lambda store, s: store.undelete(f"{s.id}/gone", name="back"),
    "new session": lambda store, s: store.create_session(
        "y", labels={"l": "m"}, origin="o", parent=s.branch("main").read(1)
    ),
    "rename a session": lambda store, s: s.rename("z"),
    "relabel": lambda store, s: s.relabel(a=None, c="d"),
    "delete a session": lambda store, s: s.delete(),
    "checkout": lambda store, s: store.checkout(s.branch("idea").rev),
    "seal": lambda store, s: s.branch("main").seal(),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_crash_at_any_write_leaves_all_as_it_was(store, stage, all_rows, act) -> None:
    """Each write of the act fails once; then it succeeds, and the store is sound and goes on."""
    session, core = stage, store._core
    whole, failures = core.engine, 0
    while True:
        before = all_rows(store)
        core.engine = Engine(whole, failures)
        try:
            ACTS[act](store, session)
        except Crash:
            failures += 1
            assert all_rows(store) == before
            continue
        finally:
            core.engine = whole
        break
    assert failures > 0
    assert store.verify(deep=True).findings == []
    if act != "delete a session":
        branch = session.branches()[0]
        seq = branch.head.seq
        assert branch.append("note", {"after": True}).seq == seq + 1
        assert [e.seq for e in branch.events()] == list(range(1, seq + 2))
    assert store.verify(deep=True).findings == []


def test_a_crash_while_waiting_chunks_are_written(store, stage, all_rows) -> None:
    """A chunk prepared by one append is written by the next: when that fails the chunk waits on."""
    main, core = stage.branch("main"), store._core
    while not core._seals:
        main.append("note", {"n": main.head.seq})
    history = list(main.events())
    whole, failures = core.engine, 0
    while True:
        before = all_rows(store)
        core.engine = Engine(whole, failures)
        try:
            main.append("note", {"last": True})
        except Crash:
            failures += 1
            assert all_rows(store) == before
            assert core._seals
            continue
        finally:
            core.engine = whole
        break
    assert failures > 5
    assert not core._seals
    assert list(main.events())[:-1] == history
    assert store.verify(deep=True).findings == []


def test_a_crash_between_pieces_written_ahead(store, stage, monkeypatch) -> None:
    """A very large payload writes pieces in commits of their own first: a crash there leaves pieces and no event."""
    monkeypatch.setattr("castlog.limits.PACK_BYTES", 4_000)
    monkeypatch.setattr("castlog.limits.AHEAD_BYTES", 10_000)
    main, core = stage.branch("main"), store._core
    text = "".join(f"{n:x}" for n in range(12_000))
    history = list(main.events())
    whole, failures = core.engine, 0
    while True:
        core.engine = Engine(whole, failures)
        try:
            event = main.append("note", {"text": text})
        except Crash:
            failures += 1
            assert list(main.events()) == history
            continue
        finally:
            core.engine = whole
        break
    assert failures > 6
    assert event.seq == len(history) + 1
    assert main.read(event.seq).payload == {"text": text}
    report = store.verify(deep=True)
    assert report.ok


def test_a_key_of_a_failed_append_is_free(store, stage) -> None:
    """What was undone claims no key and no call id."""
    main, core = stage.branch("main"), store._core
    whole = core.engine
    for failures in range(5):
        core.engine = Engine(whole, failures)
        try:
            with pytest.raises(Crash):
                main.append("tool_call", {"n": failures}, key="same")
        finally:
            core.engine = whole
        assert [e.seq for e in main.in_flight()] == [2, 3, 4, 5, 6, 7]
    event = main.append("tool_call", {"n": 99}, key="same")
    assert (event.seq, event.call_id) == (9, "c9")
    assert [e.seq for e in main.in_flight()] == [2, 3, 4, 5, 6, 7, 9]
