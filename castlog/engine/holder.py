"""Who holds a record lock: what the kernel tells about the locks of other processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys

NOBODY = 0
UNNAMED = -1

# `struct flock` of the systems whose layout is known: how to ask the kernel who holds a lock.
_LAYOUT = {"linux": ("hhqqi4x", (0, 1, 2, 3, 4)), "darwin": ("qqihh", (3, 4, 0, 1, 2))}.get(sys.platform)


def holder(descriptor: int, how: int, byte: int) -> int | None:
    """Return the other process that holds a lock which keeps `how` away: `NOBODY`, or `UNNAMED` where it is one that
    has no number here, as in another container. None when this system cannot be asked.
    """
    if _LAYOUT is None:
        return None
    layout, places = _LAYOUT
    kind = fcntl.F_WRLCK if how & fcntl.LOCK_EX else fcntl.F_RDLCK
    values = dict(zip(places, (kind, os.SEEK_SET, byte, 1, 0), strict=True))
    question = struct.pack(layout, *(values[n] for n in range(5)))
    with contextlib.suppress(OSError):
        answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
        if answer[places[0]] == fcntl.F_UNLCK:
            return NOBODY
        return int(answer[places[4]]) if answer[places[4]] > 0 else UNNAMED
    return None
