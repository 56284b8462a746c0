"""`--json`: every command, one object a line, with keys that stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from castlog_cli.main import COMMANDS

from .conftest import Run, command_line, rows

EVENT = {"session_id", "branch", "seq", "ts", "type", "payload", "parent_seq", "harness_version", "schema", "id"}
CALL = EVENT | {"call_id"}
LISTED = {"rev", "seq", "id", "ts", "type", "call_ids", "size", "preview"}
SESSION = {"id", "title", "labels", "origin", "parent", "created", "activity", "branches", "events", "size"}
SNAPSHOT = {"rev", "seq", "id", "reducer", "version", "size", "created", "current"}
STATE = {"rev", "seq", "snapshot_seq", "replayed", "reducer", "version", "in_flight", "text", "state"}
DELTA = {"seq", "type", "sign", "path", "keys", "old", "new"}
PLANNED = {"call_id", "seq", "type", "name", "policy", "action", "by", "reason", "attempt", "elsewhere"}
PROBE = {"seq", "verdict", "snapshot_seq", "replayed"}
FOUND = {"good", "bad", "checks", "first_bad", "rev", "id", "type"}
TALLY = ("--reducer", "tally:tally")
IMPORTED = {"path", "format", "status", "rev", "start", "session_id", "events", "added", "damaged", "note"}
SUMMED = {"summary", "files", "new", "grown", "rewritten", "unchanged", "skipped", "added", "sessions", "damaged"}
MOVED = {"rev", "seq", "id", "old_seq", "old_id"}

# Command line, exit code, and the keys of the first and the last object.
SHAPES: list[tuple[tuple[str, ...], int, set[str], set[str]]] = [
    (("init",), 0, {"store", "created"}, {"store", "created"}),
    (("new", "x"), 0, {"session_id", "title", "labels", "rev", "current"}, set()),
    (("append", "--text", "x"), 0, {"rev", "seq", "id", "type", "call_id"}, set()),
    (("import", "lines.jsonl"), 0, IMPORTED, SUMMED),
    (("sessions",), 0, SESSION, SESSION),
    (("session",), 0, SESSION | {"deleted"}, set()),
    (("session", "main", "-d"), 0, SESSION | {"deleted"}, set()),
    (("log",), 0, LISTED, LISTED),
    (("log", "--turns"), 0, {"from", "until", "events", "tool_calls", "ts", "rev", "text"}, set()),
    (("log", "--graph"), 0, {"rev", "branch", "seq", "parent", "fork_seq", "tags", "current"}, set()),
    (("show",), 0, CALL, set()),
    (("cat",), 0, EVENT, CALL),
    (("tail",), 0, EVENT, CALL),
    (("tail", "--all"), 0, EVENT, EVENT),
    (("grep", "fix"), 0, {"rev", "seq", "type", "ts", "text"}, set()),
    (("grep", "-l", "fix"), 0, {"rev", "seq", "type", "ts"}, set()),
    (("diff", "main", "idea-b"), 1, {"side", "rev", "seq", "id", "left_count", "right_count"}, LISTED | {"side"}),
    (("diff", "main", "idea-b", "--state"), 1, DELTA - {"seq", "type"}, DELTA - {"seq", "type"}),
    (("merge-base", "main", "idea-b"), 0, {"rev", "seq", "id"}, set()),
    (("reflog",), 0, {"n", "ts", "op", "old_seq", "old_id", "new_seq", "new_id", "note"}, set()),
    (("replay",), 0, STATE, set()),
    (("replay", *TALLY), 0, STATE, set()),
    (("replay", "--diff", "2..4", *TALLY), 0, DELTA, DELTA),
    (("bisect", "--check", "tally:few", *TALLY), 0, PROBE, FOUND),
    (("resume",), 1, PLANNED, set()),
    (("resume", "--decide", "c2=fail"), 0, PLANNED, set()),
    (("snapshot", "--make", *TALLY), 0, SNAPSHOT, set()),
    (("snapshot", "-d", "main"), 0, {"rev", "seq", "id", "deleted"}, set()),
    (("checkout", "idea-b"), 0, {"rev", "seq", "id", "current", "out", "attachments"}, set()),
    (("fork", "x", "-n", "2"), 0, {"rev", "branch", "session_id", "seq"}, {"rev", "branch", "session_id", "seq"}),
    (("fork", "x", "main@1", "--edit-with", "value.json"), 0, {"rev", "branch", "session_id", "seq"}, set()),
    (("branch",), 0, {"rev", "branch", "seq", "id", "parent", "fork_seq", "current"}, set()),
    (("branch", "-m", "x"), 0, {"rev", "old"}, set()),
    (("branch", "-d", "idea-b"), 0, {"rev", "seq", "id", "deleted"}, set()),
    (("tag",), 0, {"rev", "tag", "seq", "id"}, set()),
    (("tag", "x"), 0, {"rev", "tag", "seq", "id"}, set()),
    (("tag", "-d", "before"), 0, {"rev", "tag", "seq", "id", "deleted"}, set()),
    (("promote", "idea-b"), 0, MOVED, set()),
    (("reset", "main@2"), 0, MOVED, set()),
    (("export", "-o", "x.jsonl"), 0, {"file", "rev", "format", "events"}, set()),
    (("verify",), 0, {"ok", "deep", "findings", "checked"}, set()),
    (("verify", "--snapshots"), 0, {"ok", "deep", "findings", "checked"}, set()),
    (("du",), 0, {"logical", "distinct", "stored", "sessions", "events", "kinds"}, set()),
    (("compact",), 0, {"before", "after", "saved", "raw", "chunks", "pieces", "objects", "dictionary"}, set()),
    (("completion", "zsh"), 0, {"shell", "file", "line"}, set()),
    (("demo",), 0, {"step", "text"}, {"step", "text", "holds"}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "first", "last"), SHAPES, ids=command_line)
def test_each_line_is_an_object_with_these_keys(
    words: tuple[str, ...], code: int, first: set[str], last: set[str], store: str, tally: str, home: Path, run: Run
) -> None:
    """Stdout parses line by line, the keys are those promised, and stderr is silent."""
    (home / "project" / "lines.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    (home / "project" / "value.json").write_text("[1]")
    result = run(*words, "--json", code=code)
    found = rows(result)
    assert set(found[0]) == first
    assert set(found[-1]) == (last or set(found[-1]))
    assert result.stderr == ""


def test_the_trash_is_listed_and_given_back(store: str, run: Run) -> None:
    """`undelete` lists what was deleted by the name it takes back."""
    run("branch", "-d", "idea-b")
    (gone,) = rows(run("undelete", "--json"))
    assert set(gone) == {"rev", "session_id", "branch", "title", "deleted"}
    assert rows(run("undelete", gone["rev"], "--json")) == [{"rev": f"{store}/idea-b", "restored": "branch"}]


def test_every_command_is_tried() -> None:
    """No command goes without a look at its objects."""
    assert {words[0] for words, _, _, _ in SHAPES} | {"undelete"} == set(COMMANDS)


def test_an_error_is_one_object_with_its_facts(store: str, run: Run) -> None:
    """Kind, code, sentence, hint and facts, so that a program need not read the sentence."""
    import json

    told = json.loads(run("--json", "log", "main@99", code=3).stderr)
    assert told["error"] == "not_found"
    assert told["code"] == 3
    assert "99" in told["message"]
    assert isinstance(told["facts"], dict)


def test_lone_surrogates_from_the_command_line_do_not_break_the_output(store: str, run: Run) -> None:
    """A revision that is no Unicode is refused with an object that is."""
    import json

    assert json.loads(run("--json", "log", "a\udc80", code=4).stderr)["error"] == "invalid"
