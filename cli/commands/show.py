"""`castlog show`: one event."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any

import click

import castlog

from ..command import App, command
from ..output import Out, Styled
from ..preview import is_binary
from ..revision import REV
from ..text import clean_json, plural
from ..values import local, size

_STRING_MAX = 500
_ITEMS_MAX = 30


@command("show", examples=("castlog show main@42", "castlog show 4f2a91cc@b3:1f2e --full"))
@click.argument("rev", required=False, type=REV)
@click.option("--full", is_flag=True, help="Leave nothing out of the payload.")
def show(app: App, rev: str | None, full: bool) -> None:
    """Show one event in full.

    Long strings and lists are cut unless --full; binary data is shown as its type, size and SHA-256. castlog cat prints
    the bytes as they are.
    """
    view = app.view(app.store(read_only=True), rev)
    head = view.head
    if head.seq == 0:
        raise castlog.NotFound(f"{head.rev} has no event yet", hint="castlog append adds one.")
    event = view.read(head.seq)
    if app.out.json:
        app.out.json_line(event.to_json())
        return
    _header(app.out, event, head)
    app.out.line()
    if event.redacted and event.size == 0:
        app.out.line("The payload was redacted; nothing of it is left.")
        return
    payload = event.payload
    shown = _binaries(payload) if full else _cut(_binaries(payload))
    app.out.line(clean_json(json.dumps(shown, ensure_ascii=False, indent=2)))


def _header(out: Out, event: castlog.Event, head: castlog.Point) -> None:
    rows = (
        ("time", local(event.ts)),
        ("type", event.type),
        ("schema", str(event.schema) if event.schema != 1 else ""),
        ("call", ", ".join(event.call_ids)),
        ("key", event.key or ""),
        ("harness", event.harness_version or ""),
        ("size", size(event.size) + (", redacted in part" if event.redacted else "")),
        ("id", event.id),
    )
    out.line(Styled(head.rev, "yellow"))
    for name, value in rows:
        if value:
            out.line(Styled(f"{name:<8}", "dim"), value)


def _binaries(value: Any) -> Any:
    """Return the value with binary data described instead of printed."""
    if is_binary(value):
        try:
            data = base64.b64decode(value["data"], validate=True)
        except (binascii.Error, ValueError):
            return value
        return f"<{value.get('media_type', 'binary')}, {size(len(data))}, sha256:{hashlib.sha256(data).hexdigest()}>"
    if isinstance(value, dict):
        return {key: _binaries(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_binaries(item) for item in value]
    return value


def _cut(value: Any) -> Any:
    """Return the value with long strings and lists cut, and a word on how much is missing."""
    if isinstance(value, str) and len(value) > _STRING_MAX * 6 // 5:
        return f"{value[:_STRING_MAX]}… ({len(value) - _STRING_MAX:,} more characters; --full shows all)"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        more = (
            [f"… ({plural(len(value) - _ITEMS_MAX, 'more item')}; --full shows all)"] if len(value) > _ITEMS_MAX else []
        )
        return [_cut(item) for item in value[:_ITEMS_MAX]] + more
    return value
