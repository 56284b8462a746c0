"""What messages are made of: texts, content blocks and tool calls, read out of payloads that may hold anything.

Nothing here raises over what it is given, and nothing that is returned is a list of the payload's own: states grow the
lists they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

Content = str | list[Any]
"""A text, or a list of content blocks: dicts with a `type`, kept as they came."""

ERROR_LENGTH_MAX = 500  # a state shows what went wrong; all of it is in the log
_LEVELS_MAX = 100  # a state nests what it was given some levels deeper than the payload did, and JSON ends at 128
_NUMBER_MAX = 2**53
_BOUND = frozenset({"tool_use", "tool_result"})  # valid only where calls and results are paired


class Call(NamedTuple):
    """A tool call as a model asks for it; `id` is None when it was given none."""

    id: str | None
    name: str
    args: Any


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value that is a dict, or an empty one."""
    return value if type(value) is dict else {}


def items(value: Any) -> list[Any]:
    """Return a value that is a list, or an empty one."""
    return value if type(value) is list else []


def text(value: Any) -> str | None:
    """Return a value that is a text with something in it, or None."""
    return value if type(value) is str and value else None


def number(value: Any) -> int | float:
    """Return a value that is a number fit to be added up, or 0."""
    return value if type(value) in (int, float) and 0 <= value <= _NUMBER_MAX else 0


def as_json(value: Any) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


def fit(value: Any) -> Any:
    """Return a call's arguments, or their JSON text if they nest so deep that a state could not hold them."""
    if value is None:
        return {}
    return value if _within(value, _LEVELS_MAX) else as_json(value)


def read(value: Any) -> Content:
    """Return what a payload gives as content: a text, blocks, or any other value as JSON text.

    Texts of nothing but white space are left out: providers refuse them.
    """
    if value is None or _is_blank(value):
        return ""
    if type(value) is str:
        return value
    blocks = value if type(value) is list else [value]
    if not all(type(block) is str or _kind(block) for block in blocks):
        return as_json(value)
    return [_block(block) for block in blocks if not _is_blank(block)]


def parts(value: Any, kind: str) -> tuple[Content, list[Mapping[str, Any]]]:
    """Return what a message says, and the blocks of a kind, `tool_use` or `tool_result`, that stand in it."""
    if type(value) is not list:
        return read(value), []
    said = [block for block in value if _kind(block) not in _BOUND]
    return read(said), [block for block in value if _kind(block) == kind]


def joined(first: Content, second: Content) -> Content:
    """Return two contents as one; a list given first grows."""
    if not first or not second:
        return first or second or ""
    if isinstance(first, str):
        first = [text_block(first)]
    first.extend([text_block(second)] if isinstance(second, str) else second)
    return first


def text_block(value: str) -> dict[str, Any]:
    """Return a text as a content block."""
    return {"type": "text", "text": value}


def first_text(content: Content) -> str:
    """Return the first text of a content, or ""."""
    if isinstance(content, str):
        return content
    return next((found for block in content if (found := text(block.get("text")))), "")


def call(value: Any) -> Call | None:
    """Return a tool call as an event, a content block or a provider's message gives it, or None when it is none."""
    found = mapping(value)
    function = mapping(found.get("function")) or found
    name = text(function.get("name"))
    if name is None:
        return None
    if "arguments" in function:
        return Call(text(found.get("id")), name, arguments(function["arguments"]))
    return Call(text(found.get("id")), name, fit(function.get("args", function.get("input"))))


def arguments(value: Any) -> Any:
    """Return a call's arguments when they are given as the JSON text of an object."""
    if type(value) is str:
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return value
    return fit(value)


def error_text(value: Any) -> str:
    """Return in words, cut to a few hundred characters, what a payload gives as an error."""
    while isinstance(value, dict):
        inner = value.get("message") or value.get("error") or value.get("text")
        if not inner:
            break
        value = inner
    if isinstance(value, list):
        value = first_text(read(value)) or value
    words = value if isinstance(value, str) else as_json(value)
    return words if len(words) <= ERROR_LENGTH_MAX else words[: ERROR_LENGTH_MAX - 1] + "…"


def _kind(block: Any) -> str | None:
    return text(mapping(block).get("type"))


def _block(block: Any) -> dict[str, Any]:
    if type(block) is str:
        return text_block(block)
    is_sound = type(block.get("text")) is str if block["type"] == "text" else _kind(block) not in _BOUND
    return block if is_sound and _within(block, _LEVELS_MAX) else text_block(as_json(block))


def _is_blank(value: Any) -> bool:
    """Whether a value is a text, or the block of one, with nothing in it."""
    if type(value) is dict and value.get("type") == "text":
        value = value.get("text") or ""
    return type(value) is str and not value.strip()


def _within(value: Any, levels: int) -> bool:
    """Whether a value nests at most so many levels deep."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return True
    inner = value.values() if kind is dict else value
    return levels > 0 and all(_within(item, levels - 1) for item in inner if type(item) in (dict, list))
