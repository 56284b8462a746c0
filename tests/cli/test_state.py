"""State on the command line: replayed, kept as snapshots, and told as what events changed."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from castlog_cli import reducers

import castlog

from .conftest import PROGRAM, Run, program, rows

FIXTURES = Path(__file__).parents[1] / "transcripts" / "fixtures"
IMPORTED = sorted(FIXTURES.rglob("*.jsonl"))


@pytest.fixture(autouse=True)
def _forget_modules(tally: str) -> None:
    """Every test here has the module of reducers in its folder."""


def test_replay_tells_the_state_in_a_line(store: str, tally: str, run: Run) -> None:
    """What it was folded from, and what the module's `describe` says of it; calls in flight on stderr."""
    result = run("replay", "main", "--reducer", tally)
    assert result.stdout == "Loaded no snapshot, applied events 1..6\nState: 6 events, 2 tool calls\n"
    assert result.stderr == "1 call in flight: c2\n"
    result = run("replay", "--until", "4", "--reducer", tally)
    assert result.stdout == "Loaded no snapshot, applied events 1..4\nState: 4 events, 1 tool calls\n"
    assert result.stderr == ""
    assert run("replay", "main@4", "--reducer", tally).stdout == result.stdout


def test_replay_begins_at_the_newest_snapshot(store: str, tally: str, run: Run) -> None:
    """Also at one a fork inherited; the state is the same as without."""
    before = rows(run("replay", "--json", "--reducer", tally))[0]["state"]
    assert run("snapshot", "main@4", "--make", "--reducer", tally).stdout == f"{store}/main@4\n"
    assert run("replay", "--reducer", tally).stdout.startswith("Loaded snapshot @ 4, applied events 5..6\n")
    assert run("replay", "idea-b@5", "--reducer", tally).stdout.startswith("Loaded snapshot @ 4, applied event 5\n")
    assert run("replay", "@4", "--reducer", tally).stdout.startswith("Loaded snapshot @ 4, applied no events\n")
    assert run("replay", "@3", "--reducer", tally).stdout.startswith("Loaded no snapshot, applied events 1..3\n")
    (row,) = rows(run("replay", "--json", "--reducer", tally))
    assert (row["snapshot_seq"], row["replayed"], row["in_flight"]) == (4, 2, ["c2"])
    assert row["state"] == before
    assert row["text"] == "6 events, 2 tool calls"


def test_a_delta_is_told_event_by_event(store: str, tally: str, run: Run) -> None:
    """From the state after M to that after N: what was added, removed, changed."""
    assert run("replay", "main", "--diff", "5..6", "--reducer", tally).stdout == (
        "Event 6: tool_call Edit(file=src/api.py)\n"
        "  ~ types.tool_call = 1 -> 2\n"
        '  + tool_calls.c2.name = "Edit"\n'
        '  + tool_calls.c2.status = "pending"\n'
        '  ~ last = "try harder" -> null\n'
    )
    found = rows(run("replay", "main", "--diff", "2..4", "--reducer", tally, "--json"))
    assert [(row["seq"], row["sign"], row["path"], row["old"], row["new"]) for row in found] == [
        (3, "+", "types.tool_call", None, 1),
        (3, "+", "tool_calls.c1.name", None, "Bash"),
        (3, "+", "tool_calls.c1.status", None, "pending"),
        (4, "+", "types.tool_result", None, 1),
        (4, "~", "tool_calls.c1.status", "pending", "done"),
    ]
    assert found[-1]["keys"] == ["tool_calls", "c1", "status"]


def test_large_parts_are_told_as_one_in_lines_and_whole_in_objects(
    store: str, tally: str, home: Path, run: Run
) -> None:
    """A line says what fits; the objects say everything."""
    (home / "project" / "tally.py").write_text(
        "import castlog\n"
        "@castlog.reducer('large', 1)\n"
        "def large(state, event):\n"
        "    return {} if event.seq == 2 else {'list': [{'n': n, 'text': 'x' * 500} for n in range(50)]}\n"
    )
    shown = run("replay", "--diff", "0..2", "--reducer", "tally:large").stdout.splitlines()
    assert [line[:11] for line in shown] == ["Event 1: us", "  + list = ", "Event 2: mo", "  - list = "]
    assert all(len(line) <= 160 for line in shown)
    assert len(rows(run("replay", "--diff", "0..2", "--reducer", "tally:large", "--json"))) == 200


def test_snapshots_are_listed_and_forgotten(store: str, tally: str, run: Run) -> None:
    """Newest first, of every reducer; a fork lists what it inherited; -d forgets those at an event."""
    for place in ("main@2", "main@4", "main"):
        run("snapshot", place, "--make", "--reducer", tally)
    run("snapshot", "main@4", "--make", "--reducer", "tally:plain")
    listed = [(row["seq"], row["reducer"], row["version"]) for row in rows(run("snapshot", "--json"))]
    assert [seq for seq, _, _ in listed] == [6, 4, 4, 2]
    assert set(listed) == {(6, "tally", "3"), (4, "tally", "3"), (4, "plain", "1"), (2, "tally", "3")}
    assert [row["seq"] for row in rows(run("snapshot", "idea-b", "--json"))] == [4, 4, 2]
    assert run("snapshot").stdout.splitlines()[0].split()[:3] == ["@6", "tally", "3"]
    assert "2 snapshots at @4 forgotten" in run("snapshot", "-d", "idea-b@4").stderr
    assert [row["seq"] for row in rows(run("snapshot", "--json"))] == [6, 2]
    assert "0 snapshots" in run("snapshot", "-d", "main@4").stderr
    assert run("verify").exit_code == 0
    assert "snapshot --make" in run("snapshot", "main@1").stderr


def test_a_tag_is_a_place_for_a_snapshot_too(store: str, tally: str, run: Run) -> None:
    """It belongs to the event, whatever name led there."""
    run("snapshot", "before", "--make", "--reducer", tally)
    assert [row["seq"] for row in rows(run("snapshot", "main", "--json"))] == [3]


def test_the_conversation_is_folded_unless_told_otherwise(store: str, run: Run) -> None:
    """The state line counts calls, messages and tokens; what the reducer keeps for itself is not told."""
    assert run("replay").stdout.splitlines()[1].startswith("State: 0 tool calls completed, 1 failed, 1 pending, ")
    shown = run("replay", "--diff", "5..6").stdout.splitlines()
    assert shown[0] == "Event 6: tool_call Edit(file=src/api.py)"
    assert '  + tool_calls.c2.status = "pending"' in shown
    assert not any(" fold" in line[:8] for line in shown)
    assert any(row["keys"][0] == "fold" for row in rows(run("replay", "--diff", "5..6", "--json")))


@pytest.mark.parametrize("path", IMPORTED, ids=lambda path: path.stem[:12])
def test_the_state_of_an_imported_session_is_what_its_file_says(path: Path, run: Run) -> None:
    """Calls and tokens of real sessions of Claude Code and Codex, counted by their words in the file."""
    text = path.read_text()
    calls = len(re.findall(r'"type": ?"(?:tool_use|function_call)"', text))
    results = len(re.findall(r'"type": ?"(?:tool_result|function_call_output)"', text))
    model = re.findall(r'"model": ?"([^"<]+)"', text)[-1]
    run("import", str(path))
    (session,) = rows(run("sessions", "--json"))
    name = rows(run("branch", "--session", f"{session['id']}/", "--json"))[-1]["rev"]
    first, state = run("replay", name).stdout.splitlines()
    assert re.fullmatch(r"Loaded no snapshot, applied events 1\.\.\d+", first)
    assert calls == results
    assert state.startswith(f"State: {calls} tool call{'' if calls == 1 else 's'} completed, ")
    assert f"model {model}, " in state
    spoken = len(rows(run("replay", name, "--json"))[0]["state"]["messages"])
    assert f" {spoken} messages, " in state


def test_events_of_newer_code_are_named(store: str, home: Path, run: Run) -> None:
    """State cannot be had beyond them, which exits 7; before them it can, and everything can still be read."""
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("main").append("tool_call", {"name": "Read"}, schema=9)
    for words in (("replay",), ("snapshot", "--make"), ("diff", "main", "idea-b", "--state")):
        assert "seq 7, a tool_call, was written in schema 9" in run(*words, code=7).stderr
    run("replay", "main@6")
    run("checkout", "main", "--out", "there")
    assert json.loads((home / "project" / "there" / "state.json").read_text())["state"] is None


def test_the_states_of_two_branches_are_compared(store: str, tally: str, run: Run) -> None:
    """What only one has, and what differs; it exits as diff does, and looks at the states alone."""
    result = run("diff", "main", "idea-b", "--state", "--reducer", tally, code=1)
    assert result.stdout.splitlines() == [
        f"---     {store[-8:]}/main@6",
        f"+++     {store[-8:]}/idea-b@6",
        "  ~ types.user_message = 2 -> 1",
        "  ~ types.tool_call = 2 -> 1",
        "  + types.note = 2",
        '  - tool_calls.c2.name = "Edit"',
        '  - tool_calls.c2.status = "pending"',
        '  ~ last = null -> "that works"',
    ]
    found = rows(run("diff", "main", "idea-b", "--state", "--reducer", tally, "--json", code=1))
    assert [row["sign"] for row in found] == ["~", "~", "+", "-", "-", "~"]
    same = run("diff", "main", "main@6", "--state")
    assert (same.stdout, same.stderr) == ("", "Their states are equal.\n")
    assert run("diff", "main", "idea-b", "--state", "--reducer", "tally:plain").stdout == ""


def test_bisect_finds_the_first_bad_event(store: str, tally: str, run: Run) -> None:
    """By a function: each check on a line, then the event."""
    result = run("bisect", "main", "--good", "1", "--check", "tally:few", "--reducer", tally)
    assert [line.split() for line in result.stdout.splitlines()[:-2]] == [
        ["@3", "good"],
        ["@4", "good"],
        ["@5", "good"],
        ["@6", "bad"],
    ]
    assert result.stdout.endswith("first bad event is 6, after 4 checks.\nEvent 6: tool_call Edit(file=src/api.py)\n")
    found = rows(run("bisect", "main@6", "--check", "tally:few", "--reducer", tally, "--json"))
    assert [(row["seq"], row["verdict"]) for row in found[:-1]] == [(3, "good"), (4, "good"), (5, "good"), (6, "bad")]
    assert found[-1]["rev"] == f"{store}/main@6"
    assert found[-1]["first_bad"] == 6


def test_bisect_runs_a_command_with_the_state_on_its_stdin(store: str, tally: str, home: Path, run: Run) -> None:
    """It also learns where it is, and a castlog it runs shows that very event; its output is not ours."""
    script = f"""
    import json, os, subprocess, sys
    state = json.load(sys.stdin)
    seq = int(os.environ["CASTLOG_SEQ"])
    assert sum(state["types"].values()) == seq
    assert os.environ["CASTLOG_REV"].endswith(f"/main@{{seq}}")
    shown = subprocess.run({PROGRAM!r} + ["show", "--json"], cwd="/", capture_output=True, check=True).stdout
    assert json.loads(shown)["seq"] == seq
    print("noise")
    sys.exit(0 if "c1" not in state["tool_calls"] else 3)
    """
    (home / "check.py").write_text("\n".join(line.strip() for line in script.splitlines()))
    command = f"{sys.executable} {home / 'check.py'}"
    result = run("bisect", "main", "--check", command, "--reducer", tally)
    assert "The first bad event is 3, after" in result.stdout
    assert "noise" not in result.stdout


@pytest.mark.parametrize("code", [1, 124, 126, 127])
def test_an_exit_code_of_a_check_is_read_as_git_reads_it(code: int, store: str, tally: str, run: Run) -> None:
    """1 to 127 is bad, but for 125."""
    command = f'test "$CASTLOG_SEQ" -lt 4 || exit {code}'
    assert rows(run("bisect", "--check", command, "--reducer", tally, "--json"))[-1]["first_bad"] == 4


def test_a_check_that_cannot_tell_is_passed_over(store: str, tally: str, run: Run) -> None:
    """125 tries a state beside; where only such are left the exit code is 1 and the stretch is named."""
    command = "case $CASTLOG_SEQ in 3|4) exit 125;; [56]) exit 1;; esac"
    result = run("bisect", "--check", command, "--reducer", tally, code=1)
    assert result.stdout.splitlines()[-1] == "The first bad event is one of 3..5; the check cannot tell which."
    found = rows(run("bisect", "--check", command, "--reducer", tally, "--json", code=1))[-1]
    assert (found["good"], found["bad"], found["first_bad"]) == (2, 5, None)


@pytest.mark.parametrize(
    ("command", "said"), [("exit 200", "exit code 200"), ("kill -9 $$", "signal 9"), ("exit 143", "signal 15")]
)
def test_a_check_that_dies_ends_the_search(command: str, said: str, store: str, tally: str, run: Run) -> None:
    """Neither good nor bad: exit 4, and how it ended."""
    assert (
        f"the check ended with {said} at seq 3" in run("bisect", "--check", command, "--reducer", tally, code=4).stderr
    )


def test_a_check_that_is_always_bad_or_good_is_no_answer(store: str, tally: str, run: Run) -> None:
    """A command that is not there finds nothing: the good end is tried too."""
    assert (
        "seq 0, which was to be good, is bad"
        in run("bisect", "--check", "no-such-program", "--reducer", tally, code=4).stderr
    )
    assert "seq 6, which was to be bad, is good" in run("bisect", "--check", "true", "--reducer", tally, code=4).stderr


def test_a_wrong_snapshot_is_found_and_forgotten(store: str, tally: str, home: Path, run: Run) -> None:
    """A reducer changed and kept its version: verify warns and exits 1, --drop forgets, and then all is well."""
    run("snapshot", "main@4", "--make", "--reducer", tally)
    run("snapshot", "main@4", "--make")
    assert run("verify", "--snapshots", "--reducer", tally).stdout.rstrip().endswith("1 snapshot")
    module = home / "project" / "tally.py"
    module.write_text(module.read_text().replace('"done"', '"finished"'))
    del sys.modules["tally"]
    result = run("verify", "--snapshots", "--reducer", tally, code=1)
    found = result.stdout.splitlines()[0]
    assert found.split()[:3] == ["warning", "wrong_snapshot", f"{store}/main@4"]
    assert "~ tool_calls.c1.status" in found
    assert "verify --snapshots --drop forgets it" in result.stderr
    run("verify")
    run("verify", "--snapshots")
    result = run("verify", "--snapshots", "--reducer", tally, "--reducer", reducers.DEFAULT, "--drop", code=1)
    assert "Forgot it" in result.stderr
    run("verify", "--snapshots", "--reducer", tally)
    assert [row["reducer"] for row in rows(run("snapshot", "--json"))] == ["conversation"]


WRONG = [
    ("tally", "is not MODULE:NAME"),
    ("tally:", "is not MODULE:NAME"),
    ("tally:a-b", "is not MODULE:NAME"),
    ("nowhere:x", "There is no module nowhere"),
    ("tally.inner:x", "There is no module tally.inner"),
    ("tally:nothing", "The module tally has no nothing"),
    ("tally:describe", "tally:describe is a function, no reducer; @castlog.reducer"),
    ("os:sep", "os:sep is a str, no reducer"),
    ("failing:x", "Importing failing fails: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("leaving:x", "Importing leaving fails: SystemExit: 0"),
]


@pytest.mark.parametrize(("name", "phrase"), WRONG, ids=[name for name, _ in WRONG])
def test_a_wrong_reducer_is_one_sentence(name: str, phrase: str, store: str, run: Run) -> None:
    """Exit 2, what is wrong with it, and nothing on stdout, before the store is looked at."""
    for words in (("replay", "nowhere"), ("snapshot", "--make")):
        result = run(*words, "--reducer", name, code=2)
        assert phrase in " ".join(result.stderr.split())
        assert result.stdout == ""


def test_a_reducer_that_fails_is_told_with_the_event(store: str, run: Run) -> None:
    """Exit 4 with what it raised and where; it is not castlog's mistake."""
    said = " ".join(run("replay", "--reducer", "tally:broken", code=4).stderr.split())
    assert "the reducer broken, at seq 2 (model_response), raised KeyError: 'text' (tally.py, line 19)" in said
    assert (
        "a state of broken cannot be kept: $: the key 1 would"
        in run("replay", "main@1", "--reducer", "tally:broken", code=4).stderr
    )


def test_without_a_description_the_state_is_cut_to_the_line(store: str, home: Path, run: Run) -> None:
    """Any reducer can be shown."""
    (home / "project" / "tally.py").write_text(
        "import castlog\n@castlog.reducer('long', 1)\ndef long(state, event):\n    return {'x': 'y' * 5000}\n"
    )
    line = run("replay", "--reducer", "tally:long").stdout.splitlines()[1]
    assert line.startswith('State: {"x":"yyy')
    assert len(line) <= 160


def test_a_module_here_hides_nothing_afterwards(store: str, home: Path, run: Run) -> None:
    """The folder is looked into first for the reducer, and last for everything else."""
    (home / "project" / "statistics.py").write_text("raise RuntimeError('hidden')\n")
    run("replay", "--reducer", "tally:tally")
    assert sys.path[-1] == os.getcwd()
    assert sys.path.count(os.getcwd()) == 1


def test_no_module_is_imported_to_complete_a_line(store: str, home: Path) -> None:
    """A shell asks while somebody types; nobody's module runs for that."""
    (home / "project" / "trap.py").write_text("open('sprung', 'w').close()\n")
    environment = os.environ | {"_CASTLOG_COMPLETE": "zsh_complete"}
    words = {"COMP_WORDS": "castlog replay --reducer trap:x ma", "COMP_CWORD": "4"}
    assert b"main" in program(env=environment | words).stdout
    assert not (home / "project" / "sprung").exists()


def test_nothing_recorded_drives_the_terminal_from_a_state(store: str, tally: str, home: Path, run: Run) -> None:
    """Escape sequences in keys and values of a state are text."""
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("main").append("tool_call", {"name": "\x1b[2J\x07", "text": "\x9b31m"}, call_id="\u202ex")
    for words in (("--diff", "6..7"), (), ("--diff", "6..7", "--json")):
        assert not {"\x1b", "\x07"} & set(run("replay", *words, "--reducer", tally).stdout)
    assert not {"\x9b", "\u202e"} & set(run("replay", "--diff", "6..7", "--reducer", tally).stdout)
