"""The conversation of native events: what the model would be sent, which calls are where, and who goes on."""

from __future__ import annotations

from typing import Any

import pytest

from castlog import Branch, Draft, attachment, conversation
from castlog.reducers.conversation import describe

from .conftest import Tell, fold

HI = ("user_message", {"text": "hi"})
C1 = {"id": "c1", "name": "Edit", "args": {"file": "a"}}
C2 = {"id": "c2", "name": "Read", "args": {}}
ASKS = ("model_response", {"content": "I look.", "tool_calls": [C1, C2]})
BEGINS = ("tool_call", {"name": "Edit", "args": {"file": "a"}}, "c1")
BEGINS_2 = ("tool_call", {"name": "Read", "args": {}}, "c2")
ENDS = ("tool_result", {"ok": True, "output": "done"}, "c1")
ENDS_2 = ("tool_result", {"ok": False, "error": "no such file"}, "c2")
SAYS = ("model_response", {"content": "ready"})


def brief(messages: list[dict[str, Any]]) -> list[str]:
    """Return messages as `role: text > calls`, results as `call= text`; `!` marks an error, `?` a synthetic one."""
    lines = []
    for message in messages:
        content = message["content"]
        text = content if isinstance(content, str) else "+".join(block.get("text", block["type"]) for block in content)
        if message["role"] == "tool":
            mark = "?" if message.get("synthetic") else "!" if message.get("error") else ""
            lines.append(f"{message['call_id']}= {mark}{'' if mark == '?' else text}")
        else:
            calls = [call["id"] for call in message.get("tool_calls", [])]
            lines.append(f"{message['role']}: {text}" + (f" > {' '.join(calls)}" if calls else ""))
    return lines


CASES: dict[str, tuple[list[Any], list[str], str, list[str | None]]] = {
    # name: events, messages, who is to go on, what is to do
    "nothing": ([], [], "user", []),
    "a prompt": ([HI], ["user: hi"], "model", []),
    "content in place of text": ([("user_message", {"content": "hi", "text": "x"})], ["user: hi"], "model", []),
    "a payload that is the text": ([("user_message", "hi")], ["user: hi"], "model", []),
    "an empty prompt": ([("user_message", {"text": ""})], [], "user", []),
    "white space": (
        [("user_message", {"content": [{"type": "text", "text": "\n\n"}, "hi"]})],
        ["user: hi"],
        "model",
        [],
    ),
    "an answer": ([HI, SAYS], ["user: hi", "assistant: ready"], "user", []),
    "a request": ([HI, ("model_request", {"model": "m"})], ["user: hi"], "model", []),
    "two prompts": ([HI, ("user_message", {"text": "ho"})], ["user: hi+ho"], "model", []),
    "two answers": ([HI, SAYS, SAYS], ["user: hi", "assistant: ready+ready"], "user", []),
    "the assistant begins": ([SAYS], ["user: What was said before is not in the log.", "assistant: ready"], "user", []),
    "calls asked for": (
        [HI, ASKS],
        ["user: hi", "assistant: I look. > c1 c2", "c1= ?", "c2= ?"],
        "tools",
        ["c1", "c2"],
    ),
    "one begun": ([HI, ASKS, BEGINS], ["user: hi", "assistant: I look. > c1 c2", "c1= ?", "c2= ?"], "tools", ["c2"]),
    "one done": (
        [HI, ASKS, BEGINS, ENDS],
        ["user: hi", "assistant: I look. > c1 c2", "c1= done", "c2= ?"],
        "tools",
        ["c2"],
    ),
    "results in another order": (
        [HI, ASKS, BEGINS, BEGINS_2, ENDS_2, ENDS],
        ["user: hi", "assistant: I look. > c1 c2", "c1= done", "c2= !no such file"],
        "model",
        [],
    ),
    "refused without having begun": (
        [HI, ASKS, ENDS_2, BEGINS, ENDS],
        ["user: hi", "assistant: I look. > c1 c2", "c1= done", "c2= !no such file"],
        "model",
        [],
    ),
    "a prompt while tools run": (
        [HI, ASKS, BEGINS, ("user_message", {"text": "hurry"}), BEGINS_2, ENDS, ENDS_2],
        ["user: hi", "assistant: I look. > c1 c2", "c1= done", "c2= !no such file", "user: hurry"],
        "model",
        [],
    ),
    "an orphan in mid-session": (
        [HI, ASKS, BEGINS, SAYS],
        ["user: hi", "assistant: I look. > c1 c2", "c1= ?", "c2= ?", "assistant: ready"],
        "user",
        [],
    ),
    "a result that comes late": (
        [HI, ASKS, BEGINS, SAYS, ENDS],
        ["user: hi", "assistant: I look. > c1 c2", "c1= done", "c2= ?", "assistant: ready"],
        "user",
        [],
    ),
    "a call nobody asked for": ([HI, BEGINS, ENDS], ["user: hi", "assistant:  > c1", "c1= done"], "model", []),
    "calls one after the other": (
        [HI, BEGINS, ENDS, BEGINS_2, ENDS_2],
        ["user: hi", "assistant:  > c1", "c1= done", "assistant:  > c2", "c2= !no such file"],
        "model",
        [],
    ),
    "calls side by side": (
        [HI, BEGINS, BEGINS_2, ENDS_2, ENDS],
        ["user: hi", "assistant:  > c1 c2", "c1= done", "c2= !no such file"],
        "model",
        [],
    ),
    "a call after the answer that announced it": (
        [HI, SAYS, BEGINS],
        ["user: hi", "assistant: ready > c1", "c1= ?"],
        "tools",
        [],
    ),
    "an id used again": (
        [HI, BEGINS, ENDS, SAYS, HI, BEGINS, ENDS],
        [
            "user: hi",
            "assistant:  > c1",
            "c1= done",
            "assistant: ready",
            "user: hi",
            "assistant:  > c1-6",
            "c1-6= done",
        ],
        "model",
        [],
    ),
    "an orphan's id used again": (
        [HI, BEGINS, SAYS, BEGINS, ENDS],
        ["user: hi", "assistant:  > c1", "c1= ?", "assistant: ready > c1-4", "c1-4= done"],
        "model",
        [],
    ),
    "ids used again in every response": (
        [HI, ASKS, BEGINS, ENDS, ASKS, BEGINS, ENDS],
        [
            "user: hi",
            "assistant: I look. > c1 c2",
            "c1= done",
            "c2= ?",
            "assistant: I look. > c1-5 c2-5",
            "c1-5= done",
            "c2-5= ?",
        ],
        "tools",
        ["c2"],
    ),
    "begun under an id of castlog's own": (
        [HI, ASKS, ("tool_call", {"name": "Read", "args": {}}, "c3"), ("tool_result", {"output": "x"}, "c3")],
        ["user: hi", "assistant: I look. > c1 c2", "c1= ?", "c2= x"],
        "tools",
        ["c1"],
    ),
    "asked for without an id": (
        [HI, ("model_response", {"tool_calls": [{"name": "Edit", "args": {"file": "a"}}]}), BEGINS, ENDS],
        ["user: hi", "assistant:  > c1", "c1= done"],
        "model",
        [],
    ),
    "asked for without an id, to do": (
        [HI, ("model_response", {"tool_calls": [{"name": "Edit"}]})],
        ["user: hi"],
        "tools",
        [None],
    ),
    "a stray result": ([HI, ENDS], ["user: hi"], "model", []),
    "two results": ([HI, BEGINS, ENDS, ENDS], ["user: hi", "assistant:  > c1", "c1= done"], "model", []),
    "calls as blocks": (
        [HI, ("model_response", {"content": [{"type": "tool_use", "id": "t", "name": "Edit", "input": {}}]})],
        ["user: hi", "assistant:  > t", "t= ?"],
        "tools",
        ["t"],
    ),
    "interrupted, and asked again": (
        [HI, ("model_response", {"content": "rea", "partial": True}), ("model_request", {}), SAYS],
        ["user: hi", "assistant: ready"],
        "user",
        [],
    ),
    "interrupted": (
        [HI, ("model_response", {"content": "rea", "tool_calls": [C1], "partial": True})],
        ["user: hi"],
        "model",
        [],
    ),
    "interrupted, and gone on": (
        [HI, ("model_response", {"content": "rea", "partial": True}), ("user_message", {"text": "no"}), SAYS],
        ["user: hi", "assistant: rea", "user: no", "assistant: ready"],
        "user",
        [],
    ),
    "a failed response": ([HI, ("model_response", {"error": {"message": "overloaded"}})], ["user: hi"], "model", []),
    "compacted": (
        [HI, SAYS, ("compact", {"summary": "they met"})],
        ["user: they met"],
        "user",
        [],
    ),
    "compacted before a prompt is answered": (
        [HI, SAYS, HI, ("compact", {"summary": "they met", "keep_from": 3}), SAYS],
        ["user: they met+hi", "assistant: ready"],
        "user",
        [],
    ),
    "compacted to what the assistant said": (
        [HI, SAYS, HI, ("compact", {"summary": "they met", "keep_from": 2})],
        ["user: they met", "assistant: ready", "user: hi"],
        "model",
        [],
    ),
    "compacted without a summary": (
        [HI, SAYS, ("compact", {"keep_from": 2})],
        ["user: What was said before is not in the log.", "assistant: ready"],
        "user",
        [],
    ),
    "compacted between call and result": (
        [HI, ASKS, BEGINS, ENDS, ("compact", {"summary": "s", "keep_from": 4}), BEGINS_2, ENDS_2],
        ["user: s", "assistant: I look. > c1 c2", "c1= done", "c2= !no such file"],
        "model",
        [],
    ),
    "compacted away from under a result": (
        [HI, BEGINS, ENDS, SAYS, ("compact", {"summary": "s", "keep_from": 3})],
        ["user: s", "assistant: ready"],
        "user",
        [],
    ),
    "compacted twice": (
        [HI, SAYS, ("compact", {"summary": "s"}), HI, ("compact", {"summary": "t", "keep_from": 4})],
        ["user: t+s+hi"],
        "model",
        [],
    ),
    "compacted with nothing": ([HI, ("compact", {})], ["user: hi"], "model", []),
    "others": (
        [HI, ("note", {}), ("checkpoint", 1), ("value", {"kind": "now"}), ("x", None)],
        ["user: hi"],
        "model",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_awaiting_and_todo(tell: Tell, name: str) -> None:
    """Each history gives these messages, says who goes on, and which calls have not begun."""
    events, messages, awaiting, todo = CASES[name]
    state = tell(*events) if events else fold([])
    assert brief(state["messages"]) == messages
    assert state["awaiting"] == awaiting
    assert [call["id"] for call in state["todo"]] == todo


def test_calls_by_status(tell: Tell) -> None:
    """Calls are listed with name, arguments, status and where they and their results stand."""
    interrupted = ("tool_result", {"interrupted": True, "output": "half"}, "c3")
    state = tell(HI, ASKS, BEGINS, BEGINS_2, ENDS_2, ("tool_call", {"name": "Run"}, "c3"), interrupted)
    assert state["tool_calls"] == {
        "c1": {"name": "Edit", "args": {"file": "a"}, "status": "pending", "seq": 3},
        "c2": {"name": "Read", "args": {}, "status": "failed", "seq": 4, "result_seq": 5},
        "c3": {"name": "Run", "args": {}, "status": "failed", "seq": 6, "result_seq": 7, "interrupted": True},
    }
    counts = {key: state["counts"][key] for key in ("completed", "failed", "pending")}
    assert counts == {"completed": 0, "failed": 2, "pending": 1}
    assert state["last_error"] == {"seq": 7, "message": "half", "call_id": "c3"}


def test_closed_calls_go_with_their_messages(tell: Tell) -> None:
    """A compaction takes the closed calls of messages it replaces away; those in flight stay, and all stay counted."""
    state = tell(HI, BEGINS, ENDS, BEGINS_2, SAYS, ("compact", {"summary": "s"}))
    assert list(state["tool_calls"]) == ["c2"]
    assert state["counts"] | {"stray_results": 0} == state["counts"]
    assert (state["counts"]["completed"], state["counts"]["pending"], state["counts"]["compactions"]) == (1, 1, 1)


def test_usage_cost_model_errors(tell: Tell) -> None:
    """Tokens and costs add up; the model asked last and what went wrong last are told."""
    usage = {"input": 10, "output": 2, "cache_read": 3, "cache_write": 4}
    state = tell(
        HI,
        ("model_request", {"model": "gpt-x"}),
        ("model_response", {"content": "a", "usage": usage, "cost": 0.25}),
        HI,
        ("model_response", {"content": "b", "usage": usage, "cost": 0.5}),
        ("model_response", {"error": {"type": "overloaded", "message": "try later"}, "usage": {"input": "many"}}),
    )
    assert state["usage"] == {"input": 20, "output": 4, "cache_read": 6, "cache_write": 8}
    assert state["cost"] == 0.75
    assert state["model"] == "gpt-x"
    assert state["last_error"] == {"seq": 6, "message": "try later"}
    assert describe(state) == "0 tool calls completed, 4 messages, model gpt-x, 38 tokens"


def test_described_in_a_line(tell: Tell) -> None:
    """A state is told in one line, as the debugger prints it."""
    usage = {"input": 18_000, "output": 204}
    state = tell(
        HI, ("model_response", {"tool_calls": [C1, C2], "usage": usage, "model": "gpt-x"}), BEGINS, BEGINS_2, ENDS
    )
    assert describe(state) == "1 tool call completed, 1 pending, 3 messages, model gpt-x, 18,204 tokens"


def test_images_stay_as_they_are(tell: Tell, tmp_path: Any) -> None:
    """Binary content is kept block for block, in prompts and in results."""
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG")
    image = dict(attachment(path))
    state = tell(
        ("user_message", {"content": [{"type": "text", "text": "see"}, image]}),
        BEGINS,
        ("tool_result", {"output": image}, "c1"),
    )
    assert state["messages"][0]["content"] == [{"type": "text", "text": "see"}, image]
    assert state["messages"][2]["content"] == [image]


def test_results_that_are_no_text(tell: Tell) -> None:
    """Any JSON a tool gives is sent as JSON text."""
    state = tell(HI, BEGINS, ("tool_result", {"output": {"rows": [1, None]}}, "c1"))
    assert state["messages"][2]["content"] == '{"rows":[1,null]}'


def test_recoveries_and_damage(tell: Tell) -> None:
    """The last recovery is told, and how many stretches of a file were damaged."""
    calls = [{"call_id": "c1", "action": "retry", "by": "ann", "reason": "safe", "more": 1}, 7]
    state = tell(HI, BEGINS, ("recovery", {"calls": calls}), ("damaged", {"file": "f", "line": 3}))
    assert state["last_recovery"] == {"seq": 3, "calls": [{k: v for k, v in calls[0].items() if k != "more"}, {}]}  # type: ignore[union-attr]
    assert state["counts"]["damaged"] == 1


def test_told_by_requests_alone(tell: Tell) -> None:
    """Where no event tells what the user said, the messages of each request do, in either of the common forms."""
    first = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    calls = [{"id": "c1", "type": "function", "function": {"name": "Edit", "arguments": '{"file": "a"}'}}]
    second = [
        *first,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "more"},
    ]
    third = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Edit", "input": {"file": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}]},
    ]
    answer = ("model_response", {"tool_calls": [C1]})
    state = tell(("model_request", {"messages": first}), answer, BEGINS, ENDS, ("model_request", {"messages": second}))
    expected = ["user: hi", "assistant:  > c1", "c1= done", "user: more"]
    assert brief(state["messages"]) == expected
    assert state["system"] == ["be brief"]
    assert state["counts"]["completed"] == 1
    assert brief(tell(SAYS, ("model_request", {"messages": third}))["messages"]) == expected[:3]


def test_requests_repeat_what_events_told(tell: Tell) -> None:
    """Where events tell what the user said, the messages of requests say nothing new."""
    state = tell(HI, ("model_request", {"messages": [{"role": "user", "content": "other"}]}), SAYS)
    assert brief(state["messages"]) == ["user: hi", "assistant: ready"]


def test_deep_values_do_not_break_a_snapshot(branch: Branch) -> None:
    """What nests as deep as a payload may is kept as JSON text, since a state nests it deeper."""
    deep: Any = 1
    for _ in range(120):
        deep = [deep]
    branch.extend([Draft("tool_call", {"name": "x", "args": deep}, call_id="c"), ("user_message", {"text": deep})])
    state = branch.restore(conversation).state
    assert state["tool_calls"]["c"]["args"].startswith("[[[[")
    branch.snapshot(conversation)


def test_payloads_are_left_alone(branch: Branch) -> None:
    """Folding changes no event, though states grow messages."""
    first, second = branch.extend([("user_message", {"content": [{"type": "text", "text": "a"}]}), HI])
    before = first.raw
    events = list(branch.events())
    fold(events)
    assert events[0].payload == {"content": [{"type": "text", "text": "a"}]}
    assert events[0].raw == before
    assert second.payload == HI[1]
