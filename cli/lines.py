"""Event lines on their way in: from a stream to drafts, in batches of what has arrived.

The payload's bytes are kept as they stand in the line, so that castlog checks and stores exactly what was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import castlog

from .values import parse_time

LINE_BYTES_MAX = 512 * 1024 * 1024  # twice the largest event, since escaping makes text longer
_READ_BYTES = 256 * 1024
_BATCH_LINES = 1000
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_TEXTS = ("type", "call_id", "key", "harness_version")
_PLACE = {"session_id", "branch", "seq", "parent_seq", "id"}  # where it stood; an append decides that anew
_GONE = {"redacted", "commitment", "ciphertext"}


class Line(NamedTuple):
    """One line of the input and its number, counted from 1."""

    number: int
    data: bytes


def batches(stream: IO[bytes]) -> Iterator[list[Line]]:
    """Yield the complete lines that have arrived, never waiting for more once there is one; blank ones are skipped."""
    read = getattr(stream, "read1", stream.read)
    rest: list[bytes] = []
    held = 0
    number = 0
    while True:
        data: bytes = read(_READ_BYTES)
        head, newline, tail = data.rpartition(b"\n")
        if data and not newline:
            rest.append(data)
            held += len(data)
            if held > LINE_BYTES_MAX:
                raise castlog.Invalid(f"line {number + 1} is longer than {LINE_BYTES_MAX:,} bytes", line=number + 1)
            continue
        whole = b"".join([*rest, head if newline else data])
        rest, held = ([tail] if tail else []), len(tail)
        found = (
            [Line(number + index, line) for index, line in enumerate(whole.split(b"\n"), 1)] if data or whole else []
        )
        number += len(found)
        found = [line for line in found if line.data.strip()]
        for start in range(0, len(found), _BATCH_LINES):
            yield found[start : start + _BATCH_LINES]
        if not data:
            return


def draft(line: Line, default_type: str | None) -> castlog.Draft:
    """Return the event a line describes; raises Invalid naming the line."""
    try:
        fields = _members(line.data.decode("utf-8"))
        _check_names(fields)
        values = {name: json.loads(text) for name, text in fields.items() if name != "payload"}
        _check_values(values)
        return castlog.Draft(
            type=values["type"] if "type" in values else _given(default_type),
            payload=castlog.Raw(_payload(fields, values)),
            call_id=values.get("call_id"),
            call_ids=tuple(values.get("call_ids", ())),
            ts=_time(values.get("ts")),
            schema=values.get("schema"),
            key=values.get("key"),
            harness_version=values.get("harness_version"),
        )
    except (ValueError, RecursionError) as error:
        raise castlog.Invalid(f"line {line.number}: {_reason(error)}", line=line.number, hint=_FORM) from error


_FORM = 'A line is an object such as {"type":"note","payload":{"text":"hi"}}; call_id, key, ts and schema may be added.'


def _members(text: str) -> dict[str, str]:
    """Return the object's members with their values still as text."""
    place = _skip(text, 0)
    if text[place : place + 1] != "{":
        raise ValueError("not a JSON object")
    members: dict[str, str] = {}
    place = _skip(text, place + 1)
    while text[place : place + 1] != "}":
        if members:
            place = _expect(text, place, ",")
        name, end = _DECODER.raw_decode(text, place)
        if not isinstance(name, str) or name in members:
            raise ValueError(f"the name {name!r} is not a string, or stands twice")
        start = _expect(text, _skip(text, end), ":")
        _, end = _DECODER.raw_decode(text, start)
        members[name] = text[start:end]
        place = _skip(text, end)
    if _skip(text, place + 1) != len(text):
        raise ValueError("more follows after the object")
    return members


def _check_names(fields: dict[str, str]) -> None:
    if gone := _GONE & fields.keys():
        raise ValueError(f"its payload was taken away ({', '.join(sorted(gone))}), so it cannot be appended")
    known = {*_TEXTS, "payload", "payload_text", "call_ids", "ts", "schema", *_PLACE}
    if unknown := fields.keys() - known:
        raise ValueError(
            f"unknown {', '.join(map(repr, sorted(unknown)))}; an event has {', '.join(sorted(known - _PLACE))}"
        )
    if "payload" not in fields and "payload_text" not in fields:
        raise ValueError("it has no payload")


def _check_values(values: dict[str, Any]) -> None:
    for name in (*_TEXTS, "payload_text"):
        if not isinstance(values.get(name, ""), str):
            raise ValueError(f"{name} is not a string")
    if not isinstance(values.get("schema", 1), int) or isinstance(values.get("schema"), bool):
        raise ValueError("schema is not a whole number")
    calls = values.get("call_ids", [])
    if not isinstance(calls, list) or not all(isinstance(call, str) for call in calls):
        raise ValueError("call_ids is not a list of strings")


def _payload(fields: dict[str, str], values: dict[str, Any]) -> bytes:
    text = fields["payload"] if "payload" in fields else values["payload_text"]
    return str(text).encode("utf-8", "surrogatepass")


def _time(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        return parse_time(value)
    except (ValueError, TypeError):
        raise ValueError(f"ts {value!r} is no time such as 2026-05-06T14:23:01.123Z") from None


def _given(default_type: str | None) -> str:
    if default_type is None:
        raise ValueError("it has no type, and no --type was given")
    return default_type


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _expect(text: str, place: int, char: str) -> int:
    if text[place : place + 1] != char:
        raise ValueError(f"expected {char!r} at character {place + 1}")
    return _skip(text, place + 1)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos + 1}"
    return str(error)
