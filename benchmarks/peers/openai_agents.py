"""The sessions of the OpenAI Agents SDK: SQLiteSession, and AdvancedSQLiteSession, which has branches.

Both put their database into WAL mode and leave `synchronous` at SQLite's default, FULL, so an item is durable. They are
asynchronous and do their work in a thread: that is part of what they cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from benchmarks.peers.base import Base
from benchmarks.workload import Event


class Agents(Base):
    """An item an event."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._loop = asyncio.new_event_loop()
        self._session = self._open(str(number), folder / "agents.db")

    def append(self, events: Sequence[Event]) -> None:
        """Add the events' payloads as items."""
        self._loop.run_until_complete(self._session.add_items([_item(event) for event in events]))

    def replay(self) -> Iterator[Any]:
        """Get all items; there is no way to get them one by one."""
        yield from self._loop.run_until_complete(self._session.get_items())

    def close(self) -> None:
        """Close the session."""
        self._session.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _open(self, name: str, path: Path) -> Any:
        return SQLiteSession(name, path)


class AdvancedAgents(Agents):
    """The same with branches, which are copies of the messages."""

    def fork(self, name: str) -> None:
        """Branch from the last user turn, and go back to the main branch."""
        self._loop.run_until_complete(self._branch(name))

    def _open(self, name: str, path: Path) -> Any:
        return AdvancedSQLiteSession(session_id=name, db_path=path, create_tables=True)

    async def _branch(self, name: str) -> None:
        turns = await self._session.get_conversation_turns()
        await self._session.create_branch_from_turn(turns[-1]["turn"], name)
        await self._session.switch_to_branch("main")


def _item(event: Event) -> dict[str, Any]:
    """Return the event as a message: a turn starts at each note, since only what a user said can be branched from."""
    return {"role": "user" if event.type in ("note", "user_message") else "assistant", "content": event.payload}
