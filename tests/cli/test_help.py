"""The help is the documentation: complete, quick, and the same everywhere it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from castlog_cli import reference
from castlog_cli.command import Command
from castlog_cli.main import COMMANDS, group

from .conftest import Run, program


def _command(name: str) -> Command:
    found = group.get_command(click.Context(group), name)
    assert isinstance(found, Command)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_in_its_help_what_the_list_of_commands_says(name: str, run: Run) -> None:
    """The first line of a command's help is its line in `castlog --help`, and there is at least one example."""
    command = _command(name)
    assert (command.help or "").splitlines()[0] == COMMANDS[name]
    assert command.examples
    shown = run(name, "--help").stdout
    assert all(example in shown for example in command.examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_example_is_of_the_command_and_parses(name: str) -> None:
    """An example in the help uses options the command has."""
    for example in _command(name).examples:
        (part,) = [
            part for part in re.split(r" [|>]+ |\$\(", example.rstrip(")")) if part.startswith(f"castlog {name}")
        ]
        ctx = click.Context(group, info_name="castlog")
        _command(name).make_context(name, shlex.split(part)[2:], parent=ctx)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal(name: str, run: Run) -> None:
    """No line of any help is wider than 80 columns."""
    assert all(len(line) <= 80 for line in run(name, "--help").stdout.splitlines())


def test_the_reference_is_what_the_help_says() -> None:
    """`cli/REFERENCE.md` is up to date; `python -m castlog_cli.reference > cli/REFERENCE.md` writes it."""
    assert (Path(__file__).parents[2] / "cli" / "REFERENCE.md").read_text("utf-8") == reference.render()


def test_help_loads_neither_the_store_nor_rich() -> None:
    """`castlog --help` starts without what only a command needs."""
    script = (
        "import sys; from castlog_cli.main import group\n"
        "try: group.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = [name for name in ('castlog', 'rich', 'lmdb', 'msgspec') if name in sys.modules]\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"merge-base" in done.stdout


def test_the_version_is_printed() -> None:
    """`castlog --version` names the program and its version."""
    assert program("--version").stdout.startswith(b"castlog ")


@pytest.mark.parametrize("words", [("--version", "--json"), ("--json", "--version")])
def test_the_version_is_an_object_under_json(words: tuple[str, ...], run: Run) -> None:
    """In either order."""
    assert set(json.loads(run(*words).stdout)) == {"name", "version"}


def test_no_command_shows_the_help_and_is_a_usage_error(run: Run) -> None:
    """`castlog` alone exits 2 with the help on stderr."""
    assert "Usage: castlog" in run(code=2).stderr


def test_a_misspelled_command_or_option_is_recognised(run: Run) -> None:
    """What is spelled nearly right is offered."""
    assert "Did you mean log?" in run("lgo", code=2).stderr
    assert "--graph" in run("log", "--grph", code=2).stderr
