"""Which store a command works on: `--store`, `CASTLOG_STORE`, `.castlog` here or above, `~/.castlog`.

A `.castlog` that belongs to somebody else is passed over: a store decides what is shown and where appends go, and a
shared folder such as /tmp must not decide that for us.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import castlog

NAME = ".castlog"
VARIABLE = "CASTLOG_STORE"


def find(given: str | None, note: Callable[[str], None]) -> str:
    """Return the target to open; it may not exist yet. `note` is told of a store that was passed over."""
    named = given if given is not None else os.environ.get(VARIABLE)
    if named == "":
        raise castlog.Invalid("the store's path is empty", hint=f"Give --store PATH, or unset {VARIABLE}.")
    return os.path.expanduser(named) if named else str(_above(Path.cwd(), note) or Path.home() / NAME)


def open_store(
    target: str, note: Callable[[str], None], *, create: bool = False, read_only: bool = False
) -> castlog.Store:
    """Open what `find` returned; `note` is told of a store made here. Where none may be made, say how to make one."""
    if create:
        store, made = make(target)
        if made:
            note(f"Made a store in {shown(target)}")
        return store
    try:
        return castlog.open(target, create=False, read_only=read_only)
    except castlog.NotFound as error:
        raise castlog.NotFound(str(error), **error.facts, hint=_HOW) from error


def make(target: str) -> tuple[castlog.Store, bool]:
    """Open a store for writing, and make it first if nothing is there; the second value says whether it was made.

    A `.gitignore` of `*` is put inside.
    """
    path = folder(target)
    existed = exists(target)
    if path is not None and path.is_dir() and any(path.iterdir()) and not existed:
        raise castlog.Invalid(
            f"{path} holds other files and no store",
            path=str(path),
            hint=f"A store wants a folder of its own: castlog init {path / NAME}",
        )
    store = castlog.open(target)
    if path is not None:
        ignore = path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
            ignore.chmod(0o600)
    return store, not existed


def exists(target: str) -> bool:
    """Return whether a store is there, whole or not."""
    try:
        castlog.open(target, create=False, read_only=True).close()
    except castlog.NotFound:
        return False
    except castlog.Error:
        return True  # something is there; opening it for real says what is wrong with it
    return True


def folder(target: str) -> Path | None:
    """Return the folder a target names, or None for a store that lies in none."""
    if target == "memory:":
        return None
    return Path(target.removeprefix("lmdb:"))


def shown(target: str) -> str:
    """Return a target as people are told of it: a folder with its whole path."""
    path = folder(target)
    return str(path.absolute()) if path else target


_HOW = "Make one with: castlog init. Or name one with --store PATH or CASTLOG_STORE."


def _above(start: Path, note: Callable[[str], None]) -> Path | None:
    for place in (start, *start.parents):
        candidate = place / NAME
        if candidate.is_dir():
            if _ours(candidate):
                return candidate
            note(f"passed over {candidate}: it belongs to another user (name it with --store to use it)")
    return None


def _ours(path: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return path.stat().st_uid == path.lstat().st_uid == os.getuid()
