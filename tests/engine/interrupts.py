"""Ctrl-C on every line in turn: what a signal does once in a million times, done each time."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

# What runs under the write lock or around it. Lines that only a trace can interrupt, never a signal, are left out:
# those that leave a `with` whose lock is C's.
FUNCTIONS = frozenset((
    "_attempt", "_begin_turn", "_clear", "_end", "_folded", "_give_back", "_stir", "_take", "_update", "_writing",
    "abort", "acquire", "again", "during", "enter", "leave", "mine", "release", "submit", "update", "wait",
))  # fmt: skip


def interrupted(work: Callable[[], object]) -> Iterator[KeyboardInterrupt]:
    """Call `work` with an interrupt on its first line inside the engine, then on the second, until there are no more.

    Yields each interrupt while its traceback still keeps the frames alive, as a handler of the caller's would.
    """
    for place in range(10_000):
        try:
            _interrupt_at(place, work)
        except KeyboardInterrupt as interrupt:
            yield interrupt
        else:
            return


def _interrupt_at(place: int, work: Callable[[], object]) -> None:
    left = place
    begun: set[tuple[FrameType, int]] = set()

    def leaves(frame: FrameType) -> bool:
        """Whether the line is a `with` that was here before: it is on its way out."""
        here = (frame, frame.f_lineno)
        begins = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with self._lock:")
        known = begins and here in begun
        if begins:
            begun.add(here)
        return known

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        code = frame.f_code
        if code.co_name not in FUNCTIONS or Path(code.co_filename).parent.name != "engine":
            return None
        if event in ("call", "line") and not leaves(frame):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt(f"{code.co_filename}:{frame.f_lineno} {event}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
