"""Calls in flight: which event types open a call, which close one, the fold over them, and where its results are kept.

The rule: a call is closed by the first later result with its call id, which may then be used again. The log is the
truth; chunk headers carry the fold up to their end so that no one has to go further back, and a timeline's end and its
fork point have it as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.format import rows
from castlog.format.chunk import OpenCall
from castlog.format.record import Record
from castlog.format.rows import Clustered
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


def apply(in_flight: InFlight, seq: int, record: Record) -> None:
    """Change `in_flight` by one event."""
    for call_id, opened in changes(seq, record):
        in_flight.pop(call_id, None)  # an id opened again stands for its newest call
        if opened is not None:
            in_flight[call_id] = opened


def changes(seq: int, record: Record) -> list[tuple[str, int | None]]:
    """Return what an event does to calls: each of its ids with the seq it is open from, or None if it is closed."""
    if not record.call_ids:
        return []
    if record.type in OPENING:
        return [(call_id, seq) for call_id in record.call_ids]
    if record.type in CLOSING:
        return [(call_id, None) for call_id in record.call_ids]
    return []


def freeze(in_flight: Mapping[str, int]) -> tuple[OpenCall, ...]:
    """Return calls in flight as a chunk's header holds them."""
    return tuple(OpenCall(call_id, seq) for call_id, seq in in_flight.items())


def thaw(frozen: Iterable[OpenCall]) -> InFlight:
    """Return calls in flight from a chunk's header."""
    return {call.call_id: call.seq for call in frozen}


def read(txn: ReadTxn, table: Clustered[OpenCall], timeline: int) -> InFlight:
    """Return the calls in flight in a timeline's rows: `IN_FLIGHT` at its end, `OPEN_AT_FORK` where it began."""
    found = [row for _, row in tables.scan(txn, table, timeline.to_bytes(8, "big"))]
    return thaw(sorted(found, key=lambda call: call.seq))


def write(
    txn: WriteTxn, table: Clustered[OpenCall], timeline: int, changes: Mapping[str, int | None], *, fresh: bool = False
) -> None:
    """Change a timeline's rows: a call opened at a seq, or closed (None); costs one row a call.

    In a `fresh` timeline there is nothing to close.
    """
    for call_id, seq in changes.items():
        digest = rows.key_digest(call_id)
        if seq is not None:
            tables.put(txn, table, OpenCall(call_id, seq), timeline, digest)
        elif not fresh:
            tables.delete(txn, table, timeline, digest)
