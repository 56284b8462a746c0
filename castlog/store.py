"""Stores: opened, asked, and closed. Each method checks its words, opens a transaction and delegates."""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self, TypeVar

import msgspec

from castlog import limits
from castlog.branch import Branch
from castlog.core import Core
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.engine.targets import open_engine
from castlog.errors import Corrupt, Invalid, NotFound, Unavailable
from castlog.event import Event, Parent, Point, Progress
from castlog.format import identity, ids, names, rows
from castlog.format.objects import SECRET_BYTES
from castlog.history import drafts, reader, refs, sessions
from castlog.history.refs import Place
from castlog.ops import diff, revisions, trash
from castlog.ops.report import FileReport, ImportReport
from castlog.ops.trash import Trashed
from castlog.session import Session
from castlog.view import View

# What most programs never call is loaded when it is called: they pay for it at every start.
if TYPE_CHECKING:
    from castlog.ops.bisect import Bisection, Probe
    from castlog.ops.compact import CompactReport
    from castlog.ops.grep import Match
    from castlog.ops.replay import Replay
    from castlog.ops.usage import Usage
    from castlog.ops.verify import VerifyReport
    from castlog.state import Reducer

S = TypeVar("S")

Revision = View | Point | str
Report = Callable[[Progress], None]


class Diff:
    """Where two histories part. `left` and `right` give fresh iterators of what each did since `base`, oldest first."""

    def __init__(self, base: Point | None, left: View, right: View) -> None:
        self.base = base
        self._left, self._right = left, right
        self._heads = left.head.seq, right.head.seq
        self._from = 0 if base is None else base.seq

    @property
    def left(self) -> Iterator[Event]:
        """What the left history did since the base."""
        return self._left.events(self._from + 1, self._heads[0])

    @property
    def right(self) -> Iterator[Event]:
        """What the right history did since the base."""
        return self._right.events(self._from + 1, self._heads[1])

    @property
    def left_count(self) -> int:
        """How many events `left` gives."""
        return self._heads[0] - self._from

    @property
    def right_count(self) -> int:
        """How many events `right` gives."""
        return self._heads[1] - self._from


class Running(msgspec.Struct, frozen=True):
    """A branch that a run has: who runs it, as far as that is known, and since when (ns UTC)."""

    session_id: str
    branch: str
    pid: int | None
    host: str | None
    since: int | None

    @property
    def rev(self) -> str:
        """The string that `store.branch` takes."""
        return f"{self.session_id}/{self.branch}"


class Store:
    """An open store. May be shared by threads; never by forked processes. Use it as a context manager."""

    def __init__(self, core: Core, target: str) -> None:
        self._core = core
        self.target = target

    @property
    def read_only(self) -> bool:
        """Whether the store refuses writes."""
        return self._core.engine.read_only

    def create_session(
        self,
        title: str,
        *,
        labels: Mapping[str, str] | None = None,
        origin: str | None = None,
        exist_ok: bool = False,
        parent: Event | Parent | None = None,
    ) -> Session:
        """Create a session with an empty branch `main`; durable on return.

        `origin` is the id it has elsewhere, unique in the store: Conflict when it is taken, or with `exist_ok` the
        session that has it. `parent` is the call that started this session as a sub-agent.
        """
        title = names.check_title(title)
        checked = names.check_labels(labels or {})
        if origin is not None:
            origin = names.check_origin(origin)
        caller = _parent_call(parent)
        now = self._core.clock()
        session = ids.uuid7(now, self._core.random(10))
        salt = self._core.random(identity.SALT_BYTES)

        def change(txn: WriteTxn) -> tuple[bytes, rows.Session]:
            known = sessions.by_origin(txn, origin) if origin is not None and exist_ok else None
            if known is not None:
                return known, sessions.read(txn, known)
            if caller is not None:
                sessions.read(txn, caller.session, deleted=True)
            row = sessions.create(
                txn, session, salt, created=now, title=title, labels=checked, origin=origin, parent=caller
            )
            start = Place(0, 0, row.genesis)
            refs.create(txn, session, [refs.DEFAULT_BRANCH], start, now=now, operation="create")
            return session, row

        return Session(self._core, *self._core.update(change))

    def session(self, id: str) -> Session:  # noqa: A002 - the field's word
        """Return the session with this full id; raises NotFound, also for one in the trash."""
        session = ids.parse_session(id)
        with self._core.read() as txn:
            return Session(self._core, session, sessions.read(txn, session))

    def find_origin(self, origin: str) -> Session | None:
        """Return the session that came from this foreign id, living or in the trash, or None."""
        origin = names.check_origin(origin)
        with self._core.read() as txn:
            session = sessions.by_origin(txn, origin)
            return None if session is None else Session(self._core, session, sessions.read(txn, session, deleted=True))

    def sessions(
        self,
        *,
        label: Mapping[str, str] | None = None,
        title: str | None = None,
        since: int | None = None,
        in_flight: bool = False,
        sort: str = "activity",
        limit: int | None = None,
        offset: int = 0,
        children: bool = True,
    ) -> list[Session]:
        """Return living sessions, latest activity first (or `sort` by "created" or "size").

        `title` matches a part of it in any case; `since` is nanoseconds UTC of the latest activity; `in_flight` keeps
        those with a call in flight at the head of some branch; `children=False` leaves out sub-agents' sessions.
        """
        if sort not in ("activity", "created", "size"):
            raise Invalid(f"{sort!r} is no order; use activity, created or size", value=sort)
        for word, number in (("limit", limit), ("offset", offset)):
            if number is not None and (type(number) is not int or number < 0):
                raise Invalid(f"the {word} is {number!r}; give a whole number from 0 on", value=number)
        if since is not None and type(since) is not int:
            raise Invalid(f"since is {since!r}; give nanoseconds UTC as a whole number", value=since)
        wanted = names.check_labels(label or {})
        part = None if title is None else unicodedata.normalize("NFC", title).casefold()
        with self._core.read() as txn:

            def keep(session: bytes, row: rows.Session) -> bool:
                return (
                    wanted.items() <= row.labels.items()
                    and (part is None or part in row.title.casefold())
                    and (children or row.parent is None)
                    and (not in_flight or self._has_calls(txn, session, row))
                )

            found = sessions.listing(txn, order=sort, since=since, keep=keep, limit=limit, offset=offset)
        return [Session(self._core, item.id, item.row, item.activity) for item in found]

    def running(self) -> list[Running]:
        """Return the branches that runs have now, in any process, oldest first."""
        found = []
        for number, owner in self._core.engine.owners.all().items():
            with self._core.read() as txn, suppress(NotFound, Corrupt):  # a note may outlive what it is about
                ref = refs.branch(txn, number)
                sessions.read(txn, ref.session)
                since = None if owner.since is None else int(owner.since * 1e9)
                found.append(Running(ids.show_session(ref.session), ref.name, owner.pid, owner.host, since))
        return sorted(found, key=lambda running: running.since or 0)

    def resolve(self, rev: str, *, current: str | None = None) -> Point:
        """Return the point a revision means now; `current` stands in for what `checkout` set.

        Raises Invalid for a malformed or ambiguous revision, NotFound for one that names nothing.
        """
        return self.view(rev, current=current).head

    def view(self, rev: str, *, current: str | None = None) -> View:
        """Return the history up to a revision, for reading and forking. Raises as `resolve` does."""
        found = self._locate(rev, current)
        return View(Session(self._core, found.session, found.row), found.name, found.place, stray=found.stray)

    def branch(self, rev: str, *, current: str | None = None) -> Branch:
        """Return the branch a revision names, or the main branch of the session it names.

        Raises Invalid for a tag or a point, which cannot be appended to.
        """
        found = self._locate(rev, current)
        if not found.moves:
            raise Invalid(
                f"{rev!r} names the point {found.name}@{found.place.seq}, not a branch; fork there to go on from it",
                rev=rev,
            )
        return Session(self._core, found.session, found.row)._branch(found.branch)

    def candidates(self, prefix: str, *, current: str | None = None) -> list[str]:
        """Return revisions that begin with `prefix`, for completion; at most 200."""
        with self._core.read() as txn:
            if current is None:
                here = revisions.current(txn)
            else:
                here = revisions.resolve(txn, self._core.objects, current)
            return revisions.candidates(txn, prefix, limits.CANDIDATES_MAX, here)

    def merge_base(self, a: Revision, b: Revision) -> Point | None:
        """Return the last point two histories share, or None when they belong to different sessions."""
        left, right = self._view(a), self._view(b)
        if left._session != right._session:
            return None
        with self._core.read() as txn:
            base = diff.base_of(txn, left._place(txn), right._place(txn))
            return left._point(txn, base)

    def diff(self, a: Revision, b: Revision) -> Diff:
        """Return where two histories part and what each did since; nothing is read before it is asked for."""
        left, right = self._view(a), self._view(b)
        return Diff(self.merge_base(left, right), left, right)

    def replay(self, rev: Revision, reducer: Reducer[S], *, progress: Report | None = None) -> Replay[S]:
        """Return the states along a history as it is now, to be asked for in any order; nothing is folded before.

        `progress` is told how many events were folded for the state that was asked for.
        """
        from castlog.ops.replay import Replay

        return Replay(self._view(rev)._pinned(), reducer, progress)

    def bisect(
        self,
        rev: Revision,
        reducer: Reducer[Any],
        check: Callable[[Any, int], bool | None],
        *,
        good: int = 0,
        bad: int | None = None,
        probed: Callable[[Probe], None] | None = None,
        progress: Report | None = None,
    ) -> Bisection:
        """Return the first event after which a history's state is bad, by trying O(log n) states.

        `check` gets a state and its seq, and returns whether it is good, or None where that cannot be told. `good` and
        `bad` (default: the head) are seqs of states known to be so; `probed` is told of each try. Raises Invalid when
        the check says otherwise of the two; what it raises itself is passed on. Nothing is written.
        """
        from castlog.ops import bisect

        replay = self.replay(rev, reducer, progress=progress)
        return bisect.run(replay, check, good=good, bad=replay.head.seq if bad is None else bad, probed=probed)

    def grep(
        self,
        pattern: str,
        revs: Sequence[Revision] = (),
        *,
        ignore_case: bool = False,
        fixed: bool = False,
        types: Collection[str] | None = None,
        tool: str | None = None,
        progress: Report | None = None,
    ) -> Iterator[Match]:
        """Yield the events whose payload's text matches a regular expression (`fixed`: a plain string).

        Without `revs` all branches of all sessions are searched; an event several branches share is read once. `tool`
        keeps calls of the tool with this name. Raises Invalid for a bad pattern.
        """
        from castlog.ops import grep, walk

        search = grep.compile_search(pattern, ignore_case=ignore_case, fixed=fixed, types=types, tool=tool)
        views = [self._view(rev) for rev in revs]
        if not revs:
            return grep.run(self._core, search, walk.everything(self._core), progress)
        places: dict[bytes, list[tuple[str, Place]]] = {}
        named = {view._session: view._row for view in views}
        stretches = []
        with self._core.read() as txn:
            for view in views:
                places.setdefault(view._session, []).append((view.name, view._place(txn)))
            for session, ends in places.items():
                stretches += walk.of_places(txn, session, named[session], ends)
        return grep.run(self._core, search, stretches, progress)

    def export(
        self,
        rev: Revision,
        file: BinaryIO,
        format: str = "jsonl",  # noqa: A002 - the field's word
        *,
        start: int = 1,
        progress: Report | None = None,
    ) -> int:
        """Write a history to a binary file and return how many events it holds.

        `jsonl` is one branch, with what is needed to import it with equal ids; `bundle` is the whole session, all
        branches and tags; `source` gives back the bytes of the file it was imported from. `start` leaves out what is
        before it, and only `source` takes it.
        """
        view = self._view(rev)
        if format == "jsonl":
            with self._core.read() as txn:
                place = view._place(txn)
            from castlog.ops import jsonl

            return jsonl.write(self._core, view._session, view._row, view.name, place, file, progress)
        if format == "bundle":
            from castlog.ops import bundle

            return bundle.write(self._core, view._session, file, progress)
        if format == "source":
            from castlog.ops import source

            count = 0

            def counted() -> Iterator[Event]:
                nonlocal count
                for event in view.events(start):
                    count += 1
                    yield event

            for part in source.source_bytes(counted(), after_record=False):
                file.write(part)
            return count
        raise Invalid(f"{format!r} is no export format; use jsonl, bundle or source", value=format)

    def import_from(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,  # noqa: A002 - the field's word
        *,
        progress: Report | None = None,
    ) -> ImportReport:
        """Import a file, or a folder with everything below it; adds only what is new. Each batch is durable as it goes.

        `format` is "castlog", "claude_code", "codex", "jsonl" or a plug-in's; None detects it by content. Damaged
        stretches are kept and listed in the report. Raises NotFound when there is nothing at `path`.
        """
        from importlib.metadata import entry_points

        found = [point for point in entry_points(group="castlog.import") if point.name == "path"]
        if not found:
            raise Unavailable("castlog's importers are not installed; install the castlog package")
        report: ImportReport = found[0].load()(self, path, format, progress)
        return report

    def import_castlog(self, path: str | os.PathLike[str], *, progress: Report | None = None) -> FileReport:
        """Import castlog's own lines or a bundle, with equal event ids; nothing is written unless all of it is sound.

        A known session gets what is new and is fast-forwarded; a branch that diverged arrives as NAME-2. Raises Invalid
        for another format, Corrupt when ids do not fit their events.
        """
        from castlog.ops import intake

        return intake.read_file(self._core, os.fspath(path), progress)

    def verify(
        self,
        rev: Revision | None = None,
        *,
        deep: bool = False,
        snapshots: Sequence[Reducer[Any]] = (),
        drop: bool = False,
        progress: Report | None = None,
    ) -> VerifyReport:
        """Check the store, or the session of a revision; reports findings and does not raise.

        `deep` re-hashes payloads too. Snapshots of the reducers in `snapshots` are compared with what their events fold
        to, from the first on; `drop` takes those away that differ, so that nothing is restored from them, and is the
        only thing here that writes: it raises Unavailable where the store is read-only.
        """
        if drop and self.read_only:
            raise Unavailable("the store is open for reading only; a snapshot cannot be dropped")
        view = None if rev is None else self._view(rev)
        from castlog.ops import verify

        session = None if view is None else view._session
        return verify.run(self._core, session, deep=deep, progress=progress, snapshots=snapshots, drop=drop)

    def usage(self, rev: Revision | None = None) -> Usage:
        """Return how many bytes are held: as people count them, distinct, and as stored."""
        view = None if rev is None else self._view(rev)
        from castlog.ops import usage

        return usage.measure(self._core, None if view is None else view._session)

    def compact(self, *, progress: Report | None = None) -> CompactReport:
        """Lay the whole store out afresh in a new file, compressed hard, and give space back; durable on return.

        Everything stays readable, with equal ids; open chunks are sealed. Other handles and processes go on. A commit
        that comes in between makes it start again with writers waiting. On failure nothing has changed: raises Corrupt
        naming what cannot be verified, Unavailable when the disk is full, Conflict when another compaction is at it.
        """
        from castlog.ops import compact

        return compact.run(self._core, progress)

    @property
    def current(self) -> Branch | None:
        """The branch that `checkout` set, or None."""
        with self._core.read() as txn:
            head = refs.read_head(txn)
            if head is None:
                return None
            return Session(self._core, head.session, sessions.read(txn, head.session))._branch(head.branch)

    def checkout(self, rev: str, *, current: str | None = None) -> Branch:
        """Make a branch current and return it; durable on return. Raises Invalid for a tag or a point: fork there."""
        branch = self.branch(rev, current=current)
        self._core.update(lambda txn: refs.set_head(txn, branch._number))
        return branch

    def trash(self) -> list[Trashed]:
        """Return what was deleted and can be brought back, newest first."""
        with self._core.read() as txn:
            return [item for _, item in trash.items(txn)]

    def undelete(self, rev: str, name: str | None = None, *, current: str | None = None) -> Session | Branch:
        """Bring back a session (by id or title) or a branch (SESSION/BRANCH), the branch as `name` if given.

        BRANCH alone means one of the current session; `current` stands in for what `checkout` set. Of several that fit
        the newest comes back. Raises NotFound when none is in the trash, Conflict when the name is taken.
        """
        if name is not None:
            name = names.check_name(name, "branch name")
        now = self._core.clock()

        def change(txn: WriteTxn) -> tuple[rows.Trash, rows.Session]:
            here = revisions.current(txn) if current is None else revisions.resolve(txn, self._core.objects, current)
            found = trash.find(txn, rev, None if here is None else here.session)
            if found.branch:
                sessions.read(txn, found.session)
                refs.undelete(txn, found.branch, now, name)
            else:
                sessions.undelete(txn, found.session)
            return found, sessions.read(txn, found.session, deleted=True)

        found, row = self._core.update(change)
        session = Session(self._core, found.session, row)
        return session._branch(found.branch) if found.branch else session

    def close(self) -> None:
        """Release the store; its handles then raise. Calling it again does nothing."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.target}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an open store cannot be pickled; pass its target ({self.target!r}) and open it there")

    def _locate(self, rev: str, current: str | None) -> revisions.Located:
        with self._core.read() as txn:
            return revisions.resolve(txn, self._core.objects, rev, current)

    def _view(self, rev: Revision) -> View:
        if isinstance(rev, View):
            if rev._core is not self._core:
                raise Invalid("a handle of another store; pass its rev instead")
            return rev
        return self.view(rev.rev if isinstance(rev, Point) else rev)

    def _has_calls(self, txn: ReadTxn, session: bytes, row: rows.Session) -> bool:
        for _, item in refs.names(txn, session):
            if not item.branch:
                continue
            ref = refs.branch(txn, item.branch)
            if reader.calls_at_head(txn, self._core.objects, row, ref):
                return True
        return False


def open(  # noqa: A001 - castlog.open reads like the field's other stores
    target: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    harness_version: str | None = None,
    clock: Callable[[], int] | None = None,
    lock_timeout: float = 10.0,
) -> Store:
    """Open a store: a path, `lmdb:PATH`, or `memory:` for tests. Created on first use unless `create` is off.

    `harness_version` is stamped on every event written through it; `clock` gives nanoseconds UTC; a lock that is not
    had within `lock_timeout` seconds is Conflict. Raises NotFound when there is no store and none may be made,
    Unavailable when it was written by a newer castlog, Corrupt when its files are damaged.
    """
    now = clock or time.time_ns
    if not drafts.TS_MIN <= now() <= drafts.TS_MAX:
        raise Invalid(f"the clock says {now()}; it gives nanoseconds since 1970, within 64 bits")
    version = names.check_harness_version(harness_version)

    def first_rows() -> list[tuple[bytes, bytes]]:
        key = rows.META.key()
        meta = rows.Meta(rows.WRITTEN, os.urandom(SECRET_BYTES), now())
        return [(key, rows.META.encode(key, meta))]

    text = os.fspath(target)
    engine = open_engine(
        text,
        create=create and not read_only,
        read_only=read_only,
        lock_timeout=lock_timeout,
        first_rows=first_rows,
        check=_check_format,
    )
    try:
        with engine.read() as txn:
            meta = _check_format(txn)
    except BaseException:
        engine.close()
        raise
    core = Core(engine, meta.secret, clock=now, random=os.urandom, harness_version=version)
    return Store(core, text)


def _check_format(txn: ReadTxn) -> rows.Meta:
    """Return the store's own row; raises Unavailable for a newer format, Corrupt when there is no such row."""
    key = rows.META.key()
    value = txn.get(key)
    if value is None:
        raise Corrupt("this is an LMDB file but no castlog store: it does not say its format")
    version = rows.format_version(value)
    if version < rows.OLDEST_READ:
        raise Corrupt(f"the store says it has format {version}, which there never was", version=version)
    if version > rows.NEWEST_READ:
        raise Unavailable(
            f"the store has format {version} and this castlog reads up to {rows.NEWEST_READ}; upgrade castlog",
            version=version,
            newest=rows.NEWEST_READ,
        )
    return rows.META.decode(key, value)


def _parent_call(parent: Event | Parent | None) -> rows.ParentCall | None:
    if parent is None:
        return None
    if not isinstance(parent, Event | Parent):
        raise Invalid(f"parent is a {type(parent).__name__}; give the event of the call that started the session")
    return rows.ParentCall(
        ids.parse_session(parent.session_id), parent.seq, parent.call_id, ids.parse_digest(parent.id)
    )
