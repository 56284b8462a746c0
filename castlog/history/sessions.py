"""Sessions: made, found, listed, relabelled, thrown away and brought back."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable

import msgspec

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, NotFound
from castlog.format import identity, ids, rows
from castlog.history import refs, tables


class Activity(msgspec.Struct, frozen=True, gc=False):
    """What a session's branches add up to.

    `active` is the newest event's time, or the session's own where there is none; `appended` when castlog last wrote an
    event; `size` counts payload bytes. Deleted branches count but for `branches`.
    """

    active: int
    appended: int
    events: int
    size: int
    branches: int


class Listed(msgspec.Struct, frozen=True, gc=False):
    """A session with what a listing shows of it."""

    id: bytes
    row: rows.Session
    activity: Activity


def create(
    txn: WriteTxn,
    session: bytes,
    salt: bytes,
    *,
    created: int,
    title: str,
    labels: dict[str, str],
    origin: str | None,
    parent: rows.ParentCall | None,
) -> rows.Session:
    """Write a new session without branches; raises Conflict when its id or origin is taken."""
    if tables.get(txn, rows.SESSIONS, session) is not None:
        raise Conflict(f"{ids.show_session(session)} exists already", session_id=ids.show_session(session))
    if origin is not None:
        taken = by_origin(txn, origin)
        if taken is not None:
            shown = ids.show_session(taken)
            raise Conflict(f"the origin {origin!r} is that of {shown}", origin=origin, session_id=shown)
        tables.put(txn, rows.ORIGINS, rows.Origin(origin, session), rows.key_digest(origin))
    genesis = identity.genesis_digest(
        identity.Genesis(
            identity.GENESIS_VERSION,
            session,
            created,
            None if parent is None else parent.id,
            identity.salt_digest(salt),
        )
    )
    row = rows.Session(created, salt, genesis, title, labels, origin, parent)
    tables.put(txn, rows.SESSIONS, row, session)
    if parent is not None:
        tables.put(txn, rows.CHILDREN, rows.Child(parent.call_id), parent.session, session)
    return row


def read(txn: ReadTxn, session: bytes, *, deleted: bool = False) -> rows.Session:
    """Return a session's row; raises NotFound when there is none, or it is in the trash and not asked for."""
    row = tables.get(txn, rows.SESSIONS, session)
    if row is None:
        raise NotFound(f"there is no session {ids.show_session(session)} in this store")
    if row.deleted is not None and not deleted:
        raise NotFound(f"{ids.show_session(session)} is in the trash; undelete it first")
    return row


def activity(txn: ReadTxn, session: bytes, row: rows.Session) -> Activity:
    """Return what a session's branches add up to."""
    numbers = [item.branch for _, item in refs.names(txn, session) if item.branch]
    numbers += [item.branch for _, item in tables.scan(txn, rows.TRASH) if item.session == session and item.branch]
    return _add_up(row, [ref for number in numbers if (ref := tables.get(txn, rows.REFS, number)) is not None])


def _add_up(row: rows.Session, branches: list[rows.Ref]) -> Activity:
    active = appended = None
    events = size = living = 0
    for ref in branches:
        if ref.deleted is None:
            living += 1
        if ref.events:
            events += ref.events
            size += ref.size
            active = ref.active if active is None or ref.active > active else active
            appended = ref.appended if appended is None or ref.appended > appended else appended
    return Activity(
        row.created if active is None else active,
        row.created if appended is None else appended,
        events,
        size,
        living,
    )


def by_origin(txn: ReadTxn, origin: str) -> bytes | None:
    """Return the session that came from a foreign id, living or in the trash."""
    row = tables.get(txn, rows.ORIGINS, rows.key_digest(origin))
    return None if row is None else row.session


def by_hex(txn: ReadTxn, text: str) -> list[bytes]:
    """Return the sessions whose id begins or ends with these hex digits; reads keys only."""
    letter = rows.SESSIONS.letter
    found = []
    for key, _ in txn.scan(letter, rows.after(letter)):
        digits = key[1:].hex()
        if digits.startswith(text) or digits.endswith(text):
            found.append(key[1:])
    return found


def by_title(txn: ReadTxn, title: str) -> list[bytes]:
    """Return the living sessions with exactly this title, in whatever Unicode form it is given."""
    title = unicodedata.normalize("NFC", title)
    return [key[1:] for key, row in tables.scan(txn, rows.SESSIONS) if row.title == title and row.deleted is None]


_ORDER: dict[str, Callable[[Listed], int]] = {
    "activity": lambda item: item.activity.active,
    "created": lambda item: item.row.created,
    "size": lambda item: item.activity.size,
}


def listing(
    txn: ReadTxn,
    *,
    order: str,
    since: int | None,
    keep: Callable[[bytes, rows.Session], bool],
    limit: int | None,
    offset: int,
) -> list[Listed]:
    """Return living sessions, greatest first by activity, size or creation; `keep` filters.

    Costs a scan of the sessions and of the branches; nothing else is read.
    """
    branches: dict[bytes, list[rows.Ref]] = {}
    for _, ref in tables.scan(txn, rows.REFS):
        branches.setdefault(ref.session, []).append(ref)
    found = [
        Listed(key[1:], row, _add_up(row, branches.get(key[1:], [])))
        for key, row in tables.scan(txn, rows.SESSIONS)
        if row.deleted is None
    ]
    if since is not None:
        found = [item for item in found if item.activity.active >= since]
    found.sort(key=_ORDER[order], reverse=True)
    kept = (item for item in found if keep(item.id, item.row))
    return list(itertools.islice(kept, offset, None if limit is None else offset + limit))


def children(txn: ReadTxn, session: bytes) -> list[tuple[bytes, str | None]]:
    """Return the sessions that calls of this one started, with the call ids, oldest first."""
    found = []
    for key, row in tables.scan(txn, rows.CHILDREN, session):
        child = rows.CHILDREN.fields(key)[1]
        assert isinstance(child, bytes)
        found.append((child, row.call_id))
    return found


def change(txn: WriteTxn, session: bytes, **fields: object) -> None:
    """Replace what people may change of a living session: title or labels."""
    row = read(txn, session)
    tables.put(txn, rows.SESSIONS, msgspec.structs.replace(row, **fields), session)


def delete(txn: WriteTxn, session: bytes, now: int) -> None:
    """Put a session into the trash."""
    change(txn, session, deleted=now)
    refs.trash(txn, rows.Trash(now, session, 0))


def undelete(txn: WriteTxn, session: bytes) -> None:
    """Bring a session back from the trash; raises NotFound when it is not there."""
    row = read(txn, session, deleted=True)
    refs.untrash(txn, session, 0)
    tables.put(txn, rows.SESSIONS, msgspec.structs.replace(row, deleted=None), session)
