"""Events as lines for people and as rows for programs; the same form in every list."""

from __future__ import annotations

from typing import Any

import castlog

from .output import Out, Styled
from .preview import preview
from .text import pad
from .values import iso, local

_COLOURS = {
    "user_message": "green",
    "model_request": "blue",
    "model_response": "blue",
    "tool_call": "cyan",
    "tool_result": "cyan",
    "damaged": "red",
}
_ID_HEX = 10
_TYPE_WIDTH = 14


def row(event: castlog.Event) -> dict[str, Any]:
    """Return what programs get in a list of events: where it stands, what it is, and a preview of its payload."""
    return {
        "rev": f"{event.session_id}/{event.branch}@{event.seq}",
        "seq": event.seq,
        "id": event.id,
        "ts": iso(event.ts),
        "type": event.type,
        "call_ids": list(event.call_ids),
        "size": event.size,
        "preview": preview(event, 500),
    }


def short_id(event_id: str) -> str:
    """Return enough of an event id to name it: `b3:` and ten digits."""
    return event_id[: 3 + _ID_HEX]


def short_rev(rev: str) -> str:
    """Return a revision with its session as lists show it, by the last 8 digits of its id."""
    session, slash, rest = rev.partition("/")
    return f"{session[-8:]}{slash}{rest}" if session.startswith("sess_") else rev


def one_line(out: Out, event: castlog.Event, sign: str = "", where: str = "") -> None:
    """Write an event on one line: seq, type, call, preview."""
    start = f"{sign}{where}{event.seq:>6}  "
    kind = pad(_short(event.type, _TYPE_WIDTH), _TYPE_WIDTH)
    calls = f"  [{_calls(event)}]" if event.call_ids else ""
    text = preview(event, max(out.width - len(start) - len(kind) - len(calls) - 2, 24))
    out.line(Styled(start, "yellow"), Styled(kind, _COLOURS.get(event.type, "dim")), Styled(calls, "dim"), "  ", text)


def two_lines(out: Out, event: castlog.Event) -> None:
    """Write an event as a heading with seq, id, time, type and call, and its preview below."""
    calls = f"  [{_calls(event)}]" if event.call_ids else ""
    when = local(event.ts)[:19]
    room = out.width - len(when) - len(calls) - _ID_HEX - 15
    kind = Styled(_short(event.type, room), _COLOURS.get(event.type, "bold"))
    out.line(Styled(f"{event.seq:>6}  ", "yellow"), f"{short_id(event.id)}  {when}  ", kind, Styled(calls, "dim"))
    text = preview(event, out.width - 8)
    if text:
        out.line(f"        {text}")


def _short(kind: str, width: int) -> str:
    """Return a type's end where it does not fit: foreign ones begin alike."""
    return kind if len(kind) <= width else "…" + kind[1 - width :]


def _calls(event: castlog.Event) -> str:
    more = f" +{len(event.call_ids) - 1}" if len(event.call_ids) > 1 else ""
    first = event.call_ids[0]
    return (first if len(first) <= 16 else f"…{first[-10:]}") + more
