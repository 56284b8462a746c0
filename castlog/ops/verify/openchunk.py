"""Open chunks: records one by one, and the rows about a timeline's end."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.format import rows
from castlog.format.record import TailRecord
from castlog.history import calls, reader
from castlog.history.runs import OpenRun, Run
from castlog.history.writer import size_of
from castlog.ops.verify.chain import Chain
from castlog.ops.verify.chunks import check_beyond
from castlog.ops.verify.inspection import DAMAGE, Inspection

_ALL = (1 << 64) - 1


def check_open(inspection: Inspection, txn: ReadTxn, chain: Chain, tail: rows.Tail) -> list[Run]:
    """Check the records after the last sealed seq and the rows about the end; return those with payloads to read."""
    number, size = chain.line.number, 0
    runs: list[Run] = []
    for key, value in txn.scan(rows.record_key(number, 0), rows.record_key(number, _ALL)):
        seq = rows.record_seq(key)
        if not tail.sealed < seq <= tail.last:
            message = f"there is a record of seq {seq}; {tail.sealed + 1} to {tail.last} are open"
            chain.found(txn, "stray_row", tail.last, message)
            continue
        if seq > chain.seq + 1:
            _miss(txn, chain, seq - 1)
        item = _check_record(txn, chain, seq, key, value)
        if item is not None:
            size += size_of(item[0])
            if inspection.deep:
                runs.append(item[1])
    if chain.seq < tail.last:
        _miss(txn, chain, tail.last)
    _check_end(inspection, txn, chain, tail, size)
    check_beyond(txn, chain, tail)
    return runs


def _check_record(txn: ReadTxn, chain: Chain, seq: int, key: bytes, value: bytes) -> tuple[TailRecord, Run] | None:
    """Check one record and go on behind it; None when it is lost."""
    try:
        record = reader.open_record(key, value)
        run = OpenRun(chain.line.session.salt, seq, [record])
    except DAMAGE as exc:
        chain.found(txn, "damaged_record", seq, str(exc))
        chain.lose(seq)
        return None
    if chain.id and chain.id != record.parent:
        chain.found(txn, "broken_chain", seq, f"seq {seq} does not follow the event before it")
        chain.id = b""
    chain.follow(txn, run)
    return record, run


def _miss(txn: ReadTxn, chain: Chain, last: int) -> None:
    first = chain.seq + 1
    which = f"the record of seq {first} is" if first == last else f"the records of seqs {first} to {last} are"
    chain.found(txn, "missing_record", first, f"{which} missing from timeline {chain.line.number}")
    chain.lose(last)


def _check_end(inspection: Inspection, txn: ReadTxn, chain: Chain, tail: rows.Tail, size: int) -> None:
    number = chain.line.number
    if chain.id and chain.id != tail.last_id:
        message = f"the last event of timeline {number} has another id than the row of its end says"
        chain.found(txn, "wrong_tail", tail.last, message)
    if chain.calls is None:
        return  # something was lost on the way here

    def check() -> None:
        if calls.read(txn, rows.IN_FLIGHT, number) != chain.calls:
            message = f"the calls in flight at the end of timeline {number} are not those of the log"
            chain.found(txn, "wrong_in_flight", tail.last, message)

    inspection.attempt(check)
    if size != tail.size:
        message = f"the open chunk of timeline {number} counts {tail.size} bytes and has {size}"
        chain.found(txn, "wrong_tail_size", tail.last, message)
