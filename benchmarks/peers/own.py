"""castlog behind the calls of a peer, through its public interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import castlog
from benchmarks.peers.base import Base
from benchmarks.workload import Event


class Castlog(Base):
    """A session whose writers have a branch each; number 0 writes on `main`."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.store = castlog.open(folder / "store")
        self.session = self.store.create_session("benchmark", origin="benchmark", exist_ok=True)
        self.branch = self.session.branch("main")
        if number:
            self.branch = self.branch.fork(f"writer-{number}")

    def append(self, events: Sequence[Event]) -> None:
        """Append one event as a harness does, several as one commit."""
        if len(events) == 1:
            event = events[0]
            self.branch.append(event.type, event.payload, call_id=event.call_id)
        else:
            self.branch.extend(events)

    def replay(self) -> Iterator[Any]:
        """Decode along the branch."""
        for event in self.branch.events():
            yield event.payload

    def read(self, number: int) -> Any:
        """Read by seq."""
        return self.branch.read(number).payload

    def fork(self, name: str) -> None:
        """Fork at the head."""
        self.branch.fork(name)

    def finish(self) -> None:
        """Seal the newest events."""
        self.branch.seal()

    def close(self) -> None:
        """Close the store."""
        self.store.close()
