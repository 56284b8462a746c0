"""Compaction: the whole store laid out afresh, compressed hard, in a new data file that takes the old one's place.

Everything stays: every event and id, the trash, the reflog, pieces that no event uses. What changes is how it lies.
Small chunks of a timeline become one, open chunks are sealed, and chunks and pieces share frames that are compressed
with a dictionary trained on the store. What cannot be verified is never rewritten: then nothing changes at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from castlog.core import Core
from castlog.errors import Unavailable
from castlog.event import Progress
from castlog.ops.compact.rewrite import Rewrite

__all__ = ["CompactReport", "run"]


class CompactReport(msgspec.Struct, frozen=True):
    """What a compaction came to, in bytes and counts.

    `before` and `after` are the bytes the store takes where it lies; `raw` those of all chunks and pieces before
    compression; `dictionary` those of the dictionary, 0 for none.
    """

    before: int
    after: int
    raw: int
    chunks: int
    pieces: int
    objects: int
    dictionary: int


def run(core: Core, progress: Callable[[Progress], None] | None) -> CompactReport:
    """Rewrite a store and return what that came to; durable on return, and on failure nothing has changed.

    Raises Corrupt naming what cannot be verified, Conflict when another compaction is at it, Unavailable when the
    system refuses something. Memory grows with the store by some hundred bytes for each 64 KiB of events and each 4 KiB
    of large payloads.
    """
    before = core.engine.stored_bytes()
    folder: Path | None = getattr(core.engine, "path", None)  # an engine in memory has none
    rewrite = Rewrite(core.objects.secret, progress, folder)
    try:
        core.engine.replace(rewrite.rows)
    except OSError as error:
        if error is rewrite.refused:
            raise
        raise _refused(error) from error
    finally:
        rewrite.close()
    done = rewrite.done
    return CompactReport(
        before, core.engine.stored_bytes(), done.raw, done.chunks, done.pieces, done.objects, done.dictionary
    )


def _refused(error: OSError) -> Unavailable:
    """Return what to say when the system refuses something a compaction needs."""
    what = f"{error.filename}: " if error.filename else ""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Unavailable(f"the store cannot be compacted now: {what}{reason}", errno=error.errno)
