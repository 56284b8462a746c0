"""`castlog demo`: a small agent recorded, killed, resumed, forked and compared, in a store of its own.

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

from .. import agent
from ..command import App, command
from ..output import Styled

_IDEAS = {"day-first": "%d/%m/%Y", "short-year": "%d/%m/%y", "month-first": "%m/%d/%Y"}


@command("demo", examples=("castlog demo", "castlog demo --keep"))
@click.option("--keep", is_flag=True, help="Leave the store behind to look around in, and say where it is.")
def demo(app: App, keep: bool) -> None:
    """Record, crash, resume, fork and compare a small agent.

    Works in a temporary store and touches no other. An agent's process is killed with kill -9 in the middle of a tool
    call, and goes on as the policy of the tool says: once it is run again, once a person decides, once it counts as
    failed. A file counts the effects: none happens twice that must not. Then three ideas go on from there at once.
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
        self._effects = path.with_name("effects")

    def run(self) -> None:
        """Run all steps."""
        self._tell(
            "A session is made, in a temporary store, and the user says something. Then an agent works in it, which is"
            " a loop around a scripted model and three tools in castlog.Run (cli/agent.py). Its process is killed."
        )
        session = self._type("new", "fix test_parse_date").strip()
        self._type("append", "--text", "test_parse_date fails since Monday. Please fix it.")
        self._crash(session, "RunTests")
        self._type("log", "--oneline")
        self._retry(session)
        self._ask(session)
        self._fail(session)
        self._fork(session)
        self._compare(session)

    def _retry(self, session: str) -> None:
        self._tell(
            "What would a restart do about it? Running tests twice does no harm: RunTests is marked in_flight='retry'."
        )
        self._type("resume")
        self._tell(
            "So the agent is simply started again. It runs the tests once more and goes on, into its next call: a mail."
        )
        self._crash(session, "SendMail")
        runs = self._show_effects("RunTests")
        keys = {run.split()[2] for run in runs}
        self._claim(len(runs) == 2 and len(keys) == 1, "the tests ran twice, and got the same key to know it by")

    def _ask(self, session: str) -> None:
        self._tell(
            "It was killed again, and nobody knows whether the mail has left. SendMail has the policy 'ask', which is"
            " the default: castlog does not guess, and no agent goes on from here."
        )
        self._start("main", expected=1)
        self._type("resume", expected=1)
        self._tell("A person looks: the mail is out. That is the result of the call, and the reason is kept with it.")
        self._show_effects("SendMail")
        answer = self._path.with_name("answer.json")
        answer.write_text('"sent"', encoding="utf-8")
        self._type("resume", "main", "--decide", f"call-2=result:{answer}", "--reason", "it is in the outbox")

    def _fail(self, session: str) -> None:
        self._tell("The agent goes on from there, and is killed in a search. Search has the policy 'fail'.")
        self._crash(session, "Search")
        self._type("resume")
        self._start("main")
        self._type("log", "--oneline", "-n", "5")
        effects = [line.split()[0] for line in self._show_effects("")]
        self._claim(effects.count("SendMail") == 1, "three crashes, and the mail was sent once")
        self._claim(effects.count("Search") == 1, "the search was not repeated: the model was told that it failed")
        with self._open() as store:
            main = store.branch(session)
            counts = main.restore(castlog.conversation).state["counts"]
            self._claim(not main.in_flight(), "nothing is in flight any more")
            self._claim((counts["completed"], counts["failed"]) == (2, 1), "2 calls completed, 1 failed, none is lost")

    def _fork(self, session: str) -> None:
        self._tell(
            "Three ideas go on from here, at once. A fork is one reference: all share everything recorded so far."
        )
        with self._open() as store:
            base = store.branch(session).head
        for name, form in _IDEAS.items():
            self._type("fork", name)
            self._type("append", name, "--text", f"Please try {form}")
        self._start(*_IDEAS)
        self._type("log", "--graph")
        with self._open() as store:
            parted = store.merge_base(f"{session}/day-first", f"{session}/short-year")
            self._claim(parted is not None and parted.id == base.id, f"they part after seq {base.seq}")
            self._claim(store.branch(session).head.id == base.id, "main reads what it read before")

    def _compare(self, session: str) -> None:
        self._tell("What did they come to? And what is the difference between two of them, in events and in state?")
        self._type("grep", "tests pass", *_IDEAS, "--type", "tool_result")
        self._type("diff", "day-first", "short-year", expected=1)
        self._type("diff", "day-first", "short-year", "--state", expected=1)
        with self._open() as store:
            passed = {name: _passed(store.branch(f"{session}/{name}")) for name in _IDEAS}
        best = max(passed, key=passed.__getitem__)
        self._tell(f"The best is {best}: main goes there. Its old head stays in the reflog.")
        self._type("promote", best)
        self._type("reflog", "main")
        self._type("verify", "--deep")
        with self._open() as store:
            heads = {store.branch(f"{session}/{name}").head.id for name in ("main", best)}
            self._claim(len(heads) == 1, f"main and {best} have the same head, and the whole chain verifies")

    def _crash(self, session: str, tool: str) -> None:
        """Let the agent work until it is in the middle of a tool, kill it there, and check what it was told."""
        told = 0
        with self._agent("main", "--pause-in", tool) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("in "):
                    break
                told = int(line)
            child.kill()
        self._show(f"kill -9 {child.pid}    # in {tool}, after its effect and before its result")
        with self._open() as store:
            main = store.branch(session)
            self._claim(main.head.seq == told, f"all {told} events it was told are durable are there")
            waiting = [event.payload["name"] for event in main.in_flight()]
            self._claim(waiting == [tool], f"the call it died in is in flight: {tool} has no result")

    def _start(self, *branches: str, expected: int = 0) -> None:
        """Let the agent work until it is the user's turn, or until it refuses to."""
        with self._agent(*branches) as child:
            _, refused = child.communicate()
        self._print(refused)
        self._claim(child.returncode == expected, f"the agent exits {expected}", quiet=True)

    def _agent(self, *words: str) -> subprocess.Popen[str]:
        self._show(" ".join(["python", "agent.py", *words]))
        command = [sys.executable, "-m", agent.__name__, str(self._path), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603

    def _show_effects(self, tool: str) -> list[str]:
        """Show what a tool did to the world, which castlog has no part in, and return its lines."""
        self._show(f"grep {tool} effects" if tool else "cat effects")
        lines = [line for line in self._effects.read_text(encoding="utf-8").splitlines() if line.startswith(tool)]
        self._print("\n".join(lines))
        return lines

    def _open(self) -> castlog.Store:
        return castlog.open(self._path, read_only=True)

    def _type(self, *words: str, expected: int = 0) -> str:
        """Run a command, show it with what it prints, and return that."""
        from ..main import group

        self._show(" ".join(["castlog", *(_quoted(word) for word in words)]))
        printed, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(said), group.make_context("castlog", list(words)) as ctx:
            code = group.invoke(ctx) or 0
        printed.flush()
        text = printed.buffer.getvalue().decode() if isinstance(printed.buffer, io.BytesIO) else ""
        self._print(text + said.getvalue())
        self._claim(code == expected, f"castlog {words[0]} exits {expected}", quiet=True)
        return text

    def _print(self, text: str) -> None:
        for line in text.splitlines():
            if not self._out.json:
                self._out.line("    ", line)

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


def _passed(branch: castlog.Branch) -> int:
    """Return how many tests passed in the last call of a branch."""
    *_, last = branch.events(types={"tool_result"})
    return int(last.payload["output"].split()[0])


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
