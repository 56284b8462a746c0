r"""A foreign file as events, and back to its bytes.

A file is a run of records with gaps between them. A record is an event that holds the record's bytes. A gap is the
bytes between two records; one that is a single newline is so common that it is left out. Every other gap is an event of
its own: `padding` if it is harmless (blank lines, a byte order mark, no final newline), `damaged` if it holds anything
that should have been a record. After the last record a newline is the rule too; before the first, nothing is.

So the file `{"a":1}\n{"b":2}` without a final newline is two records and one padding event that holds no bytes. A long
gap is several events in a row, which together are the gap.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

DAMAGED = "damaged"
PADDING = "padding"
GAP_TYPES = frozenset({DAMAGED, PADDING})

_ESCAPED_SHARE_MAX = 3  # text that escapes to more than this many times its size travels as base64


class EventLike(Protocol):
    """What is asked of an event here."""

    @property
    def type(self) -> str:
        """The event's type."""

    @property
    def raw(self) -> bytes:
        """The payload's stored bytes."""

    @property
    def payload(self) -> Any:
        """The payload, decoded."""


def source_bytes(events: Iterable[EventLike], *, after_record: bool = False) -> Iterator[bytes]:
    """Yield the bytes the events were made from, part by part.

    With `after_record` the events are the continuation of a history whose last event is a record.
    """
    newline_due = after_record
    for event in events:
        gap = gap_bytes(event)
        if gap is not None:
            newline_due = False
            yield gap
        else:
            if newline_due:
                yield b"\n"
            newline_due = True
            yield event.raw
    if newline_due:
        yield b"\n"


def gap_bytes(event: EventLike) -> bytes | None:
    """Return the bytes of a gap event, or None when the event is a record."""
    if event.type not in GAP_TYPES:
        return None
    payload = event.payload
    if not isinstance(payload, dict):
        return None
    if isinstance(text := payload.get("raw"), str):
        return text.encode("utf-8")
    if isinstance(text := payload.get("raw_base64"), str):
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
    return None


def gap_payload(raw: bytes, *, file: str, line: int, offset: int, reason: str) -> dict[str, Any]:
    """Return the payload of a gap event; `line` and `offset` say where its first odd byte stands in `file`."""
    payload = {"file": file, "line": line, "offset": offset, "reason": reason}
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None or _escapes_badly(raw):
        return payload | {"raw_base64": base64.b64encode(raw).decode("ascii")}
    return payload | {"raw": text}


def _escapes_badly(raw: bytes) -> bool:
    """Whether the text is mostly control characters, each of which is six bytes in JSON."""
    controls = len(raw) - len(raw.translate(None, _CONTROLS))
    return controls * 6 > len(raw) * _ESCAPED_SHARE_MAX


_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r"))
