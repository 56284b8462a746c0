"""Compressing frames: in threads, each read back before it counts, and none twice.

A file is built once more, with writers waiting, when somebody wrote meanwhile. What was compressed the first time is
kept until then in a temporary file, so that the second time costs little more than reading. Threads and that file are
conveniences: where the system has none to give, all goes on without.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

from castlog import limits
from castlog.errors import Corrupt
from castlog.format import objects as fmt

Frame = tuple[int, bytes]
"""A frame's kind and uncompressed bytes."""


class Press:
    """Compresses frames with one dictionary or none; remembers what it did in `folder`. Close it at the end."""

    def __init__(self, secret: bytes, dictionary: fmt.Dictionary | None, folder: Path | None = None) -> None:
        self.dictionary = dictionary
        self._secret = secret
        self._kept = _Kept(folder)
        self._alone = False  # no thread could be started

    def close(self) -> None:
        """Forget what was compressed."""
        self._kept.close()

    def objects(self, frames: Iterable[Frame]) -> Iterator[tuple[bytes, int]]:
        """Yield each frame's object and the length of its uncompressed bytes, in order."""
        threads = min(os.cpu_count() or 1, limits.COMPACT_THREADS_MAX)
        waiting: deque[tuple[Future[bytes], bytes, int]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            try:
                for kind, data in frames:
                    digest = fmt.digest(self._secret, kind, data)
                    work = partial(self._press, kind, data, digest, self._kept.find(digest))
                    waiting.append((self._begun(pool, work), digest, len(data)))
                    if len(waiting) > 2 * threads:
                        yield self._taken(*waiting.popleft())
                while waiting:
                    yield self._taken(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _begun(self, pool: ThreadPoolExecutor, work: Callable[[], bytes]) -> Future[bytes]:
        """Hand work to a thread; do it at once where none can be started."""
        if not self._alone:
            try:
                return pool.submit(work)
            except RuntimeError:  # what Python says when the system refuses one
                self._alone = True
        done: Future[bytes] = Future()
        done.set_result(work())
        return done

    def _taken(self, future: Future[bytes], digest: bytes, length: int) -> tuple[bytes, int]:
        blob = future.result()
        self._kept.add(digest, blob)
        return blob, length

    def _press(self, kind: int, data: bytes, digest: bytes, known: bytes | None) -> bytes:
        """Return an object that was read back: the bytes it is made of are soon nowhere else."""
        if known is not None and self._reads_back(known, digest):
            return known
        blob = fmt.encode(self._secret, kind, data, level=fmt.COMPACT_LEVEL, dictionary=self.dictionary)
        if not self._reads_back(blob, digest):
            raise Corrupt("an object does not read back as it was written; suspect the memory of this machine")
        return blob

    def _reads_back(self, blob: bytes, digest: bytes) -> bool:
        try:
            return fmt.decode(self._secret, blob, self._load).digest == digest
        except Corrupt:
            return False

    def _load(self, number: int) -> fmt.Dictionary:
        return self.dictionary or fmt.no_dictionary(number)


class _Kept:
    """Objects by their digests, in a file without a name. Without room for them nothing is kept, and all goes on."""

    def __init__(self, folder: Path | None) -> None:
        self._file = _nameless(folder)
        self._places: dict[bytes, tuple[int, int]] = {}
        self._end = 0

    def add(self, digest: bytes, blob: bytes) -> None:
        """Keep an object unless it is there."""
        if self._file is None or digest in self._places or self._end + len(blob) > limits.COMPACT_KEPT_BYTES:
            return
        try:
            written = os.pwrite(self._file.fileno(), blob, self._end)
        except OSError:
            return
        if written == len(blob):
            self._places[digest] = (self._end, written)
            self._end += written

    def find(self, digest: bytes) -> bytes | None:
        """Return an object, or None."""
        place = self._places.get(digest)
        if self._file is None or place is None:
            return None
        try:
            return os.pread(self._file.fileno(), place[1], place[0])
        except OSError:
            return None

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            self._file.close()


def _nameless(folder: Path | None) -> BinaryIO | None:
    """Return a new file without a name in a folder, or else in the temporary one; None where neither can be had."""
    for place in (None,) if folder is None else (folder, None):
        try:
            return tempfile.TemporaryFile(dir=place)
        except OSError:
            continue
    return None
