"""What a file is, by its content. A name only decides what becomes of a file whose content says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from castlog.transcripts.formats import CASTLOG, OPAQUE, Format
from castlog.transcripts.head import Head, whole_object
from castlog.transcripts.lines import lines
from castlog.transcripts.source import Source

_SURE = 0.5
_DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
_LINES_NAMES = (".jsonl", ".ndjson", ".jsonl.zst", ".ndjson.zst")


class Detected(NamedTuple):
    """A format by name (with its plug-in unless it is castlog's own), or None and why the file is left out."""

    name: str | None
    format: Format | None = None
    reason: str = ""


def detect(head: Head, known: Mapping[str, Format], *, named: bool) -> Detected:
    """Return what a file is. `named`: it was asked for by name, so that a single record is enough to take it."""
    if not head.data.strip() and head.whole:
        return Detected(None, reason="empty" if not head.data else "nothing but white space")
    if _is_castlog(head):
        return Detected(CASTLOG)
    sure, name = max(((fmt.sniff(head), name) for name, fmt in known.items() if name != OPAQUE), default=(0.0, ""))
    if sure >= _SURE:
        return Detected(name, known[name])
    opaque = Detected(OPAQUE, known[OPAQUE])
    if opaque.format is not None and opaque.format.sniff(head) > 0:
        return opaque
    if head.lines != 1 and _is_document(head.source):
        return Detected(None, reason="one JSON document, not JSON Lines")
    if named:
        return opaque if _has_record(head.source) else Detected(None, reason="no line of it is a JSON object")
    if head.name.endswith(_LINES_NAMES):
        return opaque
    return Detected(None, reason="one JSON document, not JSON Lines" if head.records else "not JSON Lines")


def _is_castlog(head: Head) -> bool:
    first = head.records[0] if head.records else {}
    return first.get("type") == "session" and CASTLOG in first


def _is_document(source: Source) -> bool:
    """Whether the content as a whole is one JSON value."""
    data = source.head(_DOCUMENT_BYTES_MAX)
    if len(data) == _DOCUMENT_BYTES_MAX:
        return data.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0].strip() in (b"{", b"[")
    try:
        msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _has_record(source: Source) -> bool:
    return any(line.whole and whole_object(line.data) is not None for line in lines(source.chunks()))
