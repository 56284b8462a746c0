"""`castlog completion`: how to turn on completion."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..command import App, command

_LINES = {
    "bash": ("~/.bashrc", 'eval "$(_CASTLOG_COMPLETE=bash_source castlog)"'),
    "zsh": ("~/.zshrc", 'eval "$(_CASTLOG_COMPLETE=zsh_source castlog)"'),
    "fish": ("~/.config/fish/completions/castlog.fish", "_CASTLOG_COMPLETE=fish_source castlog | source"),
}


@command("completion", examples=("castlog completion bash >> ~/.bashrc",))
@click.argument("shell", required=False, type=click.Choice(list(_LINES)))
def completion(app: App, shell: str | None) -> None:
    """Print the lines that turn on completion in your shell.

    Commands, options and revisions are completed. Without SHELL the one in use is taken.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in _LINES:
        raise click.UsageError(f"Say which shell: {', '.join(_LINES)}.")
    file, line = _LINES[name]
    if app.out.json:
        app.out.record(shell=name, file=file, line=line)
        return
    app.out.line(line)
    if app.out.terminal:  # not where a shell reads it
        app.out.say(f"Put this into {file}, then open a new shell.")
