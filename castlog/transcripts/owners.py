"""The session a file belongs to: found by its origin, or made, under the call that started it if one did."""

from __future__ import annotations

from castlog import Conflict, Session, Store
from castlog.transcripts.formats import SessionFacts
from castlog.transcripts.parents import Links, Parents


class InTrash(Conflict):
    """The file's session was deleted, and an import does not bring it back."""


def open_session(store: Store, parents: Parents, facts: SessionFacts, links: Links) -> tuple[Session, bool]:
    """Return the session these facts name and whether it was made now; raises InTrash for a deleted one.

    A sub-agent's session whose call is not in the store gets the label `orphan`: event ids are made of the parent too,
    which therefore cannot be given later.
    """
    session = store.find_origin(facts.origin)
    if session is not None:
        if session.deleted is not None:
            raise InTrash(f"its session {session.id} is in the trash; undelete it to import again", rev=session.id)
        return session, False
    labels = dict(facts.labels)
    parent = None
    if facts.started is not None:
        parent = parents.find(facts.started, links)
        if parent is None:
            labels["orphan"] = "true"
    session = store.create_session(facts.title, labels=labels, origin=facts.origin, exist_ok=True, parent=parent)
    return session, True


class Copies:
    """Sessions that begin with the same rows: one was copied from the other, and is labelled so."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[Session, int]] = {}

    def see(self, beginning: str, session: Session, mtime: int) -> None:
        """Take note of a session; label it, or the one seen before, with the foreign id of the other.

        The copy is taken to be the one whose file was written last.
        """
        other, other_mtime = self._first.setdefault(beginning, (session, mtime))
        if other.id == session.id or _are_labelled(session, other):
            return
        copy, original = (session, other) if mtime >= other_mtime else (other, session)
        if "forked_from" not in copy.labels:
            copy.relabel({"forked_from": _foreign_id(original)})


def _are_labelled(a: Session, b: Session) -> bool:
    return a.labels.get("forked_from") == _foreign_id(b) or b.labels.get("forked_from") == _foreign_id(a)


def _foreign_id(session: Session) -> str:
    return (session.origin or session.id).split(":", 1)[-1]
