"""Usage: bytes as people count them, distinct, and as stored."""

from __future__ import annotations

import pytest

from castlog import NotFound


def test_an_empty_store(store) -> None:
    """No session, no events, and a few bytes for the store itself."""
    usage = store.usage()
    assert (usage.logical, usage.distinct, usage.sessions, usage.branches, usage.events) == (0, 0, 0, 0, 0)
    assert usage.stored == sum(usage.kinds.values())


def test_logical_counts_copies_and_distinct_counts_events(store, grove) -> None:
    """Logical is the sum of all branches' payloads, distinct that of each event once, whatever shares what."""
    usage = store.usage()
    distinct = grove.distinct().values()
    assert usage.logical == sum(event.size for history in grove.histories.values() for event in history)
    assert usage.distinct == sum(event.size for event in distinct)
    assert (usage.events, usage.branches, usage.sessions) == (len(distinct), len(grove.histories), 1)
    alone = store.usage(grove.session.id)
    assert (alone.logical, alone.distinct, alone.events) == (usage.logical, usage.distinct, usage.events)


def test_a_fork_adds_to_logical_only(store, main) -> None:
    """A fork of a large history costs almost nothing that is stored."""
    main.extend([("note", {"text": "x" * 500, "n": n}) for n in range(400)])
    before = store.usage()
    main.fork_many(10)
    after = store.usage()
    assert after.logical == 11 * before.logical
    assert after.distinct == before.distinct
    assert after.stored - before.stored < 20_000


def test_usage_of_a_session_counts_what_its_events_lie_in(store, main, small_chunks) -> None:
    """Chunks, open records and pieces, and nothing of other sessions."""
    main.extend([("note", {"n": n}) for n in range(7)])
    main.append("note", {"text": "".join(map(str, range(3000)))})
    other = store.create_session("other").branch("main")
    other.append("note", {"text": "y" * 50_000})
    usage = store.usage(main)
    assert usage.events == 8
    assert set(usage.kinds) == {"chunks", "open chunks", "pieces"}
    assert all(size > 0 for size in usage.kinds.values())
    assert usage.stored == sum(usage.kinds.values()) < 20_000
    assert store.usage(other).distinct > 50_000


def test_what_is_in_the_trash_is_not_counted(store, session, main) -> None:
    """Deleted sessions and branches are left out of the counts; their bytes stay in the file."""
    main.append("note", {"n": 1})
    fork = main.fork("fork")
    fork.append("note", {"n": 2})
    fork.delete()
    assert store.usage().events == 1
    session.delete()
    assert store.usage().sessions == store.usage().events == 0


def test_a_tag_keeps_events_counted(store, session, main) -> None:
    """What only a tag reaches is distinct content, and no branch's copy."""
    event = main.append("note", {"n": 1})
    session.tag("t")
    main.reset(0)
    usage = store.usage()
    assert (usage.logical, usage.distinct, usage.events) == (0, event.size, 1)


def test_the_stored_bytes_are_those_of_the_file(disk_store) -> None:
    """On disk `stored` is the size of the data file, divided by kinds."""
    import os

    main = disk_store.create_session("x").branch("main")
    main.extend([("note", {"n": n}) for n in range(1000)])
    usage = disk_store.usage()
    assert usage.stored == sum(usage.kinds.values()) == os.path.getsize(f"{disk_store.target}/data.mdb")


def test_usage_of_what_is_not_there(store) -> None:
    """An unknown revision is NotFound."""
    with pytest.raises(NotFound):
        store.usage("nope")
