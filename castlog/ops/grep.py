"""Search over payloads: each stored stretch of events read once, nothing decoded that cannot match.

Most events do not match, so their bytes are searched first, as JSON wrote them, for the words any match must hold. Only
what has them is decoded and searched again as text, string by string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from castlog.core import Core, make_event
from castlog.errors import Invalid
from castlog.event import Event, Progress
from castlog.format import ids
from castlog.history.runs import Page, Run
from castlog.ops import walk
from castlog.ops.walk import Stretch

BEFORE, AFTER = 40, 120  # characters shown around a match

_ANY = re.compile(r"\.[*+?]?")  # the constructs that stand between required words without changing them
_WORDS = re.compile(r"[A-Za-z0-9_ ]+")


class Match(msgspec.Struct, frozen=True):
    """An event that matched: one branch that has it, the line around the match, and where in it the match lies."""

    event: Event
    rev: str
    text: str
    span: tuple[int, int]


class Search(msgspec.Struct, frozen=True):
    """What is looked for. `words` are in the bytes of every payload that can match, unless they hold escapes."""

    pattern: re.Pattern[str]
    words: tuple[re.Pattern[bytes], ...]
    types: frozenset[str] | None
    tool: str | None


def compile_search(
    pattern: str, *, ignore_case: bool, fixed: bool, types: Collection[str] | None, tool: str | None
) -> Search:
    """Return a search; raises Invalid for a pattern that is no regular expression."""
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        compiled = re.compile(re.escape(pattern) if fixed else pattern, flags)
    except re.error as exc:
        raise Invalid(
            f"{pattern!r} is no regular expression: {exc}; search for it as it stands with fixed (-F)", value=pattern
        ) from exc
    parts = [pattern] if fixed else _ANY.split(pattern)
    plain = all(not part or (part.isascii() and _WORDS.fullmatch(part)) for part in parts)
    words = [part for part in parts if part] if plain else []
    byte_flags = re.IGNORECASE if ignore_case else 0
    return Search(
        compiled,
        tuple(re.compile(re.escape(word.encode()), byte_flags) for word in words),
        None if types is None else frozenset([types] if isinstance(types, str) else types),
        tool,
    )


def run(
    core: Core, search: Search, stretches: Iterable[Stretch], progress: Callable[[Progress], None] | None
) -> Iterator[Match]:
    """Yield matches, stretch by stretch, oldest first in each."""
    done = 0
    for stretch in stretches:
        for part, first, last in walk.runs(core, stretch):
            yield from _in_run(core, search, stretch, part, first, last)
            done += last - first + 1
            if progress is not None:
                progress(Progress(done, None, "events", stretch.row.title))


def _in_run(core: Core, search: Search, stretch: Stretch, part: Run, first: int, last: int) -> Iterator[Match]:
    page = Page(part, core.fetch, bulk=False)
    session_id = ids.show_session(stretch.session)
    for seq in range(first, last + 1):
        index = seq - part.first
        record = part.records[index]
        if search.types is not None and record.type not in search.types:
            continue
        raw = page.raw(index)
        if not _possible(search, raw):
            continue
        payload = page.payload(index)
        if search.tool is not None and not _calls_tool(payload, search.tool):
            continue
        hit = _search(search.pattern, payload)
        if hit is not None:
            event = make_event(session_id, stretch.name, seq, record, page, index)
            yield Match(event, f"{session_id}/{stretch.name}@{seq}", *hit)


def _possible(search: Search, raw: bytes) -> bool:
    if not raw:
        return False
    # Some writers escape plain characters (\u0041, \u003c): such payloads are decoded.
    return all(word.search(raw) for word in search.words) or b"\\u00" in raw


def _search(pattern: re.Pattern[str], payload: Any) -> tuple[str, tuple[int, int]] | None:
    for text in _texts(payload):
        found = pattern.search(text)
        if found is not None:
            return _line(text, *found.span())
    return None


def _texts(payload: Any) -> Iterator[str]:
    """Yield every string and number of a value in order, then every key: a match in what was said shows more."""
    keys: list[str] = []
    stack = [payload]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            keys += item
            stack += reversed(item.values())
        elif isinstance(item, list):
            stack += reversed(item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)
    yield from keys


def _line(text: str, start: int, end: int) -> tuple[str, tuple[int, int]]:
    """Return the line around a match, cut to a readable length, and the match's place in it."""
    low = max(text.rfind("\n", 0, start) + 1, start - BEFORE)
    stop = text.find("\n", end)
    high = min(len(text) if stop < 0 else stop, start + AFTER)
    return text[low:high], (start - low, min(end, high) - low)


def _calls_tool(payload: Any, tool: str) -> bool:
    """Return whether a payload has, at any depth, an object whose `name` is the tool's."""
    stack = [payload]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get("name") == tool:
                return True
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return False
