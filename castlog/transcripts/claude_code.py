"""Claude Code: sessions under `~/.claude/projects`, one row a line, sub-agents in files of their own or among the rows.

The order of the file is the order of the log. Rows name their parents, but parallel tool calls and progress rows share
parents too, so the tree is read for one thing only: a prompt that replaces an earlier one with the same parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from castlog import Event
from castlog.transcripts import claude_rows as rows
from castlog.transcripts import formats, words
from castlog.transcripts.claude_rows import NAME
from castlog.transcripts.claude_side_chains import SIDE_CHAIN, ClaudeSideChains
from castlog.transcripts.claude_titles import Titles
from castlog.transcripts.formats import Facts, SessionFacts, Started
from castlog.transcripts.head import Head, whole_object

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_AGENT_IN_TEXT = re.compile(rb"\bagentId: ([0-9A-Za-z_-]{4,64})")
_META_BYTES_MAX = 64 * 1024

# Rows without a uuid, each with a field that tells it from another program's row of the same type.
_ROOTLESS = {
    "summary": "leafUuid",
    "file-history-snapshot": "snapshot",
    "queue-operation": "operation",
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "permission-mode": "permissionMode",
}

#: Stored types whose rows say something about the session as a whole.
_TELLING = frozenset(
    {"user_message"} | {words.event_type(NAME, kind) for kind in ("summary", "custom-title", "ai-title")}
)


def sniff(head: Head) -> float:
    """Return the share of the first objects that are Claude Code's rows, if one of them can be nobody else's."""
    if not any(map(_is_surely_row, head.records)):
        return 0.0
    return sum(map(_is_row, head.records)) / len(head.records)


def _is_surely_row(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    if "uuid" in value:
        return "sessionId" in value or "parentUuid" in value
    return kind in _ROOTLESS and _ROOTLESS[kind] in value


def _is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a row, of one of the many kinds without a uuid too, in a file known to hold rows."""
    return _is_surely_row(value) or (isinstance(value.get("type"), str) and "sessionId" in value)


class Reader(formats.Reader):
    """One file of Claude Code's."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        encoded = map(msgspec.json.encode, head.records)
        self._rows = [row for raw in encoded if (row := rows.decode_row(raw))]
        self._first = next((row for row in self._rows if words.identity(row.uuid)), rows.Row())
        self._sessions = [found for row in self._rows if (found := words.identity(row.session_id))]
        self._agent = self._agent_id()
        self._titles = Titles()
        self._prompts: dict[str | None, str] = {}
        self._called: set[str] = set()
        self._answered: set[str] = set()

    def session(self) -> SessionFacts:
        """Return whose session this is: of the id in the file's name if its rows know it, else of the first row's."""
        titles = Titles()
        for row in self._rows:
            titles.learn(row, rows.content(row))
        session_id = self._session_id()
        origin = f"{NAME}:{session_id}"
        labels = words.clean_labels(
            {
                "format": NAME,
                "file": self.head.name,
                "cwd": next((row.cwd for row in self._rows if row.cwd), ""),
                "git_branch": next((row.git_branch for row in self._rows if row.git_branch), ""),
                "agent": self._agent,
                "forked_from": self._forked_from(session_id),
            }
        )
        title = titles.best or words.clean_title(self.head.source.stem) or NAME
        if not self._agent:
            return SessionFacts(origin, title, labels)
        return SessionFacts(f"{origin}:{self._agent}", title, labels, Started(origin, tuple(self._keys())))

    def read(self, raw: bytes) -> Facts:
        """Return what a row means."""
        row = rows.decode_row(raw)
        if row is None:
            return Facts(f"{NAME}.record")
        if row.is_sidechain is True and not self._agent:
            return Facts(SIDE_CHAIN, (), rows.time(row), rows.version(row))
        blocks = rows.content(row)
        kind, call_ids = rows.kind(row, blocks)
        if kind in ("tool_call", "tool_result"):
            call_ids = self._unseen(kind, call_ids)
            if not call_ids:  # the row stands in the file twice
                kind = words.event_type(NAME, row.type)
        return Facts(kind, call_ids, rows.time(row), rows.version(row), self._learn(row, blocks))

    def recall(self, event: Event) -> None:
        """Take a stored row as seen."""
        if event.type in ("tool_call", "tool_result"):
            self._unseen(event.type, event.call_ids)
        elif event.type in _TELLING and (row := rows.decode_row(event.raw)):
            self._learn(row, rows.content(row))

    def resembles(self, value: dict[str, Any]) -> bool:
        """Return whether an object is a row."""
        return _is_row(value)

    def title(self) -> str:
        """Return the best title among the rows seen."""
        return self._titles.best

    @property
    def anchor(self) -> str | None:
        """The row before the file's first one, when it must be looked for elsewhere."""
        return words.identity(self._first.parent_uuid) or words.identity(self._first.logical_parent_uuid)

    @property
    def beginning(self) -> str | None:
        """The uuids of the first two rows: a session that begins with the same two is a copy, or copied from here."""
        uuids = [found for row in self._rows if (found := words.identity(row.uuid))]
        return " ".join(uuids[:2]) if len(uuids) > 1 and not self._agent else None

    @staticmethod
    def row_id(raw: bytes) -> str | None:
        """Return the uuid of a row of the main line."""
        row = rows.decode_row(raw)
        return words.identity(row.uuid) if row and row.is_sidechain is not True else None

    @staticmethod
    def links(event: Event) -> Iterator[tuple[str, str]]:
        """Yield the agents a stored row says its calls have started, and the prompts they were given."""
        if event.type == "tool_call":
            if b'"prompt"' in event.raw and (row := rows.decode_row(event.raw)):
                yield from rows.agent_prompts(rows.content(row) or [])
        elif event.type == "tool_result" and event.call_ids:
            yield from ((f"agent:{agent}", event.call_ids[0]) for agent in _agents(event.raw))
        elif event.type.startswith(f"{NAME}.progress") and b'"agentId"' in event.raw:
            row = rows.decode_row(event.raw) or rows.Row()
            agent, call_id = words.identity(rows.inner(row.data).agent_id), words.call_id(row.parent_tool_use_id)
            if agent and call_id:
                yield f"agent:{agent}", call_id

    @staticmethod
    def side_chains() -> formats.SideChains:
        """Return the tool that finds sub-agents' rows among a session's own."""
        return ClaudeSideChains()

    def _learn(self, row: rows.Row, blocks: list[rows.Block] | None) -> str | None:
        """Take a row as seen; return a name for the history it cuts off if it is a prompt in place of another."""
        self._titles.learn(row, blocks)
        if row.subtype == "compact_boundary":
            self._prompts.pop(None, None)
        uuid = words.identity(row.uuid)
        if row.type != "user" or uuid is None or rows.typed_text(row, blocks or []) is None:
            return None
        parent = words.identity(row.parent_uuid)
        replaced = self._prompts.get(parent)
        self._prompts[parent] = uuid
        return f"rewind-{words.short(replaced)}" if replaced and replaced != uuid else None

    def _unseen(self, kind: str, call_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the calls that no row before opened, or closed, and take all as seen."""
        seen = self._called if kind == "tool_call" else self._answered
        unseen = tuple(call_id for call_id in call_ids if call_id not in seen)
        seen.update(unseen)
        return unseen

    def _agent_id(self) -> str | None:
        """Return the agent a file of its own belongs to, or None for the file of a main line."""
        if self._first.is_sidechain is not True:
            return None
        stem = self.head.source.stem
        agent = words.identity(self._first.agent_id)
        if stem.startswith("agent-"):
            return agent or words.identity(stem.removeprefix("agent-"))
        return None if stem in self._sessions else agent

    def _session_id(self) -> str:
        stem = self.head.source.stem
        if not self._agent and _UUID.fullmatch(stem):
            needles = (f'"sessionId":"{stem}"'.encode(), f'"sessionId": "{stem}"'.encode())
            if stem in self._sessions or any(map(self.head.source.contains, needles)):
                return stem
        return self._sessions[0] if self._sessions else words.identity(stem) or "unknown"

    def _forked_from(self, session_id: str) -> str | None:
        """Return the session this one was forked from, as far as its first rows tell."""
        for row in self._rows:
            if isinstance(row.forked_from, dict):
                return words.identity(row.forked_from.get("sessionId"))
        return self._sessions[0] if self._sessions and self._sessions[0] != session_id else None

    def _keys(self) -> Iterator[str]:
        """Yield the keys under which the call that started this agent may be found, the surest first."""
        if call_id := _call_in_meta(self.head):
            yield f"call:{call_id}"
        yield f"agent:{self._agent}"
        if prompt := rows.first_text(rows.content(self._first) or []):
            yield rows.prompt_key(prompt)


def _agents(raw: bytes) -> list[str]:
    """Return the agents a tool result says it comes from."""
    if b"agentId" not in raw:
        return []
    row = rows.decode_row(raw) or rows.Row()
    found = [words.identity(rows.inner(row.tool_use_result).agent_id)]
    found += [match.decode() for match in _AGENT_IN_TEXT.findall(raw)]
    return [agent for agent in dict.fromkeys(found) if agent]


def _call_in_meta(head: Head) -> str | None:
    """Return the call named in the `.meta.json` that lies beside an agent's file."""
    path = head.source.path.with_name(f"{head.source.stem}.meta.json")
    try:
        with path.open("rb") as file:
            meta = whole_object(file.read(_META_BYTES_MAX)) or {}
    except OSError:
        return None
    return words.call_id(meta.get("toolUseId"))
