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
_NO_DESCRIPTOR = -1

_fstat = os.fstat


class Watch:
    """Remembers one file in one folder.

    It asks the folder, not the file: the folder's change time tells of every name put, moved or removed in it, of
    its own renaming and removal, and cannot be set back. A look at the file's own times would make Linux (6.13 and
    later) write a new one at the next commit, and that costs a tenth of a durable write. While the change time is
    young another change might get the same one, so then the file is looked at too.
    """

    __slots__ = ("_file", "_folder", "_path", "_place", "_trusted")

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._place = os.path.dirname(self._path)
        self._folder = _NO_DESCRIPTOR
        self._file = _NO_FILE
        # The folder's change time at which the file was in its place, or -1 while there is none to be trusted.
        self._trusted = -1

    def remember(self, status: os.stat_result) -> None:
        """Take the file with this status for the one to watch."""
        self.close()
        self._folder = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = (status.st_dev, status.st_ino)

    def forget(self) -> None:
        """Answer no from now on, until another file is remembered."""
        self._file = _NO_FILE
        self._trusted = -1

    def in_place(self) -> bool:
        """Tell whether the remembered file is still at its path. Costs about half a microsecond."""
        try:
            return _fstat(self._folder).st_ctime_ns == self._trusted or self._look()
        except OSError:
            return False

    def _look(self) -> bool:
        held = _fstat(self._folder)
        folder, file = os.stat(self._place), os.stat(self._path)
        if (file.st_dev, file.st_ino) != self._file:
            return False
        same_folder = (folder.st_dev, folder.st_ino) == (held.st_dev, held.st_ino)
        self._trusted = held.st_ctime_ns if same_folder and _is_past(held.st_ctime_ns) else -1
        return True

    def close(self) -> None:
        """Let go of the folder; the next to be asked is `remember`."""
        self.forget()
        descriptor, self._folder = self._folder, _NO_DESCRIPTOR
        if descriptor != _NO_DESCRIPTOR:
            os.close(descriptor)


def _is_past(change_time: int) -> bool:
    """Tell whether a change made from now on gets another change time."""
    tick = _TICK_NANOSECONDS if change_time % 1_000_000_000 else _WHOLE_SECONDS_NANOSECONDS
    return time.time_ns() - change_time > tick
