"""The conversation's state and the steps that change it: what is said, asked for, begun, answered, left out, counted.

After each step `messages` can be sent to a provider: it starts with the user, two neighbours never both speak as the
user or as the assistant, and each call has one result behind it. So a call gets a result at once, marked as synthetic,
and the true one takes its place when it comes. No step but leaving out and going back looks at more than the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from castlog.reducers.content import Call, Content, error_text, joined, number

State = dict[str, Any]
Message = dict[str, Any]

USAGE = ("input", "output", "cache_read", "cache_write")
NO_RESULT = "No result of this call was recorded."
NO_OPENING = "What was said before is not in the log."
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def initial() -> State:
    """Return the state of an empty history."""
    return {
        "messages": [],
        "system": [],
        "tool_calls": {},
        "todo": [],
        "partial": None,
        "awaiting": "user",
        "counts": {"completed": 0, "failed": 0, "pending": 0, "stray_results": 0, "compactions": 0, "damaged": 0},
        "model": None,
        "usage": dict.fromkeys(USAGE, 0),
        "cost": 0,
        "last_error": None,
        "last_recovery": None,
        "fold": {
            "assistant": -1,  # where the last message of the assistant stands
            "response": None,  # the provider's id of the response in it
            "open": {},  # calls that have no result yet, and where the message for it stands
            "unresolved": 0,  # how many of them the last message of the assistant asked for
            "ids": {},  # those that calls have in messages, where no two may have the same
            "asking": False,  # a model was asked and has not answered
            "stopped": False,  # the user stopped it: nothing goes on by itself
            "tally": [None, {}],  # the last response whose tokens were counted, and how many they were so far
            "told": "",  # which events tell what the user said: user_message, or else model_request
            "prompts": {},  # Claude Code: where prompts stand, by the row before them
        },
    }


def settle(state: State) -> None:
    """Say who is to go on."""
    fold, messages = state["fold"], state["messages"]
    if fold["stopped"] or not (messages or fold["asking"]):
        state["awaiting"] = "user"
    elif fold["asking"]:
        state["awaiting"] = "model"
    elif fold["unresolved"] or state["todo"]:
        state["awaiting"] = "tools"
    else:
        state["awaiting"] = "user" if _is_said(messages[-1]) else "model"


def say(state: State, seq: int, content: Content, **marks: bool) -> None:
    """Add what the user says. Said right after something else, it becomes part of the same message."""
    if not content:
        return
    messages = state["messages"]
    state["fold"]["stopped"] = False
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"] = joined(messages[-1]["content"], content)
        messages[-1]["until"] = seq
    else:
        messages.append({"role": "user", "content": content, "seq": seq, **marks})


def respond(
    state: State,
    seq: int,
    content: Content,
    calls: Iterable[Call] = (),
    *,
    response: str | None = None,
    joins: bool = False,
    **marks: bool,
) -> None:
    """Add what the assistant says and the calls it asks for, each under the id it has in the log.

    It is part of the message before if that has nothing behind it, or is of the same `response`, or, with `joins`, has
    calls that wait for their results.
    """
    calls = list(calls)
    if not content and not calls:
        return
    fold = state["fold"]
    message = _growing(state, response, joins) or _new_response(state, seq, marks)
    fold["response"], fold["stopped"] = response, False
    message["content"] = joined(message["content"], content)
    for call in calls:
        _place(state, seq, message, call)


def interrupt(state: State, seq: int, content: Content) -> None:
    """Keep what a response said before it was interrupted, until it is known whether the model is asked again."""
    state["partial"] = {"content": content, "seq": seq} if content else None


def leave_unfinished(state: State) -> None:
    """Let what an interrupted response said stand: somebody went on from there."""
    partial, state["partial"] = state["partial"], None
    if partial is not None:
        respond(state, partial["seq"], partial["content"], partial=True)


def ask(state: State, calls: Iterable[Call]) -> None:
    """Note calls that a response asks for. They are to do until they begin."""
    state["todo"] = [call._asdict() for call in calls]


def begin(state: State, seq: int, call_id: str, call: Call) -> None:
    """Note that a call begins, the one a response asked for if it did."""
    fold, before = state["fold"], state["tool_calls"].get(call_id)
    _take_asked(state, seq, call_id, call)
    if fold["open"].get(call_id, -1) <= fold["assistant"]:  # nobody asked for it, or for another of this id long ago
        respond(state, seq, "", [call._replace(id=call_id)], response=fold["response"], joins=True)
    if before is None or before["status"] != "pending":
        state["counts"]["pending"] += 1
    state["tool_calls"][call_id] = {"name": call.name, "args": call.args, "status": "pending", "seq": seq}


def finish(
    state: State, seq: int, call_id: str, content: Content, *, failed: bool = False, interrupted: bool = False
) -> None:
    """Note the result of a call. One without a call that waits for it is counted and kept out."""
    asked = next((entry for entry in state["todo"] if entry["id"] == call_id), None)
    if asked is not None:  # settled without having begun
        begin(state, seq, call_id, Call(**asked))
    call, counts = state["tool_calls"].get(call_id), state["counts"]
    if call is None or call["status"] != "pending":
        counts["stray_results"] += 1
        return
    call["status"] = "failed" if failed or interrupted else "completed"
    call["result_seq"] = seq
    if interrupted:
        call["interrupted"] = True
    counts["pending"] -= 1
    counts[call["status"]] += 1
    answer(state, seq, call_id, content, error=failed or interrupted)


def answer(state: State, seq: int, call_id: str, content: Content, *, error: bool = False) -> None:
    """Put a result in the place that was kept for it in the messages, if there is one."""
    fold, messages = state["fold"], state["messages"]
    index = fold["open"].pop(call_id, None)
    if index is None:
        return
    marks = {"error": True} if error else {}
    messages[index] = {"role": "tool", "call_id": messages[index]["call_id"], "content": content, "seq": seq, **marks}
    if index > fold["assistant"]:
        fold["unresolved"] = max(0, fold["unresolved"] - 1)
        fold["stopped"] = False


def compact(state: State, seq: int, summary: Content, keep_from: int | None = None) -> None:
    """Put a summary in place of all messages before those of event `keep_from` and later.

    What the assistant said last stays while its calls wait for results. Of the calls only those that began in what
    stays, and those that have no result, are listed from now on; all stay counted.
    """
    fold, start = state["fold"], _first_kept(state, keep_from)
    kept, awaiting = state["messages"][start:], state["awaiting"]
    clear(state)
    say(state, seq, summary, summary=True)
    if summary and kept and kept[0]["role"] == "user":
        say(state, _last_seq(kept[0]), kept[0]["content"])
        del kept[0]
        start += 1
    elif kept and kept[0]["role"] == "assistant":
        _open(state, seq)
    _move(state, fold, start, kept)
    compacted(state, kept[0]["seq"] if kept else seq, awaiting)


def compacted(state: State, first_seq: int, awaiting: str) -> None:
    """Count a compaction; closed calls from before event `first_seq` are no longer listed."""
    state["tool_calls"] = {
        call_id: call
        for call_id, call in state["tool_calls"].items()
        if call["status"] == "pending" or call["seq"] >= first_seq
    }
    state["counts"]["compactions"] += 1
    state["fold"]["stopped"] = awaiting == "user"


def clear(state: State) -> None:
    """Take all messages away, and what is known about their places."""
    fold, fresh = state["fold"], initial()["fold"]
    fresh.update(asking=fold["asking"], tally=fold["tally"], told=fold["told"])
    state["messages"], state["fold"] = [], fresh


def cut(state: State, length: int, blocks: int) -> None:
    """Take messages away but the first `length`, and the first `blocks` blocks of the one behind them."""
    fold = state["fold"]
    if blocks:
        state["messages"][length]["content"] = state["messages"][length]["content"][:blocks]
        length += 1
    del state["messages"][length:]
    assistants = (i for i in range(length - 1, -1, -1) if state["messages"][i]["role"] == "assistant")
    fold.update(assistant=next(assistants, -1), response=None, ids=_ids(state["messages"]))
    fold["open"] = {call_id: index for call_id, index in fold["open"].items() if index < length}
    fold["unresolved"] = sum(index > fold["assistant"] for index in fold["open"].values())


def count(state: State, response: str | None, usage: Mapping[str, Any]) -> None:
    """Add what a response used, `USAGE` in tokens and `cost`; told again of the last one, what it used more."""
    tally = state["fold"]["tally"]
    new = {key: number(usage.get(key)) for key in (*USAGE, "cost")}
    old = tally[1] if response is not None and tally[0] == response else {}
    for key, value in new.items():
        more = max(0, value - old.get(key, 0))
        if key == "cost":
            state["cost"] += more
        else:
            state["usage"][key] += int(more)
    state["fold"]["tally"] = [response, {key: max(value, old.get(key, 0)) for key, value in new.items()}]


def note_error(state: State, seq: int, error: Any, call_id: str | None = None) -> None:
    """Keep what went wrong last."""
    call = {} if call_id is None else {"call_id": call_id}
    state["last_error"] = {"seq": seq, "message": error_text(error), **call}


def _move(state: State, fold: Mapping[str, Any], start: int, kept: list[Message]) -> None:
    """Add messages that stood at `start` when `fold` was true, and what is known about their places."""
    new, shift = state["fold"], len(state["messages"]) - start
    state["messages"] += kept
    if fold["assistant"] >= start:
        new.update(assistant=fold["assistant"] + shift, response=fold["response"], unresolved=fold["unresolved"])
    new["open"] = {call_id: index + shift for call_id, index in fold["open"].items() if index >= start}
    new["ids"] = _ids(kept)


def _ids(messages: Iterable[Message]) -> dict[str, bool]:
    return {message["call_id"]: True for message in messages if message["role"] == "tool"}


def _is_said(message: Message) -> bool:
    """Whether a message is the assistant's and says something, which thoughts alone do not."""
    if message["role"] != "assistant":
        return False
    content = message["content"]
    return isinstance(content, str) or not content or content[-1].get("type") not in _THOUGHTS


def _growing(state: State, response: str | None, joins: bool) -> Message | None:
    """Return the message at the end that the assistant goes on with, or None."""
    fold, messages = state["fold"], state["messages"]
    if not messages or messages[-1]["role"] == "user":
        return None
    message: Message = messages[fold["assistant"]]
    same = messages[-1] is message or (response is not None and fold["response"] == response)
    return message if same or (joins and fold["unresolved"]) else None


def _new_response(state: State, seq: int, marks: Mapping[str, bool]) -> Message:
    _open(state, seq)
    message: Message = {"role": "assistant", "content": "", "seq": seq, **marks}
    state["fold"].update(assistant=len(state["messages"]), unresolved=0)
    state["messages"].append(message)
    return message


def _open(state: State, seq: int) -> None:
    """Let the user speak first, if nobody did: providers accept nothing else."""
    if not state["messages"]:
        say(state, seq, NO_OPENING, synthetic=True)


def _place(state: State, seq: int, message: Message, call: Call) -> None:
    """Add a call to a message of the assistant's at the end, and a result for the time being."""
    fold, call_id = state["fold"], str(call.id)
    shown = call_id
    while shown in fold["ids"]:
        shown = f"{call_id}-{seq}" if shown == call_id else f"{shown}-"
    fold["ids"][shown] = True
    message.setdefault("tool_calls", []).append({"id": shown, "name": call.name, "args": call.args})
    fold["open"][call_id] = len(state["messages"])
    fold["unresolved"] += 1
    state["messages"].append(
        {"role": "tool", "call_id": shown, "content": NO_RESULT, "seq": seq, "error": True, "synthetic": True}
    )


def _take_asked(state: State, seq: int, call_id: str, call: Call) -> None:
    """Take the call that begins off the list of those to do: the one of its id, or else, if no id was given, its like.

    A call that castlog gave its id is known by its name and arguments to have been asked for under another.
    """
    todo, is_named = state["todo"], call_id != f"c{seq}"
    like = {"name": call.name, "args": call.args}
    named = (entry for entry in todo if entry["id"] == call_id)
    alike = (entry for entry in todo if {**entry, **like} == entry and not (is_named and entry["id"]))
    found = next(named, None) or next(alike, None)
    if found is None:
        return
    todo.remove(found)
    places = state["fold"]["open"]
    if found["id"] in places:
        places[call_id] = places.pop(found["id"])


def _first_kept(state: State, keep_from: int | None) -> int:
    """Return where the messages begin that a compaction keeps."""
    fold, messages = state["fold"], state["messages"]
    waits = bool(fold["unresolved"]) and messages[-1]["role"] == "tool"
    start = fold["assistant"] if waits else len(messages)
    if keep_from is None:
        return start
    kept = (i for i, message in enumerate(messages[:start]) if message["role"] != "tool")
    return next((i for i in kept if _last_seq(messages[i]) >= keep_from), start)


def _last_seq(message: Message) -> int:
    """Return the seq of the newest event in a message; a summary is older than what it stands before."""
    if "until" in message:
        return int(message["until"])
    return 0 if message.get("summary") else int(message["seq"])
