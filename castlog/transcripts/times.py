"""Foreign times to nanoseconds since 1970 UTC. A time nobody can read is None; nothing here raises."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

_NS = 1_000_000_000
_TS_MAX = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,30}))?)?\s*([Zz]|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)

# An epoch number says its unit by its size: each of these reaches from 1973 to the year 5138 in its own unit.
_UNITS = ((10**8, 10**11, _NS), (10**11, 10**14, 10**6), (10**14, 10**17, 10**3), (10**17, 10**20, 1))


def parse_time(value: Any) -> int | None:
    """Return the time a foreign field holds: RFC 3339 text, or an epoch number in s, ms, us or ns, also as text."""
    if isinstance(value, str):
        match = _RFC3339.fullmatch(value.strip()) if len(value) <= 80 else None
        if match:
            return _calendar(match)
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _epoch(value)


def _calendar(match: re.Match[str]) -> int | None:
    year, month, day, hour, minute = (int(part) for part in match.group(1, 2, 3, 4, 5))
    second = min(int(match[6] or 0), 59)  # a leap second is kept as the second before it
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_zone(match[8] or "Z"))
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    nanos = int((match[7] or "0")[:9].ljust(9, "0"))
    return _bounded((since.days * 86400 + since.seconds) * _NS + nanos)


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _epoch(value: int | float) -> int | None:
    for low, high, scale in _UNITS:
        if low <= value < high:
            if isinstance(value, int):
                return _bounded(value * scale)
            whole = int(value)
            return _bounded(whole * scale + round((value - whole) * scale))
    return None


def _bounded(nanos: int) -> int | None:
    return nanos if -_TS_MAX <= nanos < _TS_MAX else None
