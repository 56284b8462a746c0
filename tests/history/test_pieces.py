"""Large payloads in pieces: stored once, checked on every read, whoever writes them at the same time."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import castlog
from castlog import Corrupt
from castlog.format import codec, rows
from castlog.history import pieces, tables
from castlog.history.objects import Cache

SECRET = b"k" * 32


def text(seed: int, size: int) -> str:
    """Return text that does not repeat itself."""
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz \n", k=size))


def piece_count(store) -> int:
    """Return how many pieces a store has."""
    with store._core.read() as txn:
        return sum(1 for _ in tables.scan(txn, rows.PIECES))


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 4096, 50_000, 1_000_000])
def test_a_cut_is_the_payload(size) -> None:
    """The pieces put together are the payload, each within its bounds."""
    payload = text(size, size).encode()
    cut = pieces.cut(SECRET, payload)
    assert b"".join(data for _, data in cut) == payload
    assert all(len(data) <= 32 * 1024 for _, data in cut)
    assert all(len(data) >= 1024 for _, data in cut[:-1])


def test_an_insertion_moves_few_cuts() -> None:
    """After an insertion near the beginning, in the middle or near the end, most pieces are the old ones."""
    payload = text(1, 400_000).encode()
    before = {digest for digest, _ in pieces.cut(SECRET, payload)}
    for at in (10, 200_000, 399_000):
        after = [digest for digest, _ in pieces.cut(SECRET, payload[:at] + b"something new" + payload[at:])]
        assert sum(digest not in before for digest in after) <= 6


BLOCKS = st.one_of(
    st.builds(lambda seed, size: text(seed, size).encode(), st.integers(0, 5), st.integers(0, 40_000)),
    st.builds(lambda byte, size: bytes([byte]) * size, st.integers(0, 255), st.integers(0, 70_000)),
    st.builds(lambda seed, size, n: text(seed, size).encode() * n, st.integers(0, 5), st.integers(1, 9), st.just(999)),
)
PLACES = st.floats(0, 1) | st.integers(-3, 3)


@st.composite
def edited(draw: st.DrawFn, payload: bytes) -> bytes:
    """Return a payload with a stretch of it replaced, at any place or beside a cut."""
    cuts = [0]
    for _, data in pieces.cut(SECRET, payload):
        cuts.append(cuts[-1] + len(data))

    def place() -> int:
        at = draw(PLACES)
        at = draw(st.sampled_from(cuts)) + at if isinstance(at, int) else int(at * len(payload))
        return min(max(at, 0), len(payload))

    start, end = sorted([place(), place()])
    return payload[:start] + draw(st.just(b"") | st.binary(max_size=9) | BLOCKS) + payload[end:]


@settings(max_examples=300)
@given(st.lists(BLOCKS, max_size=3).map(b"".join), st.data())
def test_a_cut_along_another_payload_is_the_same(payload, data) -> None:
    """Whatever was inserted, deleted, replaced, appended or cut off: the pieces are those of a cut from the start."""
    last = pieces.cut(SECRET, payload)
    for _ in range(3):
        payload = data.draw(edited(payload))
        last = pieces.cut(SECRET, payload, last)
        assert list(last) == list(pieces.cut(SECRET, payload))


def test_a_payload_cut_off_anywhere_near_a_cut() -> None:
    """A payload that ends a little before, at or behind an old cut is cut as from the start, and so is its growth."""
    payload = text(4, 60_000).encode()
    whole = pieces.cut(SECRET, payload)
    end = 0
    for _, data in whole:
        end += len(data)
        for size in range(max(end - 3, 0), min(end + 3, len(payload)) + 1):
            short = pieces.cut(SECRET, payload[:size], whole)
            assert list(short) == list(pieces.cut(SECRET, payload[:size]))
            assert list(pieces.cut(SECRET, payload, short)) == list(whole)


def test_300_growing_requests_are_cut_along_each_other() -> None:
    """Each request of a session that repeats its history is cut along the one before as from the start."""
    last: pieces.Cut = ()
    messages = []
    for turn in range(300):
        messages.append({"role": "user", "content": text(turn, 400)})
        payload = codec.encode({"model": "m", "messages": messages, "tools": [text(0, 3_000)]})
        new = pieces.cut(SECRET, payload, last)
        assert list(new) == list(pieces.cut(SECRET, payload))
        if turn > 20:
            assert sum(piece in last for piece in new) >= len(new) - 6
        last = new


def test_pieces_are_shared_across_events_branches_and_sessions(store) -> None:
    """What was stored once is found again wherever it is written."""
    payload = {"text": text(2, 100_000)}
    main = store.create_session("a").branch("main")
    main.append("note", payload)
    count = piece_count(store)
    main.append("note", payload)
    main.fork("f").append("note", payload)
    store.create_session("b").branch("main").append("other", payload)
    assert piece_count(store) == count > 5


def test_a_payload_that_repeats_itself(store) -> None:
    """A piece that occurs many times in one payload is stored once and read back in all its places."""
    block = text(3, 40_000)
    main = store.create_session("a").branch("main")
    main.append("note", block * 5)
    assert main.read(1).payload == block * 5
    assert piece_count(store) < 30


def test_a_request_that_grows_adds_what_is_new(store) -> None:
    """A model request that repeats the whole history each turn costs the new turn, not the whole."""
    main = store.create_session("a").branch("main")
    messages = []
    raw = 0
    for turn in range(40):
        messages.append({"role": "user", "content": text(turn, 3_000)})
        raw += main.append("model_request", {"messages": messages}, call_id=f"c{turn}").size
    with store._core.read() as txn:
        held = sum(row.length for _, row in tables.scan(txn, rows.PIECES))
    assert raw > 2_000_000
    assert held < 600_000
    assert [len(e.payload["messages"]) for e in main.events()] == list(range(1, 41))


def test_sealed_events_with_pieces(store, main, small_chunks) -> None:
    """Chunks hold recipes: reading one by one, all at once, backwards and by type gives the payloads."""
    payloads = [{"n": n, "text": text(n % 3, 500 + 700 * (n % 4))} for n in range(17)]
    for payload in payloads:
        main.append("note", payload)
    assert [e.payload for e in main.events()] == payloads
    assert [e.payload for e in main.events(reverse=True)] == payloads[::-1]
    assert [e.payload for e in main.events(types={"note"})] == payloads
    assert [main.read(n + 1).payload for n in range(17)] == payloads


def test_two_writers_of_the_same_new_pieces(main) -> None:
    """Both append the same large payload at once: each piece is there once and both events read."""
    payload = {"text": text(5, 200_000)}
    threads = [threading.Thread(target=lambda: main.append("note", payload)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [e.payload for e in main.events()] == [payload] * 6


def test_pieces_that_vanish_between_look_and_commit_are_staged_again(store, main) -> None:
    """A piece counted on as present but gone when the append commits is written after all."""
    payload = {"text": text(6, 60_000)}
    main.append("note", payload)
    core = store._core
    stage, gone = core._stage, []

    def stage_then_lose(cut):
        packs = stage(cut)
        if not gone:
            lost = next(iter(cut))
            gone.append(lost)
            core.engine.update(lambda txn: tables.delete(txn, rows.PIECES, lost))
        return packs

    core._stage = stage_then_lose
    event = main.append("note", {"again": payload})
    assert main.read(event.seq).payload == {"again": payload}
    assert gone


def test_a_missing_or_changed_piece_is_corrupt_for_its_events_only(store, main, small_chunks) -> None:
    """Reading what needs it raises Corrupt naming it; all else reads on."""
    with_it = [main.append("note", {"text": text(7, 30_000), "n": n}) for n in range(2)]
    without = main.append("note", {"small": 1})
    other = main.append("note", {"text": text(8, 5_000)})
    core = store._core
    with core.read() as txn:
        run_digests = [key[1:] for key, row in tables.scan(txn, rows.PIECES) if row.object == 1]
    core.update(lambda txn: [tables.delete(txn, rows.PIECES, digest) for digest in run_digests])
    core.objects.cache = Cache()
    for event in with_it:
        got = main.read(event.seq)
        with pytest.raises(Corrupt, match="piece"):
            _ = got.payload
        assert got.id == event.id
    assert main.read(without.seq).payload == {"small": 1}
    assert main.read(other.seq).payload == {"text": text(8, 5_000)}


def test_damaged_objects_are_corrupt(store, main, small_chunks) -> None:
    """A flipped byte in an object is found by its digest at the next read, and named."""
    main.extend([("note", {"n": n}) for n in range(10)])
    core = store._core
    with core.read() as txn:
        (first, value), *_ = txn.scan(rows.part_key(0, 0)[:1], rows.after(rows.part_key(0, 0)[:1]))
    core.update(lambda txn: txn.put(first, value[:-3] + bytes([value[-3] ^ 1]) + value[-2:]))
    core.objects.cache = Cache()
    with pytest.raises(Corrupt, match="object 1"):
        main.read(2)
    assert main.read(7).payload == {"n": 6}
    assert [e.seq for e in main.events(start=6)] == [6, 7, 8, 9, 10]


# --- the cache ----------------------------------------------------------------------------------


def test_the_cache_drops_what_was_not_used_for_longest() -> None:
    """Beyond its bytes the oldest goes; what is used stays; one entry stays however large."""
    cache, made = Cache(100), []

    def make(name: str, size: int = 40):
        made.append(name)
        return name.upper(), size

    for name in ("a", "b", "a", "c", "a", "b"):
        assert cache.get(name, lambda name=name: make(name)) == name.upper()
    assert made == ["a", "b", "c", "b"]
    assert cache.get("big", lambda: make("big", 1000)) == "BIG"
    assert cache.get("big", lambda: make("big", 1000)) == "BIG"
    assert made[-1:] == ["big"]


def test_the_cache_keeps_nothing_of_a_failure() -> None:
    """When making a value fails, the next time it is made anew."""
    cache = Cache(100)
    with pytest.raises(KeyError):
        cache.get("a", lambda: {}["missing"])
    assert cache.get("a", lambda: ("ok", 1)) == "ok"


def test_reading_a_long_history_keeps_little_in_memory(store, main, monkeypatch) -> None:
    """The cache stays within its bound while a history many times as large is read."""
    monkeypatch.setattr("castlog.limits.SEAL_EVENTS", 20)
    store._core.objects.cache = Cache(60_000)
    main.extend([("note", {"n": n, "pad": "p" * 200}) for n in range(2_000)])
    assert sum(1 for _ in main.events()) == 2_000
    assert store._core.objects.cache._bytes <= 60_000
    assert isinstance(main, castlog.Branch)
