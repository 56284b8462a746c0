"""Bundles: a session with all its branches and tags in one compressed file.

A bundle is Zstandard over lines: the session line, then each timeline that a branch or tag reaches (a structure line
and its event lines, parents first), then the branches and tags, then an end line with a digest of what is before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import msgspec
import zstandard
from blake3 import blake3

from castlog.core import Core
from castlog.event import Progress
from castlog.format import ids
from castlog.history import reader, refs, sessions, timelines
from castlog.history.refs import Place
from castlog.history.timelines import GENESIS
from castlog.ops import jsonl, walk
from castlog.ops.walk import Stretch

VERSION = 1
LEVEL = 9

_encode = msgspec.json.Encoder().encode


class TimelineLine(msgspec.Struct, frozen=True, tag_field="castlog", tag="timeline"):
    """The start of a timeline's events. Numbers are the bundle's own; 0 is the session's genesis."""

    n: int
    parent: int
    fork_seq: int


class RefLine(msgspec.Struct, frozen=True, tag_field="castlog", tag="branch"):
    """A branch's head."""

    name: str
    timeline: int
    seq: int
    id: str


class TagLine(msgspec.Struct, frozen=True, tag_field="castlog", tag="tag"):
    """A tag's place."""

    name: str
    timeline: int
    seq: int
    id: str


class EndLine(msgspec.Struct, frozen=True, tag_field="castlog", tag="end"):
    """The last line: how many events there are, and the BLAKE3 digest of all bytes before this line."""

    events: int
    digest: str


def write(core: Core, session: bytes, file: BinaryIO, progress: Callable[[Progress], None] | None) -> int:
    """Write a session's bundle and return how many events it holds."""
    with core.read() as txn:
        row = sessions.read(txn, session)
        reached = walk.of_session(txn, session, row)
        starts = {stretch.timeline: timelines.read(txn, stretch.timeline) for stretch in reached}
        named = refs.names(txn, session)
        heads = {name: refs.branch(txn, item.branch) for name, item in named if item.branch}
        digests = {
            name: ref.id or reader.id_at(txn, core.objects, row, ref.timeline, ref.seq) for name, ref in heads.items()
        }
    last: dict[int, int] = {}
    for stretch in reached:
        last[stretch.timeline] = max(last.get(stretch.timeline, 0), stretch.last)
    order = sorted(last, key=lambda timeline: (starts[timeline].depth, timeline))
    numbers = {GENESIS: 0, **{timeline: n for n, timeline in enumerate(order, 1)}}
    owners = {stretch.timeline: stretch.name for stretch in reached}
    total: int = sum(last[timeline] - starts[timeline].fork_seq for timeline in order)
    done = 0
    digest = blake3()
    with zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as out:

        def put(data: bytes) -> None:
            digest.update(data)
            out.write(data)

        put(_encode(jsonl.session_line(session, row, bundle=VERSION)) + b"\n")
        for timeline in order:
            start = starts[timeline]
            put(_encode(TimelineLine(numbers[timeline], numbers[start.parent], start.fork_seq)) + b"\n")
            whole = Stretch(session, row, owners[timeline], timeline, start.fork_seq + 1, last[timeline])
            for event in walk.events(core, whole):
                put(event.to_json().encode("utf-8") + b"\n")
                done += 1
                if progress is not None:
                    progress(Progress(done, total, "events", row.title))
        for name, ref in sorted(heads.items(), key=lambda item: (item[1].created, item[0])):
            put(_encode(RefLine(name, numbers[ref.timeline], ref.seq, ids.show_digest(digests[name]))) + b"\n")
        for name, item in named:
            if not item.branch:
                place = Place(item.timeline, item.seq, item.id)
                put(_encode(TagLine(name, numbers[place.timeline], place.seq, ids.show_digest(place.id))) + b"\n")
        out.write(_encode(EndLine(total, ids.show_digest(digest.digest()))) + b"\n")
    return total
