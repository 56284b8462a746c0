"""Histories written into a store in memory and folded, and a judge of messages that knows nothing of the reducer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import castlog
from castlog import Branch, Draft

State = dict[str, Any]


def judge(messages: list[dict[str, Any]]) -> None:
    """Fail unless a provider that is strict in every point would take these messages."""
    waiting: list[str] = []
    seen: set[str] = set()
    speaker = "nobody"
    for message in messages:
        if message["role"] == "tool":
            assert message["call_id"] in waiting, "a result without a call before it, or a second one"
            waiting.remove(message["call_id"])
            speaker = "tool"
            continue
        assert not waiting, f"something is said while {waiting} have no result"
        assert message["role"] in ("user", "assistant")
        assert message["role"] != speaker, f"two messages of the {speaker}'s in a row"
        assert speaker != "nobody" or message["role"] == "user", "the assistant begins"
        speaker = message["role"]
        calls = message.get("tool_calls", [])
        assert message["content"] or calls, "an empty message"
        assert speaker == "assistant" or not calls
        blocks = message["content"] if isinstance(message["content"], list) else []
        assert all(isinstance(block["type"], str) for block in blocks)
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        assert message["content"] == "" or blocks or message["content"].strip()
        assert not {"tool_use", "tool_result"} & {block["type"] for block in blocks}
        for call in calls:
            assert call["id"] not in seen, "an id used twice"
            assert isinstance(call["name"], str)
            assert call["name"]
            seen.add(call["id"])
            waiting.append(call["id"])
    assert not waiting, f"{waiting} have no result"


@pytest.fixture
def branch() -> Iterator[Branch]:
    """Give an empty branch in memory."""
    with castlog.open("memory:") as store:
        yield store.create_session("talk").branch("main")


Tell = Callable[..., State]


@pytest.fixture
def tell(branch: Branch) -> Tell:
    """Append drafts, fold the whole history, judge the messages after every event, and give the state."""

    def call(*drafts: Any) -> State:
        branch.extend(list(map(draft, drafts)))
        return fold(branch.events())

    return call


def draft(value: Any) -> Draft:
    """Return a draft of `(type, payload)` or `(type, payload, call id)`."""
    return value if isinstance(value, Draft) else Draft(value[0], value[1], *value[2:])


def fold(events: Iterable[castlog.Event]) -> State:
    """Fold events, judging the state after each."""
    reducer = castlog.conversation
    state = reducer.initial()
    for event in events:
        state = reducer.fold(state, event)
        judge(state["messages"])
        statuses = [call["status"] for call in state["tool_calls"].values()]
        assert statuses.count("pending") == state["counts"]["pending"]
        assert state["awaiting"] in ("user", "model", "tools")
    assert reducer.decode(reducer.encode(state)) == state
    return state
