"""A command line in a home of its own: no test sees the stores or settings of whoever runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from castlog_cli.main import group
from click.testing import CliRunner, Result

import castlog

Run = Callable[..., Result]
PROGRAM = [sys.executable, "-c", "from castlog_cli.main import main; main()"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty project folder, with an empty home and no setting of castlog's."""
    for name in list(os.environ):
        if name.startswith("CASTLOG_") or name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    place = tmp_path / "home"
    (place / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(place / "project")
    return place


@pytest.fixture
def run() -> Run:
    """Run one command line in this process; a mistake of ours is raised, not turned into an exit code."""

    def call(*words: str, input: str | bytes | None = None, code: int | None = 0) -> Result:  # noqa: A002
        result = CliRunner().invoke(group, list(words), input=input)
        if code is not None:
            assert result.exit_code == code, f"{words}: exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result

    return call


@pytest.fixture
def store(home: Path) -> Iterator[str]:
    """Give the id of a session in `.castlog` here: main 1..6 with c2 in flight, idea-b 5..6 from 4, a tag."""
    with castlog.open(home / "project" / ".castlog", harness_version="h-1") as made:
        session = made.create_session("fix the login bug", labels={"team": "web"})
        main = session.branch("main")
        main.append("user_message", {"text": "please fix the login bug"})
        main.append("model_response", {"content": "I look at it.", "tool_calls": [{"id": "c1", "name": "Bash"}]})
        main.append("tool_call", {"name": "Bash", "args": {"command": "pytest -x"}}, call_id="c1")
        main.append("tool_result", {"ok": False, "output": "", "error": "1 failed"}, call_id="c1")
        main.append("user_message", {"text": "try harder"})
        main.append("tool_call", {"name": "Edit", "args": {"file": "src/api.py"}}, call_id="c2")
        idea = main.fork("idea-b", at=4)
        idea.append("note", {"text": "another way"})
        idea.append("note", {"text": "that works"})
        session.tag("before", at=3)
        made.checkout(main.rev)
        yield session.id


TALLY = """
import castlog

@castlog.reducer("tally", 3, initial={"types": {}, "tool_calls": {}, "last": None})
def tally(state, event):
    state["types"][event.type] = state["types"].get(event.type, 0) + 1
    if event.type == "tool_call":
        state["tool_calls"][event.call_id] = {"name": event.payload["name"], "status": "pending"}
    if event.type == "tool_result" and event.call_id in state["tool_calls"]:
        state["tool_calls"][event.call_id]["status"] = "done"
    state["last"] = event.payload.get("text")
    return state

def describe(state):
    return f"{sum(state['types'].values())} events, {len(state['tool_calls'])} tool calls"

@castlog.reducer("broken", 1)
def broken(state, event):
    return {**state, event.seq: event.payload["text"].upper()}

@castlog.reducer("plain", 1, initial=0)
def plain(state, event):
    return state + 1

def few(state):
    return len(state["tool_calls"]) < 2

def odd(state):
    return state["nothing"]
"""


@pytest.fixture
def tally(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a module with reducers into the current folder, and give the name of one."""
    (home / "project" / "tally.py").write_text(TALLY)
    (home / "project" / "failing.py").write_text("import nothing_of_that_name\n")
    (home / "project" / "leaving.py").write_text("raise SystemExit(0)\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("tally", "failing", "leaving"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "tally:tally"


def command_line(value: object) -> str:
    """Name a parametrised test by the words it types."""
    return " ".join(value) if isinstance(value, tuple) else ""


def rows(result: Result) -> list[dict[str, Any]]:
    """Return the objects a command printed under --json."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def program(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run castlog as a process of its own."""
    return subprocess.run([*PROGRAM, *words], capture_output=True, timeout=60, check=False, **options)
