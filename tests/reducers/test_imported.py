"""The conversation of imported records: real sessions against counts made apart, and made ones for what those lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import castlog
from castlog import Branch

from .conftest import State, fold
from .test_native import brief

FIXTURES = Path(__file__).parent.parent / "transcripts" / "fixtures"
CLAUDE = sorted((FIXTURES / "claude_code").rglob("*.jsonl"))
CODEX = sorted((FIXTURES / "codex").rglob("*.jsonl"))

Rows = list[dict[str, Any]]


@pytest.fixture
def taken(tmp_path: Path) -> Callable[[Path | Rows], State]:
    """Import a file, or rows written to one, and fold the session it becomes."""

    def call(source: Path | Rows, name: str = "11111111-2222-3333-4444-555555555555.jsonl") -> State:
        path = source if isinstance(source, Path) else tmp_path / name
        if not isinstance(source, Path):
            path.write_text("".join(json.dumps(row) + "\n" for row in source))
        with castlog.open("memory:") as store:
            report = store.import_from(path)
            branch: Branch = store.sessions()[0].branch("main")
            assert len(report.files) == 1
            return fold(branch.events())

    return call


Taken = Callable[..., State]


def rows_of(path: Path) -> Rows:
    """Return the objects of a file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def claude_counts(rows: Rows) -> tuple[int, int, int]:
    """Count messages, calls and tokens in a file of Claude Code's without compaction, by what its rows say of them."""
    spoken = [row["message"] for row in rows if row.get("type") in ("user", "assistant")]
    responses = {message["id"]: message["usage"] for message in spoken if message["role"] == "assistant"}
    text = json.dumps([message["content"] for message in spoken])
    calls = text.count('"type": "tool_use"')
    assert text.count('"type": "tool_result"') == calls
    prompts = sum(m["role"] == "user" and "tool_use_id" not in json.dumps(m["content"]) for m in spoken)
    tokens = sum(value for usage in responses.values() for key, value in usage.items() if key.endswith("_tokens"))
    return len(responses) + calls + prompts, calls, tokens


@pytest.mark.parametrize("path", CLAUDE, ids=lambda path: path.stem[:12])
def test_claude_code_sessions_against_a_count(taken: Taken, path: Path) -> None:
    """Messages, calls and tokens of real sessions are as many as their files say."""
    messages, calls, tokens = claude_counts(rows_of(path))
    state = taken(path)
    assert len(state["messages"]) == messages
    assert state["counts"]["completed"] + state["counts"]["failed"] == len(state["tool_calls"]) == calls
    assert sum(state["usage"].values()) == tokens
    assert state["awaiting"] == "user"


@pytest.mark.parametrize("path", CODEX, ids=lambda path: path.stem[:12])
def test_codex_sessions_against_a_count(taken: Taken, path: Path) -> None:
    """Messages, calls and tokens of a real rollout are as many as its file says."""
    rows = rows_of(path)
    items = [row["payload"]["type"] for row in rows if row["type"] == "response_item"]
    totals = [
        row["payload"]["info"]["total_token_usage"] for row in rows if row["payload"].get("type") == "token_count"
    ]
    state = taken(path)
    assert state["counts"]["completed"] == items.count("function_call") == items.count("function_call_output") == 1
    assert sum(state["usage"].values()) == totals[-1]["total_tokens"]
    # Two messages of the user's side by side; thoughts and a call; its result; thoughts that go on.
    assert [message["role"] for message in state["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert [len(message["content"]) for message in state["messages"][:2]] == [2, 1]
    assert state["model"] == "gpt-5-codex"
    assert state["awaiting"] == "model"


class Rollout:
    """Writes lines as Codex does."""

    def __init__(self) -> None:
        self.lines: Rows = []
        self.line("session_meta", id="019982b8-3422-79e0-8b3b-05abaf4f3c3e", base_instructions={"text": "be brief"})

    def line(self, kind: str, **payload: Any) -> Rollout:
        """Add a line."""
        self.lines.append({"timestamp": "2025-09-25T21:12:14.126Z", "type": kind, "payload": payload})
        return self

    def item(self, kind: str, **payload: Any) -> Rollout:
        """Add what went to the model or came from it."""
        return self.line("response_item", type=kind, **payload)

    def event(self, kind: str, **payload: Any) -> Rollout:
        """Add what the user saw."""
        return self.line("event_msg", type=kind, **payload)

    def says(self, role: str, text: str) -> Rollout:
        """Add a message."""
        return self.item("message", **said(role, text))

    def call(self, call_id: str, arguments: str = "{}") -> Rollout:
        """Add a call."""
        return self.item("function_call", call_id=call_id, name="shell", arguments=arguments)

    def result(self, call_id: str, output: Any) -> Rollout:
        """Add a result."""
        return self.item("function_call_output", call_id=call_id, output=output)

    def tokens(self, fresh: int, cached: int, out: int) -> Rollout:
        """Add the tokens used so far."""
        total = {"input_tokens": fresh + cached, "cached_input_tokens": cached, "output_tokens": out}
        return self.event("token_count", info={"total_token_usage": total, "last_token_usage": total})


def said(role: str, text: str) -> dict[str, Any]:
    """Return the keys of a message."""
    return {"role": role, "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]}


def test_codex_turns(taken: Taken) -> None:
    """A turn with parallel calls is one message, its results behind it; what the user saw counts for nothing."""
    rollout = Rollout().line("turn_context", model="gpt-x").says("developer", "rules").says("user", "fix it")
    rollout.event("user_message", message="fix it").item("reasoning", summary=[], encrypted_content="x")
    rollout.says("assistant", "I look.").event("agent_message", message="I look.").call("a", '{"cmd": "ls"}').call("b")
    rollout.tokens(10, 5, 2).tokens(10, 5, 2).result("b", '{"output": "no", "metadata": {"exit_code": 1}}')
    rollout.result("a", "Wall time: 1\nProcess exited with code 0\n").result("zzz", "lost")
    rollout.item("custom_tool_call", call_id="c", name="apply_patch", input="*** Begin")
    rollout.item("custom_tool_call_output", call_id="c", output="Exit code: 2\nOutput:\nno").tokens(30, 15, 4)
    state = taken(rollout.says("assistant", "done").lines)
    assert brief(state["messages"]) == [
        "user: fix it",
        "assistant: reasoning+I look. > a b",
        "a= Wall time: 1\nProcess exited with code 0\n",
        'b= !{"output": "no", "metadata": {"exit_code": 1}}',
        "assistant:  > c",
        "c= !Exit code: 2\nOutput:\nno",
        "assistant: done",
    ]
    assert state["messages"][1]["tool_calls"][0] == {"id": "a", "name": "shell", "args": {"cmd": "ls"}}
    assert state["tool_calls"]["c"]["args"] == {"input": "*** Begin"}
    assert state["system"] == ["be brief", [{"type": "text", "text": "rules"}]]
    assert state["usage"] == {"input": 30, "output": 4, "cache_read": 15, "cache_write": 0}
    assert (state["model"], state["awaiting"]) == ("gpt-x", "user")
    assert (state["counts"]["completed"], state["counts"]["failed"]) == (1, 2)


def test_codex_says_more_while_a_call_runs(taken: Taken) -> None:
    """What a response says behind a call is part of the same message until the results are there."""
    rollout = Rollout().says("user", "go").call("a").says("assistant", "and now").call("b").result("a", "x")
    state = taken(rollout.result("b", "y").says("assistant", "done").lines)
    expected = ["user: go", "assistant: and now > a b", "a= x", "b= y", "assistant: done"]
    assert brief(state["messages"]) == expected


def test_codex_orphans_and_interruptions(taken: Taken) -> None:
    """A call without output has a synthetic result; an aborted turn waits for the user."""
    rollout = Rollout().says("user", "go").call("a").event("turn_aborted", reason="interrupted")
    state = taken(rollout.lines)
    assert (brief(state["messages"])[1:], state["awaiting"]) == (["assistant:  > a", "a= ?"], "user")
    state = taken(rollout.says("user", "again").event("error", message="stream lost").lines)
    assert (brief(state["messages"])[2:], state["awaiting"]) == (["a= ?", "user: again"], "model")
    assert state["last_error"]["message"] == "stream lost"


@pytest.mark.parametrize("replaced", [False, True])
def test_codex_compaction(taken: Taken, replaced: bool) -> None:
    """What was compacted is replaced by the history the record gives, or by its summary; tokens go on from there."""
    rollout = Rollout().says("developer", "old rules").says("user", "go").call("a").result("a", "x").tokens(100, 0, 10)
    history = [
        {"type": "message", **said("developer", "rules")},
        {"type": "message", **said("user", "go")},
        {"type": "compaction", "encrypted_content": "x"},
    ]
    rollout.line("compacted", message="we went", **({"replacement_history": history} if replaced else {}))
    state = taken(rollout.says("assistant", "on").tokens(120, 0, 15).lines)
    assert brief(state["messages"]) == ["user: go+compaction" if replaced else "user: we went", "assistant: on"]
    assert state["system"][-1] == [{"type": "text", "text": "rules" if replaced else "old rules"}]
    assert state["tool_calls"] == {}
    assert (state["counts"]["completed"], state["counts"]["compactions"]) == (1, 1)
    assert sum(state["usage"].values()) == 135


def test_codex_tokens_counted_from_nothing_again(taken: Taken) -> None:
    """Totals that fall began anew, as those of a resumed session do, and are added to what was used before."""
    assert sum(taken(Rollout().tokens(100, 0, 10).tokens(7, 0, 1).tokens(8, 0, 1).lines)["usage"].values()) == 119


class Chat:
    """Writes rows as Claude Code does, each behind the one before unless told otherwise."""

    def __init__(self) -> None:
        self.rows: Rows = []

    def row(self, kind: str, **fields: Any) -> Chat:
        """Add a row."""
        row = {"parentUuid": self.rows[-1]["uuid"] if self.rows else None, "uuid": f"u{len(self.rows)}"}
        common = {"sessionId": "11111111-2222-3333-4444-555555555555", "isSidechain": False, "version": "2.0.1"}
        self.rows.append({"type": kind, **common, **row, **fields})
        return self

    def user(self, content: Any, **fields: Any) -> Chat:
        """Add what a person said."""
        return self.row("user", message={"role": "user", "content": content}, **fields)

    def result(self, *call_ids: str, more: Any = (), **marks: Any) -> Chat:
        """Add results."""
        results = [{"type": "tool_result", "tool_use_id": name, "content": f"of {name}", **marks} for name in call_ids]
        return self.user([*results, *more])

    def says(self, response: str, *blocks: Any, out: int = 1, **fields: Any) -> Chat:
        """Add a part of a response; a block that is a text is a call of that id, unless it has a space in it."""
        made = [self._block(block) for block in blocks]
        usage = {"input_tokens": 10, "output_tokens": out, "cache_read_input_tokens": 3}
        message = {"role": "assistant", "id": response, "model": "claude-x", "content": made, "usage": usage}
        return self.row("assistant", **{"message": message, **fields})

    @staticmethod
    def _block(block: Any) -> Any:
        if not isinstance(block, str):
            return block
        if " " in block:
            return {"type": "text", "text": block.strip()}
        return {"type": "tool_use", "id": block, "name": "Bash", "input": {"command": block}}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def test_claude_code_response_over_many_rows(taken: Taken) -> None:
    """The rows of one response are one message, also with results between them; its tokens count once, as told last."""
    chat = Chat().user("fix it").says("m1", THOUGHT).says("m1", "I look. ", out=2).says("m1", "a", out=5)
    chat.result("a").says("m1", "b", out=9).result("b", is_error=True).says("m2", "done. ", out=4)
    state = taken(chat.rows)
    assert brief(state["messages"]) == [
        "user: fix it",
        "assistant: thinking+I look. > a b",
        "a= of a",
        "b= !of b",
        "assistant: done.",
    ]
    assert state["messages"][1]["content"][0] == THOUGHT
    assert state["usage"] == {"input": 20, "output": 13, "cache_read": 6, "cache_write": 0}
    assert (state["counts"]["completed"], state["counts"]["failed"]) == (1, 1)
    assert (state["awaiting"], state["model"]) == ("user", "claude-x")
    assert state["last_error"] == {"seq": 7, "message": "of b", "call_id": "b"}


def test_claude_code_results_in_one_row_and_another_order(taken: Taken) -> None:
    """Results find their calls whatever their order; what else stands in the row is said behind them."""
    chat = Chat().user("go").says("m1", "a", "b", "c").result("c", "a", more=[{"type": "text", "text": "hurry"}])
    state = taken(chat.rows)
    expected = ["user: go", "assistant:  > a b c", "a= of a", "b= ?", "c= of c", "user: hurry"]
    assert brief(state["messages"]) == expected
    assert state["awaiting"] == "model"
    assert state["tool_calls"]["b"]["status"] == "pending"


def test_claude_code_new_response_is_a_new_message(taken: Taken) -> None:
    """A response of another id begins a message of its own when results stand between."""
    state = taken(Chat().user("go").says("m1", "a", "b").result("a").says("m2", "c").result("c").rows)
    assert brief(state["messages"]) == [
        "user: go",
        "assistant:  > a b",
        "a= of a",
        "b= ?",
        "assistant:  > c",
        "c= of c",
    ]


def test_claude_code_side_chains_stay_out(taken: Taken) -> None:
    """What a sub-agent said among the rows of its session is not said in it, and its calls are not counted."""
    chat = Chat().user("go").says("m1", "a").user("look", isSidechain=True).says("s1", "x", isSidechain=True)
    state = taken(chat.result("a").rows)
    assert brief(state["messages"]) == ["user: go", "assistant:  > a", "a= of a"]
    assert list(state["tool_calls"]) == ["a"]


def test_claude_code_compaction(taken: Taken) -> None:
    """A summary replaces what stood before; summaries that are titles replace nothing."""
    chat = Chat().user("go").says("m1", "a").result("a").row("system", subtype="compact_boundary", parentUuid=None)
    chat.user("so far: went", isCompactSummary=True).says("m2", "on. ").row("summary", summary="Going", leafUuid="u1")
    state = taken(chat.rows)
    assert brief(state["messages"]) == ["user: so far: went", "assistant: on."]
    assert state["messages"][0]["summary"] is True
    assert (state["counts"]["completed"], state["counts"]["compactions"], state["tool_calls"]) == (1, 1, {})


def test_claude_code_rewinds(taken: Taken) -> None:
    """A prompt in the place of another takes away what came of that one, but what stood before stays."""
    chat = Chat().user("hello").says("m1", "hi there ").user("caveat", isMeta=True)
    chat.user("wrong", parentUuid="u2").says("m2", "a").user("right", parentUuid="u2").says("m3", "b").result("b")
    state = taken(chat.rows)
    expected = ["user: hello", "assistant: hi there", "user: caveat+right", "assistant:  > b", "b= of b"]
    assert brief(state["messages"]) == expected
    assert state["awaiting"] == "model"


def test_claude_code_errors_and_interruptions(taken: Taken) -> None:
    """What the client wrote of errors is no answer; after an interruption the user goes on."""
    error = {"error": {"status": 529, "error": {"message": "Overloaded"}}}
    chat = Chat().user("go").row("system", subtype="api_error", **error)
    assert taken(chat.rows)["last_error"] == {"seq": 2, "message": "Overloaded"}
    chat.says("m1", "API Error: 500 ", isApiErrorMessage=True).says("m2", "a").result("a", is_error=True)
    state = taken(chat.user([{"type": "text", "text": "[Request interrupted by user for tool use]"}]).rows)
    expected = ["user: go", "assistant:  > a", "a= !of a", "user: [Request interrupted by user for tool use]"]
    assert brief(state["messages"]) == expected
    assert (state["awaiting"], state["model"]) == ("user", "claude-x")


def test_claude_code_local_commands(taken: Taken) -> None:
    """Commands the client runs by itself ask nothing of the model; a prompt that one stands for does."""
    chat = Chat().user("<bash-input>ls</bash-input>").user("<bash-stdout>a</bash-stdout>")
    assert taken(chat.rows)["awaiting"] == "user"
    chat.user("<command-name>/review</command-name>").user("review this", isMeta=True)
    assert taken(chat.rows)["awaiting"] == "model"


def test_claude_code_rows_that_stand_twice(taken: Taken) -> None:
    """A call and its result that stand in the file a second time are read once."""
    chat = Chat().user("go").says("m1", "a").result("a")
    chat.rows += chat.rows[1:]
    chat.says("m1", "a", "b").result("b", "a")
    state = taken(chat.rows)
    assert brief(state["messages"]) == ["user: go", "assistant:  > a b", "a= of a", "b= of b"]
    assert state["counts"]["stray_results"] == 0
