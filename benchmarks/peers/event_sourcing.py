"""The eventsourcing package: an aggregate whose events are the log, on its own SQLite module.

It puts its database into WAL mode and leaves `synchronous` at SQLite's default, FULL, so an event is durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from benchmarks.peers.base import Base
from benchmarks.workload import Event


class Log(Aggregate):
    """What is appended to. It keeps no state: the events are all there is."""

    @event("Appended")
    def append(self, kind: str, call_id: str | None, payload: Any) -> None:
        """Record an event."""


class EventSourcing(Base):
    """An application with one aggregate a writer."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._application: Application[UUID] = Application(
            env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}
        )
        self._log = Log()
        self._application.save(self._log)

    def append(self, events: Sequence[Event]) -> None:
        """Trigger the events and save the aggregate."""
        for each in events:
            self._log.append(each.type, each.call_id, each.payload)
        self._application.save(self._log)

    def replay(self) -> Iterator[Any]:
        """Go through the aggregate's events; the first one is its creation."""
        for each in self._application.events.get(self._log.id, gt=1):
            yield each.payload

    def close(self) -> None:
        """Close the application."""
        self._application.close()
