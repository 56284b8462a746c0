"""Codex: rollouts under `~/.codex/sessions`, one `{timestamp, type, payload}` a line; older ones hold bare items.

What goes to the model (`response_item`) gives the log its messages and calls. What the user saw (`event_msg`) tells the
same once more and stays opaque, or every message would count twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from castlog import Event
from castlog.transcripts import formats, words
from castlog.transcripts.formats import Facts, SessionFacts, Started
from castlog.transcripts.head import Head
from castlog.transcripts.times import parse_time

NAME = "codex"

_LINE_TYPES = frozenset(
    {
        "session_meta",
        "response_item",
        "event_msg",
        "turn_context",
        "compacted",
        "world_state",
        "inter_agent_communication",
    }
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "mcp_tool_call"})
_RESULTS = frozenset(f"{kind}_output" for kind in _CALLS) | {"tool_search_output"}
_ITEMS = _CALLS | _RESULTS | {"message", "reasoning"}
_NOT_TYPED = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "# AGENTS.md instructions",
    "<turn_aborted>",
)
_IDE_CONTEXT = "# Context from my IDE setup:"
_IDE_REQUEST = "## My request for Codex:"
_EMPTY = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    type: Any = None
    timestamp: Any = None
    payload: msgspec.Raw = _EMPTY
    record_type: Any = None


class _Payload(msgspec.Struct):
    type: Any = None
    role: Any = None
    call_id: Any = None
    id: Any = None
    cli_version: Any = None
    content: msgspec.Raw = _EMPTY
    new_thread_id: Any = None


class _Part(msgspec.Struct):
    type: Any = None
    text: Any = None


_line = msgspec.json.Decoder(_Line).decode
_payload = msgspec.json.Decoder(_Payload).decode
_parts = msgspec.json.Decoder(list[_Part]).decode


def sniff(head: Head) -> float:
    """Return the share of the first objects that are lines of a rollout."""
    if not head.records:
        return 0.0
    old = _is_old_meta(head.records[0])
    return sum(_is_line(value) or (old and _is_item(value)) for value in head.records) / len(head.records)


def _is_line(value: dict[str, Any]) -> bool:
    return _text(value.get("type")) in _LINE_TYPES and "payload" in value and "timestamp" in value


def _is_item(value: dict[str, Any]) -> bool:
    return _text(value.get("type")) in _ITEMS or "record_type" in value or _is_old_meta(value)


def _is_old_meta(value: dict[str, Any]) -> bool:
    return "type" not in value and {"id", "timestamp", "instructions"} <= value.keys()


class Reader(formats.Reader):
    """One rollout."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._old = bool(head.records) and _is_old_meta(head.records[0])
        self._meta = _own_meta(head)
        self._version = _version(self._meta.get("cli_version"))
        self._called: set[str] = set()
        self._answered: set[str] = set()
        self._title = ""

    def session(self) -> SessionFacts:
        """Return whose session this is: of the session_meta the file is named after, else of its own one."""
        stem = self.head.source.stem
        session_id = words.identity(self._meta.get("id")) or words.identity(stem) or "unknown"
        git = self._meta.get("git")
        parent = _parent_thread(self._meta)
        labels = words.clean_labels(
            {
                "format": NAME,
                "file": self.head.name,
                "cwd": self._meta.get("cwd"),
                "git_branch": git.get("branch") if isinstance(git, dict) else None,
                "agent": _agent_name(self._meta),
                "forked_from": words.identity(self._meta.get("forked_from_id")),
            }
        )
        title = next(filter(None, map(self._title_of, self.head.records)), "") or words.clean_title(stem) or NAME
        started = None
        if parent or _is_sub_agent(self._meta):
            started = Started(f"{NAME}:{parent}" if parent else "", (f"thread:{session_id}",))
        return SessionFacts(f"{NAME}:{session_id}", title, labels, started)

    def read(self, raw: bytes) -> Facts:
        """Return what a line means."""
        decoded = _decode(raw)
        if decoded is None:
            return Facts(f"{NAME}.record", (), None, self._version)
        line, payload = decoded
        kind, call_ids = self._kind(line, payload)
        if line.type == "session_meta" and payload.id == self._meta.get("id"):
            self._version = _version(payload.cli_version) or self._version
        return Facts(kind, call_ids, parse_time(line.timestamp), self._version)

    def recall(self, event: Event) -> None:
        """Take a stored line as seen."""
        if event.type == "tool_call":
            self._called.update(event.call_ids)
        elif event.type == "tool_result":
            self._answered.update(event.call_ids)
        elif event.type == "user_message" and not self._title:
            self.read(event.raw)
        self._version = event.harness_version or self._version

    def resembles(self, value: dict[str, Any]) -> bool:
        """Return whether an object is a line of a rollout."""
        return _is_line(value) or (self._old and _is_item(value))

    def title(self) -> str:
        """Return the first prompt seen."""
        return self._title

    @staticmethod
    def links(event: Event) -> Iterator[tuple[str, str]]:
        """Yield the threads a stored line says its call has started."""
        if event.type == "tool_result" and event.call_ids:
            if b"agent_id" in event.raw or b"thread_id" in event.raw:
                yield from ((f"thread:{thread}", event.call_ids[0]) for thread in _threads(event.raw))
        elif event.type.startswith(f"{NAME}.event_msg.collab_agent_spawn"):
            payload = (_decode(event.raw) or (_Line(), _Payload()))[1]
            call_id, thread = words.call_id(payload.call_id), words.identity(payload.new_thread_id)
            if call_id and thread:
                yield f"thread:{thread}", call_id

    def _kind(self, line: _Line, payload: _Payload) -> tuple[str, tuple[str, ...]]:
        """Return the event type of a line and the calls it opens or closes."""
        named = line.type if isinstance(line.type, str) else line.record_type
        wrapped = _is_set(line.payload)
        opaque = words.event_type(NAME, named if isinstance(named, str) else "record", payload.type if wrapped else "")
        if line.type == "compacted":
            return "compact", ()
        if wrapped and line.type != "response_item":
            return opaque, ()
        call_id = words.call_id(payload.call_id)
        if call_id is None and payload.type == "local_shell_call":
            call_id = words.call_id(payload.id)
        kind = _text(payload.type)
        if kind in _CALLS and call_id and call_id not in self._called:
            self._called.add(call_id)
            return "tool_call", (call_id,)
        if kind in _RESULTS and call_id and call_id not in self._answered:
            self._answered.add(call_id)
            return "tool_result", (call_id,)
        if payload.type == "message" and payload.role == "assistant":
            return "model_response", ()
        if payload.type == "message" and payload.role == "user":
            self._title = self._title or _typed_title(payload)
            return "user_message", ()
        return opaque, ()

    def _title_of(self, record: dict[str, Any]) -> str:
        item = record.get("payload", record)
        if isinstance(item, dict) and item.get("type") == "message" and item.get("role") == "user":
            return _typed_title(_payload(msgspec.json.encode(item)))
        return ""


def _decode(raw: bytes) -> tuple[_Line, _Payload] | None:
    """Return a line and what it carries (an old line is its own payload), or None when it is no object."""
    try:
        line = _line(raw)
        return line, _payload(line.payload if _is_set(line.payload) else raw)
    except (msgspec.MsgspecError, ValueError):
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_set(raw: msgspec.Raw) -> bool:
    return bytes(raw).startswith(b"{")


def _typed_title(item: _Payload) -> str:
    """Return the title a user's message gives, or "" when the client wrote it."""
    try:
        text = next((part.text for part in _parts(item.content) if isinstance(part.text, str)), "")
    except (msgspec.MsgspecError, ValueError):
        return ""
    if text.lstrip().startswith(_NOT_TYPED):
        return ""
    return words.clean_title(text.split(_IDE_REQUEST, 1)[-1] if text.startswith(_IDE_CONTEXT) else text)


def _own_meta(head: Head) -> dict[str, Any]:
    """Return the session_meta of the file's own session: the one named by the file, else the last not inherited."""
    if head.records and _is_old_meta(head.records[0]):
        return head.records[0]
    metas = [m for r in head.records if r.get("type") == "session_meta" and isinstance(m := r.get("payload"), dict)]
    metas = [meta for meta in metas if words.identity(meta.get("id"))]
    named = [meta for meta in metas if meta["id"] in head.name]
    inherited = {words.identity(meta.get("forked_from_id")) for meta in metas} | set(map(_parent_thread, metas))
    own = [meta for meta in metas if meta["id"] not in inherited]
    return (named or own[-1:] or metas or [{}])[0]


def _version(value: Any) -> str | None:
    text = words.clean_line(value, 60)
    return f"{NAME} {text}" if text else None


def _sub_agent(meta: dict[str, Any]) -> Any:
    source = meta.get("source")
    return source.get("subagent") if isinstance(source, dict) else None


def _is_sub_agent(meta: dict[str, Any]) -> bool:
    return bool(_sub_agent(meta)) or meta.get("thread_source") == "subagent"


def _spawn(meta: dict[str, Any]) -> dict[str, Any]:
    sub_agent = _sub_agent(meta)
    spawn = sub_agent.get("thread_spawn") if isinstance(sub_agent, dict) else None
    return spawn if isinstance(spawn, dict) else {}


def _parent_thread(meta: dict[str, Any]) -> str | None:
    return words.identity(meta.get("parent_thread_id")) or words.identity(_spawn(meta).get("parent_thread_id"))


def _agent_name(meta: dict[str, Any]) -> Any:
    sub_agent = _sub_agent(meta)
    named = meta.get("agent_nickname") or _spawn(meta).get("agent_nickname")
    return named or (sub_agent if isinstance(sub_agent, str) else None)


def _threads(raw: bytes) -> Iterator[str]:
    """Yield the thread ids in a call's output, which is JSON within a string, or not."""
    for match in re.finditer(rb'(?:agent_id|thread_id)\\*"\s*:\s*\\*"([\w-]{8,64})', raw):
        yield match[1].decode("ascii")
