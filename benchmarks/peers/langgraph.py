"""LangGraph's SqliteSaver, called as a compiled graph calls it: one checkpoint of the whole state a step.

It puts its database into WAL mode and leaves `synchronous` at SQLite's default, FULL, so a checkpoint is durable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.peers.base import Base
from benchmarks.workload import Event


class LangGraph(Base):
    """A thread whose state is the list of messages so far. A model request is a view of that state, not an addition."""

    appends_max: ClassVar[int | None] = 60

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False, timeout=60)
        self._saver = SqliteSaver(self._connection)
        self._config: Any = {"configurable": {"thread_id": str(number), "checkpoint_ns": ""}}
        self._start = self._config
        self._messages: list[Any] = []
        self._step = 0

    def append(self, events: Sequence[Event]) -> None:
        """Take one step."""
        self._messages += [event.payload for event in events if event.type != "model_request"]
        self._step += 1
        self._config = self._put({"source": "loop", "step": self._step, "parents": {}})

    def replay(self) -> Iterator[Any]:
        """Take the last checkpoint and go through its messages."""
        found = self._saver.get_tuple(self._start)
        if found is not None:
            yield from found.checkpoint["channel_values"]["messages"]

    def fork(self, name: str) -> None:
        """Write the state once more under the checkpoint it comes from, as `update_state` does."""
        self._put({"source": "fork", "step": self._step, "parents": {}})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _put(self, metadata: Any) -> Any:
        version: dict[str, str | int | float] = {"messages": self._step}
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"messages": self._messages},
            "channel_versions": version,
        }
        return self._saver.put(self._config, checkpoint, metadata, version)
