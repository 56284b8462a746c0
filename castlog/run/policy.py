"""When a run keeps its state as a snapshot."""

from __future__ import annotations

import msgspec


class Every(msgspec.Struct, frozen=True):
    """Keep a snapshot after so many events or so many seconds, whichever comes first; None is never.

    Snapshots are made before a step, of the state it begins with, so that a restart folds no more than this.
    """

    events: int | None = 200
    seconds: float | None = 300

    def due(self, events: int, nanoseconds: int) -> bool:
        """Return whether it is time, so many events and nanoseconds after the last."""
        if events <= 0:
            return False
        by_count = self.events is not None and events >= self.events
        return by_count or (self.seconds is not None and nanoseconds >= self.seconds * 1e9)
