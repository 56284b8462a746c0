"""Events just written, as the append that wrote them returns them: nothing is read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from castlog.format import codec
from castlog.history.writer import Entry


class Written:
    """What was just written, as the source of the events an append returns."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def raw(self, index: int) -> bytes:
        """Return the payload bytes of the event at `index`."""
        return self._entries[index].payload

    def payload(self, index: int) -> Any:
        """Return the payload of the event at `index`, decoded anew: the caller's object may change."""
        return codec.decode(self._entries[index].payload)

    def event_id(self, index: int) -> bytes:
        """Return the 32-byte id of the event at `index`."""
        return self._entries[index].tail.id

    def size(self, index: int) -> int:
        """Return the length of the payload in bytes."""
        return len(self._entries[index].payload)

    def commitment(self, index: int) -> bytes:
        """Return the commitment the event's id covers."""
        return self._entries[index].commitment

    def locked(self, index: int) -> bool:
        """Return False: nothing is written encrypted yet."""
        return False

    def redacted(self, index: int) -> bool:
        """Return False: what was just written is whole."""
        return False
