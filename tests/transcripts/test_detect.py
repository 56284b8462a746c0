"""What a file is shows in its content; its name only decides what becomes of one that says nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from castlog import FileReport, Invalid, Store

from .conftest import Chat, Take

One = Callable[..., FileReport]
CODEX = b'{"timestamp":"2025-09-25T21:12:14Z","type":"session_meta","payload":{"id":"x"}}\n'
OTHER = b'{"level":"info","msg":"a"}\n{"level":"info","msg":"b"}\n'
DOCUMENT = json.dumps({"messages": [{"a": 1}, {"b": 2}]}, indent=2).encode()


def claude() -> bytes:
    """Return a Claude Code file."""
    chat = Chat()
    chat.user("x")
    return chat.data


@pytest.mark.parametrize("name", ["a.jsonl", "rollout-x.jsonl", "a.json", "a.txt", "a"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (claude(), "claude_code"),
        (b"\xef\xbb\xbf" + claude(), "claude_code"),
        (b"\n\n" + claude(), "claude_code"),
        (b"\0\0\0\0\n" + claude() * 2, "claude_code"),
        (CODEX, "codex"),
        (OTHER, "jsonl"),
        (b'{"type":"session.started","sessionId":"x"}\n' * 2, "jsonl"),
        (b'{"type":"last-prompt","sessionId":"x"}\n' + claude(), "claude_code"),
    ],
)
def test_the_content_decides(name: str, data: bytes, expected: str, one: One) -> None:
    """The same content is the same format under any name."""
    assert one(data, name).format == expected


def test_a_first_record_of_any_length_is_looked_at(one: One) -> None:
    """A first row longer than what is usually looked at does not hide what the file is."""
    chat = Chat()
    chat.user("x" * 300_000)
    chat.user("y")
    assert one(chat.data).format == "claude_code"


@pytest.mark.parametrize(
    ("name", "data", "note"),
    [
        ("empty.jsonl", b"", "empty"),
        ("blank.jsonl", b" \n\n", "white space"),
        ("pretty.jsonl", DOCUMENT, "JSON document"),
        ("one.json", b'{"token":"secret"}\n', "JSON document"),
        ("agent-x.meta.json", b'{"toolUseId":"t1"}', "JSON document"),
        ("x.checkpoint-metadata.json", DOCUMENT, "JSON document"),
        ("console.log", b"Starting up\nDone\n", "not JSON Lines"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0", "not JSON Lines"),
    ],
)
def test_a_folders_other_files_are_left_out_with_a_note(
    name: str, data: bytes, note: str, take: Take, tmp_path: Path, store: Store
) -> None:
    """What is no transcript is no loss: it is listed, and nothing of it is stored."""
    (tmp_path / name).write_bytes(data)
    report = take(tmp_path)
    (file,) = report.files
    assert (file.status, file.rev, file.format) == ("skipped", None, None)
    assert note in file.note
    assert report.ok
    assert store.sessions() == []


def test_a_jsonl_file_of_rubbish_is_kept_in_a_folder(take: Take, tmp_path: Path) -> None:
    """A console log under the name of a transcript is taken in as damage, and the report says so."""
    (tmp_path / "a.jsonl").write_bytes(b"Starting up\nDone\n")
    report = take(tmp_path)
    assert report.files[0].format == "jsonl"
    assert (report.added, report.damaged, report.ok) == (1, 1, False)


@pytest.mark.parametrize(("name", "data"), [("a.json", b'{"a":1}\n'), ("a.log", b"Starting\n" * 9 + b'{"a":1}\n')])
def test_a_file_asked_for_by_name_needs_one_record(name: str, data: bytes, one: One) -> None:
    """A single object is enough when the file was named, whatever stands around it."""
    assert one(data, name).format == "jsonl"


@pytest.mark.parametrize(
    ("data", "message"), [(DOCUMENT, "one JSON document"), (b"plain text\n", "no line of it"), (b"\n", "white space")]
)
def test_a_file_asked_for_by_name_that_is_none_is_refused(data: bytes, message: str, one: One, store: Store) -> None:
    """No transcript: Invalid says why, and nothing is written."""
    with pytest.raises(Invalid, match=message):
        one(data, "a.jsonl")
    assert store.sessions() == []


def test_an_empty_file_asked_for_by_name_is_skipped(one: One) -> None:
    """An empty transcript is nothing wrong."""
    file = one(b"")
    assert (file.status, file.note) == ("skipped", "empty")


def test_a_format_can_be_forced(one: One, store: Store) -> None:
    """The caller's word counts more than the content."""
    file = one(claude(), format="jsonl")
    assert file.format == "jsonl"
    assert store.view(file.rev or "").read(1).type == "jsonl.record"
    with pytest.raises(Invalid, match="claude_code, codex, jsonl"):
        one(claude(), format="nonsense")


def test_other_lines_are_opaque_and_take_the_time_they_name(one: One, store: Store) -> None:
    """Lines of an unknown program keep the time they hold; their file is known by its first record and name."""
    first = one(b'{"ts":"2025-01-01T00:00:00.5Z","a":1}\n', "app.jsonl")
    grown = one(b'{"ts":"2025-01-01T00:00:00.5Z","a":1}\n{"ts":1735689601000}\n{"b":[]}\n', "app.jsonl")
    assert (grown.session_id, grown.status, grown.added) == (first.session_id, "grown", 2)
    times = [event.ts / 1e9 - 1_735_689_600 for event in store.view(grown.rev or "").events()]
    assert times == pytest.approx([0.5, 1, 1])
    assert one(b'{"ts":"2025-01-01T00:00:00.5Z","a":1}\n', "other.jsonl").session_id != first.session_id
