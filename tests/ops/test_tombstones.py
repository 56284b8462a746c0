"""Tombstones, written by hand: a redacted event is read as what remains of it, and the chain holds across it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from castlog_cli.main import group
from click.testing import CliRunner

import castlog
from castlog.engine.base import WriteTxn
from castlog.format import identity, rows
from castlog.format.chunk import EMPTY_SLOT, ChunkHeader
from castlog.format.record import PIECES, TOMBSTONE, Record, Stored, TailRecord, encode_tail
from castlog.history import pieces, reader, sessions
from castlog.history.writer import size_of

SMALL = b'{"text":"[redacted]"}'
LARGE = json.dumps({"lines": [f"line {n} of what remains" for n in range(100)]}).encode()

Redact = Callable[[str, int, bytes], None]


@pytest.fixture
def redact(kept) -> Redact:
    """Return a function that redacts an event of a branch, leaving these bytes of its payload, or none."""

    def call(name: str, seq: int, remains: bytes) -> None:
        timeline = kept.owners[name, seq]
        tail = kept.look(lambda txn: reader.tail_of(txn, timeline))
        if seq > tail.sealed:
            _redact_open(kept, timeline, seq, remains)
        else:
            key, _ = next(iter(kept.look(lambda txn: list(txn.scan(rows.CHUNKS.key(timeline, seq), b"U")))))
            kept.reseal(key, lambda head, payloads: _redacted_chunk(kept, head, payloads, seq, remains))

    return call


@pytest.mark.parametrize("remains", [b"", SMALL, LARGE], ids=["nothing", "inline", "pieces"])
@pytest.mark.parametrize("where", ["open", "sealed", "sealed pieces"])
def test_a_redacted_event_reads_as_what_remains(kept, redact: Redact, where: str, remains: bytes) -> None:
    """Payload, raw and size are those of what remains; id, type, times and call ids are what they were."""
    name, seq = _event(kept, where)
    redact(name, seq, remains)
    before, event = kept.truth[name][seq - 1], kept.session.branch(name).read(seq)
    assert event.redacted
    assert event.raw == remains
    assert event.payload == (json.loads(remains) if remains else None)
    assert event.size == len(remains)
    assert (event.id, event.type, event.ts, event.call_ids) == (before.id, before.type, before.ts, before.call_ids)
    assert repr(event).endswith(f"{len(remains)} bytes)")
    again = pickle.loads(pickle.dumps(event))
    assert (again.id, again.payload, again.redacted) == (event.id, event.payload, True)


@pytest.mark.parametrize("remains", [b"", SMALL, LARGE], ids=["nothing", "inline", "pieces"])
def test_all_other_events_are_untouched(kept, redact: Redact, remains: bytes) -> None:
    """Walks over the branch meet the tombstone in its place, and every other event whole."""
    for where in ("open", "sealed", "sealed pieces"):
        name, seq = _event(kept, where)
        redact(name, seq, remains)
        for options in ({}, {"reverse": True}, {"types": {kept.truth[name][seq - 1].type}}):
            events = list(kept.session.branch(name).events(**options))
            gone = [event for event in events if event.redacted and event.seq == seq]
            assert len(gone) == 1
            for event in events:
                expected = kept.truth[name][event.seq - 1]
                assert event.id == expected.id
                assert event.redacted or event.payload == expected.payload
    assert kept.session.branch("main").head.id == kept.truth["main"][-1].id


@pytest.mark.parametrize("remains", [b"", SMALL, LARGE], ids=["nothing", "inline", "pieces"])
def test_the_chain_verifies_across_tombstones(kept, redact: Redact, remains: bytes) -> None:
    """Verify, deep too, has nothing to say: the original's commitment still stands in the id."""
    for where in ("open", "sealed", "sealed pieces"):
        redact(*_event(kept, where), remains)
    for deep in (False, True):
        found = kept.found(deep=deep)
        assert set(found) <= {"unused_piece", "unused_object"}, found


def test_every_fork_reads_the_tombstone(kept, redact: Redact) -> None:
    """What branches share they share redacted too."""
    redact("main", 2, b"")
    for branch in kept.session.branches():
        assert branch.read(2).redacted
        assert branch.read(2).id == kept.truth["main"][1].id


def test_an_open_tombstone_is_sealed_like_any_event(kept, redact: Redact) -> None:
    """A chunk takes tombstones from the open records, with what remains of them."""
    name = "inner"
    head = len(kept.truth[name])
    redact(name, head - 1, SMALL)
    redact(name, head, LARGE)
    branch = kept.session.branch(name)
    branch.extend([("note", {"n": n}) for n in range(9)])
    branch.append("note", {})
    tail = kept.look(lambda txn: reader.tail_of(txn, kept.owners[name, head]))
    assert tail.sealed >= head
    kept.forget()
    assert [branch.read(seq).raw for seq in (head - 1, head)] == [SMALL, LARGE]
    assert branch.read(head).redacted
    assert set(kept.found(deep=True)) <= {"unused_piece"}


def test_the_event_line_says_that_it_was_redacted(kept, redact: Redact) -> None:
    """The line has the commitment and `redacted`, and a payload only if something remains."""
    for where, remains in (("open", b""), ("sealed", SMALL)):
        name, seq = _event(kept, where)
        redact(name, seq, remains)
        event = kept.session.branch(name).read(seq)
        line = json.loads(event.to_json())
        salt = kept.look(lambda txn: sessions.read(txn, bytes.fromhex(kept.session.id[5:]))).salt
        commitment = identity.commitment(salt, kept.truth[name][seq - 1].raw)
        assert line["redacted"] is True
        assert line["commitment"] == f"b3:{commitment.hex()}"
        assert line["id"] == event.id
        assert line.get("payload") == (json.loads(remains) if remains else None)


def test_a_redacted_event_cannot_be_copied(kept, redact: Redact) -> None:
    """Cherry-picking it is refused: what is gone cannot be copied."""
    redact("main", 2, SMALL)
    with pytest.raises(castlog.Invalid, match="redacted"):
        kept.session.branch("inner").extend([kept.session.branch("main").read(2)])


def test_remains_that_changed_are_corrupt(kept, redact: Redact) -> None:
    """What a tombstone left is checked against its own commitment, in a record with a good checksum too."""
    name, seq = _event(kept, "open")
    redact(name, seq, SMALL)
    key = rows.record_key(kept.owners[name, seq], seq)
    record = kept.look(lambda txn: reader.open_record(key, txn.get(key)))
    changed = msgspec.structs.replace(record, payload=SMALL.replace(b"redacted", b"REDACTED"))
    kept.put(key, rows.guard(key, encode_tail(changed)))
    with pytest.raises(castlog.Corrupt) as caught:
        kept.session.branch(name).read(seq)
    assert caught.value.seq == seq
    assert "damaged_record" in kept.found()


def test_remains_in_a_chunk_that_changed_are_found(kept, redact: Redact) -> None:
    """Verify compares what tombstones left inline in chunks with their commitments without being asked to go deep."""
    redact("main", 2, SMALL)
    key, _ = kept.table(rows.CHUNKS)[0]

    def change(head: ChunkHeader, payloads: list[bytes]) -> tuple[ChunkHeader, list[bytes]]:
        return head, [payload.replace(b"[redacted]", b"[REDACTED]") for payload in payloads]

    kept.reseal(key, change)
    (finding,) = kept.found()["damaged_payload"]
    assert finding.rev.endswith("/main@2")


def test_remains_in_pieces_that_are_gone_are_corrupt(kept, redact: Redact) -> None:
    """A tombstone whose remains lie in pieces needs them like any payload."""
    redact("main", 2, LARGE)
    for key, _ in kept.table(rows.PIECES):
        kept.engine.update(lambda txn, key=key: txn.delete(key))
    with pytest.raises(castlog.Corrupt):
        _ = kept.session.branch("main").read(2).payload
    assert "missing_piece" in kept.found()


def test_show_says_what_became_of_the_payload(kept_on_disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """`castlog show` names a redacted event as such, and prints what remains."""
    kept = kept_on_disk
    _redact_open(kept, kept.owners["inner", 14], 14, SMALL)
    key, _ = kept.table(rows.CHUNKS)[0]
    kept.reseal(key, lambda head, payloads: _redacted_chunk(kept, head, payloads, 2, b""))
    monkeypatch.setenv("COLUMNS", "200")
    path = kept.store.target
    kept.store.close()
    shown = CliRunner().invoke(group, ["--store", path, "show", f"{kept.session.id}/main@2"])
    assert "redacted; nothing of it is left" in shown.stdout
    shown = CliRunner().invoke(group, ["--store", path, "show", f"{kept.session.id}/inner@14"])
    assert "redacted in part" in shown.stdout
    assert "[redacted]" in shown.stdout
    shown = CliRunner().invoke(group, ["--store", path, "verify", "--deep"])
    assert shown.exit_code == 0, shown.stdout


def _event(kept, where: str) -> tuple[str, int]:
    """Return a branch and a seq whose event lies in the open chunk, in a sealed one, or there in pieces."""
    if where == "open":
        return "inner", len(kept.truth["inner"])
    if where == "sealed":
        return "main", 2
    return "main", next(seq for seq, event in enumerate(kept.truth["main"], 1) if event.size > 1000)


def _tombstone(kept, record: Record, commitment: bytes, remains: bytes) -> tuple[Record, bytes, list[bytes]]:
    """Return a record's tombstone, its inline payload and its pieces; large remains are cut and written."""
    core = kept.store._core
    salt = kept.look(lambda txn: sessions.read(txn, bytes.fromhex(kept.session.id[5:]))).salt
    if not remains:
        return msgspec.structs.replace(record, size=0, stored=Stored(TOMBSTONE, commitment)), b"", []
    covered = identity.commitment(salt, remains)
    if len(remains) < 1000:
        stored = Stored(TOMBSTONE, commitment, (), covered)
        return msgspec.structs.replace(record, size=len(remains), stored=stored), remains, []
    cut = dict(pieces.cut(core.objects.secret, remains))

    def write(txn: WriteTxn) -> None:
        missing = pieces.missing(txn, cut)
        pieces.write(txn, core.objects, pieces.pack(core.objects.secret, missing, cut))

    kept.engine.update(write)
    table = list(cut)
    recipe = tuple(table.index(digest) for digest, _ in pieces.cut(core.objects.secret, remains))
    stored = Stored(TOMBSTONE | PIECES, commitment, recipe, covered)
    return msgspec.structs.replace(record, size=len(remains), stored=stored), b"", table


def _redact_open(kept, timeline: int, seq: int, remains: bytes) -> None:
    key = rows.record_key(timeline, seq)
    old: TailRecord = kept.look(lambda txn: reader.open_record(key, txn.get(key)))
    run = kept.look(lambda txn: reader.run_at(txn, kept.store._core.objects, _salt(kept), timeline, seq))
    record, payload, table = _tombstone(kept, old.record, run.commitment(0), remains)
    new = TailRecord(old.parent, old.id, record, payload, tuple(table))
    kept.put(key, rows.guard(key, encode_tail(new)))
    tail_key = rows.TAILS.key(timeline)
    tail = kept.look(lambda txn: rows.TAILS.decode(tail_key, txn.get(tail_key)))
    kept.rewrite(rows.TAILS, tail_key, size=tail.size - size_of(old) + size_of(new))


def _redacted_chunk(
    kept, head: ChunkHeader, payloads: list[bytes], seq: int, remains: bytes
) -> tuple[ChunkHeader, list[bytes]]:
    index = seq - head.first_seq
    old = head.records[index]
    commitment = old.stored.commitment if old.stored else identity.commitment(_salt(kept), payloads[index])
    record, payload, table = _tombstone(kept, old, commitment, remains)
    if record.stored is not None and record.stored.recipe:
        recipe = tuple(place + len(head.pieces) for place in record.stored.recipe)
        record = msgspec.structs.replace(record, stored=msgspec.structs.replace(record.stored, recipe=recipe))
    changed: dict[str, Any] = {
        "records": (*head.records[:index], record, *head.records[index + 1 :]),
        "pieces": (*head.pieces, *table),
    }
    payloads = [*payloads[:index], payload or EMPTY_SLOT, *payloads[index + 1 :]]
    return msgspec.structs.replace(head, **changed), payloads


def _salt(kept) -> bytes:
    salt: bytes = kept.look(lambda txn: sessions.read(txn, bytes.fromhex(kept.session.id[5:]))).salt
    return salt
