"""Calls in flight: which event types open a call, which close one, the fold over them, and where its results are kept.

The rule: a call is closed by the first later result with its call id, which may then be used again. The log is the
truth; chunk headers carry the fold up to their end so that no one has to go further back, and a timeline's end and its
fork point have it as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.format.chunk import OpenCall
from castlog.format.record import Record
from castlog.format.rows import Calls, Clustered
from castlog.history import tables

OPENING = frozenset({"tool_call", "model_request", "hook_call"})
CLOSING = frozenset({"tool_result", "model_response", "hook_decision"})

InFlight = dict[str, int]
"""Call ids and the seqs of the events that opened them, oldest first."""


def fold(before: Mapping[str, int], first: int, records: Iterable[Record]) -> InFlight:
    """Return the calls in flight after `records`, whose first has seq `first`."""
    in_flight = dict(before)
    for seq, record in enumerate(records, first):
        apply(in_flight, seq, record)
    return in_flight


def concerns(record: Record) -> bool:
    """Return whether an event opens or closes a call."""
    return bool(record.call_ids) and (record.type in OPENING or record.type in CLOSING)


def apply(in_flight: InFlight, seq: int, record: Record) -> None:
    """Change `in_flight` by one event."""
    if not concerns(record):
        return
    for call_id in record.call_ids:
        in_flight.pop(call_id, None)  # an id opened again stands for its newest call
        if record.type in OPENING:
            in_flight[call_id] = seq


def freeze(in_flight: Mapping[str, int]) -> tuple[OpenCall, ...]:
    """Return calls in flight as a chunk's header holds them."""
    return tuple(OpenCall(call_id, seq) for call_id, seq in in_flight.items())


def thaw(frozen: Iterable[OpenCall]) -> InFlight:
    """Return calls in flight from a chunk's header."""
    return {call.call_id: call.seq for call in frozen}


def read(txn: ReadTxn, table: Clustered[Calls], timeline: int) -> InFlight:
    """Return the calls in flight in a timeline's rows: `IN_FLIGHT` at its end, `OPEN_AT_FORK` where it began."""
    found: InFlight = {}
    for key, row in tables.scan(txn, table, timeline.to_bytes(8, "big")):
        seq = table.fields(key)[1]
        assert isinstance(seq, int)
        found.update(dict.fromkeys(row.call_ids, seq))
    return found


def write(
    txn: WriteTxn, table: Clustered[Calls], timeline: int, before: Mapping[str, int], after: Mapping[str, int]
) -> None:
    """Change a timeline's rows from `before` to `after`; costs a row for each event whose calls opened or closed."""
    old, new = _by_seq(before), _by_seq(after)
    for seq in old.keys() - new.keys():
        tables.delete(txn, table, timeline, seq)
    for seq, call_ids in new.items():
        if old.get(seq) != call_ids:
            tables.put(txn, table, Calls(tuple(call_ids)), timeline, seq)


def _by_seq(in_flight: Mapping[str, int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for call_id, seq in in_flight.items():
        found.setdefault(seq, []).append(call_id)
    return found
