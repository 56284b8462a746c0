"""Lines of Codex' rollouts, as they were imported.

What went to and came from the model stands in items; the events that tell the user the same are passed over, but for
the tokens used, errors and interruptions, which only they tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from castlog.event import Event
from castlog.reducers import content, turns
from castlog.reducers.content import Call, Content, mapping
from castlog.reducers.turns import State

NAME = "codex"

#: The kinds of calls, and where each has its arguments.
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
    "mcp_tool_call": "arguments",
}
_ITEMS = {"message", "reasoning", "tool_search_output", *_CALLS, *(f"{kind}_output" for kind in _CALLS)}
_LINES = frozenset({"response_item", "compacted"})
_TEXTS = frozenset({"input_text", "output_text"})
_EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (\d+)")
_HEAD = 400  # characters of an output in which the tool says how it ended


class _Metadata(msgspec.Struct):
    exit_code: Any = None


class _Output(msgspec.Struct):
    metadata: _Metadata


_output = msgspec.json.Decoder(_Output).decode


def owns(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload is a line, or an item as old rollouts have them for lines."""
    kind = payload.get("type")
    return type(kind) is str and (kind in _ITEMS or (kind in _LINES and type(payload.get("payload")) is dict))


def _message(state: State, event: Event) -> None:
    item = _item(event)
    if item.get("role") == "assistant":
        turns.respond(state, event.seq, _said(item), joins=True)
    else:
        _hear(state, event.seq, item)


def _reasoning(state: State, event: Event) -> None:
    turns.respond(state, event.seq, content.read(_item(event)), joins=True)


def _tool_call(state: State, event: Event) -> None:
    item = _item(event)
    kind = content.text(item.get("type")) or "unknown"
    args = item.get(_CALLS.get(kind, "arguments"))
    args = content.arguments(args) if kind != "custom_tool_call" else {"input": args}
    name = content.text(item.get("name")) or kind.removesuffix("_call")
    if event.call_id is not None:
        turns.begin(state, event.seq, event.call_id, Call(None, name, content.fit(args)))


def _tool_result(state: State, event: Event) -> None:
    item = _item(event)
    output = item.get("output", item.get("tools"))
    failed = _is_failed(output)
    said = _texts(content.read(output.get("content", output) if type(output) is dict else output))
    if event.call_id is None:
        return
    if failed:
        turns.note_error(state, event.seq, content.first_text(said) or "failed", event.call_id)
    turns.finish(state, event.seq, event.call_id, said, failed=failed)


def _compacted(state: State, event: Event) -> None:
    payload = mapping(mapping(event.payload).get("payload"))
    history = content.items(payload.get("replacement_history"))
    if not history:
        turns.compact(state, event.seq, content.read(payload.get("message")))
        return
    awaiting = state["awaiting"]
    turns.clear(state)
    state["system"] = []
    for item in map(mapping, history):
        if item.get("role") == "assistant" or item.get("type") == "reasoning":
            said = _said(item) if "role" in item else content.read(item)
            turns.respond(state, event.seq, said, joins=True)
        elif item.get("type") == "message":
            _hear(state, event.seq, item)
        elif content.text(item.get("type")) not in _ITEMS:  # what the provider made of the rest, in a form of its own
            turns.say(state, event.seq, content.read(item), summary=True)
    turns.compacted(state, event.seq, awaiting)


def _session_meta(state: State, event: Event) -> None:
    meta = mapping(mapping(event.payload).get("payload"))
    told = content.text(mapping(meta.get("base_instructions")).get("text")) or content.text(meta.get("instructions"))
    if told and not state["system"]:
        state["system"].append(told)


def _turn_context(state: State, event: Event) -> None:
    state["model"] = content.text(mapping(mapping(event.payload).get("payload")).get("model")) or state["model"]


def _token_count(state: State, event: Event) -> None:
    total = mapping(mapping(_item(event).get("info")).get("total_token_usage"))
    cached = content.number(total.get("cached_input_tokens"))
    used = {
        "input": max(0, content.number(total.get("input_tokens")) - cached),
        "output": content.number(total.get("output_tokens")),
        "cache_read": cached,
    }
    tally = state["fold"]["tally"]
    if sum(used.values()) < sum(tally[1].values()) and any(used.values()):  # counted from nothing again
        state["fold"]["tally"] = [None, {}]
    if any(used.values()):
        turns.count(state, NAME, used)


def _error(state: State, event: Event) -> None:
    turns.note_error(state, event.seq, _item(event).get("message") or "error")


def _turn_aborted(state: State, event: Event) -> None:
    state["fold"]["stopped"] = True


def _item(event: Event) -> Mapping[str, Any]:
    """Return the item a line carries; an old line is one itself."""
    line = mapping(event.payload)
    return mapping(line.get("payload")) or line


def _hear(state: State, seq: int, item: Mapping[str, Any]) -> None:
    """Take in a message that is not the assistant's."""
    said = _said(item)
    if item.get("role") == "user":
        state["fold"]["unresolved"] = 0  # the client asks on; what has no result by now gets none
        turns.say(state, seq, said)
    elif said:
        state["system"].append(said)


def _said(item: Mapping[str, Any]) -> Content:
    return _texts(content.read(item.get("content")))


def _texts(said: Content) -> Content:
    """Return a content with its texts as castlog has them; other blocks stay as they are."""
    if isinstance(said, str):
        return said
    return [
        content.text_block(text) if block["type"] in _TEXTS and (text := content.text(block.get("text"))) else block
        for block in said
    ]


def _is_failed(output: Any) -> bool:
    """Return whether a tool's output says that it failed, in one of the ways Codex' tools have had over time."""
    if type(output) is dict:
        return output.get("success") is False
    if type(output) is not str:
        return False
    if output.startswith("{"):
        try:
            return bool(_output(output).metadata.exit_code)
        except (msgspec.MsgspecError, ValueError):
            return False
    found = _EXIT_CODE.search(output[:_HEAD])
    return found is not None and int(found[1]) != 0


FOLDS: dict[str, Callable[[State, Event], None]] = {
    "user_message": _message,
    "model_response": _message,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "compact": _compacted,
    f"{NAME}.response_item.message": _message,
    f"{NAME}.response_item.reasoning": _reasoning,
    f"{NAME}.reasoning": _reasoning,
    f"{NAME}.session_meta": _session_meta,
    f"{NAME}.turn_context": _turn_context,
    f"{NAME}.event_msg.token_count": _token_count,
    f"{NAME}.event_msg.error": _error,
    f"{NAME}.event_msg.stream_error": _error,
    f"{NAME}.event_msg.turn_aborted": _turn_aborted,
}
