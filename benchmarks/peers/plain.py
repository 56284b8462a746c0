"""Raw LMDB, a JSON Lines file, SQLite: the floor under everybody. No ids, no branches, no checks on reading."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb

from benchmarks.peers.base import Base, decode, encode, line
from benchmarks.workload import Event


class RawLmdb(Base):
    """One value an event, under the writer's number and its own. Durable by LMDB's defaults: two flushes a commit."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._environment = lmdb.open(str(folder), map_size=1 << 36)
        self._prefix = number.to_bytes(8, "big")
        self._count = 0

    def append(self, events: Sequence[Event]) -> None:
        """Put the events in one transaction."""
        self.put([line(event) for event in events])

    def put(self, encoded: Sequence[bytes]) -> None:
        """Put bytes in one transaction."""
        with self._environment.begin(write=True) as txn:
            for each in encoded:
                self._count += 1
                txn.put(self._key(self._count), each)

    def replay(self) -> Iterator[Any]:
        """Scan and decode."""
        with self._environment.begin() as txn:
            for _, value in txn.cursor():
                yield decode(value)[2]

    def read(self, number: int) -> Any:
        """Get and decode."""
        with self._environment.begin(buffers=True) as txn:
            found = txn.get(self._key(number))
            assert found is not None
            return decode(found)[2]

    def fork(self, name: str) -> None:
        """Put a row of the size of a reference: what a fork costs at least."""
        with self._environment.begin(write=True) as txn:
            txn.put(name.encode(), b"x" * 100)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _key(self, number: int) -> bytes:
        return self._prefix + number.to_bytes(8, "big")


class JsonLines(Base):
    """A line an event in a file a writer, and an fsync an append."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._path = folder / f"events-{number}.jsonl"
        self._file = open(self._path, "ab")  # noqa: SIM115 - closed in close

    def append(self, events: Sequence[Event]) -> None:
        """Write the lines and flush them to the disk."""
        self._file.write(b"".join(line(event) + b"\n" for event in events))
        self._file.flush()
        os.fsync(self._file.fileno())

    def replay(self) -> Iterator[Any]:
        """Read and decode line by line."""
        with open(self._path, "rb") as file:
            for each in file:
                yield decode(each)[2]

    def fork(self, name: str) -> None:
        """Copy the file."""
        copy = self._path.with_name(name)
        shutil.copyfile(self._path, copy)
        with open(copy, "rb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Sqlite(Base):
    """A row an event, in WAL mode with synchronous=FULL, which flushes at each commit."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._writer = number
        self._connection = sqlite3.connect(
            folder / "events.db", isolation_level=None, check_same_thread=False, timeout=60
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS events"
            " (seq INTEGER PRIMARY KEY, writer INTEGER, type TEXT, call_id TEXT, payload BLOB)"
        )

    def append(self, events: Sequence[Event]) -> None:
        """Insert the rows in one transaction."""
        rows = [(self._writer, event.type, event.call_id, encode(event.payload)) for event in events]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO events (writer, type, call_id, payload) VALUES (?, ?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def replay(self) -> Iterator[Any]:
        """Select and decode row by row."""
        for (payload,) in self._connection.execute("SELECT payload FROM events ORDER BY seq"):
            yield decode(payload)

    def read(self, number: int) -> Any:
        """Select and decode one row."""
        row = self._connection.execute("SELECT payload FROM events WHERE seq = ?", (number,)).fetchone()
        return decode(row[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
