"""A foreign file as a stream of bytes: opened, decompressed if need be, read again from any offset.

Offsets are those of the content: for a compressed file, of what it holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import zstandard

CHUNK_BYTES = 1024 * 1024
_PACKED_BYTES = 4096  # a hostile frame grows each byte to some 40 KB: little is unpacked at once
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Source:
    """One file to import. `fault` says why the content ends early, if it does; `consumed` counts bytes read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        found = path.stat()
        self.size = found.st_size
        self.mtime = found.st_mtime_ns
        self.fault = ""
        self.consumed = 0
        with path.open("rb") as file:
            self.compressed = file.read(len(_ZSTD_MAGIC)) == _ZSTD_MAGIC

    @property
    def stem(self) -> str:
        """The file's name without the extensions of a transcript."""
        stem = self.name.removesuffix(".zst")
        return stem.removesuffix(".ndjson") if stem.endswith(".ndjson") else stem.removesuffix(".jsonl")

    def chunks(self, offset: int = 0) -> Iterator[bytes]:
        """Yield the content from `offset` on in parts of moderate size."""
        self.consumed = 0
        if self.compressed:
            yield from _skip(self._unpacked(), offset)
            return
        with self.path.open("rb") as file:
            file.seek(offset, os.SEEK_SET)
            self.consumed = offset
            while chunk := file.read(CHUNK_BYTES):
                self.consumed += len(chunk)
                yield chunk

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes of the content, fewer if it is shorter."""
        parts: list[bytes] = []
        missing = size
        for chunk in self.chunks():
            parts.append(chunk[:missing])
            missing -= len(parts[-1])
            if not missing:
                break
        return b"".join(parts)

    def contains(self, needle: bytes) -> bool:
        """Return whether the content holds `needle`, without keeping more than a part of it."""
        kept = b""
        for chunk in self.chunks():
            if needle in kept + chunk:
                return True
            kept = chunk[-len(needle) + 1 :] if len(needle) > 1 else b""
        return False

    def starts_with(self, parts: Iterator[bytes], offset: int) -> bool:
        """Return whether the content from `offset` on begins with the bytes of `parts`."""
        have = b""
        chunks = self.chunks(offset)
        for part in parts:
            while len(have) < len(part):
                chunk = next(chunks, b"")
                if not chunk:
                    return False
                have += chunk
            if not have.startswith(part):
                return False
            have = have[len(part) :]
        return True

    def _unpacked(self) -> Iterator[bytes]:
        """Yield the content of a zstd file of one or more frames."""
        self.fault = ""
        with self.path.open("rb") as file:
            frame = None
            try:
                while packed := file.read(_PACKED_BYTES):
                    self.consumed += len(packed)
                    while packed:
                        if frame is None:
                            frame = zstandard.ZstdDecompressor().decompressobj()
                        yield frame.decompress(packed)
                        packed = frame.unused_data if frame.eof else b""
                        frame = None if frame.eof else frame
            except zstandard.ZstdError as exc:
                self.fault = f"the compressed stream is damaged: {exc}"
                return
            if frame is not None:
                self.fault = "the compressed stream ends early"


def _skip(chunks: Iterator[bytes], offset: int) -> Iterator[bytes]:
    """Yield what follows the first `offset` bytes, leaving out empty parts."""
    for chunk in chunks:
        if offset < len(chunk):
            yield chunk[offset:]
            offset = 0
        else:
            offset -= len(chunk)
