"""castlog's own lines: one branch as JSON Lines, with what it takes to import it again with equal ids.

The first line is the session's: genesis, salt, title, labels. The others are event lines. A structure line has the key
`castlog`, which no event line has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import msgspec

from castlog.core import Core
from castlog.event import Parent, Progress
from castlog.format import ids, line, rows
from castlog.format.rows import ParentCall
from castlog.history.refs import Place
from castlog.ops import walk

VERSION = 1

_encode = msgspec.json.Encoder().encode


class SessionLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of an export. `bundle` is the bundle's version, absent for a single branch, named by `branch`.

    A session whose salt is gone has `salt_digest` instead.
    """

    type: str = msgspec.field(default_factory=lambda: "session")
    castlog: int = msgspec.field(default_factory=lambda: VERSION)
    bundle: int = 0
    session_id: str
    genesis: str
    salt: str = ""
    salt_digest: str = ""
    created: str
    title: str
    labels: dict[str, str] = {}
    origin: str | None = None
    parent: Parent | None = None
    branch: str | None = None


def session_line(session: bytes, row: rows.Session, *, branch: str | None = None, bundle: int = 0) -> SessionLine:
    """Return the first line of a session's export."""
    caller = row.parent
    return SessionLine(
        bundle=bundle,
        session_id=ids.show_session(session),
        genesis=ids.show_digest(row.genesis),
        salt=row.salt.hex(),
        salt_digest=ids.show_digest(row.salt_digest) if row.salt_digest else "",
        created=line.show_time(row.created),
        title=row.title,
        labels=row.labels,
        origin=row.origin,
        parent=None if caller is None else _shown(caller),
        branch=branch,
    )


def write(
    core: Core,
    session: bytes,
    row: rows.Session,
    name: str,
    place: Place,
    file: BinaryIO,
    progress: Callable[[Progress], None] | None,
) -> int:
    """Write one history and return how many events it holds."""
    file.write(_encode(session_line(session, row, branch=name)) + b"\n")
    with core.read() as txn:
        stretches = walk.of_places(txn, session, row, [(name, place)])
    for stretch in stretches:
        for event in walk.events(core, stretch):
            file.write(event.to_json().encode("utf-8") + b"\n")
            if progress is not None:
                progress(Progress(event.seq, place.seq, "events", row.title))
    return place.seq


def _shown(caller: ParentCall) -> Parent:
    return Parent(ids.show_session(caller.session), caller.seq, caller.call_id, ids.show_digest(caller.id))
