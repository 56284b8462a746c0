"""What a verb is given: where to write, how long it may take, and whom to tell how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.bars import BARS, Bar

T = TypeVar("T")


class Run(msgspec.Struct, frozen=True):
    """One call of a verb. `rounds` overrides how often it measures; `corpus` is a folder of transcripts."""

    folder: Path
    quick: bool
    rounds: int | None
    corpus: Path | None
    peers: Sequence[str]
    tell: Callable[[str], None]

    def size(self, quick: T, full: T) -> T:
        """Return the size of this run's work."""
        return quick if self.quick else full

    def times(self, quick: int, full: int) -> int:
        """Return how often this run measures."""
        return self.rounds or self.size(quick, full)

    def bar(self, key: str, *, full_only: bool = False) -> Bar | None:
        """Return the bar of a row, if it has one; none in a quick run for work that is as large as the bar says."""
        return None if full_only and self.quick else BARS.get(key)

    def place(self, name: str) -> Path:
        """Make a folder for one store."""
        path = self.folder / name
        path.mkdir(parents=True)
        return path


class Teller:
    """Shows on a terminal's stderr what is being done, on one line that is written over."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self.verb = ""

    def __call__(self, words: str) -> None:
        """Show where the verb is."""
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{self.verb}: {words}"[:200])
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
