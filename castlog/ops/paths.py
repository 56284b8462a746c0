"""What changed between two JSON values, as paths: the steps that make the second of the first.

In their order they are a JSON patch. Only the values are looked at; what they mean is for others to know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

ADDED, REMOVED, CHANGED = "+", "-", "~"
_PLAIN = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)

Path = tuple[str | int, ...]


class Change(msgspec.Struct, frozen=True):
    """A step from one value to another at a path of keys and indexes.

    `sign` is "+" for what was added (it is `new`), "-" for what was removed (it was `old`), "~" for another value.
    An item added to a list moves those behind it on, one removed moves them up.
    """

    sign: str
    path: Path
    old: Any = None
    new: Any = None

    @property
    def where(self) -> str:
        """The path as people write it: `tool_calls.c9.status`, `list[3].name`, `odd["a b"]`; `.` is the whole."""
        return show(self.path)

    def leaves(self) -> Iterator[Change]:
        """Yield this change of a list or object as changes of what is in it, down to values that hold no others."""
        if self.sign == CHANGED:
            yield self
            return
        for path, value in _leaves(self.path, self.new if self.sign == ADDED else self.old):
            yield Change(self.sign, path, new=value) if self.sign == ADDED else Change(self.sign, path, old=value)


def changes(before: Any, after: Any) -> list[Change]:
    """Return the steps from one JSON value to another, in the order in which they apply; none when they are equal."""
    return list(_between((), before, after))


def show(path: Path) -> str:
    """Return a path as people write it."""
    text = "".join(_step(step) for step in path)
    return text.removeprefix(".") or "."


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if value and isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    elif value and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves((*path, index), inner)
    else:
        yield path, value


def _between(path: Path, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _in_objects(path, before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _in_lists(path, before, after)
    elif not _same(before, after):
        yield Change(CHANGED, path, before, after)


def _in_objects(path: Path, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for key, value in before.items():
        if key not in after:
            yield Change(REMOVED, (*path, key), old=value)
        else:
            yield from _between((*path, key), value, after[key])
    for key, value in after.items():
        if key not in before:
            yield Change(ADDED, (*path, key), new=value)


def _in_lists(path: Path, before: list[Any], after: list[Any]) -> Iterator[Change]:
    """Compare item by item what is left between an equal beginning and an equal end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    for index, (was, now) in enumerate(zip(old, new, strict=False), start):
        yield from _between((*path, index), was, now)
    for index in range(len(old) - 1, len(new) - 1, -1):  # from the end, so that those before keep their places
        yield Change(REMOVED, (*path, start + index), old=old[index])
    for index in range(len(old), len(new)):
        yield Change(ADDED, (*path, start + index), new=new[index])


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON: 1, 1.0 and true are equal in Python and are not here."""
    if one is other:
        return True
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(_same(*pair) for pair in zip(one, other, strict=True))
    return True
