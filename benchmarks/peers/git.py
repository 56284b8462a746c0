"""Git through pygit2: a commit an append, whose tree holds the new events. Branches are references.

libgit2 does not flush by default. `enable_fsync_gitdir` makes it flush every object and reference it writes, which is
the nearest it has to git's own core.fsync; without it a power cut can lose what was acknowledged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import FileMode, SortMode

from benchmarks.peers.base import Base, decode, line
from benchmarks.workload import Event

_FILE = "events.jsonl"


class Git(Base):
    """A bare repository, a branch a writer."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        pygit2.settings.enable_fsync_gitdir(True)
        self._folder = folder / "repository"
        self._repository = pygit2.init_repository(str(self._folder), bare=True)
        self._reference = f"refs/heads/writer-{number}"
        self._author = pygit2.Signature("benchmark", "benchmark@example.com", 1_750_000_000, 0)
        self._head: Any = None

    def append(self, events: Sequence[Event]) -> None:
        """Commit a tree with the events in one file."""
        blob = self._repository.create_blob(b"".join(line(event) + b"\n" for event in events))
        builder = self._repository.TreeBuilder()
        builder.insert(_FILE, blob, FileMode.BLOB)
        parents = [] if self._head is None else [self._head]
        self._head = self._repository.create_commit(
            self._reference, self._author, self._author, "append", builder.write(), parents
        )

    def replay(self) -> Iterator[Any]:
        """Walk from the first commit to the head."""
        for commit in self._repository.walk(self._head, SortMode.TOPOLOGICAL | SortMode.REVERSE):
            for each in self._repository[commit.tree[_FILE].id].data.splitlines():
                yield decode(each)[2]

    def fork(self, name: str) -> None:
        """Make a reference."""
        self._repository.references.create(f"refs/heads/{name}", self._head)

    def finish(self) -> None:
        """Pack everything with deltas and drop the loose objects, as `git gc` does."""
        self._repository.pack()
        for loose in (self._folder / "objects").iterdir():
            if len(loose.name) == 2:
                shutil.rmtree(loose)

    def close(self) -> None:
        """Free the repository."""
        self._repository.free()
