"""Objects: compressed, checked and cut into parts; and no frame is unpacked that lies about its size."""

from __future__ import annotations

import random
import resource
import threading
import tracemalloc

import pytest
import zstandard
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from castlog import limits
from castlog.errors import Corrupt
from castlog.format import objects

SECRET = bytes(range(32))
KINDS = st.sampled_from([objects.CHUNK, objects.PIECE, objects.PACK, objects.SNAPSHOT])
DATA = st.binary(max_size=300) | st.builds(lambda unit, times: unit * times, st.binary(max_size=9), st.integers(0, 999))


def packed(kind: int, codec: int, dictionary: int, length: int, digest: bytes, frame: bytes) -> bytes:
    """Return an object with any prefix."""
    return objects._PREFIX.pack(kind, codec, dictionary, length, digest) + frame


@given(KINDS, DATA)
@example(objects.CHUNK, b"")
def test_objects_come_back(kind: int, data: bytes) -> None:
    """Any bytes of any kind come back with kind and digest, and never take more than the prefix beyond their length."""
    blob = objects.encode(SECRET, kind, data)
    assert objects.decode(SECRET, blob) == objects.Object(kind, objects.digest(SECRET, kind, data), data)
    assert objects.length(blob) == len(data)
    assert len(blob) <= objects.PREFIX_BYTES + len(data)


@given(KINDS, KINDS, DATA)
def test_digests_are_keyed_and_cover_the_kind(kind: int, other: int, data: bytes) -> None:
    """A digest is keyed BLAKE3 of kind and bytes: another secret or kind gives another digest."""
    digest = objects.digest(SECRET, kind, data)
    assert digest == blake3(bytes([kind]) + data, key=SECRET).digest()
    assert digest != objects.digest(bytes(32), kind, data)
    assert (digest == objects.digest(SECRET, other, data)) == (kind == other)


def test_another_store_cannot_read_it() -> None:
    """An object does not decode under another store's secret."""
    with pytest.raises(Corrupt, match="digest"):
        objects.decode(bytes(32), objects.encode(SECRET, objects.CHUNK, b"x" * 100))


@pytest.mark.parametrize(
    "data", [b"short", b"abc" * 200, random.Random(5).randbytes(300)], ids=["tiny", "zstd", "stored"]
)
def test_damage_is_never_handed_out(data: bytes) -> None:
    """With a bit flipped an object is Corrupt, or right where Zstandard ignores the bit; cut off, it is Corrupt."""
    blob = objects.encode(SECRET, objects.CHUNK, data)
    ignored = 0
    for place in range(8 * len(blob)):
        changed = bytearray(blob)
        changed[place // 8] ^= 1 << place % 8
        try:
            assert objects.decode(SECRET, bytes(changed)).data == data
        except Corrupt:
            continue
        ignored += 1
        assert place // 8 >= objects.PREFIX_BYTES
    assert ignored <= 2
    for end in range(len(blob)):
        with pytest.raises(Corrupt):
            objects.decode(SECRET, blob[:end])
    for more in (b"\x00", blob, zstandard.compress(b"x")):
        with pytest.raises(Corrupt):
            objects.decode(SECRET, blob + more)


@given(st.binary(max_size=120))
def test_any_bytes_are_corrupt(blob: bytes) -> None:
    """Bytes that are no object are Corrupt, whatever they are."""
    with pytest.raises(Corrupt):
        objects.decode(SECRET, blob)


def test_unknown_codecs_and_dictionaries_are_corrupt() -> None:
    """A codec or a dictionary that version 1 does not have is Corrupt, for stored and for compressed bytes."""
    data = b"abc" * 100
    digest = objects.digest(SECRET, objects.CHUNK, data)
    frame = zstandard.compress(data)
    for codec, dictionary, held in ((0, 1, data), (1, 1, frame), (2, 0, frame), (255, 0, data), (0, 65535, data)):
        with pytest.raises(Corrupt, match=f"codec {codec} or dictionary {dictionary}"):
            objects.decode(SECRET, packed(objects.CHUNK, codec, dictionary, len(data), digest, held))


def test_a_frame_of_another_size_is_refused_before_it_is_unpacked() -> None:
    """A small frame that unpacks to 200 MB is Corrupt when its prefix states less, and nothing is allocated for it."""
    size = 200_000_000
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(size))
    assert len(bomb) < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        for stated in (0, 100, size - 1, size + 1):
            with pytest.raises(Corrupt, match="another length"):
                objects.decode(SECRET, packed(objects.CHUNK, objects.ZSTD, 0, stated, bytes(32), bomb))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_an_absurd_size_is_refused_though_prefix_and_frame_agree() -> None:
    """An object that states more than any has is Corrupt before memory is asked for."""
    size = 1 << 50
    params = zstandard.ZstdCompressionParameters.from_level(1, write_content_size=True)
    chunked = zstandard.ZstdCompressor(compression_params=params).compressobj(size=size)
    frame = chunked.compress(b"x" * 1000) + chunked.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert zstandard.frame_content_size(frame) == size
    for stated in (size, limits.OBJECT_BYTES_MAX + 1):
        with pytest.raises(Corrupt, match="none is so large"):
            objects.decode(SECRET, packed(objects.CHUNK, objects.ZSTD, 0, stated, bytes(32), frame))


def test_a_frame_without_a_size_is_refused() -> None:
    """A frame that does not say how large it unpacks is Corrupt, though its bytes are right."""
    data = b"abc" * 100
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    digest = objects.digest(SECRET, objects.CHUNK, data)
    with pytest.raises(Corrupt, match="another length"):
        objects.decode(SECRET, packed(objects.CHUNK, objects.ZSTD, 0, len(data), digest, frame))


def test_a_frame_that_needs_a_dictionary_is_refused() -> None:
    """A frame compressed with a dictionary the prefix does not name is Corrupt."""
    dictionary = zstandard.ZstdCompressionDict(b"the quick brown fox jumps over the lazy dog" * 20)
    data = b"the quick brown fox jumps over the lazy dog again"
    frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(data)
    digest = objects.digest(SECRET, objects.CHUNK, data)
    with pytest.raises(Corrupt):
        objects.decode(SECRET, packed(objects.CHUNK, objects.ZSTD, 0, len(data), digest, frame))


# --- parts ----------------------------------------------------------------------------------

PAGE, HEAD = 4096, 16


@given(st.integers(0, 300_000))
@example(0)
@example(1)
@example(4079)
@example(4080)
@example(4081)
@example(8175)
@example(8176)
@example(57_328)
@example(57_329)
@example(61_407)
@example(61_408)
@example(114_656)
@settings(max_examples=60)
def test_parts_fill_whole_pages(size: int) -> None:
    """Parts join to the whole; they fill pages to the byte, 14 at the most, until only less than a page is left.

    That is cut into as few equal parts as are short enough to share a page with others.
    """
    blob = random.Random(size).randbytes(size)
    parts = list(objects.split(blob))
    assert b"".join(parts) == blob
    assert all(parts)
    left = size
    for part in parts:
        pages, rest = divmod(len(part) + HEAD, PAGE)
        if left >= PAGE - HEAD:
            assert rest == 0
            assert 1 <= pages <= 14
            assert pages == 14 or left < (pages + 1) * PAGE - HEAD
        left -= len(part)
    assert all(len(part) <= objects.PART_BYTES_MAX <= limits.VALUE_BYTES_MAX for part in parts)
    short = [len(part) for part in parts if len(part) < PAGE - HEAD]
    assert len(short) == -(-sum(short) // limits.LEAF_PART_BYTES)
    assert max(short, default=0) - min(short, default=0) <= 1


def test_the_part_arithmetic_is_lmdbs() -> None:
    """The largest part is 14 pages less LMDB's 16 bytes, and stays under 60,000 bytes."""
    assert objects.PART_BYTES_MAX == 14 * PAGE - HEAD == 57_328 < 60_000


# --- threads --------------------------------------------------------------------------------


def test_threads_have_their_own_compressors() -> None:
    """Objects made and read in many threads at once all come back: a shared compressor would crash."""
    wrong: list[int] = []

    def work(number: int) -> None:
        generator = random.Random(number)
        for _ in range(40):
            data = generator.randbytes(50) * generator.randrange(1, 400)
            if objects.decode(SECRET, objects.encode(SECRET, objects.PACK, data)).data != data:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- dictionaries ---------------------------------------------------------------------------


def dictionary(number: int, seed: int) -> objects.Dictionary:
    """Return a dictionary of words of its own."""
    data = random.Random(seed).randbytes(3_000).hex().encode()
    return objects.Dictionary(number, objects.digest(SECRET, objects.DICTIONARY, data), data)


def test_a_frame_needs_its_own_dictionary() -> None:
    """With another dictionary, or none, an object is Corrupt; its prefix has the number, the loader gives the bytes."""
    own, other = dictionary(3, 1), dictionary(3, 2)
    data = own.data[500:900] * 2
    blob = objects.encode(SECRET, objects.CHUNK, data, level=objects.COMPACT_LEVEL, dictionary=own)
    assert len(blob) < len(objects.encode(SECRET, objects.CHUNK, data))
    assert objects.dictionary_of(blob) == 3
    asked = []
    assert objects.decode(SECRET, blob, lambda number: asked.append(number) or own).data == data
    assert asked == [3]
    for load in (lambda _: other, objects.no_dictionary):
        with pytest.raises(Corrupt):
            objects.decode(SECRET, blob, load)
    assert objects.decode(SECRET, blob, lambda _: own).data == data


def test_dictionaries_of_one_number_are_told_apart_in_threads() -> None:
    """Threads read objects of many stores by turns, each with a dictionary of the same number: all come back."""
    stores = []
    for seed in range(9):
        own = dictionary(1, seed)
        data = own.data[seed * 100 : seed * 100 + 800] * 3
        stores.append((own, data, objects.encode(SECRET, objects.PACK, data, dictionary=own)))
    wrong: list[int] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(200):
            own, data, blob = chance.choice(stores)
            if objects.decode(SECRET, blob, lambda _, own=own: own).data != data:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
