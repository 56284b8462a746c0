"""Sealing: the same events, ids and answers whether they lie in the open chunk or in sealed ones."""

from __future__ import annotations

import itertools

import pytest

import castlog
from castlog import Conflict, Draft


def lines(view) -> list[str]:
    """Return a history as event lines, ids included."""
    return [event.to_json() for event in view.events()]


def chunks(store) -> list[tuple[int, int, int]]:
    """Return (timeline, last, first) of every sealed chunk."""
    from castlog.format import rows
    from castlog.history import tables

    with store._core.read() as txn:
        return [(*rows.CHUNKS.fields(key), row.first) for key, row in tables.scan(txn, rows.CHUNKS)]


def test_sealing_changes_nothing_that_is_read(store, main, small_chunks) -> None:
    """Ids, bytes and order before and after events were sealed, one by one."""
    written = []
    for n in range(40):
        kind = ("note", "tool_call", "tool_result")[n % 3]
        payload = {"n": n, "text": "x" * (700 * (n % 5 == 0))}
        written.append(main.append(kind, payload, call_id=f"c{n % 4}", key=f"k{n}").to_json())
        assert lines(main) == written
    assert len(chunks(store)) >= 7
    for n in range(40):
        assert main.read(n + 1).to_json() == written[n]
    assert [e.to_json() for e in main.events(reverse=True)] == written[::-1]


@pytest.mark.parametrize("sizes", [[40], [3, 9, 1, 26, 1], [5, 5, 5], [4, 1], [6], [1] * 12, [11, 11]])
def test_batches_of_any_size(store, main, small_chunks, sizes) -> None:
    """Batches below, at and above a chunk's size, on top of open events or not, read back in full."""
    counter = itertools.count(1)
    written = []
    for size in sizes:
        written += main.extend([Draft("note", {"n": next(counter)}) for _ in range(size)])
        assert list(main.events()) == written
    assert [e.payload["n"] for e in main.events()] == list(range(1, sum(sizes) + 1))
    assert store.verify(deep=True).findings == []


def test_a_large_batch_is_sealed_at_once(store, main, small_chunks) -> None:
    """It never passes through the open chunk: chunks of about equal weight are there after the one commit."""
    before = store._core.engine.version()
    main.extend([("note", {"n": n}) for n in range(23)])
    assert store._core.engine.version() == before + 1
    sizes = [last - first + 1 for _, last, first in chunks(store)]
    assert sum(sizes) == 23
    assert set(sizes) == {4, 5}


def test_seal_on_demand(store, main, small_chunks) -> None:
    """`seal` compresses what is open, however little, and may be repeated; appends go on behind it."""
    main.seal()
    assert chunks(store) == []
    written = main.extend([("note", {"n": n}) for n in range(3)])
    main.seal()
    main.seal()
    assert len(chunks(store)) == 1
    written.append(main.append("note", {}))
    main.seal()
    assert len(chunks(store)) == 2
    assert list(main.events()) == written
    fork = main.fork("fork", at=2)
    fork.seal()
    assert list(fork.events()) == written[:2]
    assert store.verify(deep=True).findings == []


def test_sealing_one_branch_leaves_its_forks_alone(store, main, small_chunks) -> None:
    """Forks inside, at the edge of and behind what is sealed later read on."""
    main.extend([("note", {"n": n}) for n in range(4)])
    forks = [main.fork(f"f{at}", at=at) for at in range(5)]
    expected = [lines(fork) for fork in forks]
    for n in range(4, 13):
        main.append("note", {"n": n})
    main.seal()
    assert [lines(fork) for fork in forks] == expected
    for at, fork in enumerate(forks):
        assert fork.append("note", {"at": at}).seq == at + 1
        assert [e.payload for e in fork.events(until=at)] == [{"n": n} for n in range(at)]
    assert store.verify(deep=True).findings == []


def test_two_sealers_of_one_chunk(open_disk_store, small_chunks) -> None:
    """Two handles prepare the same chunk: one writes it, the other gives up quietly, and nothing is lost."""
    one, two = open_disk_store(), open_disk_store()
    main = one.create_session("x").branch("main")
    other = two.branch(main.rev)
    for n in range(30):
        (main if n % 2 else other).append("note", {"n": n})
    assert [e.payload["n"] for e in main.events()] == list(range(30))
    assert [e.payload["n"] for e in other.events()] == list(range(30))
    one.close()
    two.close()
    store = open_disk_store()
    assert store.verify(deep=True).findings == []
    assert len(chunks(store)) == 6


def test_a_prepared_chunk_outlives_its_branch(store, session, main, small_chunks) -> None:
    """A chunk waits to be written while its branch is reset, deleted or its session thrown away: no harm."""
    fork = main.fork("fork")
    for n in range(5):
        fork.append("note", {"n": n})
    assert store._core._seals
    fork.reset(2)
    assert not store._core._seals
    for n in range(5):
        fork.append("other", {"n": n})
    fork.delete()
    for n in range(5):
        main.append("note", {"n": n})
    session.delete()
    store.undelete(session.id)
    store.undelete(f"{session.id}/fork")
    assert [e.payload["n"] for e in fork.events()] == [0, 1, 0, 1, 2, 3, 4]
    assert store.verify(deep=True).findings == []


def test_what_a_failed_transaction_numbered_is_forgotten(open_disk_store, small_chunks) -> None:
    """A chunk read inside a transaction that was undone is not taken for the one that later got its number."""
    one, two = open_disk_store(), open_disk_store()
    main = one.create_session("x").branch("main")
    for n in range(5):
        main.append("note", {"n": n}, key=f"k{n}")
    assert one._core._seals
    with pytest.raises(Conflict):
        main.append("note", {"another": True}, key="k2")  # reads the chunk it has just numbered, then undoes it all
    other = two.create_session("y").branch("main")
    other.extend([("note", {"y": n}) for n in range(5)])
    assert [e.payload for e in one.branch(other.rev).events()] == [{"y": n} for n in range(5)]
    assert [e.payload["n"] for e in main.events()] == list(range(5))
    main.append("note", {"n": 5})
    assert [e.payload["n"] for e in main.events()] == list(range(6))


def test_waiting_chunks_are_written_when_the_store_closes(open_disk_store, small_chunks) -> None:
    """Closing writes what only waited for the next commit."""
    with open_disk_store() as store:
        main = store.create_session("x").branch("main")
        for n in range(5):
            main.append("note", {"n": n})
        rev = main.rev
        assert chunks(store) == []
    with open_disk_store() as store:
        assert len(chunks(store)) == 1
        assert [e.payload["n"] for e in store.branch(rev).events()] == list(range(5))


@pytest.mark.parametrize("before", [0, 3, 5, 6])
def test_an_event_too_long_for_an_open_record_is_sealed_at_once(store, main, small_chunks, monkeypatch, before) -> None:
    """Call ids and payload can outgrow a record: the event goes into a chunk, also while one waits to be written."""
    monkeypatch.setattr("castlog.limits.RECORD_BYTES_MAX", 1_200)
    for n in range(before):
        main.append("note", {"n": n})
    call_ids = tuple(str(n) * 40 for n in range(10))
    first = main.extend([Draft("tool_call", "x" * 900, call_ids=call_ids)])[0]
    more = main.extend([("note", {}), Draft("tool_result", "y" * 900, call_ids=call_ids[1:]), ("note", {})])
    assert [e.seq for e in (first, *more)] == list(range(before + 1, before + 5))
    assert main.read(before + 1).call_ids == call_ids
    assert [e.seq for e in main.in_flight()] == [before + 1]
    assert main.append("note", {}).seq == before + 5
    assert [f for f in store.verify(deep=True).findings if f.severity != "note"] == []


def test_chunks_close_by_size_as_well(store, main, small_chunks) -> None:
    """A few larger events fill a chunk before five are there."""
    for n in range(9):
        main.append("note", {"text": "abc" * 300, "n": n})
    assert all(last - first < 4 for _, last, first in chunks(store))
    assert [e.payload["n"] for e in main.events()] == list(range(9))


def test_limits_of_another_session_of_the_store(open_disk_store, monkeypatch) -> None:
    """Chunks of any size, written under other limits, are read all the same."""
    written = []
    for events, size in ((3, 500), (50, 100_000), (2, 90), (256, 65_536)):
        monkeypatch.setattr("castlog.limits.SEAL_EVENTS", events)
        monkeypatch.setattr("castlog.limits.SEAL_BYTES", size)
        with open_disk_store() as store:
            main = store.create_session("x", origin="o", exist_ok=True).branch("main")
            for n in range(13):
                written.append(main.append("note", {"n": n}).to_json())
    with open_disk_store() as store:
        main = store.find_origin("o").branch("main")
        assert lines(main) == written
        assert isinstance(main, castlog.Branch)
        assert store.verify(deep=True).findings == []
