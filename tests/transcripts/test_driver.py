"""Folders and files: everything is looked at, nothing stops the rest, memory stays bounded."""

from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import castlog
from castlog import FileReport, Invalid, NotFound, Progress, Store
from castlog.transcripts.driver import import_path
from castlog.transcripts.source import Source

from .conftest import SESSION, Chat, Take

One = Callable[..., FileReport]
Export = Callable[[FileReport], bytes]
FIXTURES = Path(__file__).parent / "fixtures"


def conversation(session: str = SESSION, length: int = 5) -> bytes:
    """Return a file of a few rows."""
    chat = Chat(session)
    for number in range(length):
        chat.user(f"text {number}")
    return chat.data


@pytest.mark.parametrize("target", ["memory:", "disk"])
def test_real_transcripts_come_back_and_add_nothing_twice(target: str, tmp_path: Path) -> None:
    """Every real file is exported byte for byte, the store verifies, and a second import adds nothing."""
    with castlog.open(tmp_path / "s" if target == "disk" else target) as store:
        first = store.import_from(FIXTURES)
        again = store.import_from(FIXTURES)
        taken = [file for file in first.files if file.rev]
        assert {file.format for file in taken} == {"claude_code", "codex"}
        assert len(taken) == 5
        assert (first.ok, again.ok, again.added) == (True, True, 0)
        for file in [*taken, *(file for file in again.files if file.rev)]:
            out = io.BytesIO()
            store.export(file.rev or "", out, format="source", start=file.start)
            assert out.getvalue() == Path(file.path).read_bytes()
        assert store.verify(deep=True).findings == []


def test_a_folder_is_walked_in_order(take: Take, tmp_path: Path) -> None:
    """Files below a folder are reported in the order of their paths, agents' too though they are taken in last."""
    for name in ("b/x.jsonl", "a/agent-1.jsonl", "a/y.jsonl", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        chat = Chat(name[:1] * 8, isSidechain="agent" in name, agentId="1")
        chat.user("x")
        (tmp_path / name).write_bytes(chat.data)
    paths = [str(Path(file.path).relative_to(tmp_path)) for file in take(tmp_path).files]
    assert paths == ["a/agent-1.jsonl", "a/y.jsonl", "b/x.jsonl", "c.jsonl"]


def test_what_cannot_be_read_is_reported_and_the_rest_taken(take: Take, tmp_path: Path, store: Store) -> None:
    """Pipes, loops, stores and broken links are passed over; a file that is lost counts as damage."""
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "nowhere")
    with castlog.open(tmp_path / "d.castlog") as other:
        other.create_session("inside")
        (tmp_path / "e.jsonl").write_bytes(conversation())
        report = take(tmp_path)
    notes = {Path(file.path).name: file.note for file in report.files}
    assert notes["a.jsonl"] == "not a regular file"
    assert "cannot be read" in notes["c.jsonl"]
    assert "castlog store" in notes["d.castlog"]
    assert len(notes) == len(report.files) == 4
    assert len(store.sessions()) == 1
    assert report.ok


def test_a_file_that_may_not_be_read_is_a_loss(tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losing a file is said like losing a line; the others are taken in."""
    (tmp_path / "a.jsonl").write_bytes(conversation())
    (tmp_path / "b.jsonl").write_bytes(conversation("b" * 8))

    def source(path: Path) -> Source:
        if path.name == "a.jsonl":
            raise PermissionError(13, "Permission denied")
        return Source(path)

    monkeypatch.setattr("castlog.transcripts.driver.Source", source)
    report = take(tmp_path)
    assert [file.status for file in report.files] == ["skipped", "new"]
    assert report.files[0].damaged[0].reason == "cannot be read: Permission denied"
    assert not report.ok


def test_nothing_at_the_path(store: Store, tmp_path: Path) -> None:
    """A path that names nothing is NotFound."""
    with pytest.raises(NotFound, match="nowhere"):
        import_path(store, tmp_path / "nowhere")


def test_progress_is_told(store: Store, tmp_path: Path) -> None:
    """Progress rises to the total in bytes and names the file at work."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(conversation(name * 8, 50))
    told: list[Progress] = []
    import_path(store, tmp_path, progress=told.append)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert [item.done for item in told] == sorted(item.done for item in told)
    assert told[-1].done == told[-1].total == total
    assert {item.unit for item in told} == {"bytes"}


def test_a_compressed_file_is_the_same_session(one: One, tmp_path: Path, export: Export, store: Store) -> None:
    """A cold rollout is decompressed while it is read; exported it is what was in it."""
    data = conversation(length=300)
    packed = b"".join(zstandard.ZstdCompressor().compress(part) for part in (data[:500], data[500:]))
    cold = one(packed, f"{SESSION}.jsonl.zst")
    assert (cold.status, cold.format, cold.note) == ("new", "claude_code", "decompressed")
    assert export(cold) == data
    assert one(data).status == "unchanged"
    assert store.session(cold.session_id or "").origin == f"claude_code:{SESSION}"


def test_a_compressed_file_that_breaks_off_keeps_what_there_is(one: One, export: Export) -> None:
    """The part that can be unpacked is taken in, the rest reported as damage."""
    data = conversation(length=3000)
    packed = zstandard.ZstdCompressor().compress(data)
    file = one(packed[: len(packed) // 2], f"{SESSION}.jsonl.zst")
    assert "compressed stream" in file.damaged[-1].reason
    assert data.startswith(export(file).rstrip(b"\n")[:1000])
    assert file.events > 1


def test_damage_is_listed_with_its_place(one: One, store: Store) -> None:
    """Each damaged stretch is an event that says file, line and offset, and is listed again by every import."""
    rows = conversation(length=3).splitlines(keepends=True)
    data = rows[0] + b"\0\0\0\n" + rows[1] + b"oops" + rows[2]
    for _ in range(2):
        file = one(data)
        assert [(item.line, item.offset) for item in file.damaged] == [(2, len(rows[0])), (4, data.index(b"oops"))]
    first = next(event for event in store.view(file.rev or "").events(types={"damaged"}))
    assert first.payload["file"] == f"{SESSION}.jsonl"
    assert (first.payload["line"], first.payload["offset"]) == (2, len(rows[0]))


def test_castlogs_own_lines_are_known(store: Store, tmp_path: Path) -> None:
    """An export is recognised by content, under any name, and so is a bundle."""
    with castlog.open("memory:") as other:
        session = other.create_session("mine")
        session.branch("main").append("note", {"a": 1})
        for form in ("jsonl", "bundle"):
            with (tmp_path / f"{form}.txt").open("wb") as file:
                other.export(session.branch("main").rev, file, format=form)
    assert [import_path(store, tmp_path / f"{form}.txt").added for form in ("jsonl", "bundle")] == [1, 0]
    assert store.session(session.id).title == "mine"


def test_a_long_file_costs_no_more_memory_than_a_batch(tmp_path: Path) -> None:
    """A file is taken in, and compared when it comes again, with a fraction of its size in memory."""
    path = tmp_path / f"{SESSION}.jsonl"
    row = conversation(length=1)
    with path.open("wb") as file:
        for _ in range(1500):
            file.write(row.replace(b"text 0", os.urandom(20_000).hex().encode()))
    with castlog.open(tmp_path / "s") as store:
        import_path(store, FIXTURES)
        tracemalloc.start()
        try:
            report = import_path(store, path)
            again = import_path(store, path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (report.added, again.added) == (1500, 0)
    assert peak < path.stat().st_size * 2 // 3


def test_an_endless_line_is_damage_not_a_crash(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than any event can be is kept in parts, and the next row is a row again."""
    monkeypatch.setattr("castlog.transcripts.intake.LINE_BYTES_MAX", 1000)
    rows = conversation(length=3).splitlines(keepends=True)
    file = one(rows[0] + b'{"a":"' + b"x" * 3_000_000 + b'"}\n' + rows[1])
    assert file.events == 2 + 3
    assert {item.reason for item in file.damaged} == {"a line too long for an event"}


def test_unknown_format_is_refused_before_anything(store: Store, tmp_path: Path) -> None:
    """A format nobody knows is Invalid, whatever lies at the path."""
    with pytest.raises(Invalid, match="nonsense"):
        import_path(store, tmp_path, "nonsense")
