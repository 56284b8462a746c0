"""Payloads: JSON values to bytes and back, and the refusal of everything that would not come back the same.

A payload is checked once, before anything is written. The check walks the value level by level with C-speed
set operations; only when it finds something odd does `refusal` walk again, slowly, to name the path.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from castlog.errors import Corrupt, Invalid
from castlog.format.refusal import INT_DIGITS_MAX, SCALARS, has_unique_keys, refuse, refuse_text, require_depth
from castlog.format.room import with_room
from castlog.limits import DEPTH_MAX, EVENT_BYTES_MAX

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_JSON = SCALARS | {dict, list}
_SMALL_INT = 1 << 63


def encode(value: Any) -> bytes:
    """Return the JSON bytes of a value; raises Invalid, naming the path, for one that would not come back the same."""
    _check(value)
    try:
        data = with_room(_encode, value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as exc:
        refuse(value, exc)
    return _bounded(data)


def decode(data: bytes) -> Any:
    """Return the value of JSON bytes that were validated when they were stored; raises Corrupt when they are none."""
    try:
        return with_room(_decode, data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Corrupt(f"stored payload bytes are not JSON: {exc}") from exc


def validate(data: bytes) -> None:
    """Check foreign JSON bytes: one value, valid UTF-8, no duplicate keys, nothing that would not come back the same.

    White space around the value is allowed. Raises Invalid with the reason and, where it has one, the path.
    """
    _bounded(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Invalid(f"not UTF-8 at byte {exc.start}", offset=exc.start) from exc
    try:
        value = with_room(_decode, data)
    except RecursionError:
        require_depth(text)
        raise
    except (msgspec.MsgspecError, ValueError) as exc:
        refuse_text(text, exc)
    _check(value)
    if text.count('"') >= 4 and not with_room(has_unique_keys, text):
        refuse_text(text, None)


def _bounded(data: bytes) -> bytes:
    if len(data) > EVENT_BYTES_MAX:
        raise Invalid(
            f"the payload is {len(data):,} bytes; an event holds at most {EVENT_BYTES_MAX:,}",
            size=len(data),
            limit=EVENT_BYTES_MAX,
        )
    return data


def _check(value: Any) -> None:
    """Raise Invalid unless `value` is plain JSON, at most DEPTH_MAX levels deep."""
    level = [value]
    for depth in range(DEPTH_MAX + 1):
        kinds = set(map(type, level))
        if not kinds <= _JSON:
            refuse(value)
        if float in kinds and not all(math.isfinite(x) for x in level if type(x) is float):
            refuse(value)
        if int in kinds and not all(-_SMALL_INT <= x < _SMALL_INT for x in level if type(x) is int):
            _check_integers(value, level)
        if dict not in kinds and list not in kinds:
            return
        if depth == DEPTH_MAX:
            break
        containers = [item for item in level if type(item) is dict or type(item) is list]
        if sum(map(len, containers)) > EVENT_BYTES_MAX // 2:  # lists that share their items can grow beyond all memory
            raise Invalid(f"the payload has more values than the {EVENT_BYTES_MAX:,} bytes of an event can hold")
        below: list[Any] = []
        for item in containers:
            if type(item) is dict:
                if not set(map(type, item)) <= {str}:
                    refuse(value)
                below.extend(item.values())
            else:
                below.extend(item)
        if not below:
            return
        level = below
    refuse(value)


def _check_integers(value: Any, level: list[Any]) -> None:
    """Raise Invalid if an integer is longer than any reader turns back into one."""
    bound = 10**INT_DIGITS_MAX
    if any(type(x) is int and not -bound < x < bound for x in level):
        refuse(value)
