"""What an import has to say: a line for each file, and the sum of them. Values only; nothing here reads or writes."""

from __future__ import annotations

import msgspec


class Damage(msgspec.Struct, frozen=True):
    """A stretch of a file that is no record: where its first odd byte stands, and what is wrong with it.

    `line` counts from 1, `offset` from 0. Both are 0 when the file as a whole could not be read.
    """

    line: int
    offset: int
    reason: str


class FileReport(msgspec.Struct, frozen=True):
    """What became of one file.

    `rev` is the revision whose export in the source format, from seq `start` on, gives the file's bytes back. `events`
    is how many events the file holds, `added` how many of them were not there before. `status` is `new`, `grown`,
    `unchanged`, `rewritten` or `skipped`.
    """

    path: str
    format: str | None
    status: str
    rev: str | None = None
    session_id: str | None = None
    events: int = 0
    added: int = 0
    damaged: tuple[Damage, ...] = ()
    note: str = ""
    start: int = 1


class ImportReport(msgspec.Struct):
    """What an import did, file by file, in the order of their paths."""

    files: list[FileReport] = []

    @property
    def added(self) -> int:
        """How many events were written."""
        return sum(file.added for file in self.files)

    @property
    def damaged(self) -> int:
        """How many damaged stretches were met, in files kept and files that could not be read."""
        return sum(len(file.damaged) for file in self.files)

    @property
    def ok(self) -> bool:
        """Whether everything was taken in whole."""
        return not self.damaged
