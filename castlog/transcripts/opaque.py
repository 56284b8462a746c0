"""Any other file of JSON lines: each line an event of one type, known again by its name and its first record."""

from __future__ import annotations

from typing import Any

import msgspec
from blake3 import blake3

from castlog.transcripts import formats, words
from castlog.transcripts.formats import OPAQUE, Facts, SessionFacts
from castlog.transcripts.head import Head
from castlog.transcripts.times import parse_time

_TYPE = f"{OPAQUE}.record"
_DOUBT = 0.1  # every other format comes first


class _Times(msgspec.Struct):
    timestamp: Any = None
    ts: Any = None
    time: Any = None
    created_at: Any = None
    created_at_camel: Any = msgspec.field(default=None, name="createdAt")
    date: Any = None
    at_timestamp: Any = msgspec.field(default=None, name="@timestamp")


_times = msgspec.json.Decoder(_Times).decode


def sniff(head: Head) -> float:
    """Return a low but certain claim on a file whose lines are mostly objects."""
    if head.lines == 1 and not head.name.endswith((".jsonl", ".ndjson", ".zst")):
        return 0.0  # one object on one line is as likely a document
    return _DOUBT if head.records and len(head.records) * 2 >= head.lines else 0.0


class Reader(formats.Reader):
    """One file of lines nobody knows more about."""

    def session(self) -> SessionFacts:
        """Return the session of the file: a grown file begins with the same record under the same name."""
        first = self.head.data.split(b"\n", 1)[0].strip()
        digest = blake3(self.head.name.encode("utf-8", "surrogateescape") + b"\0" + first).hexdigest(16)
        labels = words.clean_labels({"format": OPAQUE, "file": self.head.name})
        title = words.clean_title(self.head.name) or OPAQUE
        return SessionFacts(f"{OPAQUE}:{digest}", title, labels)

    def read(self, raw: bytes) -> Facts:
        """Return the time a record names, if it names one."""
        try:
            times = _times(raw)
        except (msgspec.MsgspecError, ValueError):
            return Facts(_TYPE)
        return Facts(_TYPE, (), next((ts for v in msgspec.structs.astuple(times) if (ts := parse_time(v))), None))

    def resembles(self, value: dict[str, Any]) -> bool:
        """Return whether an object has the same first key as the file's first record."""
        if not self.head.records:
            return False
        return next(iter(value), None) == next(iter(self.head.records[0]), None)
