"""The reference, written from the commands' own help: `python -m castlog_cli.reference > cli/REFERENCE.md`.

A test compares the file with what this gives, so that it cannot fall behind.
"""

from __future__ import annotations

import sys

import click

from .command import Command
from .main import SECTIONS, group

_HEAD = """\
# castlog: command reference

Written by `python -m castlog_cli.reference`; do not edit. `castlog COMMAND --help` shows the same.

Every command takes `--store PATH` and `--json`, before or after its name.
"""


def render() -> str:
    """Return the reference as Markdown."""
    top = click.Context(group, info_name="castlog")
    parts = [_HEAD, f"{group.help}\n\n{group.epilog}\n"]
    for title, section in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in section:
            command = group.get_command(top, name)
            assert isinstance(command, Command)
            parts.append(_command(top, name, command))
    return "\n".join(parts)


def _command(top: click.Context, name: str, command: Command) -> str:
    ctx = click.Context(command, info_name=name, parent=top)
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    lines = [f"### castlog {name}\n", f"```\n{usage}\n```\n", f"{_paragraphs(command.help or '')}\n"]
    options = [param for param in command.params if isinstance(param, click.Option)]
    rows = [option.get_help_record(ctx) for option in options if option.name not in ("store", "json")]
    shown = [_row(names, text) for names, text in filter(None, rows)]
    if shown:
        lines.append("\n".join(["| option | |", "|---|---|", *shown]) + "\n")
    lines.append("```\n" + "\n".join(command.examples) + "\n```\n")
    return "\n".join(lines)


def _row(names: str, text: str) -> str:
    cells = [cell.replace("|", "\\|") for cell in (f"`{names}`", text)]
    return f"| {cells[0]} | {cells[1]} |"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


if __name__ == "__main__":
    sys.stdout.write(render())
