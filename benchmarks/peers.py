"""What people would use instead: raw LMDB, a JSON Lines file, SQLite. Each keeps events durably, and nothing else.

They do less than castlog: no ids, no branches, no checks on reading. They are the floor, not rivals.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import lmdb
import msgspec

from benchmarks.workload import Event

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Peer(Protocol):
    """A store of events that is appended to and read from the start."""

    def append(self, events: Sequence[Event]) -> None:
        """Add events; durable on return."""

    def replay(self) -> Iterator[Any]:
        """Yield every payload, decoded."""

    def close(self) -> None:
        """Release it."""


class RawLmdb:
    """One value an event, under its number."""

    def __init__(self, folder: Path) -> None:
        self._environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 34)
        self._count = 0

    def append(self, events: Sequence[Event]) -> None:
        """Put the events in one transaction."""
        with self._environment.begin(write=True) as txn:
            for event in events:
                self._count += 1
                txn.put(self._count.to_bytes(8, "big"), _line(event))

    def replay(self) -> Iterator[Any]:
        """Scan and decode."""
        with self._environment.begin() as txn:
            for _, value in txn.cursor():
                yield _decode(value)[2]

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class JsonLines:
    """A line an event, and an fsync an append."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.jsonl"
        self._file = open(self._path, "ab")  # noqa: SIM115 - closed in close

    def append(self, events: Sequence[Event]) -> None:
        """Write the lines and flush them to the disk."""
        self._file.write(b"".join(_line(event) + b"\n" for event in events))
        self._file.flush()
        os.fsync(self._file.fileno())

    def replay(self) -> Iterator[Any]:
        """Read and decode line by line."""
        with open(self._path, "rb") as file:
            for line in file:
                yield _decode(line)[2]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Sqlite:
    """A row an event, in WAL mode with full synchronisation."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "events.db", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, type TEXT, call_id TEXT, payload BLOB)")

    def append(self, events: Sequence[Event]) -> None:
        """Insert the rows in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        rows = ((event.type, event.call_id, _encode(event.payload)) for event in events)
        self._connection.executemany("INSERT INTO events (type, call_id, payload) VALUES (?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def replay(self) -> Iterator[Any]:
        """Select and decode row by row."""
        for (payload,) in self._connection.execute("SELECT payload FROM events ORDER BY seq"):
            yield _decode(payload)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _line(event: Event) -> bytes:
    return _encode((event.type, event.call_id, event.payload))


PEERS: dict[str, type[RawLmdb] | type[JsonLines] | type[Sqlite]] = {
    "lmdb": RawLmdb,
    "jsonl": JsonLines,
    "sqlite": Sqlite,
}
