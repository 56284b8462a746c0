"""Sealed chunks: the rows that point at them, the objects they lie in, their headers and what they add up to."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import chunk, rows
from castlog.history import calls
from castlog.history.runs import Run, SealedRun
from castlog.ops.verify import scan
from castlog.ops.verify.chain import Chain
from castlog.ops.verify.inspection import DAMAGE, Inspection


def check_next(inspection: Inspection, txn: ReadTxn, chain: Chain, tail: rows.Tail) -> list[Run]:
    """Check the chunk behind the last seq checked and go on behind it; return it if it can be read.

    Goes forward in every case, whatever the rows say.
    """
    first = chain.seq + 1
    key = scan.first_key(txn, rows.CHUNKS.key(chain.line.number, first), rows.record_key(chain.line.number, 0))
    last = tail.sealed if key is None else int.from_bytes(key[-8:], "big")
    if key is None or last > tail.sealed:
        chain.found(txn, "missing_chunk", first, f"no chunk holds seqs {first} to {tail.sealed}")
        chain.lose(tail.sealed)
        return []
    try:
        value = txn.get(key)
        row = rows.CHUNKS.decode(key, value or b"")
    except DAMAGE as exc:
        inspection.damaged(exc, chain.rev(txn, first))
        chain.lose(last)
        return []
    if row.first > first:
        chain.found(txn, "missing_chunk", first, f"no chunk holds seqs {first} to {row.first - 1}")
        chain.lose(min(row.first - 1, last), row.parent)
        if row.first > last:
            return []
    elif row.first < first and not _was_rewritten(txn, chain):
        chain.found(txn, "overlapping_chunks", first, f"the chunk of seqs {row.first} to {last} overlaps another")
        chain.lose(last, row.last_id)
        return []
    inspection.count("chunks")
    inspection.inventory.use(row.object)
    run = _load(inspection, txn, chain, last, row)
    return [] if run is None else [run]


def check_beyond(txn: ReadTxn, chain: Chain, tail: rows.Tail) -> None:
    """Look for chunks after the last sealed seq."""
    number = chain.line.number
    key = scan.first_key(txn, rows.CHUNKS.key(number, tail.sealed + 1), rows.record_key(number, 0))
    if key is not None:
        last = int.from_bytes(key[-8:], "big")
        chain.found(txn, "stray_row", tail.last, f"a chunk ends at seq {last}; only {tail.sealed} is sealed")


def _was_rewritten(txn: ReadTxn, chain: Chain) -> bool:
    """Return whether the chunk that ended at the last seq checked is there no more: the store was compacted since."""
    return chain.seq > chain.line.row.fork_seq and txn.get(rows.CHUNKS.key(chain.line.number, chain.seq)) is None


def _load(inspection: Inspection, txn: ReadTxn, chain: Chain, last: int, row: rows.Chunk) -> SealedRun | None:
    """Read a chunk, past the store's cache, check it and follow its events; None when it is lost."""
    try:
        data = inspection.objects.stretch(txn, row.object, row.offset, row.length)
        head, body = chunk.decode(data)
    except DAMAGE as exc:
        said = str(exc) if "object" in exc.facts else f"object {row.object}: {exc}"
        chain.found(txn, "damaged_object", row.first, f"{said}; it holds seqs {row.first} to {last}")
        chain.lose(last, row.last_id)
        return None
    ends = (head.session, head.first_seq, head.last_seq, head.parent, head.last_id)
    if ends != (chain.line.row.session, row.first, last, row.parent, row.last_id):
        message = f"object {row.object} is not the chunk of seqs {row.first} to {last}"
        chain.found(txn, "wrong_chunk", row.first, message)
        chain.lose(last, row.last_id)
        return None
    run = SealedRun(chain.line.session.salt, head, body)
    _check_content(txn, chain, row, run, len(body))
    return run


def _check_content(txn: ReadTxn, chain: Chain, row: rows.Chunk, run: SealedRun, length: int) -> None:
    if 1 + sum(chunk.slot_length(record) + 1 for record in run.records) != length:
        chain.found(txn, "wrong_chunk", run.first, f"the payloads in object {row.object} are not as long as it says")
    known = chain.seq + 1 - run.first  # events checked already, where a chunk grew since
    before = run.event_id(known - 1) if known else run.parent
    if chain.id and chain.id != before:
        chain.found(txn, "broken_chain", run.first, f"seq {run.first} does not follow the event before it")
        chain.id = b""
    was_known = chain.calls is not None
    chain.follow(txn, run, known)
    if chain.id != row.last_id:
        message = f"the id of seq {run.last} does not follow from seqs {run.first} to {run.last}"
        chain.found(txn, "broken_chain", run.first, message)
        chain.id = row.last_id
    listed = None if run.open is None else calls.thaw(run.open)
    if was_known and listed is not None and chain.calls != listed:
        message = f"the calls in flight after seq {run.last}, by its chunk, are not those of the log"
        chain.found(txn, "wrong_open_calls", run.last, message)
    chain.calls = listed if not was_known else chain.calls
