"""Calls in flight: which event types open a call, which close one, and the fold over them.

The rule: a call is closed by the first later result with its call id, which may then be used again. The log is the
truth; chunk headers carry the fold up to their end so that no one has to go further back.
"""

from __future__ import annotations

from collections.abc import Iterable

from castlog.format.chunk import OpenCall
from castlog.format.record import Record

OPENING = frozenset({"tool_call", "model_request", "hook_call"})
CLOSING = frozenset({"tool_result", "model_response", "hook_decision"})


def fold(open_calls: Iterable[OpenCall], first: int, records: Iterable[Record]) -> tuple[OpenCall, ...]:
    """Return the calls in flight after `records`, whose first has seq `first`; oldest first."""
    in_flight = {call.call_id: call.seq for call in open_calls}
    for seq, record in enumerate(records, first):
        apply(in_flight, seq, record.type, record.call_ids)
    return freeze(in_flight)


def apply(in_flight: dict[str, int], seq: int, kind: str, call_ids: Iterable[str]) -> None:
    """Change `in_flight` (call id to opening seq) by one event."""
    if kind in OPENING:
        for call_id in call_ids:
            in_flight.pop(call_id, None)  # an id opened again stands for its newest call
            in_flight[call_id] = seq
    elif kind in CLOSING:
        for call_id in call_ids:
            in_flight.pop(call_id, None)


def freeze(in_flight: dict[str, int]) -> tuple[OpenCall, ...]:
    """Return calls in flight as they are stored."""
    return tuple(OpenCall(call_id, seq) for call_id, seq in in_flight.items())
