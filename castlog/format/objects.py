"""Objects: immutable bytes with a kind, a digest and a compressed frame, cut into parts that fill whole pages.

An object's digest is keyed with the store's secret, so that an address confirms no guess about its content. It covers
kind and uncompressed bytes; compression may change, digests may not.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import msgspec
import zstandard
from blake3 import blake3

from castlog import limits
from castlog.errors import Corrupt

# Kinds and codecs. On disk: DO NOT RENUMBER.
CHUNK = 1
PIECE = 2
PACK = 3
SNAPSHOT = 4
STORED = 0
ZSTD = 1

SECRET_BYTES = 32
SEAL_LEVEL = 1

_PREFIX = struct.Struct("<BBHQ32s")  # kind, codec, dictionary, uncompressed length, digest
PREFIX_BYTES = 44
assert _PREFIX.size == PREFIX_BYTES

_PAGE = 4096
_PAGE_HEAD = 16  # what LMDB keeps at the start of a run of overflow pages
PART_BYTES_MAX = limits.PART_PAGES * _PAGE - _PAGE_HEAD

_own = threading.local()  # compressors crash when threads share them; each thread keeps its own


class Object(msgspec.Struct, frozen=True):
    """A decoded object whose digest was checked."""

    kind: int
    digest: bytes
    data: bytes


def digest(secret: bytes, kind: int, data: bytes) -> bytes:
    """Return the 32-byte keyed digest of an object's kind and uncompressed bytes."""
    return blake3(bytes((kind,)) + data, key=secret).digest()


def encode(secret: bytes, kind: int, data: bytes) -> bytes:
    """Return the bytes of an object, compressed where that makes it smaller."""
    frame = _compressor().compress(data)
    codec = ZSTD
    if len(frame) >= len(data):
        codec, frame = STORED, data
    return _PREFIX.pack(kind, codec, 0, len(data), digest(secret, kind, data)) + frame


def decode(secret: bytes, blob: bytes) -> Object:
    """Return the object whose bytes `encode` wrote, its digest checked; raises Corrupt."""
    if len(blob) < PREFIX_BYTES:
        raise Corrupt(f"an object of {len(blob)} bytes is shorter than its prefix")
    kind, codec, dictionary, length, stated = _PREFIX.unpack_from(blob)
    frame = memoryview(blob)[PREFIX_BYTES:]
    if codec not in (STORED, ZSTD) or dictionary != 0:
        raise Corrupt(f"an object names the unknown codec {codec} or dictionary {dictionary}")
    if length > limits.OBJECT_BYTES_MAX:
        raise Corrupt(f"an object's prefix states {length:,} bytes; none is so large", length=length)
    data = bytes(frame) if codec == STORED else _decompress(frame, length)
    if len(data) != length or digest(secret, kind, data) != stated:
        raise Corrupt("an object's bytes do not match its digest")
    return Object(kind, stated, data)


def length(first_part: bytes) -> int:
    """Return the uncompressed length that an object's prefix states; nothing is checked."""
    stated: int = _PREFIX.unpack_from(first_part)[3]
    return stated


def split(blob: bytes) -> Iterator[bytes]:
    """Cut an object's bytes into the values that hold it.

    LMDB gives a value over about 2 KB whole pages of 4,096 bytes less a head of 16. Parts that fill their pages
    exactly, with the remainder in a small value of its own, waste none.
    """
    position, end = 0, len(blob)
    while position < end:
        pages = min((end - position + _PAGE_HEAD) // _PAGE, limits.PART_PAGES)
        size = pages * _PAGE - _PAGE_HEAD if pages else end - position
        yield blob[position : position + size]
        position += size


def _compressor() -> zstandard.ZstdCompressor:
    try:
        compressor: zstandard.ZstdCompressor = _own.compressor
    except AttributeError:
        compressor = _own.compressor = zstandard.ZstdCompressor(level=SEAL_LEVEL, write_checksum=False)
    return compressor


def _decompress(frame: memoryview, length: int) -> bytes:
    try:
        decompressor: zstandard.ZstdDecompressor = _own.decompressor
    except AttributeError:
        decompressor = _own.decompressor = zstandard.ZstdDecompressor()
    try:
        if zstandard.frame_content_size(frame) != length:
            raise Corrupt("an object's frame states another length than its prefix")
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Corrupt(f"an object's frame does not decompress: {exc}") from exc
