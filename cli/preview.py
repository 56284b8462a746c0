"""One line that says what an event holds, for castlog's own types and for foreign records alike.

It looks at the shape of the payload, not at where it came from: text, blocks of content, a call with its arguments, a
result. What it does not know is shown as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .text import cut, flat, plural
from .values import size

if TYPE_CHECKING:
    import castlog

_LONG = 300  # characters of any one part: a line shows no more, and flattening a megabyte for it is waste
_DECODE_BYTES_MAX = 4_000_000
_ARGUMENTS = ("args", "arguments", "input", "parameters")
_TEXTS = ("text", "thinking", "summary", "content", "message", "reason", "title", "prompt", "query", "lastPrompt")


def preview(event: castlog.Event, width: int) -> str:
    """Return what the event says in at most `width` columns; raises Corrupt if its payload cannot be read."""
    if event.redacted:
        return "(redacted)"
    if event.size > _DECODE_BYTES_MAX:
        return f"({size(event.size)})"
    return cut(describe(event.payload), width)


def describe(value: Any) -> str:
    """Return any payload as one line, cut to a few hundred characters."""
    return flat(_of(value, 0)[: _LONG * 2])


def call_text(name: str, arguments: Any) -> str:
    """Return a call as people write it: `Edit(file=src/api.py, old=...)`."""
    if isinstance(arguments, str):
        arguments = _decoded(arguments)
    if isinstance(arguments, dict):
        inside = ", ".join(f"{key}={_short(value)}" for key, value in list(arguments.items())[:8])
    else:
        inside = "" if arguments is None else _short(arguments)
    return f"{name}({inside})"


def is_binary(value: Any) -> bool:
    """Return whether a JSON value is binary data in the form castlog carries it."""
    return isinstance(value, dict) and value.get("type") == "base64" and isinstance(value.get("data"), str)


def _of(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return value[:_LONG]
    if depth > 6:
        return "…"
    if isinstance(value, list):
        return _blocks(value, depth)
    if not isinstance(value, dict):
        return json.dumps(value)
    for shape in _SHAPES:
        text = shape(value, depth + 1)
        if text:
            return text
    return _json(value)


def _blocks(blocks: list[Any], depth: int) -> str:
    parts: list[str] = []
    for block in blocks[:20]:
        parts.append(_of(block, depth + 1))
        if sum(map(len, parts)) > _LONG:
            break
    return " ".join(part for part in parts if part)


def _binary(value: dict[str, Any], depth: int) -> str:
    if is_binary(value):
        return f"<{value.get('media_type', 'binary')}, {size(len(value['data']) * 3 // 4)}>"
    if is_binary(value.get("source")):
        return _binary(value["source"], depth)
    return ""


def _damaged(value: dict[str, Any], depth: int) -> str:
    if "raw" in value and "file" in value:
        return f"{value['file']}:{value.get('line', '?')}: {_of(value['raw'], depth)}"
    return ""


def _request(value: dict[str, Any], depth: int) -> str:
    messages = value.get("messages")
    if not isinstance(messages, list):
        return ""
    parts = [str(value.get("model") or ""), plural(len(messages), "message")]
    if isinstance(value.get("tools"), list):
        parts.append(plural(len(value["tools"]), "tool"))
    return ", ".join(part for part in parts if part)


def _call(value: dict[str, Any], depth: int) -> str:
    name = value.get("name") or value.get("hook") or value.get("tool")
    for key in _ARGUMENTS:
        if isinstance(name, str) and key in value:
            return call_text(name, value[key])
    return ""


def _result(value: dict[str, Any], depth: int) -> str:
    if value.get("interrupted"):
        return "interrupted" + _after(": ", value.get("error"), depth)
    if value.get("error") and (value.get("ok") is False or "output" not in value):
        return f"failed: {_of(value['error'], depth)}"
    if "output" in value:
        output = value["output"]
        inner = _decoded(output) if isinstance(output, str) and output.startswith("{") else output
        text = _of(inner, depth)
        return f"ok: {text}" if value.get("ok") is True else text
    if isinstance(value.get("ok"), bool):
        return "ok" if value["ok"] else "failed"
    return str(value["decision"]) + _after(": ", value.get("reason"), depth) if "decision" in value else ""


def _response(value: dict[str, Any], depth: int) -> str:
    calls = value.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return ""
    named = [call.get("function", call) for call in calls if isinstance(call, dict)]
    parts = [_call(call, depth) or str(call.get("name", "?")) for call in named if isinstance(call, dict)]
    return " ".join(part for part in (_of(value.get("content") or "", depth), *parts) if part)


def _wrapped(value: dict[str, Any], depth: int) -> str:
    for key in ("message", "payload", "data", "attachment"):
        if isinstance(value.get(key), dict):
            return _of(value[key], depth)
    return ""


def _text(value: dict[str, Any], depth: int) -> str:
    for key in _TEXTS:
        inner = value.get(key)
        if inner and isinstance(inner, str | list):
            return _of(inner, depth)
    return ""


def _kind(value: dict[str, Any], depth: int) -> str:
    if "kind" in value and "value" in value:
        return f"{value['kind']} = {_short(value['value'])}"
    if isinstance(value.get("calls"), list):
        return ", ".join(
            f"{call.get('call_id')} {call.get('action')}" for call in value["calls"] if isinstance(call, dict)
        )
    return ""


_SHAPES: tuple[Callable[[dict[str, Any], int], str], ...] = (
    _binary,
    _damaged,
    _request,
    _response,
    _call,
    _result,
    _wrapped,
    _text,
    _kind,
)


def _after(joint: str, value: Any, depth: int) -> str:
    return joint + _of(value, depth) if value else ""


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _short(value: Any) -> str:
    if is_binary(value):
        return _binary(value, 0)
    return cut(flat(value[:_LONG]) if isinstance(value, str) else _json(value), 60)


def _json(value: Any) -> str:
    if isinstance(value, dict):
        value = dict(list(value.items())[:12])
    elif isinstance(value, list):
        value = value[:12]
    return json.dumps(_trimmed(value, 0), ensure_ascii=False)[:_LONG]


def _trimmed(value: Any, depth: int) -> Any:
    """Return a small value to encode: strings cut, and nothing below a few levels."""
    if isinstance(value, str):
        return value[:120]
    if isinstance(value, dict):
        return "…" if depth > 3 else {key: _trimmed(item, depth + 1) for key, item in list(value.items())[:12]}
    if isinstance(value, list):
        return "…" if depth > 3 else [_trimmed(item, depth + 1) for item in value[:12]]
    return value
