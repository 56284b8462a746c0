"""What holds for every history, however odd: messages a provider takes, no error, the same state from any snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import castlog
from castlog import Draft

from .conftest import fold, judge

IDS = st.sampled_from(["a", "b", "c", "a-3", "c4", "c5"])
NO_ID = st.none()
TEXTS = st.sampled_from(["", "\n", "one", "two"])
CALLS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["x", "y"])}, optional={"id": IDS, "args": TEXTS}), max_size=3
)
BLOCKS = st.lists(st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "thinking"]), "text": TEXTS}))
CONTENT = TEXTS | BLOCKS
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": CONTENT},
        optional={"tool_calls": CALLS, "tool_call_id": IDS},
    ),
    max_size=5,
)


def drafts(kind: str, payload: st.SearchStrategy[Any], ids: st.SearchStrategy[Any] = NO_ID) -> Any:
    """Return a strategy for events of a type."""
    return st.builds(Draft, st.just(kind), payload, ids)


def keys(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for objects that have some of these keys."""
    return st.fixed_dictionaries({}, optional=optional)


EVENTS = st.one_of(
    drafts("user_message", keys(text=TEXTS, content=CONTENT)),
    drafts("model_request", keys(messages=MESSAGES)),
    drafts("model_response", keys(content=CONTENT, tool_calls=CALLS, partial=st.booleans())),
    drafts("tool_call", keys(name=st.sampled_from(["x", "y"]), args=TEXTS), IDS | st.none()),
    drafts("tool_call", keys(name=st.sampled_from(["x", "y"]), args=TEXTS), IDS),
    drafts("tool_result", keys(ok=st.booleans(), output=CONTENT, error=TEXTS, interrupted=st.booleans()), IDS),
    drafts("tool_result", keys(output=CONTENT), IDS),
    drafts("compact", keys(summary=CONTENT, keep_from=st.integers(0, 30))),
)

WORDS = """type role content text payload message name id args input tool_calls tool_use_id call_id usage partial
summary keep_from messages output error ok info total_token_usage input_tokens replacement_history arguments function
parentUuid uuid sessionId isCompactSummary isApiErrorMessage toolUseResult is_error calls metadata model"""
VALUES = "user assistant tool tool_use tool_result response_item compacted message reasoning function_call x"
NATIVE = "user_message model_request model_response tool_call tool_result compact recovery damaged note hook_call"
FOREIGN = """claude_code.system.api_error codex.response_item.message codex.response_item.reasoning codex.session_meta
codex.turn_context codex.event_msg.token_count codex.event_msg.error codex.event_msg.turn_aborted"""


def one_of(words: str) -> st.SearchStrategy[str]:
    """Return a strategy for one of some words."""
    return st.sampled_from(words.split())


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**12) | st.floats(0, 1e300) | TEXTS | one_of(VALUES) | IDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(one_of(WORDS), inner, max_size=6),
    max_leaves=12,
)
PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": one_of("text tool_use tool_result image thinking")},
        optional={"text": ODD, "id": IDS | ODD, "tool_use_id": IDS | ODD, "name": ODD, "content": ODD, "input": ODD},
    )
    | ODD,
    max_size=4,
)
ROWS = st.fixed_dictionaries(
    {
        "type": one_of("user assistant"),
        "uuid": st.just("u"),
        "message": st.fixed_dictionaries({"content": PARTS}, optional={"id": IDS | ODD, "usage": ODD, "model": ODD})
        | ODD,
    },
    optional={"parentUuid": IDS, "isCompactSummary": st.booleans(), "isMeta": st.booleans(), "toolUseResult": ODD},
)
ITEMS = st.fixed_dictionaries(
    {"type": one_of("message reasoning function_call custom_tool_call function_call_output compaction")},
    optional={"role": one_of("user assistant developer"), "content": PARTS | ODD, "arguments": ODD, "output": ODD},
)
LINES = st.fixed_dictionaries(
    {"type": one_of("response_item compacted"), "payload": ITEMS | keys(replacement_history=st.lists(ITEMS | ODD))}
)
ODD_EVENTS = st.builds(
    Draft, one_of(NATIVE) | one_of(FOREIGN), ODD | ROWS | ITEMS | LINES, call_ids=st.lists(IDS, unique=True).map(tuple)
)


def recorded(history: list[Draft]) -> Iterator[castlog.Event]:
    """Yield drafts as events of a store."""
    with castlog.open("memory:") as store:
        branch = store.create_session("talk").branch("main")
        branch.extend(history)
        yield from branch.events()


@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_messages_are_always_valid(history: list[Draft]) -> None:
    """After every event of any history a strict provider would take the messages."""
    fold(recorded(history))


@settings(max_examples=150, deadline=None)
@given(st.lists(ODD_EVENTS, max_size=12))
def test_odd_payloads_never_raise(history: list[Draft]) -> None:
    """Payloads of any shape fold, and leave messages valid."""
    fold(recorded(history))


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS | ODD_EVENTS, max_size=15))
def test_states_go_on_from_what_was_stored(history: list[Draft]) -> None:
    """A state that went through its stored form goes on as the one that did not."""
    reducer = castlog.conversation
    kept, stored = reducer.initial(), reducer.initial()
    for event in recorded(history):
        kept = reducer.fold(kept, event)
        stored = reducer.fold(reducer.decode(reducer.encode(stored)), event)
        assert stored == kept
        judge(stored["messages"])


def test_restored_at_every_seq(branch: castlog.Branch) -> None:
    """Restoring from snapshots gives, at every seq, what folding from the first event does."""
    for turn in range(12):
        branch.extend(
            [
                ("user_message", {"text": f"turn {turn}"}),
                ("model_response", {"content": "", "tool_calls": [{"id": f"t{turn}", "name": "x"}, {"name": "y"}]}),
                Draft("tool_call", {"name": "x"}, f"t{turn}"),
                Draft("tool_call", {"name": "y"}, "y"),
                Draft("tool_result", {"output": "done"}, "y"),
                Draft("tool_result", {"error": "broken"}, f"t{turn}"),
            ]
        )
        if turn % 5 == 4:
            branch.append("compact", {"summary": "so far", "keep_from": branch.head.seq - 4})
    events = list(branch.events())
    for at in range(7, len(events), 7):
        branch.snapshot(castlog.conversation, at=at)
    for at in range(len(events) + 1):
        restored = branch.restore(castlog.conversation, at=at)
        assert restored.state == fold(events[:at]), at
        assert restored.snapshot_seq == at - at % 7 or at == len(events)
