"""Objects and the index of pieces: what there is, whether the index fits and, deep, whether each piece is itself."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.ops.verify import inventory, scan
from castlog.ops.verify.inspection import DAMAGE, Inspection


def take_stock(inspection: Inspection) -> None:
    """List all objects and pieces; reads the first part of each object and every row of the index."""
    for number in scan.numbers(inspection, rows.part_key(0, 0)[:1], inspection.counters.object):
        with inspection.core.read() as txn:
            length = inspection.attempt(lambda txn=txn, number=number: inventory.stated_length(txn, number))  # type: ignore[misc]
        inspection.use_number("object", number)
        inspection.count("objects")
        if length is None:
            inspection.found("damaged_object", f"object {number} lacks its beginning")
        else:
            inspection.inventory.add(number, length)

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


def check_unused(inspection: Inspection) -> None:
    """Remark on objects and pieces that nothing refers to. Not when events were lost: they may have."""
    if not all(totals.complete for totals in inspection.by_events.values()):
        return
    for number in inspection.inventory.unused():
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


def _check_pack(inspection: Inspection, txn: ReadTxn, number: int, starts: list[int]) -> None:
    item = inspection.objects.read(txn, number)
    if item.kind != fmt.PACK:
        inspection.found("misplaced_piece", f"object {number} is no pack, but the index places pieces there")
        return
    for start in starts:
        prefix = rows.PIECES.letter + start.to_bytes(8, "big")
        for key, value in txn.scan(prefix, rows.after(prefix)):
            piece = rows.PIECES.decode(key, value)
            data = item.data[piece.offset : piece.offset + piece.length]
            if piece.object == number and fmt.digest(inspection.objects.secret, fmt.PIECE, data) != key[1:]:
                inspection.found("damaged_piece", f"piece {key[1:].hex()[:16]} in object {number} is another one")
