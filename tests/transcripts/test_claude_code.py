"""Claude Code's rows: what each becomes, and what the file says about its session."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castlog import FileReport, Store

from .conftest import SESSION, Chat, Take

One = Callable[..., FileReport]
NewChat = Callable[..., Chat]


def kinds(store: Store, file: FileReport) -> list[Any]:
    """Return (type, call ids) of a file's events."""
    assert file.rev is not None
    return [(event.type, list(event.call_ids)) for event in store.view(file.rev).events()]


def test_rows_become_typed_events(chat: NewChat, one: One, store: Store) -> None:
    """Messages and calls get castlog's types and call ids, everything else keeps its own name."""
    c = chat()
    c.plain(type="file-history-snapshot", messageId="m", snapshot={"timestamp": "2025-01-01T00:00:00Z"})
    c.user("please fix it")
    c.assistant({"type": "thinking", "thinking": "hm"})
    c.assistant({"type": "text", "text": "I look."})
    c.assistant({"type": "tool_use", "id": "t1", "name": "Bash"}, {"type": "tool_use", "id": "t2", "name": "Read"})
    c.result("t1")
    c.row(type="progress", data={"type": "bash_progress"}, parentToolUseID="t2")
    c.user([{"type": "tool_result", "tool_use_id": "t2"}, {"type": "text", "text": "and"}])
    c.user([{"type": "image", "source": {}}])
    c.row(type="system", subtype="compact_boundary", parentUuid=None, logicalParentUuid=c.last)
    c.user("summary so far", isCompactSummary=True)
    c.row(type="some new thing!")
    c.plain(type="queue-operation", operation="enqueue", sessionId=SESSION)
    file = one(c.data)
    assert kinds(store, file) == [
        ("claude_code.file-history-snapshot", []),
        ("user_message", []),
        ("model_response", []),
        ("model_response", []),
        ("tool_call", ["t1", "t2"]),
        ("tool_result", ["t1"]),
        ("claude_code.progress.bash_progress", []),
        ("tool_result", ["t2"]),
        ("user_message", []),
        ("claude_code.system.compact_boundary", []),
        ("compact", []),
        ("claude_code.some_new_thing_", []),
        ("claude_code.queue-operation", []),
    ]
    assert store.verify(deep=True).ok
    events = list(store.view(file.rev or "").events())
    assert events[1].harness_version == "claude-code 2.0.1"
    assert events[1].payload["message"]["content"] == "please fix it"
    assert {event.schema for event in events} == {1}


def test_a_call_without_a_result_is_in_flight(chat: NewChat, one: One, store: Store) -> None:
    """A session that was cut between call and result has that call in flight."""
    c = chat()
    c.user("go")
    c.call("t1")
    c.call("t2")
    c.result("t1")
    file = one(c.data)
    assert [event.call_id for event in store.view(file.rev or "").in_flight()] == ["t2"]


def test_a_row_that_stands_twice_opens_its_call_once(chat: NewChat, one: One, store: Store) -> None:
    """A repeated row is kept, but its calls do not count again."""
    c = chat()
    c.user("go")
    c.call("t1")
    c.result("t1")
    c.plain(**c.rows[1])
    c.plain(**c.rows[2])
    file = one(c.data)
    assert kinds(store, file)[3:] == [("claude_code.assistant", []), ("claude_code.user", [])]
    assert store.view(file.rev or "").in_flight() == []
    assert store.verify().ok


BAD: list[dict[str, Any]] = [
    {"message": []},
    {"message": None},
    {"message": "text"},
    {"message": {"content": 7}},
    {"message": {"content": ["text"]}},
    {"message": {"content": [{"type": "tool_use", "id": "x" * 5000, "name": "Bash"}]}},
    {"message": {"content": [{"type": "tool_use", "id": "a\u0000b"}]}},
    {"message": {"content": [{"type": {}, "id": []}]}},
    {"timestamp": {}},
    {"timestamp": "soon"},
    {"version": ["2"]},
    {"version": "\u202e" * 300},
    {"uuid": {}},
    {"uuid": "x" * 5000},
    {"parentUuid": []},
    {"type": []},
    {"type": "a" * 900 + "\n"},
    {"subtype": 4, "type": "system"},
    {"type": "progress", "data": []},
    {"type": "summary", "summary": {}, "leafUuid": []},
    {"forkedFrom": "me"},
    {"isSidechain": "no"},
    {"sessionId": 9},
    {"cwd": ["x"], "gitBranch": {}},
    {"toolUseResult": [1]},
]


@pytest.mark.parametrize("fields", BAD)
@pytest.mark.parametrize("kind", ["user", "assistant"])
def test_malformed_fields_are_kept_and_never_raise(
    fields: dict[str, Any], kind: str, chat: NewChat, one: One, store: Store
) -> None:
    """A field of the wrong kind makes the row opaque at worst; its bytes stay what they were."""
    c = chat()
    c.user("go")
    c.row(**({"type": kind, "message": {"role": kind, "content": "hello"}} | fields))
    c.user("go on")
    file = one(c.data)
    assert (file.events, file.damaged) == (3, ())
    assert store.verify(deep=True).ok


@pytest.mark.parametrize("fields", BAD)
def test_a_malformed_first_row_never_raises(fields: dict[str, Any], chat: NewChat, one: One) -> None:
    """Whatever the first row holds, the file is taken in."""
    c = chat()
    c.row(**({"type": "user", "message": {"role": "user", "content": "hello"}} | fields))
    for number in range(4):
        c.user(f"go on {number}")
    assert one(c.data).events == 5


def test_rows_that_are_no_objects_are_kept(chat: NewChat, one: One, store: Store) -> None:
    """A number, a list or null on a line of its own is a record like any other."""
    c = chat()
    c.user("go")
    file = one(c.data + b'[1]\nnull\n"text"\n')
    assert [kind for kind, _ in kinds(store, file)[1:]] == ["claude_code.record"] * 3


def test_times_come_from_the_row_or_the_one_before(chat: NewChat, one: One, store: Store) -> None:
    """A row without a time takes the one before it; the first takes the first time in the file."""
    c = chat()
    c.plain(type="summary", summary="s", leafUuid="elsewhere")
    c.user("a", timestamp="2025-01-01T00:00:09.5Z")
    c.plain(type="queue-operation", operation="x", sessionId=SESSION)
    c.user("b", timestamp="2025-01-01T00:00:01Z")
    file = one(c.data)
    seconds = [event.ts / 1e9 - 1_735_689_600 for event in store.view(file.rev or "").events()]
    assert seconds == pytest.approx([9.5, 9.5, 9.5, 1])


def test_the_session_is_the_one_the_file_is_named_after(chat: NewChat, one: One, store: Store) -> None:
    """The id in the file's name counts if the rows know it, even if others come first; that other is `forked_from`."""
    c = chat("99999999-2222-3333-4444-555555555555")
    c.user("old")
    c.common["sessionId"] = SESSION
    c.user("new")
    session = store.session(one(c.data).session_id or "")
    assert session.origin == f"claude_code:{SESSION}"
    assert session.labels["forked_from"] == "99999999-2222-3333-4444-555555555555"
    other = store.session(one(c.data, "some-copy.jsonl").session_id or "")
    assert other.origin == "claude_code:99999999-2222-3333-4444-555555555555"


def test_a_fork_that_says_so_is_labelled(chat: NewChat, one: One, store: Store) -> None:
    """Rows with `forkedFrom` label the session with where it came from."""
    c = chat(forkedFrom={"sessionId": "abc", "messageUuid": "m"})
    c.user("go")
    assert store.session(one(c.data).session_id or "").labels["forked_from"] == "abc"


def test_a_copy_that_does_not_say_so_is_labelled(chat: NewChat, take: Take, tmp_path: Path, store: Store) -> None:
    """Two sessions that begin with the same rows are told apart, and the later one is labelled."""
    ids = [f"{n}1111111-2222-3333-4444-555555555555" for n in (1, 2)]
    for number, session in enumerate(ids):
        c = chat()
        for text in ("a", "b", "c"):
            c.user(text)
        for row in c.rows:
            row["sessionId"] = session
        path = tmp_path / f"{session}.jsonl"
        path.write_bytes(c.data)
        os.utime(path, (1000 + number, 1000 + number))
    take(tmp_path)
    os.utime(tmp_path / f"{ids[0]}.jsonl", (9000, 9000))
    assert take(tmp_path).added == 0
    labels = {session.origin: session.labels.get("forked_from") for session in store.sessions()}
    assert labels == {f"claude_code:{ids[0]}": None, f"claude_code:{ids[1]}": ids[0]}


@pytest.mark.parametrize(
    ("rows", "title"),
    [
        ([("user", "please\nfix it")], "please fix it"),
        ([("meta", "Caveat: x"), ("user", "<command-name>/clear</command-name>"), ("user", "hello")], "hello"),
        ([("user", "<command-name>/review</command-name> <command-args>all</command-args>")], "/review all"),
        ([("foreign", "Another session"), ("user", "mine")], "mine"),
        ([("user", "mine"), ("own", "What it was about")], "What it was about"),
        ([("user", "mine"), ("ai", "Mine, said well")], "Mine, said well"),
        ([("user", "mine"), ("ai", "x"), ("custom", "My name")], "My name"),
        ([("user", "<ide_opened_file>x</ide_opened_file>")], SESSION),
    ],
)
def test_titles(rows: list[tuple[str, str]], title: str, chat: NewChat, one: One, store: Store) -> None:
    """The user's title counts most, then a summary of this session, a made-up title, the first prompt, a command."""
    c = chat()
    for kind, text in rows:
        if kind in ("user", "meta"):
            c.user([{"type": "text", "text": text}], isMeta=kind == "meta")
        elif kind == "foreign":
            c.plain(type="summary", summary=text, leafUuid="elsewhere")
        elif kind == "own":
            c.plain(type="summary", summary=text, leafUuid=c.last)
        else:
            c.plain(type=f"{kind}-title", sessionId=SESSION, **{f"{kind}Title": text})
    assert store.session(one(c.data).session_id or "").title == title


def test_a_prompt_far_down_gives_the_title_in_the_end(chat: NewChat, one: One, store: Store) -> None:
    """A session whose first rows say nothing is renamed when its first prompt comes."""
    c = chat()
    for _ in range(200):
        c.row(type="system", subtype="x")
    c.user("at last")
    assert store.session(one(c.data).session_id or "").title == "at last"


def test_a_title_given_in_castlog_stays(chat: NewChat, one: One, store: Store) -> None:
    """Importing again does not undo a rename."""
    c = chat()
    c.user("first")
    session = store.session(one(c.data).session_id or "")
    session.rename("my own")
    c.plain(type="custom-title", customTitle="theirs", sessionId=SESSION)
    assert one(c.data).status == "grown"
    assert store.session(session.id).title == "my own"


def branches(store: Store, file: FileReport) -> dict[str, int]:
    """Return name and head of each branch of a file's session."""
    return {branch.name: branch.head.seq for branch in store.session(file.session_id or "").branches()}


def test_a_rewind_becomes_a_branch(chat: NewChat, one: One, store: Store) -> None:
    """A prompt typed in place of another leaves a branch that ends with the abandoned line, and shares all of it."""
    c = chat()
    c.user("first")
    answer = c.assistant({"type": "text", "text": "ok"})
    abandoned = c.user("do this")
    c.assistant({"type": "text", "text": "did this"})
    c.user("do that instead", parentUuid=answer["uuid"])
    c.assistant({"type": "text", "text": "did that"})
    file = one(c.data)
    name = f"rewind-{abandoned['uuid'][:8]}"
    assert branches(store, file) == {"main": 6, name: 4}
    assert one(c.data).added == 0
    assert branches(store, file) == {"main": 6, name: 4}


def test_what_looks_like_a_rewind_and_is_none(chat: NewChat, one: One, store: Store) -> None:
    """Parallel calls, progress rows, side chains, local commands and a row that stands twice make no branch."""
    c = chat()
    root = c.user("first")["uuid"]
    calls = [c.call(f"t{n}") for n in range(3)]
    for number, call in enumerate(calls):
        call["parentUuid"] = root
        c.result(f"t{number}", parentUuid=call["uuid"])
    c.row(type="progress", data={"type": "hook_progress"}, parentUuid=root)
    c.user("<command-name>/clear</command-name>", parentUuid=root)
    c.user("<bash-input>ls</bash-input>", parentUuid=root)
    c.user("said by the client", parentUuid=root, isMeta=True)
    c.user("said by the client again", parentUuid=root, isMeta=True)
    c.user("a", isSidechain=True, parentUuid=root)
    c.user("b", isSidechain=True, parentUuid=root)
    again = c.user("second", parentUuid=root)
    c.plain(**again)
    assert branches(store, one(c.data)) == {"main": len(c.rows)}


def test_a_new_root_after_a_compaction_is_no_rewind(chat: NewChat, one: One, store: Store) -> None:
    """Two prompts at the beginning are a rewind, unless the conversation was compacted between them."""
    c = chat()
    c.user("first")
    c.row(type="system", subtype="compact_boundary", parentUuid=None)
    c.user("second", parentUuid=None)
    assert branches(store, one(c.data)) == {"main": 3}
    c.user("third", parentUuid=None)
    assert sorted(branches(store, one(c.data)).values()) == [3, 4]


def test_a_rewind_that_comes_later_is_seen(chat: NewChat, one: One, store: Store) -> None:
    """A file that grew by a rewind gets the branch when it is imported again."""
    c = chat()
    answer = c.user("first")["uuid"]
    c.user("do this")
    one(c.data)
    c.user("do that instead", parentUuid=answer)
    assert sorted(branches(store, one(c.data)).values()) == [2, 3]


def agent_rows(chat: NewChat, prompt: str, agent: str = "a1b2c3d4") -> bytes:
    """Return the file of a sub-agent."""
    c = chat(isSidechain=True, agentId=agent)
    c.user(prompt)
    c.call("s1")
    c.result("s1")
    return c.data


@pytest.mark.parametrize("how", ["result", "meta", "progress", "prompt", "text"])
@pytest.mark.parametrize("place", ["agent-a1b2c3d4.jsonl", f"{SESSION}/subagents/agent-a1b2c3d4.jsonl"])
def test_a_sub_agents_file_hangs_under_its_call(
    how: str, place: str, chat: NewChat, take: Take, tmp_path: Path, store: Store
) -> None:
    """The call is found by what the parent says of the agent, by the file beside it, or by the prompt."""
    c = chat()
    c.user("go")
    c.call("t0", "Task", prompt="something else")
    c.call("t1", "Task", prompt="look" if how == "prompt" else "?")
    if how == "progress":
        c.row(type="progress", data={"type": "agent_progress", "agentId": "a1b2c3d4"}, parentToolUseID="t1")
    c.result("t0")
    c.result(
        "t1",
        "agentId: a1b2c3d4 (for resuming)" if how == "text" else "done",
        toolUseResult={"agentId": "a1b2c3d4"} if how == "result" else {},
    )
    (tmp_path / f"{SESSION}.jsonl").write_bytes(c.data)
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(agent_rows(chat, "look"))
    if how == "meta":
        path.with_name("agent-a1b2c3d4.meta.json").write_text(json.dumps({"toolUseId": "t1"}))
    take(tmp_path)
    main = store.find_origin(f"claude_code:{SESSION}")
    agent = store.find_origin(f"claude_code:{SESSION}:a1b2c3d4")
    assert main is not None
    assert agent is not None
    assert main.parent is None
    assert agent.parent is not None
    assert (agent.parent.session_id, agent.parent.seq, agent.parent.call_id) == (main.id, 3, "t1")
    assert "orphan" not in agent.labels
    assert [event.type for event in agent.branch("main").events()] == ["user_message", "tool_call", "tool_result"]
    assert take(tmp_path).added == 0
    assert store.verify(deep=True).ok


def test_an_agents_agent_hangs_under_the_agent(chat: NewChat, take: Take, tmp_path: Path, store: Store) -> None:
    """Agents may start agents, whatever the order of their files' names."""
    c = chat()
    c.user("go")
    c.call("t1", "Task", prompt="outer")
    (tmp_path / f"{SESSION}.jsonl").write_bytes(c.data)
    outer = chat(isSidechain=True, agentId="outer")
    outer.user("outer")
    outer.call("t2", "Task", prompt="inner")
    (tmp_path / "agent-z.jsonl").write_bytes(outer.data)
    inner = chat(isSidechain=True, agentId="inner")
    inner.user("inner")
    inner.call("t3", "Task", prompt="innermost")
    (tmp_path / "agent-m.jsonl").write_bytes(inner.data)
    (tmp_path / "agent-a.jsonl").write_bytes(agent_rows(chat, "innermost", "innermost"))
    take(tmp_path)
    line = [store.find_origin(f"claude_code:{SESSION}{end}") for end in ("", ":outer", ":inner", ":innermost")]
    parents = [session.parent.session_id if session and session.parent else None for session in line]
    assert parents == [None, *(session.id if session else "" for session in line[:-1])]


def test_an_agent_without_a_parent_is_an_orphan(chat: NewChat, one: One, store: Store) -> None:
    """A sub-agent whose call is nowhere to be found is labelled, and taken in all the same."""
    session = store.session(one(agent_rows(chat, "look"), "agent-a1b2c3d4.jsonl").session_id or "")
    assert session.parent is None
    assert session.labels["orphan"] == "true"
    assert session.labels["agent"] == "a1b2c3d4"


def test_side_chains_become_sessions(chat: NewChat, one: One, store: Store) -> None:
    """Sub-agents' rows stay opaque among a session's own, and make sessions under the calls that started them."""
    c = chat()
    c.user("go")
    c.call("t1", "Task", prompt="one")
    parent = c.call("t2", "Task", prompt="two")
    first = c.user("one", isSidechain=True, parentUuid=None)
    second = c.user("two", isSidechain=True, parentUuid=None)
    common = {"isSidechain": True, "parentUuid": first["uuid"]}
    tool = [{"type": "tool_use", "id": "s1", "name": "Bash", "input": {}}]
    reply = c.row(type="assistant", message={"content": tool}, **common)
    c.row(
        type="assistant",
        message={"content": [{"type": "text", "text": "x"}]},
        isSidechain=True,
        parentUuid=second["uuid"],
    )
    c.result("s1", isSidechain=True, parentUuid=reply["uuid"])
    c.result("t1", parentUuid=parent["uuid"])
    c.user("lost", isSidechain=True, parentUuid=None)
    file = one(c.data)
    main = store.session(file.session_id or "")
    assert [event.call_id for event in main.branch("main").in_flight()] == ["t2"]
    assert kinds(store, file)[3:8] == [("claude_code.sidechain", [])] * 5
    chains = {session.title: session for session in store.sessions() if session.id != main.id}
    types = {title: [e.type for e in session.branch("main").events()] for title, session in chains.items()}
    assert types == {
        "one": ["user_message", "tool_call", "tool_result"],
        "two": ["user_message", "model_response"],
        "lost": ["user_message"],
    }
    started = {title: session.parent.call_id if session.parent else None for title, session in chains.items()}
    assert started == {"one": "t1", "two": "t2", "lost": None}
    assert chains["lost"].labels["orphan"] == "true"
    assert file.added == file.events + 6
    assert one(c.data).added == 0
    c.user("more", isSidechain=True, parentUuid=second["uuid"])
    assert one(c.data).added == 2
    assert chains["two"].branch("main").head.seq == 3
    assert store.verify(deep=True).ok
