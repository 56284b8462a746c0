"""Large payloads: cut by content into pieces, each stored once.

The cuts come from FastCDC (Xia et al. 2016), so that an insertion moves few of them. What repeats an older payload
takes over its cuts. The new pieces of one commit lie together in packs: compressed alone, small pieces would lose most
of what the repetition between them is worth.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from castlog import limits
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Corrupt
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.history import tables
from castlog.history.objects import Objects

if TYPE_CHECKING:
    from pyfastcdc import FastCDC

Cut = Sequence[tuple[bytes, bytes]]
"""A payload's pieces in order as (digest, bytes)."""

_own = threading.local()  # a cutter is not safe to share


class Pack(msgspec.Struct, frozen=True):
    """New pieces ready to be written: one object's bytes, and each piece's place in it."""

    blob: bytes
    size: int
    places: tuple[tuple[bytes, int, int], ...]


def cut(secret: bytes, payload: bytes, last: Cut = ()) -> Cut:
    """Return a payload cut into pieces.

    `last` may be the cut of any other payload. Where the two begin or end alike its pieces are taken over, which costs
    one comparison of bytes; the cut is the same as without it.
    """
    count, start = _same_beginning(payload, last)
    if start == len(payload):
        return last[:count]
    pieces = list(last[:count])
    same_end = _same_end(payload, last)
    view = memoryview(payload)[start:]
    for chunk in _cutter().cut_buf(view):
        rest = same_end.get(start + chunk.offset)
        if rest is not None:
            pieces += last[rest:]
            break
        data = bytes(view[chunk.offset : chunk.offset + chunk.length])
        pieces.append((fmt.digest(secret, fmt.PIECE, data), data))
    assert sum([len(data) for _, data in pieces]) == len(payload)
    return pieces


def _same_beginning(payload: bytes, last: Cut) -> tuple[int, int]:
    """Return how many pieces of `last` are also the payload's first, and their bytes.

    Where a cut falls depends on what is before it, and a little on what is behind: so the piece behind a cut must be
    there too. At the end of `last` that is true only of a payload that ends there as well.
    """
    before = end = count = 0
    for _, data in last:
        if not payload.startswith(data, end):
            break
        count += 1
        before, end = end, end + len(data)
    if count == len(last) and end == len(payload):
        return count, end
    return max(count - 1, 0), before


def _same_end(payload: bytes, last: Cut) -> dict[int, int]:
    """Return the places in the payload from which on it is the same as `last` from some piece on, with that piece.

    A cut depends on nothing before the one before it. So from a place where both are cut, all cuts are the same.
    """
    places = {}
    start = len(payload)
    for index in range(len(last) - 1, -1, -1):
        data = last[index][1]
        if not payload.endswith(data, 0, start):
            break
        start -= len(data)
        places[start] = index
    return places


def _cutter() -> FastCDC:
    try:
        cutter: FastCDC = _own.cutter
    except AttributeError:
        from pyfastcdc import FastCDC  # only those who cut need it, and it takes 2 ms

        cutter = _own.cutter = FastCDC(
            avg_size=limits.PIECE_BYTES_MEAN,
            min_size=limits.PIECE_BYTES_MIN,
            max_size=limits.PIECE_BYTES_MAX,
        )
    return cutter


def missing(txn: ReadTxn, digests: Iterable[bytes]) -> list[bytes]:
    """Return those of the digests that no piece in the store has, in order, each once."""
    return [d for d in dict.fromkeys(digests) if txn.get(rows.PIECES.key(d)) is None]


def pack(secret: bytes, digests: Iterable[bytes], pieces: Mapping[bytes, bytes]) -> Iterator[Pack]:
    """Yield packs of at most about PACK_BYTES that hold these pieces, compressed together."""
    places: list[tuple[bytes, int, int]] = []
    data = bytearray()
    for digest in digests:
        piece = pieces[digest]
        places.append((digest, len(data), len(piece)))
        data += piece
        if len(data) >= limits.PACK_BYTES:
            yield Pack(fmt.encode(secret, fmt.PACK, bytes(data)), len(data), tuple(places))
            places, data = [], bytearray()
    if places:
        yield Pack(fmt.encode(secret, fmt.PACK, bytes(data)), len(data), tuple(places))


def write(txn: WriteTxn, objects: Objects, packs: Iterable[Pack]) -> None:
    """Write packs and the index of their pieces; what another writer stored meanwhile keeps its place."""
    for item in packs:
        new = [place for place in item.places if txn.get(rows.PIECES.key(place[0])) is None]
        if not new:
            continue
        number = objects.write(txn, item.blob)
        for digest, offset, length in new:
            tables.put(txn, rows.PIECES, rows.Piece(number, offset, length), digest)


def join(txn: ReadTxn, objects: Objects, digests: Iterable[bytes]) -> bytes:
    """Return the payload these pieces make up; raises Corrupt naming the piece or object that fails."""
    parts = []
    number, data = 0, memoryview(b"")
    for digest in digests:
        place = tables.get(txn, rows.PIECES, digest)
        if place is None:
            raise Corrupt(f"piece {digest.hex()[:16]} is missing", digest=digest.hex())
        if place.object != number:  # seldom: a payload's new pieces lie one behind the other
            number, data = place.object, memoryview(_pack(txn, objects, place.object))
        parts.append(data[place.offset : place.offset + place.length])
    return b"".join(parts)


def _pack(txn: ReadTxn, objects: Objects, number: int) -> bytes:
    def load() -> tuple[bytes, int]:
        data = objects.read(txn, number).data
        return data, len(data)

    data: bytes = objects.cache.get(number, load)
    return data
