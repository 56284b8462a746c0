"""Whole stores and exports of released formats: they open, read and verify for good, and newer ones are left alone.

`vN` holds a compacted LMDB file, what is in it, and exports of one of its sessions. `make.py` wrote them once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest
import zstandard

import castlog
from castlog.format import ids, rows

from . import second

HERE = Path(__file__).parent
VERSIONS = sorted(HERE.glob("v[0-9]*"))

pytestmark = pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)


@pytest.fixture
def path(folder: Path, tmp_path: Path) -> Path:
    """A copy of the golden store, as somebody would find it who has only its data file."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    data = zstandard.ZstdDecompressor().decompress((folder / "data.mdb.zst").read_bytes())
    (store / "data.mdb").write_bytes(data)
    (store / "data.mdb").chmod(0o600)
    return store


@pytest.fixture
def contents(folder: Path) -> dict[str, Any]:
    """What was in the golden store when it was made."""
    held: dict[str, Any] = json.loads((folder / "store.json").read_text("utf-8"))
    return held


def open_map(path: Path) -> dict[bytes, bytes]:
    """Return all rows of a store's file, read without castlog."""
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as txn:
        return dict(txn.cursor())


def shown(event: castlog.Event) -> list[Any]:
    """Return an event as the golden contents list it; of its payload the digest of its stored bytes."""
    digest = "" if event.redacted and not event.size else second.keyed(bytes(32), event.raw).hex()
    return [
        event.seq,
        event.ts,
        event.type,
        event.schema,
        event.harness_version,
        list(event.call_ids),
        event.key,
        event.size,
        event.redacted,
        digest,
        event.id,
    ]


def branches_of(contents: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield every branch of the golden contents with its session and name."""
    for session in contents["sessions"]:
        for name, branch in session["branches"].items():
            yield session, name, branch


# --- castlog reads it -----------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [True, False])
def test_every_event_is_there(path: Path, contents: dict[str, Any], read_only: bool) -> None:
    """A golden store gives back each event of each branch as it was, ids included, also when opened to read only."""
    with castlog.open(path, create=False, read_only=read_only) as store:
        for session, name, branch in branches_of(contents):
            held = store.session(session["id"]).branch(name)
            assert held.head.seq == branch["head"]
            assert [shown(event) for event in held.events()] == branch["events"]
            assert [shown(event) for event in held.events(reverse=True)] == branch["events"][::-1]
            for event in branch["events"]:
                assert shown(held.read(event[0])) == event


def test_payloads_decode(path: Path, contents: dict[str, Any]) -> None:
    """Whole payloads decode to their JSON, and of a redacted one what remains, or None."""
    with castlog.open(path, create=False, read_only=True) as store:
        for session, name, _ in branches_of(contents):
            if session["title"] != "every form":
                for event in store.session(session["id"]).branch(name).events():
                    assert event.payload == json.loads(event.raw)
        every = next(item for item in contents["sessions"] if item["title"] == "every form")
        main = store.session(every["id"]).branch("main")
        for first in (0, len(every["branches"]["main"]["events"]) // 2):
            assert main.read(first + 1).payload == {"text": "hi"}
            assert main.read(first + 5).payload == {"text": "call me at ..."}
            assert main.read(first + 6).payload is None
            assert main.read(first + 7).payload == main.read(first + 2).payload
            assert main.read(first + 10).payload == {"text": "Grüße", "n": [1, 2.5, None]}


def test_everything_else_is_there(path: Path, contents: dict[str, Any]) -> None:
    """Sessions, labels, parents, tags, calls in flight, reflogs, trash and the current branch are as they were."""
    with castlog.open(path, create=False, read_only=True) as store:
        for session in contents["sessions"]:
            held = store.session(session["id"])
            assert [held.title, held.labels, held.created, held.origin] == [
                session[name] for name in ("title", "labels", "created", "origin")
            ]
            parent = held.parent
            assert (parent and [parent.session_id, parent.seq, parent.call_id, parent.id]) == session["parent"]
            assert {name: [point.seq, point.id] for name, point in held.tags().items()} == session["tags"]
            assert sorted(branch.name for branch in held.branches()) == sorted(session["branches"])
        for session, name, branch in branches_of(contents):
            here = store.session(session["id"]).branch(name)
            assert [event.seq for event in here.in_flight()] == branch["in_flight"]
            assert [[move.op, move.old_seq, move.new_seq, move.note] for move in here.reflog()] == branch["reflog"]
        trash = [[item.session_id, item.branch, item.title, item.deleted] for item in store.trash()]
        assert trash == contents["trash"]
        assert store.current is not None
        assert store.current.rev == contents["current"]
        assert len(store.sessions()) == len(contents["sessions"])


def test_it_verifies(path: Path, contents: dict[str, Any]) -> None:
    """Nothing is found wrong with a golden store, at any depth."""
    with castlog.open(path, create=False, read_only=True) as store:
        for deep in (False, True):
            report = store.verify(deep=deep)
            assert report.ok, report.findings
            assert report.checked["sessions"] >= len(contents["sessions"])


def test_it_goes_on(path: Path, contents: dict[str, Any]) -> None:
    """A golden store can be written: appended to, forked, restored from the trash, and its keys still hold."""
    with castlog.open(path, create=False) as store:
        session = store.find_origin("claude:7f3a")
        assert session is not None
        main = session.branch("main")
        first, head = main.read(1), main.head.seq
        assert main.append("user_message", first.payload, key="first").id == first.id
        assert main.append("tool_result", {"ok": True}, call_id="c7").seq == head + 1
        assert main.fork("later", at=3).append("note", "new").seq == 4
        for item in store.trash():
            store.undelete(item.rev)
        assert session.branch("lost").read(9).payload == "in the trash"
        for name, branch in contents["sessions"][0]["branches"].items():
            for event in branch["events"]:
                assert session.branch(name).read(event[0]).id == event[-1]
        assert store.verify(deep=True).ok


# --- the second reader reads it -------------------------------------------------------------


def test_the_second_reader_finds_the_same(path: Path, contents: dict[str, Any]) -> None:
    """A reader written from FORMAT.md finds every event of every branch, with equal bytes, ids and heads."""
    reader = second.Reader(open_map(path))
    for session, name, branch in branches_of(contents):
        key = ids.parse_session(session["id"])
        timeline, last, head = reader.branches(key)[name]
        found = reader.events(key, timeline, last)
        listed = [
            [
                *event.header,
                len(event.payload or b""),
                event.form is not None and bool(event.form & 4),
                "" if event.payload is None else second.keyed(bytes(32), event.payload).hex(),
                f"b3:{event.id.hex()}",
            ]
            for event in found
        ]
        assert listed == branch["events"]
        assert head in (b"", found[-1].id if found else head)


def test_the_second_reader_reads_what_was_compacted(
    path: Path, contents: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same events in frames shared by chunks and pieces, compressed with a dictionary."""
    monkeypatch.setattr("castlog.limits.DICTIONARY_RAW_BYTES_MIN", 1)
    monkeypatch.setattr("castlog.limits.DICTIONARY_BYTES", 2_000)
    monkeypatch.setattr("castlog.limits.SAMPLE_BYTES", 200)
    monkeypatch.setattr("castlog.limits.FRAME_BYTES", 1_000)
    with castlog.open(path) as store:
        assert store.compact().dictionary
    assert [key for key in open_map(path) if key[:1] == b"Z"]
    test_every_row_is_sound(path)
    test_the_second_reader_finds_the_same(path, contents)


def test_every_row_is_sound(path: Path) -> None:
    """Every key is of a known letter, and every row but an object's part ends with its checksum."""
    known = {table.letter for table in vars(rows).values() if isinstance(table, rows.Table)}
    for key, value in open_map(path).items():
        if key[:1] == b"X":
            continue
        assert key[:1] in known
        second.read_row(key, value)


# --- exports --------------------------------------------------------------------------------


def test_exports_are_imported_with_equal_ids(folder: Path, contents: dict[str, Any]) -> None:
    """The golden exports of a session give a new store the same events; importing them again adds nothing."""
    golden = contents["sessions"][0]
    for file, names in (("main.jsonl", ["main"]), ("session.bundle", sorted(golden["branches"]))):
        with castlog.open("memory:") as store:
            for added in (True, False):
                report = store.import_from(folder / file)
                assert report.ok
                assert (report.added > 0) == added
            session = store.session(golden["id"])
            assert sorted(branch.name for branch in session.branches()) == names
            for name in names:
                assert [shown(event) for event in session.branch(name).events()] == golden["branches"][name]["events"]
            assert store.verify(deep=True).ok


def test_exports_are_written_so_again(folder: Path, path: Path, contents: dict[str, Any], tmp_path: Path) -> None:
    """The export of a branch of the golden store has the golden bytes: lines are part of the format."""
    out = tmp_path / "out.jsonl"
    with castlog.open(path, create=False, read_only=True) as store, out.open("wb") as file:
        store.export(f"{contents['sessions'][0]['id']}/main", file, "jsonl")
    assert out.read_bytes() == (folder / "main.jsonl").read_bytes()


# --- stores of another version --------------------------------------------------------------


def set_version(path: Path, fields: list[Any]) -> None:
    """Replace the row that says a store's format."""
    with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as txn:
        txn.put(b"M", second.write_row(b"M", fields))


def state_of(path: Path) -> dict[str, Any]:
    """Return all there is in a folder: names, modes, times of change, bytes."""
    found = {}
    for item in [path, *sorted(path.rglob("*"))]:
        status = item.stat()
        data = hashlib.sha256(item.read_bytes()).hexdigest() if item.is_file() else ""
        found[str(item)] = (status.st_mode, status.st_mtime_ns, status.st_ino, data)
    return found


@pytest.mark.parametrize(
    "more", [[b"s" * 32, 5, 1], [{"features": ["x"]}, None, {}], []], ids=["like 1", "unlike 1", "bare"]
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_newer_store_is_refused_untouched(path: Path, read_only: bool, more: list[Any]) -> None:
    """A store that a newer castlog wrote is Unavailable with both versions, and no byte, mode or time of it changes."""
    newer = rows.NEWEST_READ + 1
    set_version(path, [newer, *more])
    before, beside = state_of(path), sorted(os.listdir(path.parent))
    for create in (True, False):
        with pytest.raises(castlog.Unavailable) as caught:
            castlog.open(path, create=create, read_only=read_only)
        assert (caught.value.version, caught.value.newest) == (newer, rows.NEWEST_READ)
    assert state_of(path) == before
    assert sorted(os.listdir(path.parent)) == beside


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_refused_untouched(path: Path, version: int) -> None:
    """A store of a version before the first is refused, and nothing of it changes."""
    set_version(path, [version, b"s" * 32, 5, 1])
    before = state_of(path)
    with pytest.raises((castlog.Unavailable, castlog.Corrupt)):
        castlog.open(path, create=False)
    assert state_of(path) == before


def test_a_damaged_version_is_corrupt(path: Path) -> None:
    """A store whose own row fails its checksum is Corrupt and not of a newer version; nothing of it changes."""
    with lmdb.open(str(path), lock=False) as environment, environment.begin(write=True) as txn:
        value = txn.get(b"M")
        assert value is not None
        fields = msgspec.msgpack.decode(value[:-4])
        txn.put(b"M", second.pack([fields[0] + 1, *fields[1:]]) + value[-4:])
    before = state_of(path)
    with pytest.raises(castlog.Corrupt, match="checksum"):
        castlog.open(path, create=False)
    assert state_of(path) == before
