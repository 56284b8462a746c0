"""The last large payloads of branches: a help that nothing rests on."""

from __future__ import annotations

import random

from castlog.format import rows
from castlog.history import drafts, pieces, tables
from castlog.history.drafts import Ready
from castlog.history.objects import Cache
from castlog.history.recent import Recent

SECRET = b"k" * 32


def text(seed: int, size: int) -> str:
    """Return text that does not repeat itself."""
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz \n", k=size))


def request(turns: int) -> dict:
    """Return a request that repeats the history."""
    return {"messages": [{"role": "user", "content": text(turn, 3_000)} for turn in range(turns)]}


def draft(kind: str, seed: int, size: int) -> Ready:
    """Return a large draft, as prepared."""
    payload = text(seed, size).encode()
    return drafts.seal(SECRET, SECRET, payload, ts=1, type=kind, schema=1, harness_version=None, call_ids=(), key=None)


def lookups(store, monkeypatch) -> list[int]:
    """Return a list that gets the number of pieces of each look-up from now on."""
    counts: list[int] = []
    missing = pieces.missing

    def counting(txn, digests):
        digests = list(digests)
        counts.append(len(digests))
        return missing(txn, digests)

    monkeypatch.setattr(pieces, "missing", counting)
    return counts


def lose_pieces(store) -> None:
    """Delete every piece, as no code of this version does."""
    core = store._core
    with core.read() as txn:
        digests = [key[1:] for key, _ in tables.scan(txn, rows.PIECES)]
    core.update(lambda txn: [tables.delete(txn, rows.PIECES, digest) for digest in digests])
    core.objects.cache = Cache()


def test_only_what_is_new_is_looked_up(store, monkeypatch) -> None:
    """Of a request that repeats the one before, on a branch that goes on, only new pieces are looked up."""
    main = store.create_session("x").branch("main")
    main.append("model_request", request(30))
    main.append("tool_result", {"output": text(99, 20_000)})
    main.append("note", {})
    counts = lookups(store, monkeypatch)
    event = main.append("model_request", request(31))
    assert max(counts) <= 6
    assert event.payload == main.read(event.seq).payload == request(31)


def test_a_batch_is_cut_along_itself(store) -> None:
    """Requests of one batch that repeat each other are stored once and come back."""
    main = store.create_session("x").branch("main")
    main.extend([("model_request", request(turns)) for turns in range(1, 30)])
    assert [event.payload for event in main.events()] == [request(turns) for turns in range(1, 30)]
    with store._core.read() as txn:
        assert sum(row.length for _, row in tables.scan(txn, rows.PIECES)) < 400_000


def test_after_a_reset_all_is_looked_up(store, monkeypatch) -> None:
    """When the event that holds the pieces is no more in the branch's history, none of them is taken for granted."""
    main = store.create_session("x").branch("main")
    main.append("note", {})
    main.append("model_request", request(30))
    main.reset(1)
    lose_pieces(store)
    counts = lookups(store, monkeypatch)
    event = main.append("model_request", request(31))
    assert max(counts) > 15
    store._core.objects.cache = Cache()
    assert main.read(event.seq).payload == request(31)


def test_after_a_fork_was_written_to_all_is_looked_up(store, monkeypatch) -> None:
    """A branch that went on to another timeline is not known to have the pieces."""
    main = store.create_session("x").branch("main")
    main.append("model_request", request(30))
    main.fork("f").append("note", {})
    store.create_session("y").branch("main").append("model_request", request(30))
    main.append("note", {})
    main.reset(1)
    main.append("note", {"other": "timeline"})
    lose_pieces(store)
    event = main.append("model_request", request(31))
    store._core.objects.cache = Cache()
    assert main.read(event.seq).payload == request(31)


def test_an_event_that_a_key_found_is_no_witness(store, monkeypatch) -> None:
    """A repeated append tells nothing of how the payload of its first event lies, and is not relied upon."""
    main = store.create_session("x").branch("main")
    main.append("model_request", request(30), key="k")
    store._core._recent.forget(main._number)
    main.append("model_request", request(30), key="k")
    counts = lookups(store, monkeypatch)
    main.append("model_request", request(31))
    assert max(counts) > 15


def test_what_was_used_least_recently_goes_first() -> None:
    """Beyond its bytes the oldest payload is dropped; one larger than the bound is not kept."""
    recent = Recent(100_000)
    for branch in range(4):
        recent.keep(branch, [draft("a", branch, 30_000)], [(0, 1)], 7)
    assert [bool(recent.cut(branch, "a")) for branch in range(4)] == [False, True, True, True]
    recent.keep(1, [draft("a", 9, 30_000)], [(0, 2)], 7)
    recent.keep(4, [draft("b", 9, 30_000)], [(0, 1)], 7)
    assert [bool(recent.cut(branch, "a")) for branch in range(4)] == [False, True, False, True]
    recent.keep(5, [draft("a", 5, 200_000)], [(0, 1)], 7)
    assert not recent.cut(5, "a")
    assert recent.cut(4, "b")
    assert recent._bytes == sum(last.size for last in recent._lasts.values()) <= 100_000


def test_types_are_kept_apart() -> None:
    """A large result between two requests does not take the place of the request."""
    recent = Recent()
    drafts = [draft("model_request", 1, 30_000), draft("tool_result", 2, 20_000), draft("model_request", 3, 40_000)]
    recent.keep(1, drafts, [(0, 1), (0, 2), (0, 3)], 7)
    assert recent.cut(1, "model_request") == drafts[2].pieces
    assert recent.cut(1, "tool_result") == drafts[1].pieces
    needed = recent.needed(1, drafts)
    assert set(needed.unsure) == {digest for digest, _ in drafts[0].pieces}
    recent.forget(1)
    assert recent.needed(1, drafts).unsure == needed.pieces
