"""Versions of payloads: upcasters lift what older harnesses wrote, one step at a time, when it is read.

The log is never rewritten. An event carries the schema its payload was written in; this module knows, for each type,
the steps from older schemas, and so which schema is the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from castlog.errors import Invalid, Unavailable

Upcast = Callable[[Any], Any]

_steps: dict[str, dict[int, Upcast]] = {}


def upcaster(type: str, *, from_schema: int) -> Callable[[Upcast], Upcast]:  # noqa: A002 - the event's word
    """Register a function that lifts payloads of a type from one schema to the next.

    It must be pure, and may change and return the payload it is given. Registering a second one for the same step is
    Invalid. What is read afterwards is lifted, whichever store it comes from.
    """
    if not isinstance(from_schema, int) or isinstance(from_schema, bool) or from_schema < 1:
        raise Invalid(f"from_schema is {from_schema!r}; give a whole number from 1 on", value=from_schema)

    def register(function: Upcast) -> Upcast:
        steps = _steps.setdefault(type, {})
        if from_schema in steps:
            raise Invalid(f"schema {from_schema} of {type} has an upcaster already", type=type, schema=from_schema)
        steps[from_schema] = function
        return function

    return register


def newest(type: str) -> int:  # noqa: A002 - the event's word
    """Return the schema new payloads of a type are written in: 1 + the highest `from_schema` registered for it."""
    steps = _steps.get(type)
    return 1 + max(steps) if steps else 1


def is_old(type: str, schema: int) -> bool:  # noqa: A002 - the event's word
    """Return whether payloads of this schema are lifted when they are read."""
    steps = _steps.get(type)
    return steps is not None and schema <= max(steps)


def lift(type: str, schema: int, payload: Any) -> Any:  # noqa: A002 - the event's word
    """Return a payload as the newest schema has it; raises Invalid naming a step that is missing."""
    steps = _steps[type]
    for step in range(schema, 1 + max(steps)):
        if step not in steps:
            raise Invalid(f"nothing lifts {type} from schema {step}; register an upcaster", type=type, schema=step)
        payload = steps[step](payload)
    return payload


def require_known(type: str, schema: int, harness_version: str | None, seq: int) -> None:  # noqa: A002
    """Raise Unavailable, by name, for an event that newer code than this wrote."""
    known = newest(type)
    if schema > known:
        writer = f" by {harness_version}" if harness_version else ""
        raise Unavailable(
            f"seq {seq}, a {type}, was written{writer} in schema {schema}; this code knows up to {known}: upgrade it",
            type=type,
            schema=schema,
            known=known,
            harness_version=harness_version,
            seq=seq,
        )


def fingerprint() -> str:
    """Return what names the upcasters registered now: a state folded with others is another state."""
    return " ".join(sorted(f"{kind}:{step}" for kind, steps in _steps.items() for step in steps))
