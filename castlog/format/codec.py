"""Payloads: JSON values to bytes and back, and the refusal of everything that would not come back the same.

A payload is checked once, before anything is written. The check walks the value level by level with C-speed
set operations; only when it finds something odd does it walk again, slowly, to name the path. It never recurses:
how deep the caller's stack stands must not decide what can be stored.
"""

from __future__ import annotations

import _thread
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from castlog.errors import Corrupt, Invalid
from castlog.limits import DEPTH_MAX, EVENT_BYTES_MAX

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_SCALARS = frozenset({str, int, float, bool, type(None)})
_JSON = _SCALARS | {dict, list}
_SMALL_INT = 1 << 63
_INT_DIGITS_MAX = 4299  # the interpreter turns at most 4,300 characters into an int, and a minus sign is one


def encode(value: Any) -> bytes:
    """Return the JSON bytes of a value; raises Invalid, naming the path, for one that would not come back the same."""
    _check(value)
    try:
        data = with_room(_encode, value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as exc:
        _refuse(value, exc)
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
        _check_depth(text)
        raise
    except (msgspec.MsgspecError, ValueError) as exc:
        _refuse_text(text, exc)
    _check(value)
    if text.count('"') >= 4 and not with_room(_has_unique_keys, text):
        _refuse_text(text, None)


def with_room(function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Return `function(argument)`, on a stack of its own when the caller's leaves too little room.

    Decoders recurse, and CPython counts that against the frames the caller has used up already.
    """
    try:
        return function(argument)
    except RecursionError:
        pass
    done = _thread.allocate_lock()
    results: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function(argument))
        except BaseException as exc:
            failures.append(exc)
        finally:
            done.release()

    done.acquire()
    _thread.start_new_thread(run, ())  # what `threading` does around it takes more frames than may be left
    done.acquire()
    for failure in failures:
        raise failure
    return results[0]


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
            _refuse(value)
        if float in kinds and not all(math.isfinite(x) for x in level if type(x) is float):
            _refuse(value)
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
                    _refuse(value)
                below.extend(item.values())
            else:
                below.extend(item)
        if not below:
            return
        level = below
    _refuse(value)


def _check_integers(value: Any, level: list[Any]) -> None:
    """Raise Invalid if an integer is longer than any reader turns back into one."""
    bound = 10**_INT_DIGITS_MAX
    if any(type(x) is int and not -bound < x < bound for x in level):
        _refuse(value)


def _refuse(value: Any, cause: Exception | None = None) -> NoReturn:
    """Find what is wrong with `value` and raise Invalid naming its path."""
    for path, problem in _problems(value):
        raise Invalid(f"{path}: {problem}", path=path) from cause
    raise Invalid(f"the payload cannot be written as JSON: {cause}") from cause


def _problems(value: Any) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Any, int]] = [("$", value, 0)]
    while stack:
        path, item, depth = stack.pop()
        kind = type(item)
        if kind is dict or kind is list:
            if depth >= DEPTH_MAX:
                yield _shorten(path), f"nested deeper than {DEPTH_MAX} levels; flatten it"
                return
            pairs = item.items() if kind is dict else enumerate(item)
            children = []
            for name, child in pairs:
                if kind is dict and type(name) is not str:
                    yield path, f"the key {name!r} would come back as a string; write it as one"
                elif isinstance(name, str) and (bad := _surrogate(name)) is not None:
                    yield path, f"a key holds the lone surrogate {bad}, which is not text; replace it"
                else:
                    children.append((f"{path}{_step(name)}", child, depth + 1))
            stack.extend(reversed(children))
        elif kind is float and not math.isfinite(item):
            yield path, f"{item} is not JSON; write null or a string"
        elif kind is int and abs(item) >= 10**_INT_DIGITS_MAX:
            yield path, f"an integer of more than {_INT_DIGITS_MAX:,} digits does not come back; write a string"
        elif kind is str and (bad := _surrogate(item)) is not None:
            yield path, f"the lone surrogate {bad} is not text; replace it or send the bytes as base64"
        elif kind is bytes:
            yield path, "bytes are not JSON; send them as castlog.attachment does"
        elif kind not in _SCALARS:
            yield path, f"a {kind.__name__} would not come back as one; convert it to a plain JSON value"


def _surrogate(text: str) -> str | None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        return f"U+{ord(text[exc.start]):04X}"
    return None


def _step(name: str | int) -> str:
    if isinstance(name, int):
        return f"[{name}]"
    return f".{name}" if name.isidentifier() else f"[{json.dumps(name)}]"


def _shorten(path: str) -> str:
    return path if len(path) <= 80 else f"{path[:76]}..."


def _check_depth(text: str) -> None:
    """Raise Invalid when the brackets outside strings nest deeper than DEPTH_MAX."""
    depth = 0
    position = 0
    end = len(text)
    while position < end:
        character = text[position]
        if character == '"':
            position = _string_end(text, position)
            continue
        if character in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise Invalid(f"nested deeper than {DEPTH_MAX} levels; flatten it", depth=depth)
        elif character in "]}":
            depth -= 1
        position += 1


def _string_end(text: str, start: int) -> int:
    """Return the position after the string literal that opens at `start`."""
    position = start + 1
    while True:
        quote = text.find('"', position)
        if quote < 0:
            return len(text)
        slashes = quote
        while text[slashes - 1] == "\\":
            slashes -= 1
        if (quote - slashes) % 2 == 0:
            return quote + 1
        position = quote + 1


class _Duplicate(Exception):
    """An object has a key twice: a signal inside this module."""


def _has_unique_keys(text: str) -> bool:
    """Return whether no object in valid JSON text has a key twice."""
    try:
        json.loads(text, object_pairs_hook=_require_unique)
    except _Duplicate:
        return False
    return True


def _require_unique(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Duplicate


class _Pairs(list[tuple[str, Any]]):
    """An object's members in the order of the text, keys that occur twice included."""


class _Number(str):
    """A number as it stands in the text."""


def _refuse_text(text: str, cause: Exception | None) -> NoReturn:
    """Find what is wrong with JSON text that was refused and raise Invalid, naming its path if it has one."""
    try:
        tree = with_room(_load_as_written, text)
    except (ValueError, RecursionError):
        raise Invalid(f"not JSON that can be kept: {cause}") from cause
    for path, problem in _problems_as_written(tree):
        raise Invalid(f"{path}: {problem}", path=path) from cause
    raise Invalid(f"not JSON that can be kept: {cause}") from cause


def _load_as_written(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _problems_as_written(tree: Any) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Any]] = [("$", tree)]
    while stack:
        path, item = stack.pop()
        children: list[tuple[str, Any]] = []
        if type(item) is _Pairs:
            seen: set[str] = set()
            for name, child in item:
                if name in seen:
                    yield path, f"the key {name!r} occurs twice in one object; only one of them would come back"
                if (bad := _surrogate(name)) is not None:
                    yield path, f"a key holds the lone surrogate {bad}, which is not text; replace it"
                seen.add(name)
                children.append((f"{path}{_step(name)}", child))
        elif type(item) is list:
            children = [(f"{path}[{index}]", child) for index, child in enumerate(item)]
        elif type(item) is _Number and not _is_carried(item):
            yield path, f"the number {_shorten(item)} is not one that JSON readers carry; write null or a string"
        elif type(item) is str and (bad := _surrogate(item)) is not None:
            yield path, f"the lone surrogate {bad} is not text; replace it or send the bytes as base64"
        stack.extend(reversed(children))


def _is_carried(number: _Number) -> bool:
    """Return whether a number as written comes back as a number."""
    if number.lstrip("-").isdecimal():
        return len(number.lstrip("-")) <= _INT_DIGITS_MAX
    return math.isfinite(float(number))
