"""The files below a folder, in the order of their paths; what cannot be a transcript is named and never opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from castlog import NotFound

_STORE_FILES = frozenset({"data.mdb", "lock.mdb"})


class Found(NamedTuple):
    """A file, or with `problem` something that is not to be read. `named`: the caller asked for this very file."""

    path: Path
    size: int
    named: bool = False
    problem: str = ""
    lost: bool = False


def find_files(path: Path) -> Iterator[Found]:
    """Yield the file at `path`, or all files below it; raises NotFound when there is nothing.

    Links are followed, but into no folder twice. A store is left alone: opening its lock file would drop our own locks.
    """
    try:
        found = path.stat()
    except OSError as exc:
        raise NotFound(f"there is no file or folder {os.fspath(path)!r}: {exc.strerror}", path=os.fspath(path)) from exc
    if not stat.S_ISDIR(found.st_mode):
        yield _file(path, named=True)
        return
    yield from _below(path, set())


def _below(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Found]:
    try:
        info = folder.stat()
        if (info.st_dev, info.st_ino) in seen:
            return
        seen.add((info.st_dev, info.st_ino))
        names = sorted(os.listdir(folder))
    except OSError as exc:
        yield Found(folder, 0, problem=f"cannot be read: {exc.strerror}", lost=True)
        return
    if not _STORE_FILES.isdisjoint(names):
        yield Found(folder, 0, problem="a castlog store; import what was exported from it")
        return
    for name in names:
        path = folder / name
        if path.is_dir():
            yield from _below(path, seen)
        else:
            yield _file(path)


def _file(path: Path, *, named: bool = False) -> Found:
    try:
        found = path.stat()
    except OSError as exc:
        return Found(path, 0, named, f"cannot be read: {exc.strerror}", lost=not path.is_symlink())
    if not stat.S_ISREG(found.st_mode):
        return Found(path, 0, named, "not a regular file")
    return Found(path, found.st_size, named)
