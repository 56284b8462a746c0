"""Files written for people: whole or not at all, readable by their owner alone, and never over something unasked."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import castlog


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[BinaryIO]:
    """Give a file that takes its name when the block is done; after an error nothing is left of it.

    What is no regular file, such as a pipe or /dev/null, is written to as it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as special:
            yield special
        return
    if os.path.lexists(path) and not force:
        raise castlog.Conflict(f"{path} exists already", path=str(path), hint="Choose another name, or add --force.")
    if not path.parent.is_dir():
        hint = f"Make it first: mkdir -p {shlex.quote(str(path.parent))}"
        raise castlog.NotFound(f"there is no folder {path.parent}", path=str(path.parent), hint=hint)
    with _naming(path.parent):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """Give an empty folder that takes its name when the block is done; after an error nothing is left of it.

    With `force` a folder that holds something keeps it, except for what has the name of something written now.
    """
    if os.path.lexists(path) and not path.is_dir():
        raise castlog.Conflict(f"{path} is a file, not a folder", path=str(path), hint="Choose another name.")
    filled = path.is_dir() and any(path.iterdir())
    if filled and not force:
        raise castlog.Conflict(
            f"{path} is not empty",
            path=str(path),
            hint="Choose another folder, or add --force to replace what is named alike.",
        )
    parent = path.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    with _naming(parent):
        work = Path(tempfile.mkdtemp(prefix=f".{path.name[:50]}.", dir=parent))
    try:
        made = work / "new"
        made.mkdir(mode=0o700)
        yield made
        if filled:
            for item in sorted(made.iterdir()):
                _swap(item, path / item.name, work)
        else:
            os.replace(made, path.resolve())
    finally:
        shutil.rmtree(work, ignore_errors=True)


def private(path: Path) -> BinaryIO:
    """Open a new file for writing that only its owner can read."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Let an error name the folder written to rather than a file nobody asked for."""
    try:
        yield
    except OSError as error:
        error.filename = str(folder)
        raise


def _swap(new: Path, place: Path, work: Path) -> None:
    """Put `new` in its place; what was there goes the way of the working folder."""
    if os.path.lexists(place):
        os.replace(place, work / f"old-{place.name}")
    os.replace(new, place)
