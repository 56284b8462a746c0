"""castlog for programs that run an event loop: the same handles, under the same names, awaitable.

Every method takes what its twin in `castlog` takes, and is awaited; its docstring is the twin's. `events`, `follow`,
`grep` and a diff's two sides are async iterators. A property that may read the store is a method here, so that it can
be awaited (`await branch.head()`); one that never does is a property here too (`session.id`).

Nothing blocks the loop: what reads, or waits for the disk, is done by the loop's own worker threads. Appends need no
thread each. They stand in line together, and those that are awaited at the same time share a commit. Events are
`castlog.Event`; a payload is decoded, and a large one read, when it is first asked for, by whoever asks.

Cancelling what waits does not undo it. An append that was cancelled may or may not have been written: repeat it with
the same `key` to be sure. `progress` callbacks run in a worker thread.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import castlog
from castlog import limits
from castlog.branch import Follower, expected_head
from castlog.core import Appending
from castlog.event import Draft, Event, Parent, Point, Progress, Raw
from castlog.history.drafts import Ready
from castlog.session import SessionInfo

if TYPE_CHECKING:
    from castlog.ops.bisect import Bisection, Probe
    from castlog.ops.grep import Match
    from castlog.ops.replay import Replay
    from castlog.ops.usage import Usage
    from castlog.ops.verify import VerifyReport
    from castlog.run.waiting import Run as Run
    from castlog.state import Reducer, Restored, Snapshot

H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_in_thread = asyncio.to_thread
_Report = Callable[[Progress], None]


class _Handle(Generic[H]):
    """What stands for a handle of `castlog`, its twin. Equal when the twins are."""

    def __init__(self, twin: H) -> None:
        self._twin = twin

    def __eq__(self, other: object) -> bool:
        return self._twin == other._twin if isinstance(other, _Handle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._twin)

    def __repr__(self) -> str:
        return repr(self._twin).replace("<", "<aio ", 1)

    def __reduce__(self) -> Any:
        return self._twin.__reduce__()  # which refuses, and says what to pass instead


@overload
def _awaitable(
    method: Callable[Concatenate[H, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
@overload
def _awaitable(
    method: Callable[Concatenate[H, P], T], made: Callable[[T], R]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]: ...
def _awaitable(method: Callable[..., Any], made: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """Return a method that calls a twin's in a worker thread; `made` turns the handles it returns into ours."""

    @functools.wraps(method)
    async def awaited(self: _Handle[Any], *args: Any, **more: Any) -> Any:
        result = await _in_thread(getattr(self._twin, method.__name__), *args, **more)  # a Branch may have its own
        return result if made is None else made(result)

    return awaited


class View(_Handle[castlog.View]):
    """A history as seen from one place, read by `await`. See `castlog.View`."""

    @property
    def session(self) -> Session:
        """The session this belongs to."""
        return Session(self._twin.session)

    async def name(self) -> str:
        """Return the branch or tag this is read through, as it is called now."""
        return await _in_thread(lambda: self._twin.name)

    async def rev(self) -> str:
        """Return the revision string that names this place in any process that opens the store."""
        return await _in_thread(lambda: self._twin.rev)

    async def head(self) -> Point:
        """Return the last point of the history; an empty one is at seq 0 with the genesis digest."""
        return await _in_thread(lambda: self._twin.head)

    async def events(
        self,
        start: int = 1,
        until: int | None = None,
        *,
        reverse: bool = False,
        types: Collection[str] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield events as `castlog.View.events` does, of the head as it is when the first is asked for."""
        twin = self._twin
        pages = await _in_thread(lambda: twin._pages(start, until, reverse=reverse, types=types))
        async for page in _each(pages):
            for event in page:
                yield event

    read = _awaitable(castlog.View.read)
    in_flight = _awaitable(castlog.View.in_flight)
    snapshots = _awaitable(castlog.View.snapshots)
    drop_snapshots = _awaitable(castlog.View.drop_snapshots)

    async def snapshot(self, reducer: Reducer[T], at: int | None = None) -> Snapshot:
        """Keep the state at `at`; durable when it returns. See `castlog.View.snapshot`."""
        return await _in_thread(self._twin.snapshot, reducer, at)

    async def restore(self, reducer: Reducer[T], at: int | None = None) -> Restored[T]:
        """Return the state at `at`, folded in a worker thread. See `castlog.View.restore`."""
        return await _in_thread(self._twin.restore, reducer, at)

    fork = _awaitable(castlog.View.fork, lambda branch: Branch(branch))
    fork_many = _awaitable(castlog.View.fork_many, lambda branches: [Branch(branch) for branch in branches])


class Branch(View):
    """A named, movable reference inside a session, awaitable. See `castlog.Branch`."""

    _twin: castlog.Branch

    async def append(
        self,
        type: str,  # noqa: A002 - the event's own word
        payload: Any,
        *,
        call_id: str | None = None,
        ts: int | None = None,
        schema: int | None = None,
        key: str | None = None,
        expect: int | str | None = None,
    ) -> Event:
        """Append one event and return it, durable. Raises as `castlog.Branch.append` does.

        Appends that are awaited at the same time share commits. Cancelled, its outcome is unknown: repeat it with
        the same `key`.
        """
        return (await self.extend([Draft(type, payload, call_id, ts, schema, key)], expect=expect))[0]

    async def extend(
        self,
        drafts: Iterable[Draft | tuple[str, Any] | Event] | AsyncIterable[Draft | tuple[str, Any] | Event],
        *,
        expect: int | str | None = None,
    ) -> list[Event]:
        """Append several events in one atomic commit and return them, durable. Otherwise like `append`."""
        items = [draft async for draft in drafts] if isinstance(drafts, AsyncIterable) else list(drafts)
        wanted = expected_head(expect)
        if not items:
            return []
        ready, light = await self._prepare(items)
        return await self._append(ready, wanted, light=light)

    async def _prepare(self, items: Sequence[Draft | tuple[str, Any] | Event]) -> tuple[list[Ready], bool]:
        """Return drafts made ready, and whether that was little work; raises Invalid."""
        core, number, row = self._twin._core, self._twin._number, self._twin._row
        if _are_light(items):
            return core.prepare(number, row, items), True
        return await _in_thread(core.prepare, number, row, items), False

    async def _append(self, ready: list[Ready], wanted: int | bytes | None = None, *, light: bool) -> list[Event]:
        """Append what is ready and return the events, durable."""
        core, number, row = self._twin._core, self._twin._number, self._twin._row
        loop = asyncio.get_running_loop()
        durable: asyncio.Future[None] = loop.create_future()

        def then() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, durable)

        def submit() -> Appending:
            return core.submit(number, row, ready, wanted, then=then)

        appending = submit() if light else await _in_thread(submit)
        await durable
        return appending.wait() if appending.brief() else await _in_thread(appending.wait)

    async def follow(self, after: int | None = None, timeout: float | None = None) -> AsyncGenerator[Event, None]:
        """Yield events as `castlog.Branch.follow` does, from when the first is asked for; ends at once if cancelled."""
        follower = await _in_thread(Follower, self._twin, after, timeout)
        while True:
            found = False
            async for page in _each(follower.look()):
                found = True
                for event in page:
                    yield event
            if not found:
                pause = follower.pause()
                if pause is None:
                    return
                await asyncio.sleep(pause)

    seal = _awaitable(castlog.Branch.seal)
    reset = _awaitable(castlog.Branch.reset)
    rename = _awaitable(castlog.Branch.rename)
    delete = _awaitable(castlog.Branch.delete)
    reflog = _awaitable(castlog.Branch.reflog)


class Session(_Handle[castlog.Session]):
    """One session of an open store, awaitable. See `castlog.Session`."""

    @property
    def id(self) -> str:
        """The id, `sess_` and 32 hex digits."""
        return self._twin.id

    @property
    def created(self) -> int:
        """When it was made, nanoseconds UTC."""
        return self._twin.created

    @property
    def origin(self) -> str | None:
        """The id it had where it came from, unique in the store; None if it was made here."""
        return self._twin.origin

    @property
    def parent(self) -> Parent | None:
        """The call that started it, for a sub-agent's session."""
        return self._twin.parent

    async def title(self) -> str:
        """Return what people call it."""
        return await _in_thread(lambda: self._twin.title)

    async def labels(self) -> dict[str, str]:
        """Return the words people group sessions by."""
        return await _in_thread(lambda: self._twin.labels)

    async def deleted(self) -> int | None:
        """Return when it was put into the trash, nanoseconds UTC; None for a living one."""
        return await _in_thread(lambda: self._twin.deleted)

    async def info(self) -> SessionInfo:
        """Return what a listing shows, as of when this handle was made."""
        return await _in_thread(lambda: self._twin.info)

    async def relabel(self, labels: Mapping[str, str | None] | None = None, **more: str | None) -> None:
        """Set labels, and remove those whose value is None; durable on return."""
        await _in_thread(self._twin.relabel, labels, **more)

    children = _awaitable(castlog.Session.children, lambda children: [Session(child) for child in children])
    branch = _awaitable(castlog.Session.branch, Branch)
    branches = _awaitable(castlog.Session.branches, lambda branches: [Branch(branch) for branch in branches])
    tree = _awaitable(castlog.Session.tree)
    tags = _awaitable(castlog.Session.tags)
    tag = _awaitable(castlog.Session.tag)
    delete_tag = _awaitable(castlog.Session.delete_tag)
    rename = _awaitable(castlog.Session.rename)
    promote = _awaitable(castlog.Session.promote, Branch)
    delete = _awaitable(castlog.Session.delete)


class Diff:
    """Where two histories part. `left` and `right` give fresh async iterators of what each did since `base`."""

    def __init__(self, twin: castlog.Diff) -> None:
        self._twin = twin

    @property
    def base(self) -> Point | None:
        """The last point the two share, or None when they belong to different sessions."""
        return self._twin.base

    @property
    def left(self) -> AsyncGenerator[Event, None]:
        """What the left history did since the base."""
        return View(self._twin._left).events(self._twin._from + 1, self._twin._heads[0])

    @property
    def right(self) -> AsyncGenerator[Event, None]:
        """What the right history did since the base."""
        return View(self._twin._right).events(self._twin._from + 1, self._twin._heads[1])

    @property
    def left_count(self) -> int:
        """How many events `left` gives."""
        return self._twin.left_count

    @property
    def right_count(self) -> int:
        """How many events `right` gives."""
        return self._twin.right_count


Revision = View | Point | str


class Store(_Handle[castlog.Store]):
    """An open store, awaitable. Leaving its `async with` block, or `await store.close()`, releases it."""

    @property
    def target(self) -> str:
        """What was opened."""
        return self._twin.target

    @property
    def read_only(self) -> bool:
        """Whether the store refuses writes."""
        return self._twin.read_only

    async def current(self) -> Branch | None:
        """Return the branch that `checkout` set, or None."""
        return _if_any(Branch)(await _in_thread(lambda: self._twin.current))

    async def merge_base(self, a: Revision, b: Revision) -> Point | None:
        """Return the last point two histories share, or None when they belong to different sessions."""
        return await _in_thread(self._twin.merge_base, _theirs(a), _theirs(b))

    async def diff(self, a: Revision, b: Revision) -> Diff:
        """Return where two histories part and what each did since; nothing is read before it is asked for."""
        return Diff(await _in_thread(self._twin.diff, _theirs(a), _theirs(b)))

    async def grep(
        self,
        pattern: str,
        revs: Sequence[Revision] = (),
        *,
        ignore_case: bool = False,
        fixed: bool = False,
        types: Collection[str] | None = None,
        tool: str | None = None,
        progress: _Report | None = None,
    ) -> AsyncGenerator[Match, None]:
        """Yield what `castlog.Store.grep` does."""
        found = await _in_thread(
            self._twin.grep,
            pattern,
            [_theirs(rev) for rev in revs],
            ignore_case=ignore_case,
            fixed=fixed,
            types=types,
            tool=tool,
            progress=progress,
        )
        async for match in _each(found):
            yield match

    async def replay(self, rev: Revision, reducer: Reducer[T], *, progress: _Report | None = None) -> Replay[T]:
        """Return the states along a history as it is now; asking for one blocks, so ask in a worker thread."""
        return await _in_thread(self._twin.replay, _theirs(rev), reducer, progress=progress)

    async def bisect(
        self,
        rev: Revision,
        reducer: Reducer[Any],
        check: Callable[[Any, int], bool | None],
        *,
        good: int = 0,
        bad: int | None = None,
        probed: Callable[[Probe], None] | None = None,
        progress: _Report | None = None,
    ) -> Bisection:
        """Return the first event after which a history's state is bad; `check` runs in a worker thread."""
        return await _in_thread(
            self._twin.bisect, _theirs(rev), reducer, check, good=good, bad=bad, probed=probed, progress=progress
        )

    async def export(
        self,
        rev: Revision,
        file: BinaryIO,
        format: str = "jsonl",  # noqa: A002 - the field's word
        *,
        start: int = 1,
        progress: _Report | None = None,
    ) -> int:
        """Write a history to a binary file, from a worker thread, as `castlog.Store.export` does."""
        return await _in_thread(self._twin.export, _theirs(rev), file, format, start=start, progress=progress)

    async def verify(
        self,
        rev: Revision | None = None,
        *,
        deep: bool = False,
        snapshots: Sequence[Reducer[Any]] = (),
        drop: bool = False,
        progress: _Report | None = None,
    ) -> VerifyReport:
        """Check the store, or the session of a revision, as `castlog.Store.verify` does."""
        theirs = None if rev is None else _theirs(rev)
        return await _in_thread(self._twin.verify, theirs, deep=deep, snapshots=snapshots, drop=drop, progress=progress)

    async def usage(self, rev: Revision | None = None) -> Usage:
        """Return how many bytes are held: as people count them, distinct, and as stored."""
        return await _in_thread(self._twin.usage, None if rev is None else _theirs(rev))

    create_session = _awaitable(castlog.Store.create_session, Session)
    session = _awaitable(castlog.Store.session, Session)
    find_origin = _awaitable(castlog.Store.find_origin, lambda found: _if_any(Session)(found))
    sessions = _awaitable(castlog.Store.sessions, lambda sessions: [Session(session) for session in sessions])
    resolve = _awaitable(castlog.Store.resolve)
    view = _awaitable(castlog.Store.view, View)
    branch = _awaitable(castlog.Store.branch, Branch)
    candidates = _awaitable(castlog.Store.candidates)
    import_from = _awaitable(castlog.Store.import_from)
    import_castlog = _awaitable(castlog.Store.import_castlog)
    checkout = _awaitable(castlog.Store.checkout, Branch)
    running = _awaitable(castlog.Store.running)
    trash = _awaitable(castlog.Store.trash)
    undelete = _awaitable(
        castlog.Store.undelete, lambda found: Branch(found) if isinstance(found, castlog.Branch) else Session(found)
    )
    compact = _awaitable(castlog.Store.compact)
    close = _awaitable(castlog.Store.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Opening:
    """A store about to be opened: `await` it, or use it as `async with ... as store`."""

    def __init__(self, begin: Callable[[], castlog.Store]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.close()

    async def _open(self) -> Store:
        opened = asyncio.get_running_loop().run_in_executor(None, self._begin)
        try:
            return Store(await asyncio.shield(opened))
        except asyncio.CancelledError:
            opened.add_done_callback(_close)  # else nobody would have what the thread is about to open
            raise


def _opening(function: Callable[P, castlog.Store]) -> Callable[P, Opening]:
    @functools.wraps(function)
    def begin(*args: P.args, **more: P.kwargs) -> Opening:
        return Opening(lambda: function(*args, **more))

    return begin


open = _opening(castlog.open)  # noqa: A001 - castlog.aio.open, as castlog.open


def __getattr__(name: str) -> object:
    if name == "Run":  # it stands above this module, and most programs have no use of it
        return import_module("castlog.run.waiting").Run
    raise AttributeError(f"module 'castlog.aio' has no attribute {name!r}")


async def _each(iterator: Iterator[T]) -> AsyncGenerator[T, None]:
    """Yield what a blocking iterator yields, each fetched by a worker thread."""
    while found := await _in_thread(_next, iterator):
        yield found[0]


def _next(iterator: Iterator[T]) -> tuple[T, ...]:
    for item in iterator:
        return (item,)
    return ()


def _are_light(items: Sequence[object]) -> bool:
    """Tell whether drafts are made ready sooner than another thread would have begun to, looking no further."""
    room = limits.LOOP_BYTES - 100 * len(items)
    left: list[object] = []
    for item in items:
        if isinstance(item, Event):
            return False  # its payload may have to be read
        left.append(item.payload if isinstance(item, Draft) else item)
    while left and room >= 0:
        value = left.pop()
        if isinstance(value, Raw):
            value = value.data
        if isinstance(value, str | bytes):
            room -= len(value)
        elif isinstance(value, dict | list | tuple):
            room -= 8 * len(value)
            if room >= 0:
                left += value
                left += value.values() if isinstance(value, dict) else ()
        room -= 8
    return room >= 0


def _settle(durable: asyncio.Future[None]) -> None:
    if not durable.done():  # it was cancelled
        durable.set_result(None)


def _close(opened: asyncio.Future[castlog.Store]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


def _theirs(rev: Revision) -> castlog.View | Point | str:
    return rev._twin if isinstance(rev, View) else rev


def _if_any(made: Callable[[T], R]) -> Callable[[T | None], R | None]:
    return lambda found: None if found is None else made(found)
