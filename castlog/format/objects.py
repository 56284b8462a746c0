"""Objects: immutable bytes with a kind, a digest and a compressed frame, cut into parts that fill whole pages.

An object's digest is keyed with the store's secret, so that an address confirms no guess about its content. It covers
kind and uncompressed bytes; compression may change, digests may not.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

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
DICTIONARY = 5
STORED = 0
ZSTD = 1

SECRET_BYTES = 32
SEAL_LEVEL = 1  # while somebody waits for an append
COMPACT_LEVEL = 9
NO_DICTIONARY = 0

_PREFIX = struct.Struct("<BBHQ32s")  # kind, codec, dictionary, uncompressed length, digest
PREFIX_BYTES = 44
assert _PREFIX.size == PREFIX_BYTES

_PAGE = 4096
_PAGE_HEAD = 16  # what LMDB keeps at the start of a run of overflow pages
PART_BYTES_MAX = limits.PART_PAGES * _PAGE - _PAGE_HEAD

Context = TypeVar("Context")

_CONTEXTS_MAX = 4  # a thread's compressors or decompressors: one without a dictionary, and those of a few stores


class Dictionary(msgspec.Struct, frozen=True):
    """A Zstandard dictionary: its number in the store, its object's digest, its bytes."""

    number: int
    digest: bytes
    data: bytes


Load = Callable[[int], Dictionary]
"""Returns a store's dictionary by its number; raises Corrupt."""


class Object(msgspec.Struct, frozen=True):
    """A decoded object whose digest was checked."""

    kind: int
    digest: bytes
    data: bytes


def digest(secret: bytes, kind: int, data: bytes) -> bytes:
    """Return the 32-byte keyed digest of an object's kind and uncompressed bytes."""
    return blake3(bytes((kind,)) + data, key=secret).digest()


def encode(
    secret: bytes, kind: int, data: bytes, *, level: int = SEAL_LEVEL, dictionary: Dictionary | None = None
) -> bytes:
    """Return the bytes of an object, compressed where that makes it smaller."""
    frame = _compressors.get(level, dictionary).compress(data)
    codec, number = ZSTD, NO_DICTIONARY if dictionary is None else dictionary.number
    if len(frame) >= len(data):
        codec, number, frame = STORED, NO_DICTIONARY, data
    return _PREFIX.pack(kind, codec, number, len(data), digest(secret, kind, data)) + frame


def no_dictionary(number: int) -> Dictionary:
    """Raise Corrupt: for frames that may name no dictionary."""
    raise Corrupt(f"an object names the unknown codec {ZSTD} or dictionary {number}")


def decode(secret: bytes, blob: bytes, load: Load = no_dictionary) -> Object:
    """Return the object whose bytes `encode` wrote, its digest checked; raises Corrupt.

    `load` is asked for the dictionary of a frame that names one.
    """
    if len(blob) < PREFIX_BYTES:
        raise Corrupt(f"an object of {len(blob)} bytes is shorter than its prefix")
    kind, codec, number, length, stated = _PREFIX.unpack_from(blob)
    frame = memoryview(blob)[PREFIX_BYTES:]
    if codec not in (STORED, ZSTD) or (codec == STORED and number != NO_DICTIONARY):
        raise Corrupt(f"an object names the unknown codec {codec} or dictionary {number}")
    if length > limits.OBJECT_BYTES_MAX:
        raise Corrupt(f"an object's prefix states {length:,} bytes; none is so large", length=length)
    if codec == STORED:
        data = bytes(frame)
    else:
        data = _decompress(frame, length, None if number == NO_DICTIONARY else load(number))
    if len(data) != length or digest(secret, kind, data) != stated:
        raise Corrupt("an object's bytes do not match its digest")
    return Object(kind, stated, data)


def length(first_part: bytes) -> int:
    """Return the uncompressed length that an object's prefix states; nothing is checked."""
    stated: int = _PREFIX.unpack_from(first_part)[3]
    return stated


def dictionary_of(first_part: bytes) -> int:
    """Return the number of the dictionary that an object's prefix names, or NO_DICTIONARY; nothing is checked."""
    number: int = _PREFIX.unpack_from(first_part)[2]
    return number


def split(blob: bytes) -> Iterator[bytes]:
    """Cut an object's bytes into the values that hold it.

    LMDB gives a value over about 2 KB whole pages of 4,096 bytes less a head of 16. Parts that fill their pages
    exactly waste none; the remainder goes into small values, which share pages with others.
    """
    position, end = 0, len(blob)
    while pages := min((end - position + _PAGE_HEAD) // _PAGE, limits.PART_PAGES):
        size = pages * _PAGE - _PAGE_HEAD
        yield blob[position : position + size]
        position += size
    left = end - position
    count = -(-left // limits.LEAF_PART_BYTES)
    for number in range(count):
        yield blob[position + left * number // count : position + left * (number + 1) // count]


class _Contexts(threading.local, Generic[Context]):
    """A thread's own compressors or decompressors: they crash when threads share them.

    Known by level and by the digest of the dictionary, which no other store's dictionary has.
    """

    def __init__(self, make: Callable[[int, zstandard.ZstdCompressionDict | None], Context]) -> None:
        self._make = make
        self._kept: dict[tuple[int, bytes], Context] = {}

    def get(self, level: int, dictionary: Dictionary | None) -> Context:
        """Return the context for a level and a dictionary."""
        key = (level, b"" if dictionary is None else dictionary.digest)
        try:
            return self._kept[key]
        except KeyError:
            pass
        if len(self._kept) >= _CONTEXTS_MAX:
            del self._kept[next(iter(self._kept))]
        data = None if dictionary is None else zstandard.ZstdCompressionDict(dictionary.data)
        context = self._kept[key] = self._make(level, data)
        return context


def _make_compressor(level: int, data: zstandard.ZstdCompressionDict | None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=level, dict_data=data, write_checksum=False, write_dict_id=False)


def _make_decompressor(level: int, data: zstandard.ZstdCompressionDict | None) -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(dict_data=data)


_compressors = _Contexts(_make_compressor)
_decompressors = _Contexts(_make_decompressor)


def _decompress(frame: memoryview, length: int, dictionary: Dictionary | None) -> bytes:
    try:
        if zstandard.frame_content_size(frame) != length:
            raise Corrupt("an object's frame states another length than its prefix")
        return _decompressors.get(0, dictionary).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise Corrupt(f"an object's frame does not decompress: {exc}") from exc
