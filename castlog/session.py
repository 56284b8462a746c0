"""Sessions: a logical agent run, its branches and tags, and the sessions it started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import msgspec

from castlog.branch import Branch, expected_head
from castlog.core import Core
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Conflict, Invalid, NotFound
from castlog.event import Parent, Point
from castlog.format import ids, names, rows
from castlog.history import reader, refs, sessions
from castlog.history.refs import Place
from castlog.ops import revisions, tree
from castlog.ops.tree import Node


class SessionInfo(msgspec.Struct, frozen=True):
    """A session as a listing shows it, as of when it was read. Times are ns UTC, `size` counts payload bytes."""

    id: str
    title: str
    labels: dict[str, str]
    created: int
    origin: str | None
    parent_session: str | None
    branches: int
    events: int
    size: int
    activity: int


class Session:
    """One session of an open store. Properties are read when asked for."""

    __slots__ = ("_activity", "_core", "_made_from", "_session")

    def __init__(
        self, core: Core, session: bytes, row: rows.Session, activity: sessions.Activity | None = None
    ) -> None:
        self._core = core
        self._session = session
        self._made_from = row
        self._activity = activity

    @property
    def id(self) -> str:
        """The id, `sess_` and 32 hex digits."""
        return ids.show_session(self._session)

    @property
    def title(self) -> str:
        """What people call it."""
        return self._row().title

    @property
    def labels(self) -> dict[str, str]:
        """Words people group sessions by."""
        return dict(self._row().labels)

    @property
    def created(self) -> int:
        """When it was made, nanoseconds UTC."""
        return self._made_from.created

    @property
    def origin(self) -> str | None:
        """The id it had where it came from, unique in the store; None if it was made here."""
        return self._made_from.origin

    @property
    def parent(self) -> Parent | None:
        """The call that started it, for a sub-agent's session."""
        row = self._made_from.parent
        if row is None:
            return None
        return Parent(ids.show_session(row.session), row.seq, row.call_id, ids.show_digest(row.id))

    @property
    def deleted(self) -> int | None:
        """When it was put into the trash, nanoseconds UTC; None for a living one."""
        return self._row().deleted

    @property
    def info(self) -> SessionInfo:
        """What a listing shows, as of when this handle was made."""
        row, activity = self._made_from, self._activity
        if activity is None:
            with self._core.read() as txn:
                activity = sessions.activity(txn, self._session, row)
        return SessionInfo(
            self.id,
            row.title,
            dict(row.labels),
            row.created,
            row.origin,
            None if row.parent is None else ids.show_session(row.parent.session),
            activity.branches,
            activity.events,
            activity.size,
            activity.active,
        )

    def children(self, call_id: str | None = None) -> list[Session]:
        """Return the living sessions that this one's calls started, oldest first; only those of `call_id` if given."""
        found = []
        with self._core.read() as txn:
            for child, call in sessions.children(txn, self._session):
                row = sessions.read(txn, child, deleted=True)
                if row.deleted is None and call_id in (None, call):
                    found.append(Session(self._core, child, row))
        return found

    def branch(self, name: str) -> Branch:
        """Return the branch of this name; raises NotFound."""
        with self._core.read() as txn:
            sessions.read(txn, self._session)
            found = refs.look_up(txn, self._session, names.check_name(name, "branch name"))
        if found is None or not found.branch:
            raise NotFound(f"{self.id} has no branch {name!r}", name=name)
        return self._branch(found.branch)

    def branches(self) -> list[Branch]:
        """Return the branches, by name."""
        with self._core.read() as txn:
            sessions.read(txn, self._session)
            found = [item.branch for _, item in refs.names(txn, self._session) if item.branch]
        return [self._branch(number) for number in found]

    def tree(self) -> list[Node]:
        """Return the branches, oldest first, each with the branch it came from, its fork seq and its tags."""
        with self._core.read() as txn:
            sessions.read(txn, self._session)
            return tree.of_session(txn, self._session)

    def tags(self) -> dict[str, Point]:
        """Return the tags by name, each with the point it is fixed to."""
        with self._core.read() as txn:
            found = [(name, item) for name, item in refs.names(txn, self._session) if not item.branch]
        return {name: Point(self.id, name, item.seq, ids.show_digest(item.id)) for name, item in found}

    def tag(self, name: str, at: int | str | Point | None = None, *, branch: str = refs.DEFAULT_BRANCH) -> Point:
        """Fix a name to a point and return it; durable on return.

        `at` is a seq of `branch`, a revision or a Point of this session; None is the head of `branch`. Raises Conflict
        when the name is taken, by a branch or a tag.
        """
        name = names.check_name(name, "tag name")
        now = self._core.clock()
        rev = at.rev if isinstance(at, Point) else at if isinstance(at, str) else None

        def change(txn: WriteTxn) -> Place:
            row = sessions.read(txn, self._session)
            if rev is not None:
                found = revisions.resolve(txn, self._core.objects, rev)
                if found.session != self._session:
                    raise Invalid(f"{rev!r} lies in another session; a tag points into its own", rev=rev)
                place = found.place
            else:
                ref = self._ref(txn, branch)
                seq = ref.seq if at is None else at
                assert not isinstance(seq, str | Point)
                place = refs.place_at(txn, ref, seq, branch)
            digest = place.id or reader.id_at(txn, self._core.objects, row, place.timeline, place.seq)
            place = Place(place.timeline, place.seq, digest)
            refs.tag(txn, self._session, name, place, now)
            return place

        place = self._core.update(change)
        return Point(self.id, name, place.seq, ids.show_digest(place.id))

    def delete_tag(self, name: str) -> None:
        """Remove a tag; raises NotFound."""

        def change(txn: WriteTxn) -> None:
            sessions.read(txn, self._session)
            refs.delete_tag(txn, self._session, name)

        self._core.update(change)

    def relabel(self, labels: Mapping[str, str | None] | None = None, **more: str | None) -> None:
        """Set labels, and remove those whose value is None; durable on return."""
        changes = {**(labels or {}), **more}
        gone = names.check_labels({key: "" for key, value in changes.items() if value is None})
        kept = names.check_labels({key: value for key, value in changes.items() if value is not None})

        def change(txn: WriteTxn) -> None:
            old = sessions.read(txn, self._session).labels
            merged = {key: value for key, value in old.items() if key not in gone} | kept
            sessions.change(txn, self._session, labels=names.check_labels(merged))

        self._core.update(change)

    def rename(self, title: str) -> None:
        """Give the session another title; durable on return."""
        title = names.check_title(title)
        self._core.update(lambda txn: sessions.change(txn, self._session, title=title))

    def promote(self, name: str, onto: str, expect: int | str | None = None) -> Branch:
        """Point branch `onto` where `name` points and return it; the old head stays in the reflog.

        Raises Conflict when `expect`, a seq or an event id, is given and is not the head of `onto`, and
        Conflict(holder, since) while a `Run` has `onto`.
        """
        now = self._core.clock()
        wanted = expected_head(expect)

        def change(txn: WriteTxn) -> int:
            sessions.read(txn, self._session)
            source = self._ref(txn, name)
            target = refs.look_up(txn, self._session, onto)
            if target is None or not target.branch:
                raise NotFound(f"{self.id} has no branch {onto!r}", name=onto)
            ref = refs.branch(txn, target.branch)
            self._core.require_unowned(target.branch, ref.name)
            if wanted is not None and wanted != ref.seq:
                head = ref.id or reader.id_at(txn, self._core.objects, self._made_from, ref.timeline, ref.seq)
                if wanted != head:
                    raise Conflict(
                        f"{onto} is at seq {ref.seq} and not at {expect}; look again and retry",
                        expected=expect,
                        seq=ref.seq,
                        id=ids.show_digest(head),
                    )
            place = Place(source.timeline, source.seq, source.id)
            refs.move(txn, target.branch, place, now=now, operation="promote", note=f"from {name}")
            return target.branch

        return self._branch(self._core.update(change))

    def delete(self) -> None:
        """Put the session into the trash. The sessions it started are not touched.

        Raises Conflict(holder, since) while a `Run` has one of its branches.
        """
        now = self._core.clock()

        def change(txn: WriteTxn) -> None:
            for name, item in refs.names(txn, self._session):
                if item.branch:
                    self._core.require_unowned(item.branch, name)
            sessions.delete(txn, self._session, now)

        self._core.update(change)

    def __repr__(self) -> str:
        return f"<Session {self.id} {self._made_from.title!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        return self._core is other._core and self._session == other._session

    def __hash__(self) -> int:
        return hash((id(self._core), self._session))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a Session belongs to an open store; pass its id ({self.id!r}) and use store.session there")

    def _branch(self, number: int) -> Branch:
        return Branch(self, number)

    def _row(self) -> rows.Session:
        with self._core.read() as txn:
            return sessions.read(txn, self._session, deleted=True)

    def _ref(self, txn: ReadTxn, name: str) -> rows.Ref:
        found = refs.look_up(txn, self._session, name)
        if found is None or not found.branch:
            raise NotFound(f"{self.id} has no branch {name!r}", name=name)
        return refs.branch(txn, found.branch)
