"""Foreign text made fit for castlog's names: titles, labels, event types, call ids. Nothing here raises."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from blake3 import blake3

TITLE_LENGTH_MAX = 80
LABEL_LENGTH_MAX = 120
CALL_ID_BYTES_MAX = 200
CALL_IDS_MAX = 1000

_BAD = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean_line(text: object, length_max: int) -> str:
    """Return text as one line of at most `length_max` characters, without control characters; "" if nothing is left."""
    if not isinstance(text, str):
        return ""
    if len(text) <= length_max and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    text = unicodedata.normalize("NFC", text[: length_max * 8].encode("utf-8", "replace").decode("utf-8"))
    text = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c) not in _BAD)
    text = " ".join(text.split())
    return text if len(text) <= length_max else text[: length_max - 1].rstrip() + "…"


def clean_title(text: object) -> str:
    """Return text fit to be a session's title, or ""."""
    return clean_line(text, TITLE_LENGTH_MAX)


def clean_labels(labels: dict[str, Any]) -> dict[str, str]:
    """Return the labels that hold text, each value cut to one short line."""
    cleaned = {key: clean_line(value, LABEL_LENGTH_MAX) for key, value in labels.items()}
    return {key: value for key, value in cleaned.items() if value}


def event_type(*parts: Any) -> str:
    """Return an event type of the parts that are text, joined by dots; odd characters become underscores."""
    words = [re.sub(r"[^A-Za-z0-9_-]+", "_", part)[:60] for part in parts if isinstance(part, str) and part]
    return ".".join(words) or "record"


def call_id(value: Any) -> str | None:
    """Return a foreign call id if castlog can carry it as it is, else None."""
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        return None
    return value if len(value) <= CALL_ID_BYTES_MAX else None


def identity(value: Any) -> str | None:
    """Return a foreign id (of a session, an agent, a row) if it is short and plain, else None."""
    if isinstance(value, str) and re.fullmatch(r"[\w.:@+-]{1,128}", value, re.ASCII):
        return value
    return None


def short(text: str) -> str:
    """Return eight hex digits for a foreign id: its own first ones if it is a UUID."""
    if re.fullmatch(r"[0-9a-f]{8}-.*", text):
        return text[:8]
    return blake3(text.encode("utf-8", "replace")).hexdigest(4)
