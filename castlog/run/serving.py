"""Serving: the recorded steps of a run handed out again, in their order, without anything being done.

What counts as a step: calls, values, messages and notes. Results belong to their calls; all else is only folded.
Messages and notes may have been written by others, so one that the harness does not write is passed over.

A harness of one thread has to take the steps in the recorded order. One of several may take those of a turn, that is
up to the next model request, in any; equal steps are served in theirs: the n-th gets what the n-th got.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from castlog.errors import Diverged, InFlight
from castlog.event import Event
from castlog.format import codec
from castlog.run.result import KINDS

_BY_OTHERS = frozenset({"user_message", "note"})
_STEPS = frozenset({*KINDS, "value"}) | _BY_OTHERS
_RESULTS = frozenset(kind.result for kind in KINDS.values())


class Step(NamedTuple):
    """A step as the harness takes it."""

    type: str
    payload: Any
    call_id: str | None = None

    def recorded(self) -> Step:
        """Return the step as the log would give it back; raises Invalid for what cannot be kept."""
        return self._replace(payload=codec.decode(codec.encode(self.payload)))

    def fits(self, event: Event) -> bool:
        """Return whether a recorded step is this one."""
        if event.type != self.type or (self.call_id is not None and self.call_id not in event.call_ids):
            return False
        recorded = event.payload
        if not isinstance(recorded, dict) or not isinstance(self.payload, dict):
            return bool(recorded == self.payload)
        if self.type == "tool_call":  # another policy makes no other call
            return _same(recorded, self.payload, "name", "args")
        return _same(recorded, self.payload, "kind") if self.type == "value" else recorded == self.payload


class Served(NamedTuple):
    """A recorded step and, of a call, its result if there is one; and what is to be folded with it."""

    event: Event
    answer: Event | None
    passed: list[Event]


class Script:
    """The recorded steps that are still to be served. Threads share it."""

    def __init__(self, events: Iterator[Event], seq: int) -> None:
        self._rest = events
        self._ahead: list[Event] = []  # read, and not folded yet
        self._served: set[int] = set()
        self._lock = threading.Lock()
        self.seq = seq  # what was handed out for folding ends here

    def serve(self, step: Step, *, alone: bool) -> Served | None:
        """Return the recorded step that the harness takes now, or None when all were served: the run goes live.

        `alone` says that the harness has one thread. Raises Diverged when another one is due.
        """
        with self._lock:
            event = self._find(step, alone)
            if event is None:
                return None
            answer = self._answer(event) if event.type in KINDS else None
            if event.type in KINDS and answer is None:
                return Served(event, None, [])
            self._served.add(event.seq)
            return Served(event, answer, self._pass(max(self.seq, event.seq, answer.seq if answer else 0)))

    def fold_ahead(self) -> list[Event]:
        """Return what comes before the next step that only the harness can take, to be folded now."""
        with self._lock:
            due = next((event for event in self._all() if self._is_due(event)), None)
            return self._pass(due.seq - 1 if due else self._last())

    def fold_rest(self) -> list[Event]:
        """Return all that was not folded yet."""
        with self._lock:
            return self._pass(self._last())

    def unserved_calls(self) -> list[Event]:
        """Return the calls that have results and were not served, of all that was folded."""
        with self._lock:
            due = [event for event in self._ahead if event.type in KINDS and self._is_due(event)]
            return [call for call in due if self._answer(call) is not None]

    def ended(self) -> bool:
        """Return whether nothing is left to be served."""
        with self._lock:
            return not any(
                self._is_due(event) or (event.seq > self.seq and event.type in _STEPS) for event in self._all()
            )

    def _find(self, step: Step, alone: bool) -> Event | None:
        due: Event | None = None
        other: Event | None = None
        end = 0
        for event in self._all():
            if event.type not in _STEPS or event.seq in self._served:
                continue
            if due and event.seq > end and (alone or "model_request" in (event.type, step.type)):
                break
            if step.fits(event):
                return event
            if event.type == step.type and event.seq > self.seq:
                other = other or event
            if due is None and self._is_due(event):
                due, end = event, self._end_of(event)
        recorded = due or other
        if recorded is not None:
            raise Diverged(
                f"the harness takes the step {_words(step.type, step.payload)} and recorded is"
                f" seq {recorded.seq}, {_words(recorded.type, recorded.payload)}",
                step=step._asdict(),
                recorded=recorded,
            )
        return None

    def _is_due(self, event: Event) -> bool:
        return event.type in _STEPS and event.type not in _BY_OTHERS and event.seq not in self._served

    def _end_of(self, event: Event) -> int:
        """Return the seq until which a step went on: others may have been begun meanwhile."""
        if event.type not in KINDS:
            return event.seq
        answer = self._answer(event)
        return sys.maxsize if answer is None else answer.seq

    def _answer(self, call: Event) -> Event | None:
        kind = KINDS[call.type].result
        wanted = set(call.call_ids)
        results = (event for event in self._all() if event.seq > call.seq and event.type == kind)
        return next((event for event in results if wanted & set(event.call_ids)), None)

    def _pass(self, until: int) -> list[Event]:
        """Return what is to be folded up to a seq, and keep of it what was not served yet."""
        found = [event for event in self._all(until) if self.seq < event.seq <= until]
        self.seq = max(self.seq, until)
        self._ahead = [event for event in self._ahead if event.seq > self.seq or self._may_come(event)]
        return found

    def _may_come(self, event: Event) -> bool:
        """Return whether an event that is folded may still be asked for."""
        if event.type in _STEPS:
            return event.seq not in self._served
        return event.type in _RESULTS and any(
            self._is_due(call) and call.seq < event.seq and set(call.call_ids) & set(event.call_ids)
            for call in self._ahead
        )

    def _last(self) -> int:
        return max([event.seq for event in self._all()], default=self.seq)

    def _all(self, until: int | None = None) -> Iterator[Event]:
        """Yield the events that are not done with, reading on as far as they are asked for."""
        index = 0
        while True:  # by index: who looks at these may read on meanwhile
            if index == len(self._ahead):
                event = None if until is not None and index and self._ahead[-1].seq >= until else next(self._rest, None)
                if event is None:
                    return
                self._ahead.append(event)
            yield self._ahead[index]
            index += 1


def unanswered(event: Event) -> InFlight:
    """Return the failure of serving a call that the log has no result of."""
    return InFlight(
        f"the recorded log ends with the call {event.call_id} (seq {event.seq}) in flight", calls=[event], plan=None
    )


def past_the_end(step: Step) -> Diverged:
    """Return the failure of a step that comes after all that was recorded, where nothing may be written."""
    return Diverged(
        f"the harness takes the step {_words(step.type, step.payload)} and nothing more is recorded",
        step=step._asdict(),
        recorded=None,
    )


def _same(recorded: dict[str, Any], taken: dict[str, Any], *keys: str) -> bool:
    return all(recorded.get(key) == taken.get(key) for key in keys)


def _words(kind: str, payload: Any) -> str:
    shown = {k: v for k, v in payload.items() if k != "in_flight"} if isinstance(payload, dict) else payload
    text = repr(shown)
    return f"{kind} {text if len(text) <= 200 else text[:199] + '…'}"
