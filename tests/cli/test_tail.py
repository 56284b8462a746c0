"""Following: appends of other processes, one branch or all of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import castlog

from .conftest import PROGRAM, Run, rows


@contextmanager
def _tail(*words: str) -> Iterator[Any]:
    """Run `castlog tail -f --json` and give a function that waits for its next event."""
    command = [*PROGRAM, "tail", "-f", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout

        def following() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(output.readline())
            return found

        try:
            yield following
        finally:
            process.kill()


def test_the_last_events_come_oldest_first(store: str, run: Run) -> None:
    """-n says how many; a fork's shared events count as its own."""
    assert [row["seq"] for row in rows(run("tail", "-n", "2", "--json"))] == [5, 6]
    assert [row["seq"] for row in rows(run("tail", "idea-b", "-n", "3", "--json"))] == [4, 5, 6]
    assert run("tail", "-n", "0").stdout == ""


def test_all_shows_each_shared_event_once(store: str, run: Run) -> None:
    """Over all branches of all sessions an event that several share is one."""
    run("new", "other", "--no-checkout")
    run("append", "other/", "--text", "elsewhere")
    found = rows(run("tail", "--all", "-n", "100", "--json"))
    assert len(found) == len({row["id"] for row in found}) == 9
    assert found[-1]["payload"] == {"text": "elsewhere"}


def test_a_follower_sees_appends_of_other_processes(store: str, run: Run) -> None:
    """Events arrive as they are appended, and when the branch is moved it goes on from there."""
    with _tail("-n", "1") as following:
        assert following()["seq"] == 6
        run("append", "--text", "more")
        assert following()["payload"] == {"text": "more"}
        run("reset", "main@2")
        run("append", "idea-b", "--text", "not here")
        import time

        time.sleep(0.5)  # the follower has to see the move before the next append
        run("append", "--text", "after the move")
        assert following()["payload"] == {"text": "after the move"}


def test_following_everything(store: str, home: Path, run: Run) -> None:
    """--all -f shows events of old branches, new branches and new sessions."""
    with _tail("--all", "-n", "1") as following:
        following()
        run("append", "idea-b", "--text", "one")
        assert following()["payload"] == {"text": "one"}
        run("fork", "late", "main@1")
        run("append", "late", "--text", "two")
        assert following()["payload"] == {"text": "two"}
        with castlog.open(home / "project" / ".castlog") as opened:
            opened.create_session("new").branch("main").extend([("note", 1), ("note", 2)])
        assert [following()["payload"], following()["payload"]] == [1, 2]
