"""The dictionary of a store: trained on samples of its chunks and pieces, kept where it saves more than it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import zstandard

from castlog import limits
from castlog.format import objects as fmt

# FastCover's parameters; without them it searches for some, which takes a minute. Measured on the plain workload and
# on transcripts: segments of 64 to 512 bytes lie within 2 %, longer ones lose up to 8 %.
_SEGMENT, _DMER, _TABLE_BITS = 192, 8, 20


def train(secret: bytes, number: int, count: int, raw: int, frame: Callable[[int], bytes]) -> fmt.Dictionary | None:
    """Return a dictionary for a store of `count` frames with `raw` bytes together, or None where it does not pay.

    `frame` returns one. Some are compressed with and without it, and what that saves is taken for all.
    """
    if raw < limits.DICTIONARY_RAW_BYTES_MIN:
        return None
    samples: list[bytes | bytearray | memoryview[int]] = [
        data[start : start + limits.SAMPLE_BYTES]
        for data in map(frame, _spread(count, limits.SAMPLE_FRAMES, 0.0))
        for start in range(0, len(data), limits.SAMPLE_BYTES)
    ]
    try:
        trained = zstandard.train_dictionary(
            limits.DICTIONARY_BYTES, samples, k=_SEGMENT, d=_DMER, f=_TABLE_BITS, accel=1, level=fmt.COMPACT_LEVEL
        )
    except zstandard.ZstdError:
        return None  # too little in it that repeats
    data = trained.as_bytes()
    found = fmt.Dictionary(number, fmt.digest(secret, fmt.DICTIONARY, data), data)
    saved = measured = 0
    # Half-way between two samples: of a frame it was trained on, a dictionary knows whole stretches by heart.
    between = 0.5 + 0.5 * limits.MEASURED_FRAMES / limits.SAMPLE_FRAMES
    for index in _spread(count, limits.MEASURED_FRAMES, between):
        data = frame(index)
        saved += _size(secret, data, None) - _size(secret, data, found)
        measured += len(data)
    return found if saved * raw > len(encode(secret, found)) * measured else None


def encode(secret: bytes, dictionary: fmt.Dictionary) -> bytes:
    """Return the object that holds a dictionary."""
    return fmt.encode(secret, fmt.DICTIONARY, dictionary.data, level=fmt.COMPACT_LEVEL)


def _spread(count: int, wanted: int, shift: float) -> Sequence[int]:
    """Return at most `wanted` of `count` indexes, evenly spread."""
    wanted = min(count, wanted)
    return [int((index + shift) * count / wanted) for index in range(wanted)]


def _size(secret: bytes, data: bytes, dictionary: fmt.Dictionary | None) -> int:
    return len(fmt.encode(secret, fmt.CHUNK, data, level=fmt.COMPACT_LEVEL, dictionary=dictionary))
