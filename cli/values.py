"""What people type and read: labels, points in time, sizes, ages.

Each parser is a click type, so that a slip is a usage error naming the option; each printer is a pure function.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

SECOND = 1_000_000_000
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN_TEXT = re.compile(r"(\d{1,9})\s*([smhdw])")
_FRACTION = re.compile(r"\.(\d{1,9})\d*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Label(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """`KEY=VALUE`, as given to `--label`."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first `=`; what a key or value may be is for castlog to say."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE.", param, ctx)
        return key, text


class Since(click.ParamType):  # type: ignore[type-arg]  # likewise
    """A point in time: an age such as `2h` or `3d`, `today`, `yesterday`, or an ISO date."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return nanoseconds since 1970 UTC; a date without a zone is local time."""
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        now = datetime.now().astimezone()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        try:
            if span := _SPAN_TEXT.fullmatch(text):
                return nanoseconds(now - timedelta(seconds=int(span[1]) * _SPANS[span[2]]))
            if text in ("today", "yesterday"):
                return nanoseconds(midnight - timedelta(days=text == "yesterday"))
            return parse_time(str(value).strip())
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is no time; write an age (90m, 2h, 3d) or a date (2026-05-06T14:00).", param, ctx)


LABEL = Label()
SINCE = Since()


def parse_time(text: str) -> int:
    """Return an ISO 8601 time as nanoseconds since 1970 UTC, keeping up to nine digits; raises ValueError."""
    fraction = _FRACTION.search(text)
    moment = datetime.fromisoformat(_FRACTION.sub("", text))
    digits = fraction[1].ljust(9, "0") if fraction else "0"
    return nanoseconds(moment.astimezone()) + int(digits)


def nanoseconds(moment: datetime) -> int:
    """Return an aware time as whole nanoseconds since 1970 UTC."""
    span = moment - _EPOCH
    return (span.days * 86_400 + span.seconds) * SECOND + span.microseconds * 1000


def iso(ns: int) -> str:
    """Return nanoseconds since 1970 as the event line writes them: UTC, with 3, 6 or 9 digits."""
    seconds, rest = divmod(ns, SECOND)
    digits = f"{rest:09d}"
    while len(digits) > 3 and digits.endswith("000"):
        digits = digits[:-3]
    return f"{(_EPOCH + timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S')}.{digits}Z"


def local(ns: int) -> str:
    """Return a time as a person here reads it: `2026-05-06 14:23:01 +0200`."""
    try:
        return (_EPOCH + timedelta(seconds=ns // SECOND)).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    except (OverflowError, ValueError):
        return f"{ns} ns"


def age(ns: int, now: int) -> str:
    """Return how long ago something was, in one unit: `now`, `5m ago`, `3h ago`, `12d ago`, `2y ago`."""
    seconds = (now - ns) // SECOND
    if seconds < 5:
        return "now" if seconds > -60 else "in future"
    for unit, length in (("y", 31_557_600), ("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"


def size(count: int) -> str:
    """Return a number of bytes with three figures or so: `812 B`, `1.2 kB`, `34 MB`."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.5 or unit == "TB":
            return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:,.0f} {unit}"
    raise AssertionError("unreachable")
