"""The beginning of a file: enough to tell its format and whose session it is, read once and never all of it."""

from __future__ import annotations

from typing import Any

import msgspec

from castlog.transcripts.source import Source

HEAD_BYTES = 64 * 1024
HEAD_BYTES_MAX = 32 * 1024 * 1024  # the first record alone may be this long
RECORDS_MAX = 100

_decode = msgspec.json.Decoder().decode


class Head:
    """The first lines of a file.

    `records` are the objects among its whole lines, `lines` how many lines were looked at, `data` the bytes, `whole`
    whether they are the whole file.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.data, self.whole = _begin(source)
        self.records: list[dict[str, Any]] = []
        self.lines = 0
        self._read()

    def _read(self) -> None:
        lines = self.data.split(b"\n", RECORDS_MAX)
        if not self.whole or len(lines) > RECORDS_MAX:
            lines.pop()
        for line in lines:
            if line.strip():
                self.lines += 1
                if (value := whole_object(line)) is not None:
                    self.records.append(value)


def _begin(source: Source) -> tuple[bytes, bool]:
    """Return the first bytes of the content, one whole line among them if possible, and whether they are all."""
    data = source.head(HEAD_BYTES)
    if len(data) < HEAD_BYTES:
        return data, True
    if b"\n" in data.strip():
        return data, False
    data = source.head(HEAD_BYTES_MAX)
    return data, len(data) < HEAD_BYTES_MAX


def whole_object(line: bytes) -> dict[str, Any] | None:
    """Return the object a line holds, leniently: byte order marks and NULs around it do not count."""
    try:
        value = _decode(line.strip(b" \t\r\n\0\xef\xbb\xbf"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
