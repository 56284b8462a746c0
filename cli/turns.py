"""Turns: what happens from one message of the user's to the next. Only headers are read, and only as far as asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import castlog


class Turn(NamedTuple):
    """A turn: its first event, the seq of its last, and how many tools it called."""

    first: castlog.Event
    until: int
    calls: int


def turns_of(view: castlog.View) -> Iterator[Turn]:
    """Yield turns newest first; what stands before the first message is one too."""
    until = calls = 0
    first = None
    for first in view.events(reverse=True):
        until = until or first.seq
        calls += first.type == "tool_call"
        if first.type == "user_message":
            yield Turn(first, until, calls)
            until = calls = 0
    if first is not None and until:
        yield Turn(first, until, calls)
