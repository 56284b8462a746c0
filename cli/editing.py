"""A payload in the person's editor: as indented JSON, in a file that only they can read.

What was written there is never lost: the file stays until its content has become an event.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import castlog

from .text import clean

_VARIABLES = ("VISUAL", "EDITOR")


@contextmanager
def edited(event: castlog.Event, command: str) -> Iterator[Any]:
    """Give what a person makes of an event's payload; `command`, with a FILE, is what takes up a text that was kept.

    Raises Invalid for a payload that is no JSON or as it was, or when the editor failed. An error in the block keeps
    the text too.
    """
    before = _payload(event)
    with tempfile.NamedTemporaryFile(
        "w", prefix="castlog-", suffix=".json", encoding="utf-8", delete=False
    ) as file:  # made with mode 0600
        file.write(json.dumps(before, ensure_ascii=False, indent=2) + "\n")
    path = Path(file.name)
    started = path.read_bytes()
    try:
        while True:
            _edit(path)
            try:
                after = parse(path.read_bytes(), "the edited payload")
                break
            except castlog.Invalid as error:
                if not _asked_again(error):
                    raise
        yield changed(before, after, event)
    except BaseException as error:
        if path.read_bytes() == started:
            path.unlink()
        elif isinstance(error, castlog.Error):
            hint = f"What you wrote is in {path}; take it up with {command} {shlex.quote(str(path))}"
            raise type(error)(str(error), **{**error.facts, "file": str(path), "hint": hint}) from error
        raise
    path.unlink()


def from_file(event: castlog.Event, name: str) -> Any:
    """Return the payload in a file, or for `-` on stdin; raises Invalid as `edited` does."""
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    return changed(_payload(event), parse(data, "stdin" if name == "-" else name), event)


def parse(data: bytes, what: str) -> Any:
    """Return the JSON value in some bytes; raises Invalid for what no payload can be."""
    try:
        castlog.validate(data)
        return json.loads(data)
    except (castlog.Invalid, ValueError) as error:
        raise castlog.Invalid(f"{what} is no payload: {error}") from error


def changed(before: Any, after: Any, event: castlog.Event) -> Any:
    """Return the new value; raises Invalid when it is the old one."""
    if not castlog.changes(before, after):
        raise castlog.Invalid(f"the payload of seq {event.seq} is as it was; nothing was forked", seq=event.seq)
    return after


def _payload(event: castlog.Event) -> Any:
    """Return the payload as it is stored, in its own schema."""
    if event.redacted:
        raise castlog.Invalid(f"the payload of seq {event.seq} was redacted; it cannot be edited", seq=event.seq)
    return json.loads(event.raw)


def _edit(path: Path) -> None:
    command = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "vi")
    done = subprocess.run(f"{command} {shlex.quote(str(path))}", shell=True, check=False)  # noqa: S602 - as git runs it
    if done.returncode:
        raise castlog.Invalid(f"the editor ({command}) ended with exit code {done.returncode}; nothing was forked")


def _asked_again(error: castlog.Invalid) -> bool:
    """Return whether a person who is there wants to go on editing."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return click.confirm(f"castlog: {clean(str(error))}\nEdit it again?", default=True, err=True)
