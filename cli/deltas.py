"""What changed in a state, as lines for people and as rows for programs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import castlog

from .output import Out, Styled
from .preview import preview
from .text import cut, flat

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}
_LEAVES_MAX = 12  # what has more in it is told in one line: a whole conversation would hide everything else
_VALUE_LONG = 2_000  # characters of a value that are looked at for a line


def heading(out: Out, event: castlog.Event) -> None:
    """Write which event the changes are of: `Event 47: tool_call Edit(file=src/api.py)`."""
    start = f"Event {event.seq}: {flat(event.type)} "
    out.line(Styled(start, "bold"), preview(event, max(out.width - len(start), 24)))


def lines(out: Out, found: Iterable[castlog.Change], hidden: Collection[str] = ()) -> None:
    """Write each change on a line: its sign, its path, and what is there; `~` has what was there too.

    Changes below the keys in `hidden` are left out.
    """
    for change in found:
        if change.path and change.path[0] in hidden:
            continue
        for leaf in _for_people(change):
            start = f"  {leaf.sign} {flat(leaf.where)} = "
            room = max(out.width - len(start), 24)
            if leaf.sign == "~":
                text = f"{cut(_text(leaf.old), (room - 4) // 2)} -> {cut(_text(leaf.new), (room - 4) // 2)}"
            else:
                text = cut(_text(leaf.new if leaf.sign == "+" else leaf.old), room)
            out.line(Styled(start[:4], _COLOURS[leaf.sign]), start[4:], text)


def records(out: Out, found: Iterable[castlog.Change], **more: Any) -> None:
    """Write each change as an object, down to values that hold no others."""
    for change in found:
        for leaf in change.leaves():
            out.record(**more, sign=leaf.sign, path=leaf.where, keys=list(leaf.path), old=leaf.old, new=leaf.new)


def _for_people(change: castlog.Change) -> list[castlog.Change]:
    leaves = list(change.leaves())
    return leaves if len(leaves) <= _LEAVES_MAX else [change]


def _text(value: Any) -> str:
    if isinstance(value, str):
        value = value[:_VALUE_LONG]
    return flat(json.dumps(value, ensure_ascii=False)[:_VALUE_LONG])
