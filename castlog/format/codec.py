"""Payloads: JSON values to bytes and back, and the refusal of everything that would not come back the same.

A payload is checked once, before anything is written. The check walks the value level by level: a narrow level item by
item, a wide one with C-speed operations on all of it. Only when it finds something odd does `refusal` walk again,
slowly, to name the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import isfinite
from typing import Any

import msgspec

from castlog.errors import Corrupt, Invalid
from castlog.format.refusal import INT_DIGITS_MAX, SCALARS, has_unique_keys, refuse, refuse_text, require_depth
from castlog.format.room import with_room
from castlog.limits import DEPTH_MAX, EVENT_BYTES_MAX

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_JSON = SCALARS | {dict, list}
_SAFE = frozenset({str, bool, type(None)})  # what needs no second look; a lone surrogate stops the encoder
_KEYS = frozenset({str})
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_NARROW = 16  # a level of more values costs less taken whole
_INT_MAX = 10**INT_DIGITS_MAX - 1
_INT_MIN = -_INT_MAX

_flat = chain.from_iterable


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
        value = with_room(_decode, data)
    except (RecursionError, msgspec.MsgspecError, ValueError) as exc:
        text = _text(data)
        if isinstance(exc, RecursionError):
            require_depth(text)
            raise
        refuse_text(text, exc)
    # What was decoded is plain JSON, so that only its depth and its integers are left to check.
    if len(data) > INT_DIGITS_MAX or data.count(b"{") + data.count(b"[") > DEPTH_MAX:
        _check(value)
    if with_room(_encode, value) == data:  # as most programs write it; with a key twice it would be shorter
        return
    text = _text(data)
    if not with_room(has_unique_keys, text):
        refuse_text(text, None)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Invalid(f"not UTF-8 at byte {exc.start}", offset=exc.start) from exc


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
    for depth in range(DEPTH_MAX):
        below = _narrow(level)
        if below is None:
            _check_wide(value, level, depth)
            return
        if not below:
            return
        level = below
    _check_wide(value, level, DEPTH_MAX)


def _narrow(level: list[Any]) -> list[Any] | None:
    """Return what containers hold that is not sound at a glance, or None: there is too much, or not only containers."""
    if len(level) > _NARROW:
        return None
    below: list[Any] = []
    for item in level:
        kind = type(item)
        if (kind is not dict and kind is not list) or len(item) > _NARROW:
            return None
        if kind is dict:
            for key in item:
                if type(key) is not str:
                    return None
        for x in item.values() if kind is dict else item:
            kind = type(x)
            if kind is str or kind is bool or x is None or (kind is int and _INT64_MIN <= x <= _INT64_MAX):
                continue
            below.append(x)
    return below


def _check_wide(value: Any, level: list[Any], first: int) -> None:
    """Go on with a check at a level of `value`, whose depth is `first`."""
    for depth in range(first, DEPTH_MAX + 1):
        kinds = set(map(type, level))
        if kinds <= _SAFE:
            return
        if not kinds <= _JSON:
            refuse(value)
        if float in kinds and not all(map(isfinite, [x for x in level if type(x) is float])):
            refuse(value)
        if int in kinds:
            _check_integers(value, [x for x in level if type(x) is int])
        if dict not in kinds and list not in kinds:
            return
        if depth == DEPTH_MAX:
            break
        below: list[Any] = []
        if dict in kinds:
            below += _values(value, level if len(kinds) == 1 else [x for x in level if type(x) is dict])
        if list in kinds:
            lists = level if len(kinds) == 1 else [x for x in level if type(x) is list]
            _bound_count(len(below) + sum(map(len, lists)))
            below += _flat(lists)
        level = below
    refuse(value)


def _values(value: Any, dicts: list[dict[Any, Any]]) -> Iterable[Any]:
    """Return the values of a level's dicts, whose keys must be text."""
    if len(dicts) == 1:  # most often; the general way takes longer to set up
        if not _KEYS.issuperset(map(type, dicts[0])):
            refuse(value)
        return dicts[0].values()
    _bound_count(sum(map(len, dicts)))
    if not _KEYS.issuperset(map(type, _flat(dicts))):
        refuse(value)
    return _flat(map(dict.values, dicts))


def _bound_count(count: int) -> None:
    """Raise Invalid before so many values are gathered: lists that share items can grow beyond all memory."""
    if count > EVENT_BYTES_MAX // 2:
        raise Invalid(f"the payload has more values than the {EVENT_BYTES_MAX:,} bytes of an event can hold")


def _check_integers(value: Any, integers: list[int]) -> None:
    """Raise Invalid if an integer is longer than any reader turns back into one."""
    if min(integers) < _INT_MIN or max(integers) > _INT_MAX:
        refuse(value)
