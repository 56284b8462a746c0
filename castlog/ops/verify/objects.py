"""Objects and the index of pieces: what there is, whether the index fits and, deep, whether each piece is itself."""

from __future__ import annotations

from collections.abc import Iterator

from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.history import snapshots, tables
from castlog.ops.verify import inventory, scan
from castlog.ops.verify.inspection import DAMAGE, Inspection


def take_stock(inspection: Inspection) -> None:
    """List all objects and pieces; reads the first part of each object and every row of the index."""
    named: set[int] = set()
    for number in scan.numbers(inspection, rows.PART_LETTER, inspection.counters.object):
        with inspection.core.read() as txn:
            inspection.attempt(lambda txn=txn, number=number: _take_in(inspection, txn, number, named))  # type: ignore[misc]
        inspection.use_number("object", number)
        inspection.count("objects")
    _check_dictionaries(inspection, named)

    def visit(txn: ReadTxn, key: bytes, value: bytes) -> None:
        piece = rows.PIECES.decode(key, value)
        digest = key[1:]
        problem = inventory.misplaced(piece, inspection.inventory.use(piece.object))
        if problem is not None:
            problem = inventory.misplaced(piece, inventory.stated_length(txn, piece.object))  # newer than the list
        if problem is not None:
            inspection.found("misplaced_piece", f"piece {digest.hex()[:16]}: {problem}")
        else:
            inspection.pieces.add(digest, piece.object)

    scan.each(inspection, rows.PIECES.letter, visit)
    inspection.count("pieces", len(inspection.pieces))
    _check_snapshots(inspection)


def _take_in(inspection: Inspection, txn: ReadTxn, number: int, named: set[int]) -> None:
    """Add an object to the inventory, and check that the dictionary it names has a row; each is looked for once."""
    length = inventory.stated_length(txn, number)
    if length is None:
        if scan.first_key(txn, rows.part_key(number, 0), rows.part_key(number + 1, 0)) is not None:
            inspection.found("damaged_object", f"object {number} lacks its beginning")
        return  # else the store was compacted since
    inspection.inventory.add(number, length)
    dictionary = fmt.dictionary_of(txn.get(rows.part_key(number, 0)) or b"")
    if dictionary == fmt.NO_DICTIONARY or dictionary in named:
        return
    named.add(dictionary)
    if txn.get(rows.DICTIONARIES.key(dictionary)) is None:
        message = f"object {number} was compressed with dictionary {dictionary}, which is not there"
        inspection.found("missing_dictionary", message)


def check_unused(inspection: Inspection) -> None:
    """Remark on objects and pieces that nothing refers to. Not when events were lost: they may have."""
    if not all(totals.complete for totals in inspection.by_events.values()):
        return
    for number in inspection.inventory.unused():
        with inspection.core.read() as txn:
            there = inspection.attempt(lambda txn=txn, number=number: inventory.stated_length(txn, number))  # type: ignore[misc]
        if there is not None:  # a store that was compacted meanwhile has other objects
            inspection.found("unused_object", f"nothing refers to object {number}")
    pieces = inspection.pieces.unused()
    if pieces:
        inspection.found("unused_piece", f"pieces that no event uses: {pieces:,}")


def check_pieces(inspection: Inspection) -> None:
    """Hash every piece of the index; each pack is decoded once."""
    for number, starts in inspection.pieces.by_object():
        with inspection.core.read() as txn:
            try:
                _check_pack(inspection, txn, number, starts)
            except DAMAGE as exc:
                inspection.damaged(exc)
    if inspection.moved:
        inspection.found("unchecked", "pieces that lie elsewhere since the store was compacted meanwhile")


def _check_dictionaries(inspection: Inspection, named: set[int]) -> None:
    """Read every dictionary, and remark on one that no object names."""

    def visit(txn: ReadTxn, key: bytes, value: bytes) -> None:
        number = rows.DICTIONARIES.fields(key)[0]
        assert isinstance(number, int)
        row = rows.DICTIONARIES.decode(key, value)
        inspection.inventory.use(row.object)
        if inventory.stated_length(txn, row.object) is None:
            message = f"dictionary {number} should lie in object {row.object}, which is missing"
            inspection.found("missing_dictionary", message)
            return
        inspection.objects.dictionary(txn, number)
        if number not in named:
            inspection.found("unused_dictionary", f"no object was compressed with dictionary {number}")

    scan.each(inspection, rows.DICTIONARIES.letter, visit)


def _check_snapshots(inspection: Inspection) -> None:
    """Read every snapshot: one that is damaged is passed over by whoever looks for a state."""

    def visit(txn: ReadTxn, key: bytes, value: bytes) -> None:
        row = rows.SNAPSHOTS.decode(key, value)
        timeline, _, seq = rows.SNAPSHOTS.fields(key)
        assert isinstance(timeline, int)
        assert isinstance(seq, int)
        inspection.inventory.use(row.object)
        where = f"the snapshot of seq {seq} of timeline {timeline}"
        tail = tables.get(txn, rows.TAILS, timeline)
        if tail is None or seq > tail.last:
            inspection.found("stray_row", f"{where} belongs to no event")
            return
        try:
            kept, _ = snapshots.read(txn, inspection.objects, snapshots.Found(timeline, seq, row))
        except Corrupt as exc:
            inspection.found("damaged_snapshot", f"{where}: {exc}")
            return
        for digest in kept.pieces:
            inspection.pieces.use(txn, digest)

    scan.each(inspection, rows.SNAPSHOTS.letter, visit)


def _check_pack(inspection: Inspection, txn: ReadTxn, number: int, starts: list[int]) -> None:
    placed = [pair for start in starts for pair in _placed(txn, start, number)]
    if not placed:
        inspection.moved = True
        return
    item = inspection.objects.read(txn, number)
    if item.kind != fmt.PACK:
        inspection.found("misplaced_piece", f"object {number} is no pack, but the index places pieces there")
        return
    for digest, piece in placed:
        data = item.data[piece.offset : piece.offset + piece.length]
        if fmt.digest(inspection.objects.secret, fmt.PIECE, data) != digest:
            inspection.found("damaged_piece", f"piece {digest.hex()[:16]} in object {number} is another one")


def _placed(txn: ReadTxn, start: int, number: int) -> Iterator[tuple[bytes, rows.Piece]]:
    """Yield the pieces whose digests begin with these eight bytes and that lie in an object now."""
    prefix = rows.PIECES.letter + start.to_bytes(8, "big")
    for key, value in txn.scan(prefix, rows.after(prefix)):
        piece = rows.PIECES.decode(key, value)
        if piece.object == number:
            yield key[1:], piece
