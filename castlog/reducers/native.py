"""Events that a harness wrote through castlog: the types and keys of the event table, all of them optional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from castlog.event import Event
from castlog.reducers import content, turns
from castlog.reducers.content import Call, Content, mapping
from castlog.reducers.turns import State

#: What a model was told as the user's words, in logs that have no `user_message`.
_REQUEST = "model_request"


def _user_message(state: State, event: Event) -> None:
    payload = event.payload
    if type(payload) is dict:
        payload = payload.get("text") if payload.get("content") is None else payload["content"]
    said, _ = content.parts(payload, "tool_result")
    if said and state["fold"]["told"] != _REQUEST:
        state["fold"]["told"] = event.type
    if said:
        turns.leave_unfinished(state)
    turns.say(state, event.seq, said)


def _model_request(state: State, event: Event) -> None:
    payload = mapping(event.payload)
    state["fold"]["asking"], state["fold"]["stopped"], state["partial"] = True, False, None
    state["model"] = content.text(payload.get("model")) or state["model"]
    messages = content.items(payload.get("messages"))
    if messages and state["fold"]["told"] in ("", _REQUEST):
        state["fold"]["told"] = _REQUEST
        _retell(state, event.seq, messages)


def _model_response(state: State, event: Event) -> None:
    payload = mapping(event.payload)
    state["fold"]["asking"] = False
    state["model"] = content.text(payload.get("model")) or state["model"]
    said, calls = _response(payload)
    if payload.get("partial") is True:  # its calls may be cut short: none of them is to do
        turns.interrupt(state, event.seq, said)
    elif said or calls:
        state["partial"] = None
        turns.respond(state, event.seq, said, [call for call in calls if call.id is not None])
        turns.ask(state, calls)
    turns.count(state, None, {**mapping(payload.get("usage")), "cost": payload.get("cost")})
    if payload.get("error"):
        turns.note_error(state, event.seq, payload["error"])


def _tool_call(state: State, event: Event) -> None:
    payload = mapping(event.payload)
    call = Call(None, content.text(payload.get("name")) or "unknown", content.fit(payload.get("args")))
    turns.leave_unfinished(state)
    for call_id in event.call_ids:
        turns.begin(state, event.seq, call_id, call)


def _tool_result(state: State, event: Event) -> None:
    payload = mapping(event.payload)
    interrupted = payload.get("interrupted") is True
    error = payload.get("error")
    failed = interrupted or payload.get("ok") is False or (payload.get("ok") is None and bool(error))
    result = content.read(payload.get("output"))
    if failed:
        words = content.error_text(error) if error else "interrupted" if interrupted and not result else ""
        result = content.joined(words, result)
        turns.note_error(state, event.seq, error or content.first_text(result) or "failed", event.call_id)
    for call_id in event.call_ids:
        turns.finish(state, event.seq, call_id, result, failed=failed, interrupted=interrupted)


def _compact(state: State, event: Event) -> None:
    payload = mapping(event.payload)
    summary, keep_from = content.read(payload.get("summary")), payload.get("keep_from")
    if type(keep_from) is not int:
        keep_from = None
    if summary or keep_from is not None:
        turns.compact(state, event.seq, summary, keep_from)


def _recovery(state: State, event: Event) -> None:
    calls = [mapping(call) for call in content.items(mapping(event.payload).get("calls"))]
    keys = ("call_id", "action", "by", "reason")
    told = [{key: call[key] for key in keys if type(call.get(key)) is str} for call in calls]
    state["last_recovery"] = {"seq": event.seq, "calls": told}


def _damaged(state: State, event: Event) -> None:
    state["counts"]["damaged"] += 1


def _response(value: Any) -> tuple[Content, list[Call]]:
    """Return what a response says and the calls it asks for, listed beside the content or as blocks in it."""
    said, blocks = content.parts(mapping(value).get("content"), "tool_use")
    listed = content.items(mapping(value).get("tool_calls")) or blocks
    calls = [call for item in listed if (call := content.call(item))]
    first = {call.id: call for call in reversed(calls)}
    return said, [call for call in calls if call.id is None or first[call.id] is call]


def _retell(state: State, seq: int, messages: list[Any]) -> None:
    """Put the messages a model was sent in place of those there are."""
    turns.clear(state)
    state["system"] = []
    for message in map(mapping, messages):
        role = message.get("role")
        said, calls = _response(message)
        if role in ("system", "developer"):
            state["system"].append(said)
        elif role == "assistant":
            turns.respond(state, seq, said, [call for call in calls if call.id is not None])
        elif role == "tool":
            _answer(state, seq, message.get("tool_call_id") or message.get("call_id"), said, message)
        else:
            said, results = content.parts(message.get("content"), "tool_result")
            for block in results:
                _answer(state, seq, block.get("tool_use_id"), content.read(block.get("content")), block)
            turns.say(state, seq, said)


def _answer(state: State, seq: int, call_id: Any, said: Content, marks: Any) -> None:
    if type(call_id) is str:
        error = marks.get("is_error") is True or marks.get("error") is True
        turns.answer(state, seq, call_id, said, error=error)


FOLDS: dict[str, Callable[[State, Event], None]] = {
    "user_message": _user_message,
    "model_request": _model_request,
    "model_response": _model_response,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "compact": _compact,
    "recovery": _recovery,
    "damaged": _damaged,
}
