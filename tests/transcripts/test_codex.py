"""Codex's lines: what each becomes, and what the file says about its session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castlog import FileReport, Store

from .conftest import Take

One = Callable[..., FileReport]
ID = "019982b8-3422-79e0-8b3b-05abaf4f3c3e"
PARENT = "019982b8-0000-7000-8000-000000000000"
NAME = f"rollout-2025-09-25T15-12-14-{ID}.jsonl"


def line(kind: Any, **payload: Any) -> dict[str, Any]:
    """Return one line of a rollout."""
    return {"timestamp": "2025-09-25T21:12:14.126Z", "type": kind, "payload": payload}


def item(kind: Any, **payload: Any) -> dict[str, Any]:
    """Return a line with something that went to or came from the model."""
    return line("response_item", type=kind, **payload)


def meta(session: str = ID, **more: Any) -> dict[str, Any]:
    """Return the line that begins a rollout."""
    return line("session_meta", id=session, cli_version="0.40.0", cwd="/p", git={"branch": "b"}, **more)


def message(role: str, text: str) -> dict[str, Any]:
    """Return a message."""
    return item("message", role=role, content=[{"type": "input_text", "text": text}])


def data(*lines: dict[str, Any]) -> bytes:
    """Return a file's bytes."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in lines)


def kinds(store: Store, file: FileReport) -> list[Any]:
    """Return (type, call ids) of a file's events."""
    return [(event.type, list(event.call_ids)) for event in store.view(file.rev or "").events()]


def test_lines_become_typed_events(one: One, store: Store) -> None:
    """What the model saw and said is typed; what the user saw of the same stays opaque."""
    file = one(
        data(
            meta(),
            message("user", "<environment_context>x</environment_context>"),
            message("user", "fix it"),
            line("event_msg", type="user_message", message="fix it"),
            line("turn_context", cwd="/p"),
            item("reasoning", summary=[]),
            item("function_call", name="shell", arguments="{}", call_id="c1"),
            item("custom_tool_call", name="apply_patch", call_id="c2"),
            item("function_call_output", call_id="c1", output="ok"),
            item("custom_tool_call_output", call_id="c2", output=[{"type": "x"}]),
            item("local_shell_call", call_id=None, id="c3", action={}),
            item("web_search_call", status="completed"),
            message("assistant", "done"),
            message("developer", "rules"),
            line("compacted", message="so far", replacement_history=[]),
            line("event_msg", type="token_count"),
            line("world_state"),
            line("brand_new", type="thing"),
        ),
        NAME,
    )
    assert kinds(store, file) == [
        ("codex.session_meta", []),
        ("user_message", []),
        ("user_message", []),
        ("codex.event_msg.user_message", []),
        ("codex.turn_context", []),
        ("codex.response_item.reasoning", []),
        ("tool_call", ["c1"]),
        ("tool_call", ["c2"]),
        ("tool_result", ["c1"]),
        ("tool_result", ["c2"]),
        ("tool_call", ["c3"]),
        ("codex.response_item.web_search_call", []),
        ("model_response", []),
        ("codex.response_item.message", []),
        ("compact", []),
        ("codex.event_msg.token_count", []),
        ("codex.world_state", []),
        ("codex.brand_new.thing", []),
    ]
    view = store.view(file.rev or "")
    assert [event.call_id for event in view.in_flight()] == ["c3"]
    assert {event.harness_version for event in view.events()} == {"codex 0.40.0"}
    session = store.session(file.session_id or "")
    assert (session.title, session.origin) == ("fix it", f"codex:{ID}")
    assert session.labels == {"format": "codex", "file": NAME, "cwd": "/p", "git_branch": "b"}
    assert store.verify(deep=True).ok


def test_a_prompt_far_down_gives_the_title_in_the_end(one: One, store: Store) -> None:
    """A session whose first lines say nothing is renamed when its first prompt comes."""
    file = one(data(meta(), *[line("turn_context")] * 200, message("user", "at last")), NAME)
    assert store.session(file.session_id or "").title == "at last"


def test_what_an_editor_put_before_a_prompt_is_no_title(one: One, store: Store) -> None:
    """The title is what was asked, not which files were open."""
    text = "# Context from my IDE setup:\n## Open tabs:\n- a.py\n\n## My request for Codex:\nfix it\n"
    assert store.session(one(data(meta(), message("user", text)), NAME).session_id or "").title == "fix it"


def test_old_rollouts_of_bare_items(one: One, store: Store) -> None:
    """The first versions wrote a header and then the items themselves."""
    file = one(
        data(
            {"id": ID, "timestamp": "2025-05-07T17:24:21.123Z", "instructions": None},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"record_type": "state"},
            {"type": "function_call", "name": "shell", "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        ),
        "old.jsonl",
    )
    assert file.format == "codex"
    assert kinds(store, file) == [
        ("codex.record", []),
        ("user_message", []),
        ("codex.state", []),
        ("tool_call", ["c1"]),
        ("tool_result", ["c1"]),
    ]
    assert store.session(file.session_id or "").title == "hello"


@pytest.mark.parametrize(
    ("metas", "name", "origin"),
    [
        ([meta(PARENT), meta(ID)], NAME, ID),
        ([meta(ID, forked_from_id=PARENT), meta(PARENT)], "capture.jsonl", ID),
        ([meta(PARENT), meta(ID, forked_from_id=PARENT)], "capture.jsonl", ID),
        ([meta(ID)], "capture.jsonl", ID),
    ],
)
def test_the_session_is_the_files_own(
    metas: list[dict[str, Any]], name: str, origin: str, one: One, store: Store
) -> None:
    """Inherited session_meta lines do not count: the file's name decides, else who was forked from whom."""
    file = one(data(*metas, message("user", "x")), name)
    assert store.session(file.session_id or "").origin == f"codex:{origin}"


SOURCES: list[dict[str, Any]] = [
    {"source": {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1, "agent_nickname": "Ada"}}}},
    {"parent_thread_id": PARENT, "thread_source": "subagent"},
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("how", ["output", "event"])
def test_a_sub_agents_thread_hangs_under_its_call(
    source: dict[str, Any], how: str, take: Take, tmp_path: Path, store: Store
) -> None:
    """A thread's parent is the call whose output names it, or the one a spawn event names."""
    lines = [meta(PARENT), item("function_call", name="spawn_agent", arguments="{}", call_id="c1")]
    if how == "event":
        lines.append(line("event_msg", type="collab_agent_spawn_end", call_id="c1", new_thread_id=ID))
    output = json.dumps({"agent_id": ID}) if how == "output" else "ok"
    lines.append(item("function_call_output", call_id="c1", output=output))
    (tmp_path / f"rollout-2025-09-25T16-00-00-{PARENT}.jsonl").write_bytes(data(*lines))
    (tmp_path / NAME).write_bytes(data(meta(**source), message("user", "look")))
    take(tmp_path)
    child, parent = store.find_origin(f"codex:{ID}"), store.find_origin(f"codex:{PARENT}")
    assert child is not None
    assert parent is not None
    assert child.parent is not None
    assert (child.parent.session_id, child.parent.seq) == (parent.id, 2)
    assert take(tmp_path).added == 0


@pytest.mark.parametrize("source", [*SOURCES, {"source": {"subagent": "review"}}])
def test_a_thread_without_a_parent_is_an_orphan(source: dict[str, Any], one: One, store: Store) -> None:
    """A sub-agent's thread whose parent is not in the store is labelled."""
    session = store.session(one(data(meta(**source), message("user", "x")), NAME).session_id or "")
    assert session.labels["orphan"] == "true"


@pytest.mark.parametrize(
    "bad",
    [
        line([], type=[]),
        line("response_item", type={}, call_id=[]),
        line("response_item", type="message", role="user", content="text"),
        line("response_item", type="function_call", call_id="x" * 9000),
        {"timestamp": [], "type": "response_item", "payload": []},
        {"timestamp": 4, "type": "event_msg", "payload": "text"},
        line("session_meta", id={}, cli_version=[], git=[], source=[], forked_from_id=[]),
        line("session_meta", id="../../x", cwd={}, source={"subagent": {"thread_spawn": 3}}),
    ],
)
def test_malformed_lines_are_kept_and_never_raise(bad: dict[str, Any], one: One, store: Store) -> None:
    """A field of the wrong kind makes the line opaque at worst, wherever it stands."""
    good = [meta(), message("user", "x")]
    assert one(data(*good, bad, *good), NAME).events == 5
    assert one(data(bad, *good, message("user", "y")), f"rollout-{PARENT}.jsonl").events == 4
    assert store.verify(deep=True).ok
