"""`castlog demo`: a small session recorded, crashed, reopened, forked and compared, in a store of its own.

Each step runs the command it prints. What is claimed about the outcome is looked up in the store and checked.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import wrap

import click

import castlog

from ..command import App, command
from ..output import Styled

_AGENT = """
import sys, time, castlog
store = castlog.open(sys.argv[1], harness_version="demo-1")
main = store.branch(sys.argv[2])
def record(type, payload, call_id=None):
    print(main.append(type, payload, call_id=call_id).seq, flush=True)
record("user_message", {"text": "test_parse_date fails since Monday. Please fix it."})
record("model_response", {"content": "I look at the test first.",
    "tool_calls": [{"id": "c1", "name": "Read", "args": {"path": "tests/test_dates.py"}}]})
record("tool_call", {"name": "Read", "args": {"path": "tests/test_dates.py"}}, "c1")
record("tool_result", {"ok": True, "output": "assert parse_date('03/04') == date(2026, 4, 3)"}, "c1")
record("model_response", {"content": "Day and month are swapped. I run the tests before I change anything.",
    "tool_calls": [{"id": "c2", "name": "Bash", "args": {"command": "pytest -x"}}]})
record("tool_call", {"name": "Bash", "args": {"command": "pytest -x"}}, "c2")
time.sleep(60)  # pytest runs ... and the power goes
"""
_IDEAS = {
    "swap-format": (
        ("tool_call", '{"name":"Edit","args":{"path":"dates.py","old":"%m/%d","new":"%d/%m"}}', "c3"),
        ("tool_result", '{"ok":true,"output":"1 replacement"}', "c3"),
        ("model_response", '{"content":"Changed the format string; 41 tests pass."}', None),
    ),
    "use-locale": (
        ("tool_call", '{"name":"Edit","args":{"path":"dates.py","old":"%m/%d","new":"locale.D_FMT"}}', "c3"),
        ("tool_result", '{"ok":false,"error":"locale.D_FMT is not set in this container"}', "c3"),
    ),
}


@command("demo", examples=("castlog demo", "castlog demo --keep"))
@click.option("--keep", is_flag=True, help="Leave the store behind to look around in, and say where it is.")
def demo(app: App, keep: bool) -> None:
    """Record, crash, reopen, fork and compare a small session.

    Works in a temporary store and touches no other. An agent's process is killed with kill -9 in the middle of a tool
    call; what it had recorded is there afterwards, and two ideas go on from it.
    """
    folder = Path(tempfile.mkdtemp(prefix="castlog-demo-"))
    try:
        with _environment(app, folder / "demo.castlog"):
            _Demo(app, folder / "demo.castlog").run()
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        app.out.say(f"\nThe store is {folder / 'demo.castlog'}; name it with --store to look around.")


class _Demo:
    """The steps, and how each is shown and checked."""

    def __init__(self, app: App, path: Path) -> None:
        self._out = app.out
        self._path = path

    def run(self) -> None:
        """Run all steps."""
        self._tell(
            "A session is made, in a temporary store. The agent that works in it appends an event for each step."
        )
        session = self._type("new", "fix test_parse_date").strip()
        acknowledged = self._crash(session)
        self._type("log", "--oneline")
        with castlog.open(self._path, read_only=True) as store:
            main = store.branch(session)
            self._claim(main.head.seq == acknowledged, f"all {acknowledged} events it was told are durable are there")
            waiting = [event.call_id for event in main.in_flight()]
            self._claim(waiting == ["c2"], "the call it died in is in flight: c2 has no result")
        self._tell("Two ideas go on from here. A fork is one reference: both share everything recorded so far.")
        for name, steps in _IDEAS.items():
            self._type("fork", name)
            cut_off = '{"ok":false,"interrupted":true,"error":"the process died"}'
            for kind, data, call_id in (("tool_result", cut_off, "c2"), *steps):
                self._type("append", name, "--type", kind, *(("--call-id", call_id) if call_id else ()), "--data", data)
        self._type("log", "--graph")
        with castlog.open(self._path, read_only=True) as store:
            base = store.merge_base(f"{session}/swap-format", f"{session}/use-locale")
            self._claim(base is not None and base.seq == acknowledged, f"they part after seq {acknowledged}")
            self._claim(store.branch(session).head.seq == acknowledged, "main reads what it read before")
        self._tell("What did each do since?")
        self._type("diff", "swap-format", "use-locale", expected=1)
        self._tell("The first is the better one: main goes there. Its old head stays in the reflog.")
        self._type("promote", "swap-format")
        self._type("reflog", "main")
        self._type("verify", "--deep")
        with castlog.open(self._path, read_only=True) as store:
            heads = {store.branch(f"{session}/{name}").head.id for name in ("main", "swap-format")}
            self._claim(len(heads) == 1, "main and swap-format have the same head, and the whole chain verifies")

    def _crash(self, session: str) -> int:
        """Let an agent record in a process of its own, kill it in its second call, and return how far it got."""
        self._show("python agent.py &    # records, and calls pytest")
        words = [sys.executable, "-c", _AGENT, str(self._path), session]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603 - our own script
            assert agent.stdout is not None
            seqs = [int(agent.stdout.readline()) for _ in range(6)]
            agent.kill()
        self._show(f"kill -9 {agent.pid}          # after seq {seqs[-1]}, in the middle of the call")
        return seqs[-1]

    def _type(self, *words: str, expected: int = 0) -> str:
        """Run a command, show it with what it prints, and return that."""
        from ..main import group

        self._show(" ".join(["castlog", *(_quoted(word) for word in words)]))
        printed, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(said), group.make_context("castlog", list(words)) as ctx:
            code = group.invoke(ctx) or 0
        printed.flush()
        text = printed.buffer.getvalue().decode() if isinstance(printed.buffer, io.BytesIO) else ""
        for line in (text + said.getvalue()).splitlines():
            if not self._out.json:
                self._out.line("    ", line)
        self._claim(code == expected, f"castlog {words[0]} exits {expected}", quiet=True)
        return text

    def _show(self, line: str) -> None:
        if self._out.json:
            self._out.record(step="command", text=line)
        else:
            self._out.line(Styled("  $ ", "dim"), Styled(line, "bold"))

    def _tell(self, text: str) -> None:
        if self._out.json:
            self._out.record(step="text", text=text)
        else:
            self._out.line()
            for line in wrap(text, self._out.width):
                self._out.line(line)

    def _claim(self, holds: bool, text: str, quiet: bool = False) -> None:
        if not holds:
            raise castlog.Corrupt(f"the demo does not hold what it says: {text}")
        if self._out.json and not quiet:
            self._out.record(step="claim", text=text, holds=True)
        elif not quiet:
            self._out.line(Styled("  ok  ", "green bold"), text)


def _quoted(word: str) -> str:
    plain = all(char.isalnum() or char in "-_./@~:" for char in word)
    return word if plain else f"'{word}'" if "'" not in word else f'"{word}"'


@contextmanager
def _environment(app: App, path: Path) -> Iterator[None]:
    """Let the commands find this store and no other, and keep to the width of this terminal."""
    before = dict(os.environ)
    os.environ.pop("CASTLOG_REV", None)
    os.environ["CASTLOG_STORE"] = str(path)
    os.environ["COLUMNS"] = str(min(app.out.width, 120) - 4)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
