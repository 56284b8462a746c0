"""Damage: the events that lie in what was damaged raise Corrupt, all others read true, and verify says where it is.

Guards against wrong data handed out silently: the engine has no checksums of its own.
"""

from __future__ import annotations

import pytest

import castlog
from castlog import Conflict, Corrupt
from castlog.engine.base import WriteTxn
from castlog.format import rows
from castlog.format.chunk import decode
from castlog.history import reader, sealing, sessions


def test_a_sound_store_reads_true_and_has_no_findings(kept) -> None:
    """Nothing is unreadable and nothing is found where nothing was damaged."""
    assert kept.unreadable() == set()
    assert kept.lost_by_walking() == set()
    assert kept.lost_by_walking(reverse=True) == set()
    report = kept.store.verify(deep=True)
    assert report.ok, report.findings
    assert {finding.name for finding in report.findings} == set()


def test_a_damaged_chunk_loses_its_own_events_and_no_others(kept) -> None:
    """A flipped bit anywhere in a chunk's object makes its events unreadable, and verify names the first of them."""
    chunks = kept.decoded(rows.CHUNKS)
    assert len(chunks) > 5
    for chunk_key, row in chunks:
        timeline, last = rows.CHUNKS.fields(chunk_key)
        lost = kept.owned(timeline, row.first, last)
        for key, value in kept.during([(key, value) for key, value in kept.parts() if key[1:9] == _number(row.object)]):
            for at in (5, 20, len(value) // 2, len(value) - 1):
                kept.put(key, value)
                kept.flip(key, at)
                assert kept.unreadable() == lost, (chunk_key, at)
                assert kept.lost_by_walking() == lost
                assert kept.lost_by_walking(reverse=True) == lost
                findings = kept.found()["damaged_object"]
                assert [finding.severity for finding in findings] == ["error"]
                assert f"object {row.object}" in findings[0].message
                if lost:
                    assert findings[0].rev.endswith(f"@{row.first}")


def test_a_missing_chunk_loses_its_own_events_and_no_others(kept) -> None:
    """An object that is gone is as one that is damaged."""
    chunk_key, row = kept.decoded(rows.CHUNKS)[1]
    timeline, last = rows.CHUNKS.fields(chunk_key)
    kept.delete(rows.part_key(row.object, 0))
    assert kept.unreadable() == kept.owned(timeline, row.first, last)
    assert set(kept.found()) == {"damaged_object"}


def test_a_damaged_row_of_a_chunk_loses_its_own_events(kept) -> None:
    """Damage to the row that points at a chunk is damage to its events; a row that is gone likewise."""
    for key, _ in kept.during(kept.table(rows.CHUNKS)):
        timeline, last = rows.CHUNKS.fields(key)
        row = kept.look(lambda txn, key=key: rows.CHUNKS.decode(key, txn.get(key)))
        lost = kept.owned(timeline, row.first, last)
        kept.flip(key)
        assert kept.unreadable() == kept.lost_by_walking() == lost
        assert "damaged_row" in kept.found()
        kept.delete(key)
        assert kept.unreadable() == lost
        assert "missing_chunk" in kept.found()


def test_a_damaged_open_record_loses_one_event(kept) -> None:
    """Every bit of an open record counts; the records around it stay readable, one by one and in walks."""
    records = kept.records()
    assert len(records) > 6
    for key, value in kept.during(records):
        timeline, seq = int.from_bytes(key[1:9], "big"), rows.record_seq(key)
        lost = kept.owned(timeline, seq, seq)
        for at in range(0, len(value), max(1, len(value) // 6)):
            kept.put(key, value)
            kept.flip(key, at, 1 << at % 8)
            assert kept.unreadable() == lost
            assert kept.lost_by_walking() == lost
            assert kept.lost_by_walking(reverse=True) == lost
        (finding,) = kept.found()["damaged_record"]
        assert not lost or finding.rev.endswith(f"@{seq}")
        kept.delete(key)
        assert kept.unreadable() == kept.lost_by_walking() == lost
        assert "missing_record" in kept.found()


def test_a_record_that_moved_is_not_believed(kept) -> None:
    """A sound record under another key, the same seq of a sibling even, is damage and not that event."""
    main = kept.session.branch("main")
    for name in ("one", "two"):
        main.fork(name, at=4).append("note", {"by": name})
    records = {key: value for key, value in kept.records() if rows.record_seq(key) == 5}
    (one, _), (_, other) = list(records.items())[-2:]
    kept.put(one, other)
    assert kept.session.branch("two").read(5).payload == {"by": "two"}
    with pytest.raises(Corrupt) as caught:
        kept.session.branch("one").read(5)
    assert caught.value.seq == 5


def test_a_damaged_pack_loses_the_events_with_pieces_in_it(kept) -> None:
    """Events of the same chunk whose payload lies elsewhere stay readable whole; deep verify names the others."""
    packs = {row.object for _, row in kept.decoded(rows.PIECES)}
    assert len(packs) > 2
    for number in packs:
        lost = _users(kept, {key[1:] for key, row in kept.decoded(rows.PIECES) if row.object == number})
        assert lost
        for key, _ in kept.during([(k, v) for k, v in kept.parts() if k[1:9] == _number(number)][:1]):
            kept.flip(key, 200)
            assert kept.unreadable() == lost
            found = kept.found(deep=True)
            assert {finding.severity for finding in found["damaged_object"] + found["damaged_payload"]} == {"error"}
            shown = {finding.rev.rpartition("@")[2] for finding in found["damaged_payload"] if finding.rev}
            assert shown <= {str(seq) for _, seq in lost}


def test_a_damaged_row_of_a_piece_loses_the_events_that_use_it(kept) -> None:
    """The index of pieces is not believed when it is damaged, and what it no longer finds is an error without deep."""
    for key, _ in kept.during(kept.table(rows.PIECES)):
        lost = _users(kept, {key[1:]})
        kept.flip(key)
        assert kept.unreadable() == lost
        assert {"damaged_row", "missing_piece"} <= set(kept.found())
        kept.delete(key)
        assert kept.unreadable() == lost
        assert "missing_piece" in kept.found()


def test_an_event_beside_a_damaged_payload_can_be_had_in_a_walk(kept) -> None:
    """A walk hands out the event whose pieces are gone, with all but its payload, and goes on."""
    key = kept.table(rows.PIECES)[0][0]
    lost = {seq for name, seq in _users(kept, {key[1:]}) if name == "main"}
    kept.delete(key)
    events = list(kept.session.branch("main").events())
    assert [event.id for event in events] == [expected.id for expected in kept.truth["main"]]
    for event, expected in zip(events, kept.truth["main"], strict=True):
        if event.seq not in lost:
            assert event.payload == expected.payload
            continue
        with pytest.raises(Corrupt) as caught:
            _ = event.payload
        assert caught.value.digest == key[1:].hex()


def test_a_damaged_end_of_a_timeline_loses_that_timeline_only(kept) -> None:
    """Without the row that says where a timeline ends none of its own events is handed out; all others are."""
    for key, _ in kept.during(kept.table(rows.TAILS)):
        (timeline,) = rows.TAILS.fields(key)
        kept.flip(key)
        assert kept.unreadable() == kept.owned(timeline)
        assert "damaged_row" in kept.found()
        kept.delete(key)
        assert kept.unreadable() == kept.owned(timeline)
        assert "wrong_tail" in kept.found()


def test_a_damaged_timeline_takes_along_only_what_is_read_through_it(kept) -> None:
    """The row of a timeline is the way to what lies above it; branches that do not pass by it read everything.

    A head needs no way: its reference names the timeline.
    """
    heads = {(name, len(events)) for name, events in kept.truth.items()}
    for key, _ in kept.during(kept.table(rows.TIMELINES)):
        (timeline,) = rows.TIMELINES.fields(key)
        through = {name for name, _ in kept.owned(timeline)}
        for harm, name in ((kept.flip, "damaged_row"), (kept.delete, "missing_timeline")):
            harm(key)
            lost = kept.unreadable()
            assert lost >= kept.owned(timeline) - heads
            assert {name for name, _ in lost} <= through
            assert name in kept.found()


def test_rows_beside_the_events_hide_none_of_them(kept) -> None:
    """Damage to keys, calls, reflog, trash, children, origins, counters and HEAD is found and loses no event."""
    tables = (rows.KEYS, rows.IN_FLIGHT, rows.REFLOG, rows.TRASH, rows.CHILDREN, rows.ORIGINS, rows.COUNTERS, rows.HEAD)
    events = kept.store.verify().checked["events"]
    for table in tables:
        there = kept.table(table)
        assert there, table.name
        for key, _ in kept.during(there):
            kept.flip(key)
            assert kept.unreadable() == set()
            found = kept.found()
            (finding,) = found["damaged_row"]
            assert key.hex() in finding.message
            assert (finding.severity, table.name in finding.message) == ("error", True)
            assert kept.store.verify().checked["events"] == events
            assert set(found) <= {"damaged_row", "reflog_gap"}


def test_damaged_names_and_sessions_raise_corrupt(kept) -> None:
    """A branch whose name or row is damaged, or whose session's is, cannot be opened, and says why."""
    rev = f"{kept.session.id}/inner"
    key = rows.NAMES.of(bytes.fromhex(kept.session.id[5:]), "inner")
    branch = kept.look(lambda txn: rows.NAMES.decode(key, txn.get(key))).branch
    for target in (key, rows.REFS.key(branch), rows.SESSIONS.key(bytes.fromhex(kept.session.id[5:]))):
        value = dict(kept.rows(target))[target]
        kept.flip(target)
        with pytest.raises(Corrupt) as caught:
            kept.store.branch(rev)
        assert caught.value.key == target.hex()
        assert "damaged_row" in kept.found()
        kept.put(target, value)
    assert kept.store.branch(rev).head.seq == len(kept.truth["inner"])


def test_appending_goes_on_beside_damage(kept) -> None:
    """An event can be appended behind damaged ones and is durable; what cannot be verified is not sealed away."""
    inner = kept.session.branch("inner")
    before = inner.head.seq
    kept.flip(rows.record_key(kept.owners["inner", before - 1], before - 1))
    for number in range(12):
        assert inner.append("note", {"after": number}).seq == before + number + 1
    inner.extend([("note", {"batch": number}) for number in range(12)])
    assert [event.payload for event in inner.events(start=before + 1)][:2] == [{"after": 0}, {"after": 1}]
    assert inner.head.seq == before + 24
    assert set(kept.found()) == {"damaged_record"}


def test_an_object_in_the_place_of_another_is_noticed(kept) -> None:
    """A sound chunk under another chunk's number is not taken for it."""
    (_, one), (_, two) = kept.decoded(rows.CHUNKS)[:2]
    kept.put(rows.part_key(one.object, 0), dict(kept.parts())[rows.part_key(two.object, 0)])
    timeline, last = rows.CHUNKS.fields(kept.decoded(rows.CHUNKS)[0][0])
    assert kept.unreadable() == kept.owned(timeline, one.first, last)
    (finding,) = kept.found()["damaged_object"]
    assert f"object {one.object}" in finding.message


def test_a_sibling_of_equal_length_in_the_place_of_a_chunk_is_noticed(kept) -> None:
    """Two forks' chunks as alike as can be are not taken for each other."""
    main = kept.session.branch("main")
    for name in ("one", "two"):
        main.fork(name, at=5).extend([("note", {"by": name}) for _ in range(5)])
    one, two = ((key, row) for key, row in kept.decoded(rows.CHUNKS)[-2:])
    assert one[1].length == two[1].length
    kept.put(rows.part_key(one[1].object, 0), dict(kept.parts())[rows.part_key(two[1].object, 0)])
    assert [event.payload for event in kept.session.branch("two").events(start=6)] == [{"by": "two"}] * 5
    with pytest.raises(Corrupt) as caught:
        kept.session.branch("one").read(7)
    assert caught.value.object == one[1].object
    assert "wrong_chunk" in kept.found()


def test_a_name_without_its_branch_is_corrupt(kept) -> None:
    """A branch whose row is gone is damage, and not a branch that never was."""
    number = next(rows.REFS.fields(key)[0] for key, row in kept.decoded(rows.REFS) if row.name == "inner")
    kept.delete(rows.REFS.key(number))
    with pytest.raises(Corrupt) as caught:
        kept.store.branch(f"{kept.session.id}/inner")
    assert caught.value.branch == number


def test_a_key_that_is_none_among_records_hides_no_event(kept) -> None:
    """A row with a key of another shape in an open chunk is found, and all records around it are read."""
    key, value = kept.records()[0]
    kept.put(key + b"?", value)
    assert kept.unreadable() == kept.lost_by_walking() == kept.lost_by_walking(reverse=True) == set()
    assert "damaged_row" in kept.found()


def test_keys_out_of_order_lead_to_no_other_chunk(kept_in_memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine comes upon another row than the one looked for, the event is corrupt and not another one."""
    kept = kept_in_memory
    first, second = (key for key, _ in kept.table(rows.CHUNKS)[:2])
    with kept.engine.read() as txn:
        kind, honest = type(txn), type(txn).scan

    def scan(self: object, start: bytes, stop: bytes | None = None, *, reverse: bool = False) -> object:
        wrong = first < start <= second and start[9] == rows.CHUNKS.kind
        return honest(self, first if wrong else start, stop, reverse=reverse)

    monkeypatch.setattr(kind, "scan", scan)
    timeline, last = rows.CHUNKS.fields(second)
    before = rows.CHUNKS.fields(first)[1]
    assert kept.unreadable() == kept.owned(timeline, before + 1, last)
    assert not kept.store.verify().ok


def test_a_chunk_read_in_a_transaction_that_was_given_up_is_not_remembered(kept) -> None:
    """A number given out again after an aborted write means the later chunk, whatever was decoded meanwhile."""
    main, inner = kept.session.branch("main"), kept.session.branch("inner")
    core = kept.store._core
    salt = kept.look(lambda txn: sessions.read(txn, bytes.fromhex(kept.session.id[5:]))).salt
    seals = []
    for branch, count in ((inner, 1), (main, 3)):
        branch.extend([("note", {"more": n}) for n in range(count)])
        with kept.engine.read() as txn:
            row = sessions.read(txn, bytes.fromhex(kept.session.id[5:]))
            timeline = branch._place(txn).timeline
            seals.append(sealing.prepare(txn, core.objects, row, timeline, whole=True))

    def given_up(txn: WriteTxn) -> None:
        assert seals[0].sealed == reader.tail_of(txn, seals[0].timeline).sealed
        sealing.apply(txn, core.objects, seals[0])
        reader.chunk_at(txn, core.objects, salt, seals[0].timeline, seals[0].chunks[0].last)
        raise Conflict("moved")

    with pytest.raises(Conflict):
        kept.engine.update(given_up)
    kept.engine.update(lambda txn: sealing.apply(txn, core.objects, seals[1]))
    assert [event.payload for event in main.events(start=main.head.seq - 2)] == [{"more": n} for n in range(3)]


def test_what_a_batch_leaves_open_is_counted(kept_on_disk, open_disk_store) -> None:
    """Other processes' full open chunk, sealed along with a small batch, leaves records whose size is known."""
    branch = kept_on_disk.session.branch("inner")
    branch.seal()
    others = open_disk_store(), open_disk_store()
    for number in range(6):  # the sixth lies behind what the first process is about to seal, and knows nothing of it
        others[number // 5].branch(branch.rev).append("note", {"n": number}, key=f"n-{number}")
    known = [castlog.Draft("note", {"n": number}, key=f"n-{number}") for number in range(6)]
    branch.extend([*known, ("note", {"new": 1})])
    assert [event.payload for event in branch.events(start=branch.head.seq - 1)] == [{"n": 5}, {"new": 1}]
    assert set(kept_on_disk.found()) == set()


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _users(kept, digests: set[bytes]) -> set[tuple[str, int]]:
    """Return the events whose payload needs one of these pieces."""
    users = set()
    with kept.engine.read() as txn:
        objects = kept.store._core.objects
        for key, row in kept.decoded(rows.CHUNKS):
            timeline, _ = rows.CHUNKS.fields(key)
            head, _ = decode(objects.read(txn, row.object).data)
            for seq, record in enumerate(head.records, row.first):
                if record.stored and digests & {head.pieces[index] for index in record.stored.recipe}:
                    users |= kept.owned(timeline, seq, seq)
        for key, value in kept.records():
            record = reader.open_record(key, value)
            if digests & set(record.pieces):
                seq = rows.record_seq(key)
                users |= kept.owned(int.from_bytes(key[1:9], "big"), seq, seq)
    return users
