"""Binary data in payloads, written as files: each content once, under names made here, never taken from a payload."""

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import castlog

from .files import private
from .preview import is_binary

_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


class Attachments:
    """Collects what events carry into a folder; `rows` says where each came from."""

    def __init__(self, folder: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        self._folder = folder
        self._known: dict[str, str] = {}

    def take(self, event: castlog.Event) -> None:
        """Write the binary data of one event; what was written before is listed again but not written."""
        if event.redacted or b"base64" not in event.raw:
            return
        for value in binaries(event.payload):
            data = decoded(value)
            if data is None:
                continue
            digest = hashlib.sha256(data).hexdigest()
            media_type = str(value.get("media_type", ""))
            if digest not in self._known:
                self._known[digest] = self._write(f"{event.seq}-{digest[:12]}{_suffix(media_type)}", data)
            self.rows.append(
                {
                    "file": self._known[digest],
                    "seq": event.seq,
                    "media_type": media_type,
                    "bytes": len(data),
                    "sha256": digest,
                }
            )

    def _write(self, name: str, data: bytes) -> str:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with private(self._folder / name) as file:
            file.write(data)
        return f"{self._folder.name}/{name}"


def binaries(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every piece of binary data in a JSON value, in order."""
    if is_binary(value):
        yield value
        return
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from binaries(inner)


def decoded(value: dict[str, Any]) -> bytes | None:
    """Return the bytes a piece of binary data stands for, or None if its base64 is wrong."""
    try:
        return base64.b64decode(value["data"], validate=True)
    except (binascii.Error, ValueError):
        return None


def _suffix(media_type: str) -> str:
    guessed = mimetypes.guess_extension(media_type.partition(";")[0].strip()) or ""
    return guessed if _SUFFIX.fullmatch(guessed) else ".bin"
