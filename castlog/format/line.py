"""The event line: one event as one line of JSON, out and in.

The payload's bytes are spliced in as they stand and sliced out again, so that an event that travels keeps its id. Only
bytes that are not one line go as a JSON string under `payload_text`.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from castlog.errors import Invalid
from castlog.format import ids
from castlog.format.room import with_room

_encode = msgspec.json.Encoder().encode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?\s*(?:[Zz]|([+-])([01]\d|2[0-3]):?([0-5]\d))?",
    re.ASCII,
)
_TS_MAX = (1 << 63) - 1  # a time is hashed as a signed 64-bit number
_AROUND = b" \t"  # JSON's white space besides line ends; readers of a line do not see it around a value


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it stands in a line; `payload` is the slice of the line, untouched.

    A `redacted` event has the `commitment` its id covers, and a payload only if something remains of it.
    """

    seq: int
    ts: str
    type: str
    schema: int = 1
    session_id: str | None = None
    branch: str | None = None
    payload: msgspec.Raw = msgspec.Raw()
    payload_text: str | None = None
    parent_seq: int | None = None
    harness_version: str | None = None
    call_id: str | None = None
    call_ids: tuple[str, ...] = ()
    key: str | None = None
    id: str | None = None
    commitment: str | None = None
    redacted: bool = False
    ciphertext: str | None = None


def encode(
    *,
    session_id: str,
    branch: str,
    seq: int,
    ts: int,
    type: str,  # noqa: A002 - the field's name in the line
    raw: bytes,
    harness_version: str | None,
    schema: int,
    call_ids: tuple[str, ...],
    key: str | None,
    id: str,  # noqa: A002 - the field's name in the line
    commitment: bytes | None,
    encrypted: bool = False,
) -> str:
    """Return one event as a line without its end.

    `commitment` is given for a redacted event only; of its payload `raw` is what remains, or empty. With `encrypted`
    the stored bytes are ciphertext.
    """
    front: dict[str, Any] = {
        "session_id": session_id,
        "branch": branch,
        "seq": seq,
        "ts": show_time(ts),
        "type": type,
    }
    back: dict[str, Any] = {"parent_seq": seq - 1}
    if harness_version is not None:
        back["harness_version"] = harness_version
    back["schema"] = schema
    if len(call_ids) == 1:
        back["call_id"] = call_ids[0]
    elif call_ids:
        back["call_ids"] = call_ids
    if key is not None:
        back["key"] = key
    back["id"] = id
    if commitment is not None:
        back["commitment"] = ids.show_digest(commitment)
        back["redacted"] = True
    return b"".join((_encode(front)[:-1], _payload_member(raw, encrypted), b",", _encode(back)[1:])).decode("utf-8")


def _payload_member(raw: bytes, encrypted: bool) -> bytes:
    """Return the member of a line that carries stored bytes, with the comma before it; nothing for no bytes."""
    if not raw:
        return b""
    if encrypted:
        return b',"ciphertext":' + _encode(base64.b64encode(raw).decode("ascii"))
    if b"\n" in raw or b"\r" in raw or raw[0] in _AROUND or raw[-1] in _AROUND:
        return b',"payload_text":' + _encode(raw.decode("utf-8"))
    return b',"payload":' + raw


_decode = msgspec.json.Decoder(EventLine).decode


def decode(data: bytes) -> EventLine:
    """Return the event that `encode` wrote; raises Invalid for a line of another shape."""
    try:
        return with_room(_decode, data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise Invalid(f"not an event line: {exc}") from exc


def payload_bytes(event: EventLine) -> bytes:
    """Return the payload bytes of a line, as they were stored where it came from."""
    if event.payload_text is not None:
        return event.payload_text.encode("utf-8")
    return bytes(event.payload)


def show_time(ts: int) -> str:
    """Return nanoseconds since 1970 as RFC 3339 in UTC, with 3, 6 or 9 digits as it needs."""
    seconds, nanos = divmod(ts, 1_000_000_000)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError as exc:
        raise Invalid(f"the time {ts} lies outside the years 1 to 9999", value=ts) from exc
    digits = f"{nanos:09d}"
    if digits.endswith("000000"):
        digits = digits[:3]
    elif digits.endswith("000"):
        digits = digits[:6]
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{digits}Z".rjust(21 + len(digits), "0")


def parse_time(text: str) -> int:
    """Return nanoseconds since 1970 from RFC 3339 text; without an offset it is UTC.

    Digits beyond nanoseconds are dropped. Raises Invalid, also for a time that 64 bits of nanoseconds do not reach.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise Invalid(f"not a time: {text!r}; write one like 2026-05-06T14:23:01Z", value=text)
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError as exc:
        raise Invalid(f"not a time: {text!r}: {exc}", value=text) from exc
    delta = moment - _EPOCH
    seconds = delta.days * 86_400 + delta.seconds
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds += -offset if sign == "+" else offset
    ts = seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
    if not -_TS_MAX - 1 <= ts <= _TS_MAX:
        raise Invalid(f"the time {text!r} is out of reach; castlog counts from the year 1678 to 2262", value=text)
    return ts
