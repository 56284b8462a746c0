"""Progress over many files, told to the caller no more than ten times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from castlog import Progress
from castlog.transcripts.source import Source

_SECONDS_BETWEEN = 0.1


class Meter:
    """Counts bytes done out of a total."""

    def __init__(self, report: Callable[[Progress], None] | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = 0
        self._told = 0.0

    def file_done(self, name: str, size: int) -> None:
        """Count a whole file as done."""
        self._done += size
        self._tell(self._done, name)

    def watch(self, source: Source, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass a file's chunks through, telling how far they have come."""
        for chunk in chunks:
            self._tell(self._done + source.consumed, source.name)
            yield chunk

    def end(self) -> None:
        """Tell that all is done."""
        self._told = 0.0
        self._tell(self._total, "")

    def _tell(self, done: int, item: str) -> None:
        now = time.monotonic()
        if self._report is not None and now - self._told >= _SECONDS_BETWEEN:
            self._told = now
            self._report(Progress(min(done, self._total), self._total, "bytes", item))
