"""size_plain, size_quadratic, fork_many: what events take on the disk. Real files are measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import zstandard

import castlog
from benchmarks import figures
from benchmarks.bars import Bar
from benchmarks.figures import KILOBYTES, MEGABYTES, Figure
from benchmarks.peers import maker, open_peers
from benchmarks.peers.base import Peer, bytes_of, line
from benchmarks.peers.own import Castlog
from benchmarks.peers.plain import JsonLines, RawLmdb
from benchmarks.run import Run
from benchmarks.workload import Event, plain, quadratic

SEALED, COMPACTED, RAW = "castlog, as sealed", "castlog, compacted", "raw JSON Lines"
OWN_EVENTS = 10  # of each fork


def size_plain(run: Run) -> Iterator[Figure]:
    """The plain workload, 100 events a commit."""
    events = list(plain(run.size(5_000, 20_000)))
    grows = [name for name in run.peers if maker(name).appends_max is not None]
    for name in grows:
        yield figures.left_out("size_plain", name, "each append writes the whole history again")
    sizes = _sizes(run, events, [name for name in run.peers if name not in grows], 100)
    case = f"{len(events):,} events"
    yield from figures.values("size_plain", case, sizes, KILOBYTES)
    yield from _ratios("size_plain", case, sizes, KILOBYTES, run.bar("size_plain"))


def size_quadratic(run: Run) -> Iterator[Figure]:
    """The session whose every request repeats the history, one event a commit."""
    turns = run.size(60, 300)
    sizes = _sizes(run, list(quadratic(turns)), run.peers, 1)
    case, bar = f"{turns} turns", run.bar("size_quadratic", full_only=True)
    for name, size in sizes.items():
        yield figures.value("size_quadratic", case, name, size, MEGABYTES, bar if name == COMPACTED else None)
    yield from _ratios("size_quadratic", case, sizes, MEGABYTES)


def fork_many(run: Run) -> Iterator[Figure]:
    """Many forks of one session, each with ten events of its own: bytes a fork, and seconds for all of them."""
    count, history = run.size(200, 1_000), run.size(2_000, 10_000)
    case = f"{count:,} forks of {history:,} events"
    base = list(plain(history))
    own = plain(count * OWN_EVENTS, seed=11)
    parts = [list(itertools.islice(own, OWN_EVENTS)) for _ in range(count)]
    with open_peers(run.folder, ()) as peers:
        castlog_peer = peers["castlog"]
        assert isinstance(castlog_peer, Castlog)
        yield from _castlog_forks(run, case, castlog_peer, base, parts)
    yield from _peer_forks(run, case, base, parts)


def raw_bytes(events: Sequence[Event]) -> bytes:
    """Return the events as JSON Lines."""
    return b"".join(line(event) + b"\n" for event in events)


def _sizes(run: Run, events: Sequence[Event], names: Sequence[str], batch: int) -> dict[str, list[float]]:
    """Return what each store holds the same events in."""
    raw = raw_bytes(events)
    sizes: dict[str, list[float]] = {}
    with open_peers(run.folder, names) as peers:
        for name, peer in peers.items():
            run.tell(name)
            _append(peer, events, batch)
            peer.finish()
        own = peers["castlog"]
        assert isinstance(own, Castlog)
        sizes[SEALED] = [bytes_of(run.folder / "castlog")]
        own.store.compact()
        sizes[COMPACTED] = [bytes_of(run.folder / "castlog")]
    sizes[RAW] = [len(raw)]
    sizes["zstd -3 of the whole"] = [len(zstandard.ZstdCompressor(level=3).compress(raw))]
    for name in names:  # Closed by now, and their write-ahead logs are taken in.
        sizes[f"{name}, packed" if name == "git" else name] = [bytes_of(run.folder / name)]
    return sizes


def _ratios(
    verb: str, case: str, sizes: dict[str, list[float]], unit: figures.Unit, bar: Bar | None = None
) -> Iterator[Figure]:
    """Yield the compacted size over each other one; the bar is for that over the raw events."""
    for name in sizes:
        if name not in (SEALED, COMPACTED):
            judged = bar if name == RAW else None
            yield figures.ratio(verb, case, (COMPACTED, name), sizes, unit, bar=judged, sense="size")


def _append(peer: Peer, events: Sequence[Event], batch: int) -> None:
    for start in range(0, len(events), batch):
        peer.append(events[start : start + batch])


def _castlog_forks(
    run: Run, case: str, own: Castlog, base: Sequence[Event], parts: Sequence[Sequence[Event]]
) -> Iterator[Figure]:
    _append(own, base, 100)
    own.finish()
    own.store.compact()
    folder = run.folder / "castlog"
    before = bytes_of(folder)
    forks: list[castlog.Branch] = []
    forking = figures.seconds(lambda: forks.extend(own.branch.fork_many(len(parts))))

    def write() -> None:
        for number, (fork, part) in enumerate(zip(forks, parts, strict=True)):
            run.tell(f"castlog, fork {number}")
            fork.extend(part)
            fork.seal()

    writing = figures.seconds(write)
    sealed = bytes_of(folder)
    yield figures.value("fork_many", case, "castlog, fork_many", [forking], figures.MILLISECONDS)
    yield figures.value("fork_many", case, "castlog, all their events", [writing], figures.SECONDS)
    yield figures.value("fork_many", case, SEALED, [(sealed - before) / len(parts)], KILOBYTES)
    own.store.compact()
    size = (bytes_of(folder) - before) / len(parts)
    yield figures.value("fork_many", case, COMPACTED, [size], KILOBYTES, run.bar("fork_many", full_only=True))


def _peer_forks(run: Run, case: str, base: Sequence[Event], parts: Sequence[Sequence[Event]]) -> Iterator[Figure]:
    """Yield what forks take in raw LMDB, whose forks share their history by hand, and as copies of a file."""
    if "lmdb" in run.peers:
        raw = RawLmdb(run.place("lmdb"))
        _append(raw, base, 100)
        before = bytes_of(run.folder / "lmdb")
        for part in parts:
            raw.append(part)
        raw.close()
        taken = (bytes_of(run.folder / "lmdb") - before) / len(parts)
        yield figures.value("fork_many", case, "lmdb, rows alone", [taken], KILOBYTES)
    if "jsonl" in run.peers:
        file = JsonLines(run.place("jsonl"))
        _append(file, base, 100)
        file.append(parts[0])
        file.close()
        taken = bytes_of(run.folder / "jsonl")
        yield figures.value("fork_many", case, "jsonl, a copy", [taken], KILOBYTES)
