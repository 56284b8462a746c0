"""The trash: what was deleted and can be brought back, and what people call it."""

from __future__ import annotations

import unicodedata

import msgspec

from castlog.engine.base import ReadTxn
from castlog.errors import NotFound
from castlog.format import ids, rows
from castlog.history import sessions, tables


class Trashed(msgspec.Struct, frozen=True):
    """A deleted session, or (with `branch`) a deleted branch. `rev` is what `undelete` takes."""

    session_id: str
    branch: str | None
    title: str
    deleted: int
    rev: str


def items(txn: ReadTxn) -> list[tuple[rows.Trash, Trashed]]:
    """Return what lies in the trash, newest first, as it is stored and as it is shown."""
    found = []
    for _, row in tables.scan(txn, rows.TRASH):
        session = sessions.read(txn, row.session, deleted=True)
        shown = ids.show_session(row.session)
        ref = tables.get(txn, rows.REFS, row.branch) if row.branch else None
        name = None if ref is None else ref.name
        rev = shown if name is None else f"{shown}/{name}"
        found.append((row, Trashed(shown, name, session.title, row.deleted, rev)))
    return found[::-1]


def find(txn: ReadTxn, rev: str, here: bytes | None) -> rows.Trash:
    """Return the newest thing in the trash that a revision means; raises NotFound.

    A session is called by its id, 4 or more digits from either end of it, or its title; a branch SESSION/BRANCH, and
    one of session `here` also BRANCH or /BRANCH.
    """
    words = unicodedata.normalize("NFC", rev)
    for row, item in items(txn):
        if row.session == here and item.branch == words.removeprefix("/"):
            return row
    session, slash, branch = words.partition("/")
    digits = session.lower().removeprefix("sess_")
    for row, item in items(txn):
        whole = item.session_id.removeprefix("sess_")
        by_id = len(digits) >= 4 and (whole.startswith(digits) or whole.endswith(digits))
        of_kind = branch == (item.branch or "") and bool(slash) == (item.branch is not None)
        if of_kind and (by_id or session == item.title):
            return row
    raise NotFound(f"nothing in the trash is called {rev!r}; `castlog undelete` lists what is there", rev=rev)
