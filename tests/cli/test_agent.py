"""The demo's agent: a script, which makes its outcome known beforehand, and effects that a file counts."""

from __future__ import annotations

from pathlib import Path

from castlog_cli import agent

import castlog


def test_the_agent_does_the_same_each_time(tmp_path: Path) -> None:
    """Two runs from the beginning have the same effects and end in the same state."""
    ends = []
    for name in ("first", "second"):
        effects = tmp_path / name
        with castlog.open("memory:") as store:
            branch = store.create_session(name).branch("main")
            with castlog.Run(branch, castlog.conversation, agent.tools(effects, None)) as run:
                run.user("Please fix it.")
                agent.go_on(run)
                run.user("Please try %d/%m/%Y")
                agent.go_on(run)
                ends.append(run.state)
        assert [line.split()[0] for line in effects.read_text().splitlines()] == [
            *("RunTests", "SendMail", "Search", "RunTests")
        ]
    assert ends[0] == ends[1]
    assert ends[0]["messages"][-1]["content"] == "With this one, 3 of 3 tests pass."
