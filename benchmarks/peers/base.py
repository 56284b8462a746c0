"""What every peer must do, and what several of them share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from benchmarks.workload import Event

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Peer(Protocol):
    """A store of events that is appended to and read from the start.

    `appends_max` limits how many appends it is given where each of them rewrites the history.
    """

    appends_max: ClassVar[int | None]

    def append(self, events: Sequence[Event]) -> None:
        """Add events; durable on return."""

    def replay(self) -> Iterator[Any]:
        """Yield every payload, decoded."""

    def read(self, number: int) -> Any:
        """Return the decoded payload of the event with this number, from 1."""

    def fork(self, name: str) -> None:
        """Make something that goes on from here apart from the rest; durable on return."""

    def finish(self) -> None:
        """Do what its users do at the end of a session to make it small."""

    def close(self) -> None:
        """Release it."""


class PeerMaker(Protocol):
    """Opens a peer in a folder; writers with other numbers may share it, each with a log of its own."""

    appends_max: ClassVar[int | None]

    def __call__(self, folder: Path, number: int = 0) -> Peer:
        """Open it."""


class Base:
    """A peer that cannot do the rest."""

    appends_max: ClassVar[int | None] = None

    def read(self, number: int) -> Any:
        """Refuse: it is not asked to."""
        raise NotImplementedError

    def fork(self, name: str) -> None:
        """Refuse: it has no forks."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do nothing: it is as small as it gets."""


def can(kind: object, call: str) -> bool:
    """Return whether a class of peer does what the base refuses."""
    return getattr(kind, call) is not getattr(Base, call)


def line(event: Event) -> bytes:
    """Return the event as JSON, without a newline."""
    return encode((event.type, event.call_id, event.payload))


def bytes_of(folder: Path) -> int:
    """Return the bytes of all files below a folder, but for locks, which hold no data."""
    files = (path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return sum(os.stat(path).st_size for path in files)
