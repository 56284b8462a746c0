"""Rows of Claude Code transcripts, decoded as far as importing needs. A field of the wrong kind counts as absent."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from blake3 import blake3

from castlog.transcripts import words
from castlog.transcripts.times import parse_time

NAME = "claude_code"

#: Text rows that the client wrote on its own or that only carry a local command.
_NOT_TYPED = ("<command-", "<local-command-", "<bash-", "<system-reminder>", "[Request interrupted", "Caveat: ")
_COMMAND = re.compile(r"<command-name>\s*(/[^<]{1,60}?)\s*</command-name>(?:.*?<command-args>([^<]*)<)?", re.DOTALL)
_EMPTY = msgspec.Raw(b"null")


class Row(msgspec.Struct, rename="camel"):
    """The envelope of a row. Large parts stay undecoded."""

    type: Any = None
    subtype: Any = None
    uuid: Any = None
    parent_uuid: Any = None
    logical_parent_uuid: Any = None
    is_sidechain: Any = None
    session_id: Any = None
    agent_id: Any = None
    timestamp: Any = None
    version: Any = None
    cwd: Any = None
    git_branch: Any = None
    is_meta: Any = None
    is_compact_summary: Any = None
    forked_from: Any = None
    summary: Any = None
    leaf_uuid: Any = None
    custom_title: Any = None
    ai_title: Any = None
    parent_tool_use_id: Any = msgspec.field(default=None, name="parentToolUseID")
    message: msgspec.Raw = _EMPTY
    data: msgspec.Raw = _EMPTY
    snapshot: msgspec.Raw = _EMPTY
    tool_use_result: msgspec.Raw = _EMPTY


class Block(msgspec.Struct):
    """A content block of a message, its large parts left aside."""

    type: Any = None
    id: Any = None
    tool_use_id: Any = None
    name: Any = None
    text: Any = None
    input: msgspec.Raw = _EMPTY


class _Message(msgspec.Struct):
    content: msgspec.Raw = _EMPTY


class _Input(msgspec.Struct):
    prompt: Any = None


class _Inner(msgspec.Struct, rename="camel"):
    type: Any = None
    agent_id: Any = None
    timestamp: Any = None


_row = msgspec.json.Decoder(Row).decode
_message = msgspec.json.Decoder(_Message).decode
_blocks = msgspec.json.Decoder(list[Block]).decode
_text = msgspec.json.Decoder(str).decode
_input = msgspec.json.Decoder(_Input).decode
_inner = msgspec.json.Decoder(_Inner).decode


def decode_row(raw: bytes) -> Row | None:
    """Return the row of a record, or None when the record is no object."""
    try:
        return _row(raw)
    except (msgspec.MsgspecError, ValueError):
        return None


def content(row: Row) -> list[Block] | None:
    """Return the blocks of a row's message, a plain text as one block; None when there is no content to speak of."""
    try:
        raw = bytes(_message(row.message).content)
        return [Block(type="text", text=_text(raw))] if raw.startswith(b'"') else _blocks(raw)
    except (msgspec.MsgspecError, ValueError):
        return None


def inner(raw: msgspec.Raw) -> _Inner:
    """Return the few fields castlog reads of an object inside a row; all absent when it is none."""
    try:
        return _inner(raw)
    except (msgspec.MsgspecError, ValueError):
        return _Inner()


def kind(row: Row, blocks: list[Block] | None) -> tuple[str, tuple[str, ...]]:
    """Return the event type a row gets and the calls it opens or closes."""
    if row.type == "assistant" and blocks is not None:
        call_ids = calls(blocks)
        if call_ids:
            return "tool_call", call_ids
        if not any(b.type == "tool_use" for b in blocks):
            return "model_response", ()
    if row.type == "user" and blocks:
        call_ids = results(blocks)
        if call_ids:
            return "tool_result", call_ids
        if row.is_compact_summary is True:
            return "compact", ()
        if any(b.type in ("text", "image", "document") for b in blocks):
            return "user_message", ()
    part = inner(row.data).type if row.type == "progress" else row.subtype
    return words.event_type(NAME, row.type if isinstance(row.type, str) else "record", part), ()


def time(row: Row) -> int | None:
    """Return when a row was written, or None."""
    found = parse_time(row.timestamp)
    return parse_time(inner(row.snapshot).timestamp) if found is None else found


def version(row: Row) -> str | None:
    """Return the client that wrote a row, or None."""
    text = words.clean_line(row.version, 60)
    return f"claude-code {text}" if text else None


def first_text(blocks: list[Block]) -> str:
    """Return the first text among blocks that no editor put there, or ""."""
    texts = (b.text for b in blocks if b.type == "text" and isinstance(b.text, str))
    return next((text for text in texts if not text.lstrip().startswith("<ide_")), "")


def typed_text(row: Row, blocks: list[Block]) -> str | None:
    """Return what a person typed in this row ("" for a picture alone), or None when it is no prompt of theirs."""
    if row.is_meta is True or row.is_compact_summary is True:
        return None
    text = first_text(blocks).strip()
    if text.startswith(_NOT_TYPED) or any(b.type == "tool_result" for b in blocks):
        return None
    return text if text or any(b.type in ("image", "document") for b in blocks) else None


def command_text(blocks: list[Block]) -> str:
    """Return the command a row carries, as it was typed, or ""."""
    match = _COMMAND.search(first_text(blocks)[:4000])
    return f"{match[1]} {match[2] or ''}".strip() if match else ""


def calls(blocks: list[Block]) -> tuple[str, ...]:
    """Return the ids of the tool calls among blocks."""
    return _ids(b.id for b in blocks if b.type == "tool_use")


def results(blocks: list[Block]) -> tuple[str, ...]:
    """Return the ids of the calls whose results are among blocks."""
    return _ids(b.tool_use_id for b in blocks if b.type == "tool_result")


def agent_prompts(blocks: list[Block]) -> list[tuple[str, str]]:
    """Return (key of the prompt, call id) for each call among blocks that starts a sub-agent."""
    found = []
    for block in blocks:
        call_id = words.call_id(block.id)
        if block.type == "tool_use" and block.name in ("Task", "Agent") and call_id:
            try:
                prompt = _input(block.input).prompt
            except (msgspec.MsgspecError, ValueError):
                continue
            if isinstance(prompt, str) and prompt:
                found.append((prompt_key(prompt), call_id))
    return found


def prompt_key(prompt: str) -> str:
    """Return the key under which the call that gave a sub-agent this prompt is found."""
    return "prompt:" + blake3(prompt.strip().encode("utf-8", "replace")).hexdigest(16)


def _ids(values: Any) -> tuple[str, ...]:
    kept = dict.fromkeys(found for value in values if (found := words.call_id(value)))
    return tuple(kept)[: words.CALL_IDS_MAX]
