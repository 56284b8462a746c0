"""The agent of `castlog demo`: a loop as a harness has it, around tools and a model that is a script. No network.

    python -m castlog_cli.agent STORE BRANCH... [--pause-in TOOL]

goes on with branches of the session that is checked out, all at once, until each waits for the user. It prints the seq
of each event once that is durable. In the tool named it waits, after its effect and before its result, to be killed.
Every effect is a line in the file `effects` beside the store.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

import castlog

_DATES = {"03/04/2026": date(2026, 4, 3), "24/12/2026": date(2026, 12, 24), "07/07/2026": date(2026, 7, 7)}
_SCRIPT = (
    ("I run the tests first.", "RunTests", {"format": "%m/%d/%Y"}),
    ("Day and month are swapped. I tell Ann.", "SendMail", {"to": "ann", "text": "I found it."}),
    ("I look up what others do.", "Search", {"query": "date formats"}),
)


def go_on(run: castlog.Run[Any]) -> None:
    """Take the steps that the state asks for, until it is the user's turn."""
    while run.state["awaiting"] != "user":
        todo = list(run.state["todo"])
        for call in todo:
            run.tool(call["name"], call["args"], call_id=call["id"])
        if not todo:
            run.model({"model": "script", "messages": run.state["messages"]}, respond)


def respond(request: dict[str, Any]) -> dict[str, Any]:
    """Return what the model says next, which depends on nothing but the messages."""
    messages = request["messages"]
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn < len(_SCRIPT):
        return _asking(turn, *_SCRIPT[turn])
    if turn == len(_SCRIPT):
        return {"content": "I can go on without it: which format shall I try?"}
    if messages[-1]["role"] == "user":
        return _asking(turn, "I run the tests with it.", "RunTests", {"format": messages[-1]["content"].split()[-1]})
    return {"content": f"With this one, {messages[-1]['content']}."}


def tools(effects: Path, pause_in: str | None) -> list[Callable[..., Any]]:
    """Return the tools, one for each policy."""

    def effect(name: str, call: castlog.Call) -> None:
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{name} {call.id} key={call.key[:13]} attempt={call.attempt}\n")
        if name == pause_in:
            click.echo(f"in {name}")
            time.sleep(60)

    @castlog.tool(in_flight="retry")
    def RunTests(format: str, call: castlog.Call) -> str:  # noqa: A002, N802 - as models call it
        effect("RunTests", call)
        return f"{sum(_parses(text, format, day) for text, day in _DATES.items())} of {len(_DATES)} tests pass"

    @castlog.tool(in_flight="ask")
    def SendMail(to: str, text: str, call: castlog.Call) -> str:  # noqa: N802
        effect("SendMail", call)
        return "sent"

    @castlog.tool(in_flight="fail")
    def Search(query: str, call: castlog.Call) -> list[str]:  # noqa: N802
        effect("Search", call)
        return []

    return [RunTests, SendMail, Search]


def main() -> None:
    """Go on with the branches named."""
    parser = argparse.ArgumentParser(prog="agent.py")
    parser.add_argument("store", type=Path)
    parser.add_argument("branches", nargs="+")
    parser.add_argument("--pause-in")
    args = parser.parse_args()
    known = tools(args.store.with_name("effects"), args.pause_in)

    def work(branch: castlog.Branch) -> None:
        with castlog.Run(branch, castlog.conversation, known) as run:
            run.observe(lambda event: click.echo(event.seq))
            go_on(run)

    with castlog.open(args.store, create=False, harness_version="demo-1") as store, ThreadPoolExecutor() as threads:
        current = store.current
        assert current is not None
        try:
            list(threads.map(work, map(current.session.branch, args.branches)))
        except castlog.InFlight as error:
            sys.exit(str(error))


def _asking(turn: int, content: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"content": content, "tool_calls": [{"id": f"call-{turn + 1}", "name": name, "args": args}]}


def _parses(text: str, form: str, day: date) -> bool:
    try:
        return datetime.strptime(text, form).date() == day
    except ValueError:
        return False


if __name__ == "__main__":
    main()
