"""Going through a history by hand: a line is read, an event and the state after it are shown.

Works on any terminal, and with lines from a pipe. States are kept in memory on the way, so that going back is cheap.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import castlog

from . import deltas
from .output import Meter, Out
from .reducers import Loaded
from .text import clean_json, flat

HELP = (
    ("n [COUNT]", "the next event, or COUNT further"),
    ("p [COUNT]", "the one before"),
    ("g SEQ", "go to an event; 0 is before the first"),
    ("/TEXT", "the next event that holds TEXT; / alone looks again"),
    ("d", "what the event changed in the state"),
    ("s", "the whole state"),
    ("q", "leave, as the end of input does"),
    ("?", "this"),
    ("Enter", "the last command again"),
)
_COUNTED = re.compile(r"([npg])\s*(\d{0,18})", re.ASCII)


class Stepper:
    """Where somebody stands in a history, and what they may do there."""

    def __init__(self, out: Out, store: castlog.Store, view: castlog.View, loaded: Loaded) -> None:
        self._out = out
        self._view = view
        self._loaded = loaded
        self._states = store.replay(view, loaded.reducer, progress=self._tell)
        self._meter: Meter | None = None
        self._last = self._states.head.seq
        self._seq = 0
        self._sought = ""

    def run(self, start: int | None) -> None:
        """Show an event, by default the first, and then obey line after line until there are no more."""
        if self._last == 0:
            raise castlog.NotFound(f"{self._states.head.rev} has no event yet", hint="castlog append adds one.")
        self._out.line(f"{self._last:,} events; ? lists the commands.")
        self._go(1 if start is None else start)
        before = "n"
        while (line := self._read()) is not None:
            command = line.strip() or before
            if command == "q":
                return
            before = command
            try:
                with self._out.progress("folding") as self._meter:
                    self._obey(command)
            except castlog.Error as error:
                self._out.say(f"castlog: {error}")

    def _read(self) -> str | None:
        """Return the next line somebody typed, or None at the end of input."""
        if sys.stdin.isatty():
            self._out.prompt(f"{self._seq}/{self._last}> ")
        self._out.flush()
        data = sys.stdin.buffer.readline()
        if not data and sys.stdin.isatty():
            self._out.line()
        return data.decode("utf-8", "replace") if data else None

    def _obey(self, command: str) -> None:
        counted = _COUNTED.fullmatch(command)
        if counted:
            self._move(counted[1], counted[2])
        elif command.startswith("/"):
            self._seek(command[1:] or self._sought)
        elif command in _PLAIN:
            _PLAIN[command](self)
        else:
            self._out.say(f"{flat(command)[:60]} is no command; ? lists them.")

    def _move(self, kind: str, number: str) -> None:
        if kind == "g":
            if number:
                self._go(int(number))
            else:
                self._out.say("Write where to go: g 47")
            return
        wanted = self._seq + int(number or 1) * (1 if kind == "n" else -1)
        if self._seq == (self._last if kind == "n" else 0):
            self._out.say(f"There is no event {'after' if kind == 'n' else 'before'} this.")
        else:
            self._go(min(max(wanted, 0), self._last))

    def _go(self, seq: int) -> None:
        """Stand at an event and show it, with the state after it; where that cannot be had nothing moves."""
        state = self._states.at(seq).state
        self._seq = seq
        if seq == 0:
            self._out.line("Before the first event.")
        else:
            deltas.heading(self._out, self._states.event(seq))
        self._out.line(f"State: {self._loaded.line(state, self._out.width - 7)}")

    def _seek(self, text: str) -> None:
        """Go to the next event whose type, call ids or payload hold a text; small letters find capitals too."""
        if not text:
            self._out.say("Write what to look for: /TEXT")
            return
        self._sought = text
        fold: Callable[[str], str] = str.casefold if text == text.casefold() else str
        for event in self._view.events(self._seq + 1):
            if text in fold(_words(event)):
                self._go(event.seq)
                return
            self._tell(castlog.Progress(event.seq - self._seq, self._last - self._seq, "events"))
        self._out.say(f"No event after {self._seq} holds {flat(text)[:60]!r}.")

    def _show_changes(self) -> None:
        if self._seq == 0:
            self._out.say("There is no event here.")
            return
        found = self._states.changes(self._seq)
        deltas.lines(self._out, found, self._loaded.hidden)
        if not found:
            self._out.say("It changed nothing.")

    def _show_state(self) -> None:
        value: Any = self._states.value(self._seq)
        self._out.line(clean_json(json.dumps(value, ensure_ascii=False, indent=2)))

    def _show_help(self) -> None:
        for command, text in HELP:
            self._out.line(f"  {command:<10} {text}")

    def _tell(self, progress: castlog.Progress) -> None:
        if self._meter is not None:
            self._meter(progress)


_PLAIN: dict[str, Callable[[Stepper], None]] = {
    "d": Stepper._show_changes,
    "s": Stepper._show_state,
    "?": Stepper._show_help,
}


def _words(event: castlog.Event) -> str:
    if event.redacted:
        return event.type
    return " ".join((event.type, *event.call_ids, json.dumps(event.payload, ensure_ascii=False)))
