"""Sessions: made, found, listed, relabelled, thrown away and brought back."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import msgspec

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, NotFound
from castlog.format import identity, ids, rows
from castlog.history import refs, tables

DEFAULT_BRANCH = "main"


class Listed(msgspec.Struct, frozen=True):
    """A session with what a listing shows of it."""

    id: bytes
    row: rows.Session
    activity: rows.Activity


def create(
    txn: WriteTxn,
    session: bytes,
    salt: bytes,
    *,
    created: int,
    now: int,
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
    tables.put(txn, rows.ACTIVITY, rows.Activity(created, now, 0, 0, 0), session)
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


def activity(txn: ReadTxn, session: bytes) -> rows.Activity:
    """Return what a listing shows of a session's size and times."""
    return tables.get(txn, rows.ACTIVITY, session) or rows.Activity(0, 0, 0, 0, 0)


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
    """Return the living sessions with exactly this title."""
    return [key[1:] for key, row in tables.scan(txn, rows.SESSIONS) if row.title == title and row.deleted is None]


_ORDER: dict[str, Callable[[rows.Activity], int]] = {
    "activity": lambda activity: activity.active,
    "size": lambda activity: activity.size,
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

    Session rows are read only as far as the page needs them.
    """
    if order == "created":  # ids begin with the time
        letter = rows.SESSIONS.letter
        candidates: Iterator[tuple[bytes, rows.Activity | None]] = (
            (key[1:], None) for key, _ in txn.scan(letter, rows.after(letter), reverse=True)
        )
    else:
        rank = _ORDER[order]
        heap = [(-rank(row), key[1:], row) for key, row in tables.scan(txn, rows.ACTIVITY)]
        heapq.heapify(heap)
        candidates = ((item[1], item[2]) for item in _drain(heap))
    found: list[Listed] = []
    wanted = None if limit is None else offset + limit
    for session, known in candidates:
        if wanted is not None and len(found) >= wanted:
            break
        if known is not None and since is not None and known.active < since:
            if order == "activity":
                break
            continue
        row = tables.get(txn, rows.SESSIONS, session)
        if row is None or row.deleted is not None or not keep(session, row):
            continue
        shown = known or activity(txn, session)
        if since is None or shown.active >= since:
            found.append(Listed(session, row, shown))
    return found[offset:]


def _drain(heap: list[tuple[int, bytes, rows.Activity]]) -> Iterator[tuple[int, bytes, rows.Activity]]:
    while heap:
        yield heapq.heappop(heap)


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
