"""The two streams: data goes to stdout, everything said about it to stderr. Nothing else in `cli/` writes to either.

Under `--json` each line of stdout is one object with stable keys. Whatever comes out of a store is cleaned on its way,
so that a recorded escape sequence stays text. A stream that cannot be written raises OSError, which `main` turns into
an exit code.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from .text import clean, clean_json

if TYPE_CHECKING:
    from castlog import Progress

_PIPED_WIDTH = 160
_METER_AFTER_SECONDS = 1.0
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Styled(NamedTuple):
    """A part of a line shown in a style where the terminal has colours; its text is cleaned like any other."""

    text: str
    style: str


class Out:
    """Where a command puts its results.

    `json` asks for objects; `width` is the number of columns a line of text should keep to, `height` that of lines a
    screen shows at once, or None where there is no screen.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.json = as_json
        self.terminal = sys.stdout.isatty()
        self.width = _width(self.terminal)
        self.height = shutil.get_terminal_size().lines if self.terminal and not as_json else None
        self._colour = self.terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._meter: Meter | None = None

    def line(self, *parts: str | Styled) -> None:
        """Write one line of text for people, cleaned."""
        self._write("".join(self._show(part) for part in parts) + "\n")

    def prompt(self, text: str) -> None:
        """Write what stands before the place where somebody types, cleaned."""
        self._write(clean(text))
        self.flush()

    def record(self, **fields: Any) -> None:
        """Write one object as a line of JSON."""
        self.json_line(dumps(fields))

    def json_line(self, line: str) -> None:
        """Write a line that is JSON already; a terminal gets it with every control character escaped."""
        self._write((clean_json(line) if self.terminal else line) + "\n", encoding="utf-8")

    def binary(self) -> BinaryIO:
        """Return stdout for bytes that are passed on as they are."""
        self.hide_meter()
        return sys.stdout.buffer

    def flush(self) -> None:
        """Hand over all that was written so far; what a reader waits for must be flushed."""
        with _naming_stdout():
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Tell the person something about the result, on stderr; silent under `--json`."""
        if not self.json:
            self.complain(clean(text))

    def complain(self, line: str) -> None:
        """Write a line on stderr as it is, in either mode."""
        self.hide_meter()
        self.flush()
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    @contextmanager
    def progress(self, title: str) -> Iterator[Meter | None]:
        """Give a callback for long work that draws a bar on a terminal after a second, else None."""
        if self.json or not sys.stderr.isatty():
            yield None
            return
        self._meter = Meter(title)
        try:
            yield self._meter
        finally:
            self.hide_meter()
            self._meter = None

    def hide_meter(self) -> None:
        """Take the bar off the screen, if there is one, so that lines can be written."""
        if self._meter is not None:
            self._meter.hide()

    def _show(self, part: str | Styled) -> str:
        if isinstance(part, str):
            return clean(part)
        codes = ";".join(_CODES[word] for word in part.style.split())
        return f"\x1b[{codes}m{clean(part.text)}\x1b[0m" if self._colour and part.text else clean(part.text)

    def _write(self, text: str, encoding: str | None = None) -> None:
        self.hide_meter()
        with _naming_stdout():
            sys.stdout.buffer.write(text.encode(encoding or sys.stdout.encoding, "backslashreplace"))
            if self.terminal:
                sys.stdout.flush()


class Meter:
    """A progress bar on stderr that appears once the work has taken a second; called with each `Progress`."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._quiet_until = time.monotonic() + _METER_AFTER_SECONDS
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, progress: Progress) -> None:
        """Show how far the work has come."""
        if self._bar is None:
            if time.monotonic() < self._quiet_until:
                return
            self._start()
        item = clean(progress.item).replace("\n", " ")[-40:]
        self._bar.update(self._task, completed=progress.done, total=progress.total, item=f"{_amount(progress)}  {item}")

    def hide(self) -> None:
        """Remove the bar; it comes back if the work goes on for another second."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            self._quiet_until = time.monotonic() + _METER_AFTER_SECONDS

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[item]}", markup=False),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=None, item="")


def dumps(value: Any) -> str:
    """Return a value as one line of JSON, with lone surrogates escaped so that it can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if text.isascii() else _escape_surrogates(text)


@contextmanager
def _naming_stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def _escape_surrogates(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def _amount(progress: Progress) -> str:
    from .values import size

    if progress.unit == "bytes":
        total = f" of {size(progress.total)}" if progress.total else ""
        return f"{size(progress.done)}{total}"
    total = f" of {progress.total:,}" if progress.total else ""
    return f"{progress.done:,}{total} {progress.unit}"


def _width(terminal: bool) -> int:
    if terminal or os.environ.get("COLUMNS", "").isdigit():
        return max(40, shutil.get_terminal_size((80, 24)).columns)
    return _PIPED_WIDTH
