"""Calls in flight, and who runs what: what a person learns and decides before a harness goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import castlog

from .conftest import Run, rows

RUNNER = """
import sys, castlog
with castlog.open(".castlog") as store:
    with castlog.Run(store.branch("main"), castlog.conversation, {"Edit": lambda **args: "edited"}) as run:
        if "hold" in sys.argv:
            print("ready", flush=True)
            sys.stdin.read()
        print([(call.call_id, call.action) for call in run.recover().calls])
"""


@contextmanager
def running(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process run main."""
    command = [sys.executable, "-c", RUNNER, "hold"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home / "project") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_plan_is_shown_and_nothing_is_written(store: str, run: Run) -> None:
    """Exit 1 while a call waits for a person; the words to decide with are given."""
    before = run("cat").stdout
    result = run("resume", code=1)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["@6", "c2", "tool_call", "Edit(file=src/api.py)"]
    assert lines[1].strip() == "waits for a person to decide (by its policy: ask)"
    assert f"castlog resume {store[-8:]}/main --decide c2=retry" in result.stderr
    assert run("cat").stdout == before
    result = run("resume", "idea-b")
    assert (result.stdout, result.stderr) == ("", "Nothing is in flight.\n")


def test_a_decision_is_recorded_and_the_next_run_acts_on_it(store: str, home: Path, run: Run) -> None:
    """With who decided and why; nothing is run before a harness does."""
    result = run("resume", "main", "--decide", "c2=retry", "--reason", "it is safe")
    assert "is run again (by decision: retry, it is safe)" in result.stdout
    last = rows(run("cat", "--from", "7"))
    assert [event["type"] for event in last] == ["recovery"]
    assert last[0]["payload"]["calls"][0] == {
        "call_id": "c2",
        "action": "retry",
        "by": "person",
        "reason": "it is safe",
    }
    (row,) = rows(run("resume", "--json"))
    assert (row["policy"], row["action"], row["by"], row["attempt"]) == ("ask", "retry", "person", 1)
    done = subprocess.run([sys.executable, "-c", RUNNER], cwd=home / "project", capture_output=True, check=True)
    assert done.stdout == b"[('c2', 'retry')]\n"
    assert rows(run("cat"))[-1]["payload"] == {"ok": True, "output": "edited"}
    assert run("resume").stdout == ""


def test_a_result_can_be_given_or_taken_from_a_branch(store: str, home: Path, run: Run) -> None:
    """From a file, and from another branch that has it; the plan says which has."""
    run("fork", "done", "main")
    run("append", "done", "--type", "tool_result", "--call-id", "c2", "--data", '{"ok":true,"output":"there"}')
    assert "/done@7 has a result of it" in run("resume", code=1).stdout
    assert "gets the result of another branch" in run("resume", "--decide", "c2=from:done").stdout
    (home / "answer").write_text('{"edited": 3}')
    assert "gets the result given" in run("resume", "--decide", f"c2=result:{home / 'answer'}").stdout
    assert rows(run("cat"))[-1]["payload"]["calls"][0]["result"] == {"ok": True, "output": {"edited": 3}}


def test_a_call_id_may_hold_an_equals_sign(store: str, home: Path, run: Run) -> None:
    """So may the name of a file."""
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("main").append("tool_call", {"name": "Read"}, call_id="a=b")
    (home / "project" / "x=y").write_text("text")
    run("resume", "--decide", "a=b=fail", "--decide", "c2=result:x=y")
    assert {row["call_id"]: row["action"] for row in rows(run("resume", "--json"))} == {"c2": "result", "a=b": "fail"}


def test_a_branch_that_is_run_is_not_decided_about(store: str, home: Path, run: Run) -> None:
    """Looking is free, and says so; a decision is refused with who has the branch. Sessions that run are listed."""
    assert run("sessions", "--running").stdout == ""
    with running(home) as process:
        assert f"main is being run by process {process.pid}" in run("resume", code=1).stderr
        assert str(process.pid) in run("resume", "--decide", "c2=fail", code=5).stderr
        run("new", "another", "--no-checkout")
        (row,) = rows(run("sessions", "--running", "--json"))
        assert row["id"] == store
        (one,) = row["running"]
        assert (one["rev"], one["pid"], one["host"]) == (f"{store}/main", process.pid, os.uname().nodename)
        assert f"main: process {process.pid} on " in run("sessions", "--running").stdout
        run("reset", "main@2", code=5)
    assert "No session fits" in run("sessions", "--running").stderr
