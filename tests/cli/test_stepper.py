"""Going through a history by hand, on a terminal and with lines from a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import castlog

from .conftest import PROGRAM, Run


class Screen:
    """A terminal with castlog on it."""

    def __init__(self, leader: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._leader = leader
        self.all = ""

    def until(self, pattern: str) -> str:
        """Return what is shown up to a pattern, which must come."""
        seen = b""
        deadline = time.monotonic() + 30
        while not re.search(pattern.encode(), seen):
            assert time.monotonic() < deadline, seen
            seen += os.read(self._leader, 1)
        text = seen.decode().replace("\r\n", "\n")
        self.all += text
        return text

    def type(self, line: str) -> str:
        """Type a line and return what is shown until the next prompt, without what was typed."""
        os.write(self._leader, line.encode() + b"\n")
        shown = self.until(r"\n\d+/\d+> $").partition("\n")[2]
        return shown[: shown.rindex("\n") + 1]


@contextmanager
def stepping(*words: str) -> Iterator[Screen]:
    """Run `castlog replay --step` on a terminal."""
    leader, follower = pty.openpty()
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "100"}
    command = [*PROGRAM, "replay", "--step", *words]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        try:
            yield Screen(leader, process)
        finally:
            process.kill()
            os.close(leader)


def test_somebody_goes_through_a_history(store: str, tally: str) -> None:
    """Forwards, back, to a place, to a text; what changed; Enter again; and out."""
    with stepping("main", "--reducer", tally) as screen:
        assert screen.until("1/6> ").startswith("6 events; ? lists the commands.\nEvent 1: user_message please fix")
        assert screen.type("n").startswith(
            "Event 2: model_response I look at it. Bash\nState: 2 events, 0 tool calls\n"
        )
        assert screen.type("").startswith("Event 3: tool_call Bash(command=pytest -x)\n")
        assert screen.type("d").splitlines() == [
            "  + types.tool_call = 1",
            '  + tool_calls.c1.name = "Bash"',
            '  + tool_calls.c1.status = "pending"',
        ]
        assert screen.type("/HARDER").startswith("No event after 3 holds 'HARDER'")
        assert screen.type("/harder").startswith("Event 5: user_message try harder\n")
        assert screen.type("").startswith("No event after 5")
        assert screen.type("p 3").startswith("Event 2: ")
        assert screen.type("g 6").startswith(
            "Event 6: tool_call Edit(file=src/api.py)\nState: 6 events, 2 tool calls\n"
        )
        assert screen.type("n") == "There is no event after this.\n"
        assert screen.type("p").startswith("Event 5: ")
        assert screen.type("").startswith("Event 4: ")
        assert screen.type("/edit").startswith("Event 6: tool_call Edit(")
        assert screen.type("g0").startswith("Before the first event.\nState: 0 events")
        assert screen.type("p") == "There is no event before this.\n"
        assert screen.type("d") == "There is no event here.\n"
        assert "its seqs are 0 to 6" in screen.type("g 7")
        assert screen.type("n 99").startswith("Event 6: ")
        assert '"c2": {\n' in screen.type("s")
        assert "/TEXT" in screen.type("?")
        assert "dance is no command" in screen.type("dance")
        os.write(screen._leader, b"q\n")
        assert screen.process.wait(30) == 0


def test_the_end_of_input_leaves(store: str, tally: str) -> None:
    """Ctrl-D on an empty line, as in a shell."""
    with stepping("--until", "4", "--reducer", tally) as screen:
        assert "Event 4: " in screen.until("4/6> ")
        os.write(screen._leader, b"\x04")
        assert screen.process.wait(30) == 0


def test_ctrl_c_ends_it(store: str, tally: str) -> None:
    """With the exit code of an interruption and no traceback."""
    with stepping("--reducer", tally) as screen:
        screen.until("1/6> ")
        screen.process.send_signal(2)
        screen.until("interrupted")
        assert screen.process.wait(30) == 130
        assert "Traceback" not in screen.all


def test_nothing_recorded_drives_the_terminal(store: str, tally: str, home: Path) -> None:
    """Whatever is in an event, in a state, or in a key of it is shown as text by every command."""
    attack = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("main").append(
            "tool_call", {"name": attack, "args": {attack: attack}, "text": attack}, call_id="\u202eq"
        )
    for reducer in (("--reducer", tally), ()):
        with stepping("main", *reducer) as screen:
            screen.until("1/7> ")
            for command in ("/owned", "d", "s", "p", "n", f"/{attack[-1]}", f"/x{attack[-1]}", f"x{attack[-1]}"):
                shown = screen.type(command)
                assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown), (command, shown)


def test_lines_may_come_from_a_pipe(store: str, tally: str, run: Run) -> None:
    """Without a terminal there is no prompt, and the end of the lines is the end."""
    result = run("replay", "--step", "--reducer", tally, input=b"n\n\n\xff\xfe\nd\n")
    shown = [line.split(":")[0] for line in result.stdout.splitlines()]
    assert shown[:7] == ["6 events; ? lists the commands.", "Event 1", "State", "Event 2", "State", "Event 3", "State"]
    assert "  + tool_calls.c1.status" in result.stdout
    assert "is no command" in result.stderr


def test_a_reducer_that_fails_leaves_one_where_one_was(store: str, tally: str, run: Run) -> None:
    """The events before it can be looked at still."""
    result = run("replay", "--step", "--until", "0", "--reducer", "tally:broken", input="g 2\nd\np\n")
    assert "the reducer broken, at seq 2" in result.stderr
    assert result.stdout.splitlines()[-1] == "State: {}"


def test_going_back_in_a_long_history_is_quick(store: str, tally: str, home: Path, run: Run) -> None:
    """The first step back folds the history once more and leaves states on the way; the others fold a few events."""
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("main").extend([("note", {"text": f"note {n}"}) for n in range(5000)])
    (home / "project" / "tally.py").write_text(
        "import castlog\n"
        "folded = 0\n"
        "@castlog.reducer('count', 1, initial=0)\n"
        "def count(state, event):\n"
        "    global folded\n"
        "    folded += 1\n"
        "    return state + 1\n"
    )
    result = run("replay", "--step", "--until", "5006", "--reducer", "tally:count", input="p\n" * 100)
    assert result.stdout.splitlines()[-1] == "State: 4906"
    assert sys.modules["tally"].folded < 2 * 5006 + 100 * 20


def test_an_empty_branch_has_nothing_to_step_through(run: Run) -> None:
    """Exit 3, as show does."""
    run("new", "empty")
    assert "no event yet" in run("replay", "--step", code=3).stderr


@pytest.mark.parametrize("line", ["g", "/", "g x", "n -1"])
def test_half_a_command_says_what_is_missing(line: str, store: str, tally: str, run: Run) -> None:
    """Nothing moves."""
    result = run("replay", "--step", "--reducer", tally, input=line + "\n")
    assert re.search("Write w|is no command", result.stderr)
    assert result.stdout.count("Event") == 1
