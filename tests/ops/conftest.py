"""A store with everything in it, the truth about it in plain lists, and the means to damage it behind its back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

import castlog
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.format import chunk, rows
from castlog.format import objects as fmt
from castlog.format.chunk import ChunkHeader
from castlog.history import timelines
from castlog.history.objects import Objects

Row = tuple[bytes, bytes]


class Known(NamedTuple):
    """What is true of an event, whatever the store says later."""

    id: str
    type: str
    ts: int
    schema: int
    call_ids: tuple[str, ...]
    key: str | None
    raw: bytes
    payload: Any
    size: int
    redacted: bool


def known(event: castlog.Event) -> Known:
    """Return all there is to an event; raises Corrupt when a part of it cannot be had."""
    return Known(
        event.id,
        event.type,
        event.ts,
        event.schema,
        event.call_ids,
        event.key,
        event.raw,
        event.payload,
        event.size,
        event.redacted,
    )


class Kept:
    """A store under attack. `truth` holds every branch's events, `owners` the timeline that owns each of them."""

    def __init__(self, store: castlog.Store, session: castlog.Session) -> None:
        self.store = store
        self.engine = store._core.engine
        self.session = session
        self.truth = {branch.name: [known(event) for event in branch.events()] for branch in session.branches()}
        self.owners: dict[tuple[str, int], int] = {}
        self._branches = {branch.name: branch for branch in session.branches()}
        with self.engine.read() as txn:
            for name, branch in self._branches.items():
                place = branch._place(txn)
                for seq in range(1, place.seq + 1):
                    self.owners[name, seq] = timelines.owner(txn, place.timeline, seq)

    def rows(self, prefix: bytes) -> list[Row]:
        """Return all rows whose keys begin with this."""
        with self.engine.read() as txn:
            return list(txn.scan(prefix, rows.after(prefix)))

    def table(self, table: rows.Table[Any]) -> list[Row]:
        """Return all rows of a table."""
        return [row for row in self.rows(table.letter) if table.owns(row[0])]

    def records(self) -> list[Row]:
        """Return the records of all open chunks."""
        return [row for row in self.rows(rows.TIMELINES.letter) if row[0][9] == rows.record_key(0, 0)[9]]

    def parts(self) -> list[Row]:
        """Return the parts of all objects."""
        return self.rows(rows.part_key(0, 0)[:1])

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row as it is."""
        self.engine.update(lambda txn: txn.put(key, value))
        self.forget()

    def delete(self, key: bytes) -> None:
        """Take a row away."""
        self.engine.update(lambda txn: txn.delete(key))
        self.forget()

    def flip(self, key: bytes, at: int = -1, bit: int = 1) -> None:
        """Flip a bit of a row's value; by default in its middle."""
        with self.engine.read() as txn:
            value = bytearray(txn.get(key) or b"")
        value[len(value) // 2 if at < 0 else at] ^= bit
        self.put(key, bytes(value))

    def rewrite(self, table: rows.Table[Any], key: bytes, **fields: Any) -> None:
        """Change fields of a row and give it a good checksum: what a bug would leave, not a broken disk."""
        with self.engine.read() as txn:
            row = table.decode(key, txn.get(key) or b"")
        self.put(key, table.encode(key, msgspec.structs.replace(row, **fields)))

    def decoded(self, table: rows.Table[Any]) -> list[tuple[bytes, Any]]:
        """Return a table's rows decoded."""
        return [(key, table.decode(key, value)) for key, value in self.table(table)]

    def forget(self) -> None:
        """Drop what the store keeps decoded, as a newly opened one would have nothing."""
        self.store._core.objects = Objects(self.store._core.objects.secret)

    def during(self, rows_: list[Row]) -> Iterator[Row]:
        """Yield rows to be damaged, one after the other, and put each back afterwards."""
        for key, value in rows_:
            yield key, value
            self.put(key, value)

    def unreadable(self) -> set[tuple[str, int]]:
        """Read every event of every branch by its seq; return those that raise Corrupt. All others must be true."""
        lost, named = set(), []
        for name, events in self.truth.items():
            for seq, expected in enumerate(events, 1):
                try:
                    assert known(self._branches[name].read(seq)) == expected
                except castlog.Corrupt as exc:
                    lost.add((name, seq))
                    named.append(bool(exc.facts.keys() & {"object", "seq", "digest", "table", "timeline"}))
        assert all(named), "a Corrupt does not name what it is about"
        return lost

    def lost_by_walking(self, *, reverse: bool = False) -> set[tuple[str, int]]:
        """Iterate over every branch, going on behind each place that raises Corrupt; return those places."""
        lost = set()
        for name, events in self.truth.items():
            seq, step = (len(events), -1) if reverse else (1, 1)
            while 1 <= seq <= len(events):
                bounds = {"until": seq, "reverse": True} if reverse else {"start": seq}
                try:
                    for event in self._branches[name].events(**bounds):
                        assert event.seq == seq
                        assert known(event) == events[seq - 1]
                        seq += step
                except castlog.Corrupt:
                    lost.add((name, seq))
                    seq += step
        return lost

    def owned(self, timeline: int, first: int = 1, last: int = 1 << 62) -> set[tuple[str, int]]:
        """Return what of a timeline's own events the branches reach."""
        return {(name, seq) for (name, seq), owner in self.owners.items() if owner == timeline and first <= seq <= last}

    def found(self, *, deep: bool = False, rev: str | None = None) -> dict[str, list[castlog.Finding]]:
        """Verify and return the findings by name."""
        report = self.store.verify(rev, deep=deep)
        found: dict[str, list[castlog.Finding]] = {}
        for finding in report.findings:
            found.setdefault(finding.name, []).append(finding)
        return found

    def reseal(self, key: bytes, change: Callable[[ChunkHeader, list[bytes]], tuple[ChunkHeader, list[bytes]]]) -> None:
        """Change a chunk's header and payloads and write it as a sound object: what a bug or a redaction leaves."""
        objects = self.store._core.objects
        with self.engine.read() as txn:
            row = rows.CHUNKS.decode(key, txn.get(key) or b"")
            data = objects.read(txn, row.object).data
        head, body = chunk.decode(data[row.offset : row.offset + row.length])
        slots = zip(chunk.slots(head.records), head.records, strict=True)
        payloads = [body[start : start + chunk.slot_length(record)] for start, record in slots]
        data = chunk.encode(*change(head, payloads))

        def write(txn: WriteTxn) -> None:
            number = objects.write(txn, fmt.encode(objects.secret, fmt.CHUNK, data))
            txn.put(key, rows.CHUNKS.encode(key, msgspec.structs.replace(row, object=number, length=len(data))))
            for part, _ in list(txn.scan(rows.part_key(row.object, 0), rows.part_key(row.object + 1, 0))):
                txn.delete(part)

        self.engine.update(write)
        self.forget()

    def look(self, read: Callable[[ReadTxn], Any]) -> Any:
        """Return what a function reads in a transaction of its own."""
        with self.engine.read() as txn:
            return read(txn)


def text(number: int, lines: int = 60) -> dict[str, Any]:
    """Return a payload of some thousand bytes, most of it equal to that of the number before."""
    return {"n": number, "lines": [f"line {line} of the file, unchanged" for line in range(number, number + lines)]}


@pytest.fixture
def kept(store: castlog.Store, small_chunks: None) -> Kept:
    """A session with sealed and open chunks, pieces, keys, calls in flight, forks of forks, tags and a child."""
    return fill(store)


@pytest.fixture
def kept_in_memory(small_chunks: None, clock: Callable[[], int]) -> Iterator[Kept]:
    """The same, where the engine makes no difference."""
    with castlog.open("memory:", clock=clock) as store:
        yield fill(store)


@pytest.fixture
def kept_on_disk(disk_store: castlog.Store, small_chunks: None) -> Kept:
    """The same, for what makes sense only on disk."""
    return fill(disk_store)


def fill(store: castlog.Store) -> Kept:
    """Write a bit of everything."""
    session = store.create_session("everything", origin="elsewhere", labels={"team": "web"})
    main = session.branch("main")
    for number in range(8):
        main.append("user_message", {"text": f"question {number}"}, key=f"ask-{number}")
        main.append("tool_call", {"name": "Read"}, call_id=f"call-{number}")
        if number % 3 == 0:
            main.append("model_request", text(number), call_id=f"request-{number}")
        main.append("tool_result", {"ok": True, "output": "x" * 40 * number}, call_id=f"call-{number}")
    inner = main.fork("inner", at=7)  # inside a sealed chunk
    inner.extend([("note", {"inner": number}) for number in range(5)])
    inner.append("note", {"inner": 5})
    inner.append("model_request", text(100), call_id="other")
    leaf = inner.fork("leaf", at=9)
    leaf.append("note", {"leaf": 1}, key="leaf")
    late = main.fork("late", at=main.head.seq - 1)  # in the open chunk
    late.append("tool_result", {"ok": False}, call_id="request-6")
    gone = main.fork("gone", at=3)
    gone.append("note", {"gone": True})
    gone.delete()
    moved = main.fork("moved")
    moved.append("note", {"moved": True})
    moved.reset(5)
    session.tag("first", at=4)
    session.promote("leaf", onto="moved")
    child = store.create_session("child", parent=main.read(2))
    child.branch("main").append("note", {"child": True})
    store.checkout(f"{session.id}/inner")
    return Kept(store, session)
