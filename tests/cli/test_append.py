"""Events from the command line and from stdin: exact bytes in, and a wrong line is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import castlog

from .conftest import Run, rows


def _payloads(home: Path, rev: str = "main") -> list[bytes]:
    with castlog.open(home / "project" / ".castlog", read_only=True) as opened:
        return [event.raw for event in opened.view(rev).events(7)]


def test_text_is_a_user_message_and_data_is_kept_byte_for_byte(store: str, home: Path, run: Run) -> None:
    """--text makes {"text": ...}; --data is stored as it was typed."""
    assert run("append", "--text", "hi").stdout == "7\n"
    assert run("append", "--data", '{"b": 1.10,  "a":[ ]}').stdout == "8\n"
    assert _payloads(home)[1] == b'{"b": 1.10,  "a":[ ]}'
    with castlog.open(home / "project" / ".castlog", read_only=True) as opened:
        assert [event.type for event in opened.view("main").events(7)] == ["user_message", "note"]


def test_a_call_without_an_id_is_told_the_one_it_got(store: str, run: Run) -> None:
    """The id that closes the call is said on stderr; where the id was given nothing is."""
    opened = run("append", "--type", "tool_call", "--data", '{"name":"Bash"}')
    assert (opened.stdout, opened.stderr) == ("7\n", "call id c7\n")
    assert run("append", "--type", "tool_result", "--call-id", "c7", "--data", '{"ok":true}').stderr == ""
    assert run("append", "--text", "hi").stderr == ""
    assert "closes no call" in run("append", "--type", "tool_result", "--data", '{"ok":true}').stderr


def test_lines_keep_their_payload_bytes_and_fields(store: str, home: Path, run: Run) -> None:
    """Spaces, number spelling and escapes of a payload are kept; type, call id, key, schema and time are taken."""
    line = (
        '{"type":"tool_call","payload": {"n": 1.50, "u":"\\u00e4", "big":12345678901234567890} ,'
        '"call_id":"c7","key":"k1","schema":3,"ts":"2026-05-06T14:23:01.123456789Z"}'
    )
    assert run("append", "-", input=f"\n{line}\r\n\n").stdout == "7\n"
    assert _payloads(home) == [b'{"n": 1.50, "u":"\\u00e4", "big":12345678901234567890}']
    with castlog.open(home / "project" / ".castlog", read_only=True) as opened:
        event = opened.view("main").read(7)
        assert (event.type, event.call_id, event.key, event.schema) == ("tool_call", "c7", "k1", 3)
        assert event.ts % 1_000_000_000 == 123_456_789


def test_what_cat_prints_can_be_appended(store: str, home: Path, run: Run) -> None:
    """Cherry-picking by a pipe: where the events stood is not taken, what they say is; payload_text too."""
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("idea-b").append("note", castlog.Raw(b'{\n "a": 1\n}'))
    printed = run("cat", "idea-b", "--from", "5").stdout
    assert "payload_text" in printed
    assert run("append", "main", "-", input=printed).stdout == "7\n8\n9\n"
    assert _payloads(home)[2] == b'{\n "a": 1\n}'


def test_a_default_type_is_for_lines_without_one(store: str, home: Path, run: Run) -> None:
    """--type with - is for lines that have none."""
    run("append", "-", "--type", "tick", input='{"payload":1}\n{"type":"tock","payload":2}')
    with castlog.open(home / "project" / ".castlog", read_only=True) as opened:
        assert [event.type for event in opened.view("main").events(7)] == ["tick", "tock"]


def test_a_key_makes_repeating_safe(store: str, home: Path, run: Run) -> None:
    """The same line with the same key again gives the same seq and writes nothing; with another it is refused."""
    line = '{"type":"note","payload":1,"key":"k"}\n'
    assert run("append", "-", input=line + line).stdout == "7\n7\n"
    assert len(_payloads(home)) == 1
    assert "line 1" in run("append", "-", input=line.replace(":1,", ":2,"), code=5).stderr


GOOD = '{"type":"note","payload":%d}\n'


@pytest.mark.parametrize(
    ("wrong", "phrase"),
    [
        ("{oops}", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"type":"note","payload":1} x', "more follows"),
        ('{"type":"note","payload":1}{"type":"note","payload":1}', "more follows"),
        ('{"type":"note"}', "no payload"),
        ('{"payload":1}', "no type"),
        ('{"type":"","payload":1}', "event type"),
        ('{"type":1,"payload":1}', "type is not a string"),
        ('{"type":"note","payload":1,"callid":"c"}', "unknown 'callid'"),
        ('{"type":"note","payload":1,"payload":2}', "stands twice"),
        ('{"type":"note","payload":{"a":1,"a":2}}', ""),
        ('{"type":"note","payload":[NaN]}', ""),
        ('{"type":"note","payload":' + "[" * 5000 + "]" * 5000 + "}", ""),
        ('{"type":"note","payload":1,"ts":"soon"}', "is no time"),
        ('{"type":"note","payload":1,"schema":true}', "whole number"),
        ('{"type":"note","redacted":{},"commitment":"b3:00"}', "taken away"),
        ('{"type":"note","payload":"\\ud800"}', ""),
        ('{"type":"note", payload:1}', "not JSON"),
    ],
    ids=range(18),
)
def test_a_wrong_line_is_named_and_what_came_before_is_kept(
    wrong: str, phrase: str, store: str, home: Path, run: Run
) -> None:
    """Exit 4 with the line's number and how many events were written; those are in the log, what follows is not."""
    result = run("append", "-", input=GOOD % 1 + GOOD % 2 + wrong + "\n" + GOOD % 3, code=4)
    assert result.stdout == "7\n8\n"
    assert "line 3: " in result.stderr
    assert phrase in result.stderr
    assert "2 events before it are in the log" in result.stderr
    assert _payloads(home) == [b"1", b"2"]


def test_a_wrong_line_is_an_object_under_json(store: str, run: Run) -> None:
    """The facts have the line and the count."""
    told = json.loads(run("append", "--json", "-", input=GOOD % 1 + "x\n", code=4).stderr)
    assert told["facts"]["line"] == 2
    assert told["facts"]["written"] == 1


def test_bytes_that_are_no_utf8_are_refused(store: str, run: Run) -> None:
    """A line cut in the middle of a character is a wrong line."""
    assert "not UTF-8" in run("append", "-", input=b'{"type":"note","payload":"\xc3"}\n', code=4).stderr


def test_many_lines_are_committed_together(store: str, home: Path, run: Run) -> None:
    """A file of thousands of lines goes in by batches, each with its seq, also without a final line end."""
    text = "".join(GOOD % n for n in range(5000)).rstrip("\n")
    found = rows(run("append", "-", "--json", input=text))
    assert [row["seq"] for row in found] == list(range(7, 5007))
    assert len(_payloads(home)) == 5000


def test_a_line_longer_than_a_read_is_whole(store: str, home: Path, run: Run) -> None:
    """A payload of megabytes arrives in pieces and is put together."""
    text = "x" * 3_000_000
    run("append", "-", input='{"type":"note","payload":"' + text + '"}\n' + GOOD % 1)
    assert [len(raw) for raw in _payloads(home)] == [3_000_002, 1]
