"""Rows of Claude Code's transcripts, as they were imported.

One response of the model stands in several rows with the same message id, each with what was used so far. Rows of side
chains have a type of their own in the main session, and so have rows that stand in a file twice: neither is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from castlog.event import Event
from castlog.reducers import content, turns
from castlog.reducers.content import Content, mapping
from castlog.reducers.turns import State

NAME = "claude_code"

_USAGE = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}
_SYNTHETIC = "<synthetic>"  # the model's name in rows the client wrote itself
_INTERRUPTED = "[Request interrupted by user"
_LOCAL = ("<command-", "<local-command-", "<bash-", "Caveat: ", _INTERRUPTED)  # the client asks no model for these
_NOT_TYPED = (*_LOCAL, "<system-reminder>")


def owns(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload is a row."""
    return payload.get("type") in ("user", "assistant") and ("uuid" in payload or "sessionId" in payload)


def _assistant(state: State, event: Event) -> None:
    row = mapping(event.payload)
    message = mapping(row.get("message"))
    said, blocks = content.parts(message.get("content"), "tool_use")
    if row.get("isApiErrorMessage") is True:
        turns.note_error(state, event.seq, content.first_text(said))
        return
    model, response = content.text(message.get("model")), content.text(message.get("id"))
    if model and model != _SYNTHETIC:
        state["model"] = model
    turns.respond(state, event.seq, said, response=response)
    for call in filter(None, map(content.call, blocks)):
        if call.id in event.call_ids:
            turns.respond(state, event.seq, "", [call], response=response)
            turns.begin(state, event.seq, call.id, call)
    usage = mapping(message.get("usage"))
    used = {ours: usage.get(theirs) for ours, theirs in _USAGE.items()}
    turns.count(state, response, {**used, "cost": row.get("costUSD")})


def _user(state: State, event: Event) -> None:
    row = mapping(event.payload)
    said, results = content.parts(mapping(row.get("message")).get("content"), "tool_result")
    if row.get("isCompactSummary") is True:
        turns.compact(state, event.seq, said)
        return
    for result in results:
        if result.get("tool_use_id") in event.call_ids:
            _finish(state, event.seq, result, mapping(row.get("toolUseResult")).get("interrupted") is True)
    if not said:
        return
    state["fold"]["unresolved"] = 0  # the client asks on; what has no result by now gets none
    if not results and row.get("isMeta") is not True:
        _rewind(state, row.get("parentUuid"), content.first_text(said))
    turns.say(state, event.seq, said)
    state["fold"]["stopped"] = content.first_text(said).startswith(_LOCAL)


def _api_error(state: State, event: Event) -> None:
    turns.note_error(state, event.seq, mapping(event.payload).get("error") or "API error")


def _finish(state: State, seq: int, result: Mapping[str, Any], interrupted: bool) -> None:
    said: Content = content.read(result.get("content"))
    failed = interrupted or result.get("is_error") is True
    if failed:
        turns.note_error(state, seq, content.first_text(said) or "failed", result["tool_use_id"])
    turns.finish(state, seq, result["tool_use_id"], said, failed=failed, interrupted=interrupted)


def _rewind(state: State, parent: Any, said: str) -> None:
    """Go back to where a prompt stands that this one replaces: the one behind the same row."""
    if said.lstrip().startswith(_NOT_TYPED):
        return
    prompts, messages = state["fold"]["prompts"], state["messages"]
    parent = parent if type(parent) is str else ""
    if parent in prompts:
        turns.cut(state, *prompts[parent])
        state["fold"]["prompts"] = {row: place for row, place in prompts.items() if place <= prompts[parent]}
    elif messages and messages[-1]["role"] == "user":
        said_before = messages[-1]["content"]
        prompts[parent] = [len(messages) - 1, 1 if isinstance(said_before, str) else len(said_before)]
    else:
        prompts[parent] = [len(messages), 0]


FOLDS: dict[str, Callable[[State, Event], None]] = {
    "user_message": _user,
    "tool_result": _user,
    "compact": _user,
    "model_response": _assistant,
    "tool_call": _assistant,
    f"{NAME}.system.api_error": _api_error,
}
