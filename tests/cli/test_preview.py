"""One line for any payload, castlog's own or foreign."""

from __future__ import annotations

from typing import Any

import pytest
from castlog_cli.preview import describe


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"text": "hi\nthere"}, "hi there"),
        ({"content": [{"type": "text", "text": "hi"}]}, "hi"),
        ({"model": "m", "messages": [1, 2], "tools": [1]}, "m, 2 messages, 1 tool"),
        (
            {"content": "so", "tool_calls": [{"id": "c", "name": "Edit", "args": {"file": "a.py"}}]},
            "so Edit(file=a.py)",
        ),
        ({"name": "Edit", "args": {"file": "a.py", "n": 2}}, "Edit(file=a.py, n=2)"),
        ({"name": "now", "args": {}}, "now()"),
        ({"ok": True, "output": "done"}, "ok: done"),
        ({"ok": False, "error": "no such file"}, "failed: no such file"),
        ({"ok": False, "interrupted": True}, "interrupted"),
        ({"hook": "pre", "input": {"a": 1}}, "pre(a=1)"),
        ({"decision": "deny", "reason": "secret"}, "deny: secret"),
        ({"kind": "random", "value": 0.5}, "random = 0.5"),
        ({"calls": [{"call_id": "c1", "action": "retry"}]}, "c1 retry"),
        ({"file": "a.jsonl", "line": 3, "offset": 9, "raw": "{oops"}, "a.jsonl:3: {oops"),
        ({"type": "base64", "media_type": "image/png", "data": "A" * 400}, "<image/png, 300 B>"),
        ("plain", "plain"),
        (None, "null"),
        ([], ""),
        ({"odd": 1}, '{"odd": 1}'),
    ],
)
def test_own_types(payload: Any, shown: str) -> None:
    """The payload keys of castlog's types are shown as a person would say them."""
    assert describe(payload) == shown


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"type": "user", "message": {"role": "user", "content": "Warmup"}}, "Warmup"),
        (
            {
                "type": "assistant",
                "message": {"content": [{"type": "tool_use", "name": "Glob", "input": {"pattern": "*.py"}}]},
            },
            "Glob(pattern=*.py)",
        ),
        (
            {
                "type": "user",
                "message": {"content": [{"type": "tool_result", "content": [{"type": "text", "text": "x"}]}]},
            },
            "x",
        ),
        (
            {"type": "user", "message": {"content": [{"type": "image", "source": {"type": "base64", "data": "AAAA"}}]}},
            "<binary, 3 B>",
        ),
        ({"type": "summary", "summary": "Login fixed", "leafUuid": "1"}, "Login fixed"),
        (
            {
                "type": "response_item",
                "payload": {"type": "function_call", "name": "shell", "arguments": '{"cmd":"ls"}'},
            },
            "shell(cmd=ls)",
        ),
        (
            {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "1", "output": "a b"}},
            "a b",
        ),
        ({"type": "event_msg", "payload": {"type": "agent_message", "message": "hello"}}, "hello"),
    ],
)
def test_foreign_records(payload: Any, shown: str) -> None:
    """Claude Code's and Codex's records are read by their shape."""
    assert describe(payload) == shown


def test_large_and_deep_payloads_cost_little() -> None:
    """A preview is bounded whatever it is given."""
    deep: Any = "x"
    for _ in range(120):
        deep = {"message": deep}
    assert len(describe(deep)) < 700
    assert len(describe({"text": "x" * 10_000_000})) < 700
    assert len(describe({"content": [{"text": "y" * 100}] * 100_000})) < 700
    assert len(describe({f"k{n}": list(range(1000)) for n in range(1000)})) < 700
