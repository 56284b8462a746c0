"""The built-in reducer: what was said in a session, which tools were called, and who is to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from castlog.event import Event
from castlog.reducers import claude_code, codex, native, turns
from castlog.reducers.content import mapping
from castlog.reducers.turns import State
from castlog.state import reducer

_SOURCES = (claude_code, codex)
_FOREIGN = {name: fold for source in _SOURCES for name, fold in source.FOLDS.items() if name.startswith(source.NAME)}


@reducer("conversation", 1, initial=turns.initial)
def conversation(state: State, event: Event) -> State:
    """Fold native events, and imported records of Claude Code and Codex, into one JSON object. Others are passed over.

    | key | value |
    |---|---|
    | `messages` | what a provider can be sent next, oldest first, below |
    | `system` | what the model was told beside them, each a text or blocks |
    | `tool_calls` | by call id: `name`, `args`, `status` (`pending`, `completed`, `failed`), `seq` of the call and \
`result_seq`, `interrupted` if it was. The newest call of an id; a closed one until a compaction takes it away |
    | `todo` | calls the last response asked for that have not begun: `id`, `name`, `args`, in its order |
    | `partial` | null, or `content` and `seq` of a response that was interrupted and that nobody went on from yet: it \
goes into `messages` before what the user says next, and is dropped when the model is asked again |
    | `awaiting` | who is to go on: `user`, `model`, `tools` |
    | `counts` | tool calls `completed`, `failed`, `pending`; `stray_results`, `compactions`, `damaged` |
    | `model` | the one asked last, or null |
    | `usage` | tokens: `input` (without what a cache gave), `output`, `cache_read`, `cache_write` |
    | `cost` | sum of the costs recorded, in their unit: US dollars in what was imported |
    | `last_error` | null, or `seq`, `message` (at most 500 characters), `call_id` if a tool failed |
    | `last_recovery` | null, or `seq` and `calls` of the last recovery |
    | `fold` | what the reducer itself goes by: not for others, and free to change with its version |

    A message has `role`, `content` (a text, or blocks with a `type`, as they came) and `seq`, that of its event; one
    made of several events also has `until`, that of the last. An assistant's may have `tool_calls` (`id`, `name`,
    `args`) and `partial`. A `tool` message is the result of the call `call_id` before it; `error` if the call failed.
    `synthetic` marks what is not in the log: the result of a call that has none so far, and an opening where the log
    begins with the assistant. `summary` marks what a compaction left in place of the messages before.

    The messages start with the user's, no two neighbours are both the user's or both the assistant's, each call has one
    result, which stands behind it before anything else is said, and no two calls have the same id: one used again
    carries the seq of its response in `messages`.
    """
    fold = _FOREIGN.get(event.type)
    if fold is None and event.type in native.FOLDS:
        source = next((source for source in _SOURCES if source.owns(mapping(event.payload))), native)
        fold = source.FOLDS.get(event.type)
    if fold is not None:
        fold(state, event)
        turns.settle(state)
    return state


def describe(state: Mapping[str, Any]) -> str:
    """Return a state in one line, such as `3 tool calls completed, 1 pending, 12 messages, model gpt-x, 18,204 tokens`.

    Messages are those of the log: synthetic ones are not counted.
    """
    counts = state["counts"]
    messages = sum(not message.get("synthetic") for message in state["messages"])
    parts = [f"{_count(counts['completed'], 'tool call')} completed"]
    parts += [f"{counts[status]:,} {status}" for status in ("failed", "pending") if counts[status]]
    parts.append(_count(messages, "message"))
    if state["model"]:
        parts.append(f"model {state['model']}")
    parts.append(_count(sum(state["usage"].values()), "token"))
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
