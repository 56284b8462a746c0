"""Telling cheaply whether the data file at a path is still the one that is open.

A store may be replaced under an open handle, or deleted; commits would then go into a file without a name and report
success. So every transaction asks here first, and every commit once more.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# Kernels stamp changes with a clock that ticks every 1 to 10 ms.
# File systems that keep whole seconds round to two at worst.
_TICK_NANOSECONDS = 100_000_000
_WHOLE_SECONDS_NANOSECONDS = 2_500_000_000
_NO_FILE = (-1, -1)

_stat = os.stat


class Watch:
    """Remembers one file in one folder.

    It asks the folder, not the file: the folder's change time tells of every name put, moved or removed in it and
    cannot be set back. A look at the file's own times would make Linux (6.13 and later) write a new one at the next
    commit, and that costs a tenth of a durable write. While the change time is young another change might get the
    same one, so then the file is looked at too.
    """

    __slots__ = ("_file", "_folder", "_folder_inode", "_path", "_trusted")

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._folder = str(path.parent)
        self._folder_inode = -1
        self._file = _NO_FILE
        # The folder's change time at which the file was in its place, or -1 while there is none to be trusted.
        self._trusted = -1

    def remember(self, status: os.stat_result) -> None:
        """Take the file with this status for the one to watch."""
        self._file = (status.st_dev, status.st_ino)
        self._trusted = -1

    def forget(self) -> None:
        """Answer no from now on, until another file is remembered."""
        self._file = _NO_FILE
        self._trusted = -1

    def in_place(self) -> bool:
        """Tell whether the remembered file is still at its path. Costs about a microsecond."""
        try:
            status = _stat(self._folder)
            if status.st_ctime_ns == self._trusted and status.st_ino == self._folder_inode:
                return True
            there = _stat(self._path)
        except OSError:
            return False
        if (there.st_dev, there.st_ino) != self._file:
            return False
        self._folder_inode = status.st_ino
        self._trusted = status.st_ctime_ns if _is_past(status.st_ctime_ns) else -1
        return True


def _is_past(change_time: int) -> bool:
    """Tell whether a change made from now on gets another change time."""
    tick = _TICK_NANOSECONDS if change_time % 1_000_000_000 else _WHOLE_SECONDS_NANOSECONDS
    return time.time_ns() - change_time > tick
