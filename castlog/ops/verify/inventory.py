"""What objects and pieces there are, and which of them somebody uses: sorted arrays, some twenty bytes an entry."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from castlog import limits
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt, Unavailable
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.history import tables


class Inventory:
    """The objects, in the order of their numbers."""

    def __init__(self) -> None:
        self._numbers = array("Q")
        self._lengths = array("Q")
        self._used = bytearray()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, length: int) -> None:
        """Take in an object with a number above all others so far."""
        self._numbers.append(number)
        self._lengths.append(length)
        self._used.append(0)

    def use(self, number: int) -> int | None:
        """Mark an object as referred to and return its length, or None when it is not there."""
        at = bisect_left(self._numbers, number)
        if at == len(self._numbers) or self._numbers[at] != number:
            return None
        self._used[at] = 1
        return self._lengths[at]

    def unused(self) -> Iterator[int]:
        """Yield the numbers nobody referred to."""
        return (number for number, used in zip(self._numbers, self._used, strict=True) if not used)


class PieceIndex:
    """The sound rows of the index of pieces, by the first eight bytes of the digest.

    Filled before the events are walked. A piece that is not in it, because it is damaged, newer, or only one session is
    checked, is looked up in the store.
    """

    def __init__(self) -> None:
        self._starts = array("Q")
        self._objects = array("Q")
        self._used = bytearray()
        self._known: dict[bytes, str | None] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, digest: bytes, number: int) -> None:
        """Take in a piece whose digest is above all others so far."""
        self._starts.append(int.from_bytes(digest[:8], "big"))
        self._objects.append(number)
        self._used.append(0)

    def use(self, txn: ReadTxn, digest: bytes) -> str | None:
        """Mark a piece as used; return what is wrong with it, or None."""
        start = int.from_bytes(digest[:8], "big")
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start:
            self._used[at] = 1
            return None
        if digest not in self._known:
            if len(self._known) >= limits.VERIFY_KEPT_MAX:
                self._known.clear()
            self._known[digest] = _problem(txn, digest)
        return self._known[digest]

    def unused(self) -> int:
        """Return how many pieces no event used."""
        return self._used.count(0)

    def by_object(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the number of each pack, ascending, with the starts of its pieces' digests."""
        order = sorted(range(len(self._objects)), key=self._objects.__getitem__)
        number, starts = -1, list[int]()
        for at in order:
            if self._objects[at] != number:
                if starts:
                    yield number, starts
                number, starts = self._objects[at], []
            starts.append(self._starts[at])
        if starts:
            yield number, starts


def misplaced(piece: rows.Piece, length: int | None) -> str | None:
    """Return what is wrong with a piece's place in an object of this length (None: there is none), or None."""
    if length is None:
        return f"object {piece.object}, where it should lie, is missing"
    if piece.offset + piece.length > length:
        return f"it should lie at {piece.offset}+{piece.length} in object {piece.object}, which has {length} bytes"
    return None


def stated_length(txn: ReadTxn, number: int) -> int | None:
    """Return the length an object's first part states, or None when it is missing or too short to say."""
    part = txn.get(rows.part_key(number, 0))
    return None if part is None or len(part) < fmt.PREFIX_BYTES else fmt.length(part)


def _problem(txn: ReadTxn, digest: bytes) -> str | None:
    try:
        piece = tables.get(txn, rows.PIECES, digest)
    except (Corrupt, Unavailable) as exc:
        return str(exc)
    if piece is None:
        return "it is missing"
    return misplaced(piece, stated_length(txn, piece.object))
