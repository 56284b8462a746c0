"""Why a payload is refused: a second, slow walk that finds what is wrong and names its path.

It is taken only when `codec` found something odd, and never recurses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from castlog.errors import Invalid
from castlog.format.room import with_room
from castlog.limits import DEPTH_MAX

SCALARS = frozenset({str, int, float, bool, type(None)})
INT_DIGITS_MAX = 4299  # the interpreter turns at most 4,300 characters into an int, and a minus sign is one


def refuse(value: Any, cause: Exception | None = None) -> NoReturn:
    """Find what is wrong with `value` and raise Invalid naming its path."""
    for path, problem in _problems(value):
        raise Invalid(f"{path}: {problem}", path=path) from cause
    raise Invalid(f"the payload cannot be written as JSON: {cause}") from cause


def refuse_text(text: str, cause: Exception | None) -> NoReturn:
    """Find what is wrong with JSON text that was refused and raise Invalid, naming its path if it has one."""
    try:
        tree = with_room(_load_as_written, text)
    except (ValueError, RecursionError):
        raise Invalid(f"not JSON that can be kept: {cause}") from cause
    for path, problem in _problems_as_written(tree):
        raise Invalid(f"{path}: {problem}", path=path) from cause
    raise Invalid(f"not JSON that can be kept: {cause}") from cause


def require_depth(text: str) -> None:
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


def has_unique_keys(text: str) -> bool:
    """Return whether no object in valid JSON text has a key twice."""
    try:
        json.loads(text, object_pairs_hook=_require_unique)
    except _Duplicate:
        return False
    return True


class _Pairs(list[tuple[str, Any]]):
    """An object's members in the order of the text, keys that occur twice included."""


class _Number(str):
    """A number as it stands in the text."""


class _Duplicate(Exception):
    """An object has a key twice: a signal inside this module."""


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
        elif kind is int and abs(item) >= 10**INT_DIGITS_MAX:
            yield path, f"an integer of more than {INT_DIGITS_MAX:,} digits does not come back; write a string"
        elif kind is str and (bad := _surrogate(item)) is not None:
            yield path, f"the lone surrogate {bad} is not text; replace it or send the bytes as base64"
        elif kind is bytes:
            yield path, "bytes are not JSON; send them as castlog.attachment does"
        elif kind not in SCALARS:
            yield path, f"a {kind.__name__} would not come back as one; convert it to a plain JSON value"


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
        return len(number.lstrip("-")) <= INT_DIGITS_MAX
    return math.isfinite(float(number))


def _require_unique(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Duplicate


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
