"""The entry point: the list of commands, each loaded when it is used, and the way every run ends."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from keyword import iskeyword
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from . import errors, signals
from .command import App, global_options
from .output import Out, dumps

# Name, then what `castlog --help` says of it. A test holds these against the commands' own help.
SECTIONS: dict[str, dict[str, str]] = {
    "Record": {
        "init": "Make a store.",
        "new": "Create a session, check it out, and print its id.",
        "append": "Add events to a branch; each is durable before its seq is printed.",
        "import": "Take in transcripts: castlog, Claude Code, Codex, any JSON Lines.",
    },
    "Look": {
        "sessions": "List sessions, latest activity first.",
        "log": "Show events newest first, or how branches fork.",
        "show": "Show one event in full.",
        "cat": "Print events as JSON Lines, oldest first.",
        "tail": "Show the last events, then new ones as they come.",
        "grep": "Search events; all branches of all sessions unless told.",
        "diff": "Show where two branches part and what each did since.",
        "merge-base": "Print the last event two branches share.",
        "reflog": "List how a branch's head moved.",
    },
    "State": {
        "replay": "Show the state after an event, or what events changed in it.",
        "bisect": "Find the first event after which the state is bad.",
        "resume": "Show what a restart would do about calls in flight, and record decisions.",
        "snapshot": "List the snapshots a branch can start from, or make one.",
    },
    "Branch": {
        "checkout": "Make a branch the current one, or write it out as files.",
        "fork": "Start branches that share everything up to an event.",
        "branch": "List, rename or delete branches.",
        "tag": "Name an event; list or delete such names.",
        "promote": "Point a branch at another one's head.",
        "reset": "Move a branch's head back along its history.",
        "session": "Rename, label or delete a session.",
        "undelete": "List the trash, or bring something back from it.",
    },
    "Keep": {
        "export": "Write a branch or session out: JSON Lines, bundle, or its source format.",
        "verify": "Check the store's integrity.",
        "du": "Show logical against stored bytes.",
        "compact": "Compress the whole store and give space back.",
        "completion": "Print the lines that turn on completion in your shell.",
        "demo": "Record, crash, resume, fork and compare a small agent.",
    },
}
_VERSION = "castlog.version"
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}


class Castlog(click.Group):
    """The group of commands; it imports a command's module when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command, or return None for a word that is none."""
        if cmd_name not in COMMANDS:
            return None
        word = cmd_name.replace("-", "_")
        word += "_" if iskeyword(word) else ""
        found: click.Command = getattr(importlib.import_module(f".commands.{word}", __package__), word)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; --version is answered when all are known, since --json may stand behind it."""
        rest = super().parse_args(ctx, args)
        if ctx.meta.get(_VERSION) and not ctx.resilient_parsing:
            from importlib.metadata import version

            app = App.of(ctx)
            number = version("castlog")
            if app.out.json:
                app.out.record(name="castlog", version=number)
            else:
                app.out.line(f"castlog {number}")
            ctx.exit()
        return rest

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name those that are spelled alike."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            alike = get_close_matches(name, COMMANDS, n=3)
            hint = f" Did you mean {' or '.join(alike)}?" if alike else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without loading one."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Offer command names without loading one."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run one command line and exit: the only place where an exception becomes an exit code."""
        words = sys.argv[1:] if args is None else list(args)
        if "_CASTLOG_COMPLETE" in os.environ:
            from .shell import register

            register()
            super().main(words, "castlog", "_CASTLOG_COMPLETE")
        try:
            code = self._run(words)
            Out().flush()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except BaseException as error:
            code = _end(error, "--json" in words)
        sys.exit(code)

    def _run(self, words: list[str]) -> int:
        try:
            with self.make_context("castlog", list(words)) as ctx:
                result = self.invoke(ctx)
        except click.exceptions.Exit as ended:
            return ended.exit_code
        return result if isinstance(result, int) else 0


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_VERSION] = True


group = Castlog(
    "castlog",
    params=[
        *global_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            help="Print the version and exit.",
            callback=_version,
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A log store for agent sessions: append-only, content-addressed, with branches as in Git.",
    epilog="A revision is [SESSION/][BRANCH|TAG][@SEQ|@b3:PREFIX][~N]. Exit codes: 0 fine; 1 something found, or "
    "nothing by grep; 2 usage; 3 not found; 4 invalid input; 5 conflict or locked; 6 corrupt; 7 unavailable; "
    "8 finished with losses; 130 interrupted.",
)


def main() -> NoReturn:
    """Run `castlog` as a program."""
    for stream in range(3):
        _keep_open(stream)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    signals.install()
    group.main()


def _keep_open(descriptor: int) -> None:
    """Put the null device where a standard stream is closed, so that no file of the store gets its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)
        name = ("stdin", "stdout", "stderr")[descriptor]
        setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False))


def _end(error: BaseException, as_json: bool) -> int:
    """Say what went wrong, once, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return errors.PIPE_CLOSED
    if isinstance(error, signals.Terminated):
        return errors.TERMINATED
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        click.echo(error.format_message(), err=True)
        return errors.USAGE
    told = errors.tell(error)
    if told is None:
        import traceback

        traceback.print_exception(error)
        told = errors.Told("broken", errors.BROKEN, f"a mistake in castlog: {error!r}")
    try:
        Out().flush()
    except OSError:
        _drop_output()
    with suppress(OSError):  # nobody may be listening; the exit code still tells
        Out(as_json).complain(dumps(told.fields()) if as_json else told.text())
    return told.code


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
