"""References: branches, tags, HEAD, the reflog and the trash.

A branch is a number; a name maps to it, so that rename, reflog and trash hold on to the branch and not to the name. A
reference is (timeline, seq, id), with the timeline owning the seq.
"""

from __future__ import annotations

import unicodedata

import msgspec

from castlog import limits
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, Corrupt, Invalid, NotFound
from castlog.format import ids, rows
from castlog.history import reader, tables, timelines
from castlog.history.timelines import GENESIS

DEFAULT_BRANCH = "main"


class Place(msgspec.Struct, frozen=True):
    """A place in a history. `id` is empty where finding it would mean reading a chunk."""

    timeline: int
    seq: int
    id: bytes


def look_up(txn: ReadTxn, session: bytes, name: str) -> rows.Name | None:
    """Return what a name means in a session, in whatever Unicode form it is given, or None."""
    key = _name_key(session, name)
    value = None if key is None else txn.get(key)
    return None if key is None or value is None else rows.NAMES.decode(key, value)


def names(txn: ReadTxn, session: bytes) -> list[tuple[str, rows.Name]]:
    """Return a session's branch and tag names with what they mean, by name."""
    return [(rows.NAMES.name_in(key), row) for key, row in tables.scan(txn, rows.NAMES, session)]


def branch(txn: ReadTxn, number: int) -> rows.Ref:
    """Return a living branch; raises NotFound when it was deleted, Corrupt when it is missing: no row goes away."""
    row = tables.get(txn, rows.REFS, number)
    if row is None:
        raise Corrupt(f"the row of branch {number} is missing", branch=number)
    if row.deleted is not None:
        raise NotFound(f"the branch {row.name!r} was deleted; undelete it first", branch=row.name)
    return row


def place_at(txn: ReadTxn, ref: rows.Ref | Place, seq: int, what: str) -> Place:
    """Return the place of `seq` in the history that ends at a reference; raises NotFound outside 0 to its head."""
    timeline = owner_at(txn, ref, seq, what)
    if seq == ref.seq:
        return Place(ref.timeline, ref.seq, ref.id)
    if timeline == GENESIS:
        return Place(GENESIS, 0, b"")
    return Place(timeline, seq, reader.known_id(txn, timeline, seq))


def owner_at(txn: ReadTxn, ref: rows.Ref | Place, seq: int, what: str) -> int:
    """Return the timeline of the place that `place_at` returns, and raise as it does; costs less."""
    if type(seq) is not int:
        raise Invalid(f"{seq!r} is no seq; give a whole number", value=seq)
    if not 0 <= seq <= ref.seq:
        raise NotFound(f"{what} has seqs 0 to {ref.seq}; there is no {seq!r}", seq=seq, head=ref.seq)
    return ref.timeline if seq == ref.seq else timelines.owner(txn, ref.timeline, seq)


def create(
    txn: WriteTxn, session: bytes, new: list[str], at: Place, *, now: int, operation: str, note: str = ""
) -> list[int]:
    """Write new branches at one place; costs two small rows each. Raises Conflict when a name is taken."""
    for name in new:
        _check_free(txn, session, name)
    first = tables.take_number(txn, "branch", len(new))
    for number, name in enumerate(new, first):
        _name(txn, session, name, rows.Name(number))
        row = rows.Ref(session, name, at.timeline, at.seq, at.id, now, operation, at.seq, note)
        tables.put(txn, rows.REFS, row, number)
    return list(range(first, first + len(new)))


def tag(txn: WriteTxn, session: bytes, name: str, at: Place, now: int) -> None:
    """Write a tag; `at.id` must be known. Raises Conflict when the name is taken."""
    _check_free(txn, session, name)
    _name(txn, session, name, rows.Name(0, at.timeline, at.seq, at.id, now))


def delete_tag(txn: WriteTxn, session: bytes, name: str) -> None:
    """Remove a tag; raises NotFound when there is none of that name."""
    row = look_up(txn, session, name)
    if row is None or row.branch:
        raise NotFound(f"there is no tag {name!r}", name=name)
    key = _name_key(session, name)
    assert key is not None
    txn.delete(key)


def move(
    txn: WriteTxn,
    number: int,
    to: Place,
    *,
    now: int,
    operation: str,
    note: str = "",
    expect: tuple[int, int] | None = None,
) -> None:
    """Point a branch elsewhere and log it; raises Conflict when it is not at `expect` (timeline, seq)."""
    ref = branch(txn, number)
    if expect is not None and (ref.timeline, ref.seq) != expect:
        raise Conflict(f"{ref.name} moved to seq {ref.seq} meanwhile; look again and retry", seq=ref.seq)
    moved = msgspec.structs.replace(ref, timeline=to.timeline, seq=to.seq, id=to.id)
    tables.put(txn, rows.REFS, moved, number)
    _log(txn, number, now, operation, Place(ref.timeline, ref.seq, ref.id), to, note)


def rename(txn: WriteTxn, number: int, name: str, now: int) -> None:
    """Give a branch another name; raises Conflict when it is taken."""
    ref = branch(txn, number)
    if name == ref.name:
        return
    _check_free(txn, ref.session, name)
    txn.delete(rows.NAMES.of(ref.session, ref.name))
    _name(txn, ref.session, name, rows.Name(number))
    tables.put(txn, rows.REFS, msgspec.structs.replace(ref, name=name), number)
    here = Place(ref.timeline, ref.seq, ref.id)
    _log(txn, number, now, "rename", here, here, f"{ref.name} -> {name}")


def delete(txn: WriteTxn, number: int, now: int) -> None:
    """Put a branch into the trash; raises Invalid for a session's only branch.

    If it was checked out the session's main is current after it, or another of its branches.
    """
    ref = branch(txn, number)
    other = _another(txn, ref.session, number)
    if other is None:
        raise Invalid(f"{ref.name!r} is the session's only branch; delete the session instead", name=ref.name)
    head = read_head(txn)
    if head is not None and head.branch == number:
        set_head(txn, other)
    txn.delete(rows.NAMES.of(ref.session, ref.name))
    tables.put(txn, rows.REFS, msgspec.structs.replace(ref, deleted=now), number)
    trash(txn, rows.Trash(now, ref.session, number))
    here = Place(ref.timeline, ref.seq, ref.id)
    _log(txn, number, now, "delete", here, here)


def _another(txn: ReadTxn, session: bytes, number: int) -> int | None:
    """Return a branch of the session other than this one: main if there is one, or None."""
    main = look_up(txn, session, DEFAULT_BRANCH)
    if main is not None and main.branch not in (0, number):
        return main.branch
    others = (row.branch for _, row in tables.scan(txn, rows.NAMES, session) if row.branch not in (0, number))
    return next(others, None)


def undelete(txn: WriteTxn, number: int, now: int, name: str | None = None) -> str:
    """Bring a branch back, under its old name or another, and return the name; raises Conflict when it is taken."""
    ref = tables.get(txn, rows.REFS, number)
    if ref is None or ref.deleted is None:
        raise NotFound("there is no such branch in the trash", branch=number)
    name = name or ref.name
    _check_free(txn, ref.session, name)
    untrash(txn, ref.session, number)
    _name(txn, ref.session, name, rows.Name(number))
    tables.put(txn, rows.REFS, msgspec.structs.replace(ref, name=name, deleted=None), number)
    here = Place(ref.timeline, ref.seq, ref.id)
    _log(txn, number, now, "undelete", here, here)
    return name


def trash(txn: WriteTxn, row: rows.Trash) -> None:
    """Note something deleted."""
    tables.put(txn, rows.TRASH, row, tables.take_number(txn, "trashed"))


def untrash(txn: WriteTxn, session: bytes, number: int) -> None:
    """Take something out of the trash; raises NotFound when it is not there."""
    for key, row in list(tables.scan(txn, rows.TRASH)):
        if row.session == session and row.branch == number:
            txn.delete(key)
            return
    raise NotFound("it is not in the trash", session_id=ids.show_session(session))


def reflog(txn: ReadTxn, number: int) -> list[rows.Move]:
    """Return how a branch began and everything that moved it except appends, oldest first."""
    ref = tables.get(txn, rows.REFS, number)
    assert ref is not None
    first = rows.Move(ref.created, ref.operation, GENESIS, 0, b"", GENESIS, ref.start, b"", ref.note)
    return [first, *(row for _, row in tables.scan(txn, rows.REFLOG, number.to_bytes(8, "big")))]


def read_head(txn: ReadTxn) -> rows.Head | None:
    """Return HEAD if what it points at is still there."""
    head = tables.get(txn, rows.HEAD)
    if head is None:
        return None
    ref = tables.get(txn, rows.REFS, head.branch)
    session = tables.get(txn, rows.SESSIONS, head.session)
    gone = ref is None or ref.deleted is not None or session is None or session.deleted is not None
    return None if gone else head


def set_head(txn: WriteTxn, number: int) -> None:
    """Make a living branch current."""
    tables.put(txn, rows.HEAD, rows.Head(branch(txn, number).session, number))


def _name_key(session: bytes, name: str) -> bytes | None:
    """Return the key of a name as somebody typed it; None for what cannot be a name."""
    try:
        key = rows.NAMES.of(session, unicodedata.normalize("NFC", name))
    except UnicodeEncodeError:
        return None
    return key if len(key) <= limits.KEY_BYTES_MAX else None


def _check_free(txn: ReadTxn, session: bytes, name: str) -> None:
    taken = look_up(txn, session, name)
    if taken is not None:
        what = "branch" if taken.branch else "tag"
        raise Conflict(f"the name {name!r} is taken by a {what} of this session; choose another", name=name)


def _name(txn: WriteTxn, session: bytes, name: str, row: rows.Name) -> None:
    key = rows.NAMES.of(session, name)
    txn.put(key, rows.NAMES.encode(key, row))


def _log(txn: WriteTxn, number: int, now: int, operation: str, old: Place, new: Place, note: str = "") -> None:
    prefix = rows.REFLOG.prefix(number.to_bytes(8, "big"))
    last = next(iter(txn.scan(prefix, rows.after(prefix), reverse=True)), None)
    count = 0
    if last is not None:
        previous = rows.REFLOG.fields(last[0])[1]
        assert isinstance(previous, int)
        count = previous + 1
    row = rows.Move(now, operation, old.timeline, old.seq, old.id, new.timeline, new.seq, new.id, note)
    tables.put(txn, rows.REFLOG, row, number, count)
