"""castlog.aio: the same handles, awaitable, and a loop that never waits.

Guards against names that drift apart, appends that are lost or hang when tasks are cancelled or loops end, and calls
that block the loop.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import io
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import castlog
import castlog.aio
from castlog import limits
from castlog.history import sealing

TWINS = [
    (castlog.View, castlog.aio.View),
    (castlog.Branch, castlog.aio.Branch),
    (castlog.Session, castlog.aio.Session),
    (castlog.Store, castlog.aio.Store),
    (castlog.Diff, castlog.aio.Diff),
]
PLAIN = {
    (castlog.aio.View, "session"),
    (castlog.aio.Branch, "session"),
    *((castlog.aio.Session, name) for name in ("id", "created", "origin", "parent")),
    *((castlog.aio.Store, name) for name in ("target", "read_only")),
    *((castlog.aio.Diff, name) for name in ("base", "left", "right", "left_count", "right_count")),
}
STREAMS = {"events", "follow", "grep"}


@pytest.fixture(params=["memory", "lmdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What to open: a store on each engine."""
    return "memory:" if request.param == "memory" else str(tmp_path / "store")


@asynccontextmanager
async def new_branch(target: str) -> AsyncIterator[castlog.aio.Branch]:
    """Give the branch main of a new session, in a store that is closed afterwards."""
    async with castlog.aio.open(target) as store:
        session = await store.create_session("fix the login bug")
        yield await session.branch("main")


def public(kind: type) -> dict[str, Any]:
    """Return the public attributes of a class and of its instances."""
    names = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    if kind in (castlog.Store, castlog.Diff):
        names |= dict.fromkeys(("target",) if kind is castlog.Store else ("base",))
    return names


def commits(branch: castlog.aio.Branch) -> int:
    """Return the number of the store's newest commit."""
    return branch._twin._core.engine.version()


# --- the names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "ours"), TWINS)
def test_both_sides_have_the_same_names(theirs: type, ours: type) -> None:
    """Nothing is missing on one side, and what is awaited here takes the same arguments as there."""
    assert public(ours).keys() == public(theirs).keys()
    for name, there in public(theirs).items():
        here = getattr(ours, name)
        if (ours, name) in PLAIN:
            assert isinstance(here, property), name
            continue
        awaitable = inspect.isasyncgenfunction(here) if name in STREAMS else inspect.iscoroutinefunction(here)
        assert awaitable, name
        assert here.__doc__, name
        if not isinstance(there, property) and there is not None:
            assert arguments(here) == arguments(there), name


def test_open_takes_what_the_other_open_takes() -> None:
    """The same arguments, under the same names."""
    assert arguments(castlog.aio.open) == arguments(castlog.open)


def arguments(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    """Return the names, kinds and defaults of a function's parameters."""
    return [(item.name, item.kind, item.default) for item in inspect.signature(function).parameters.values()]


def test_a_type_checker_sees_what_is_awaited(tmp_path: Path) -> None:
    """Users of mypy --strict get the types of results and have wrong arguments refused."""
    program = tmp_path / "program.py"
    program.write_text("""
import castlog
import castlog.aio
async def main() -> None:
    async with castlog.aio.open("runs", harness_version="1") as store:
        session = await store.create_session("fix", labels={"team": "web"})
        branch = await session.branch("main")
        reveal_type([session.branch("main")])
        reveal_type([branch.append("note", {})])
        reveal_type(await branch.fork_many(3, prefix="try-"))
        reveal_type(await store.find_origin("there"))
        reveal_type([event async for event in branch.events(types=["note"])])
        reveal_type(await branch.reflog())
        reveal_type(await branch.head())
        await branch.fork("idea", 2, "much")
        await branch.rename(3)
""")
    mypy = pytest.importorskip("mypy.api")
    said, _, _ = mypy.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(program)])
    notes = [line.partition('Revealed type is "')[2][:-1] for line in said.splitlines() if "Revealed" in line]
    assert [note.replace("builtins.", "").replace("typing.", "") for note in notes] == [
        "list[Coroutine[Any, Any, castlog.aio.Branch]]",
        "list[Coroutine[Any, Any, castlog.event.Event]]",
        "list[castlog.aio.Branch]",
        "castlog.aio.Session | None",
        "list[castlog.event.Event]",
        "list[castlog.branch.Move]",
        "castlog.event.Point",
    ]
    errors = [line.split(": ")[0].rpartition(":")[2] for line in said.splitlines() if ": error: " in line]
    assert errors == ["15", "16"]


def test_importing_castlog_does_not_import_an_event_loop() -> None:
    """Who has no loop does not pay for one."""
    code = "import castlog, sys; print('asyncio' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "False\n"


# --- handles ------------------------------------------------------------------------------------


def test_a_store_is_opened_by_await_too(target: str) -> None:
    """`await` gives the store, whose own block or `close` releases it; errors come where it is awaited."""

    async def run() -> None:
        store = await castlog.aio.open(target)
        async with store:
            await store.create_session("one")
        with pytest.raises(castlog.Unavailable):
            await store.sessions()
        opening = castlog.aio.open("/nowhere/at/all")
        with pytest.raises(castlog.NotFound):
            await opening

    asyncio.run(run())


def test_every_verb_works(target: str) -> None:
    """A tour: handles come back as handles of this side, values as values, and both sides see the same store."""

    async def run() -> None:
        async with castlog.aio.open(target, harness_version="1.4.2") as store:
            session = await store.create_session("fix the login bug", labels={"team": "web"}, origin="there")
            main = await session.branch("main")
            assert main.session == session
            assert (await store.session(session.id), await store.find_origin("there")) == (session, session)
            assert await store.find_origin("nowhere") is None
            first = await main.append("user_message", {"text": "hi"})
            await main.extend([castlog.Draft("tool_call", {"name": "Edit"}, call_id="c1"), ("note", {})])
            assert isinstance(first, castlog.Event)
            assert [event.seq for event in await main.in_flight()] == [2]
            idea = await main.fork("idea-b", at=2)
            await idea.append("tool_result", {"ok": False}, call_id="c1")
            tries = await main.fork_many(3, prefix="try-")
            assert [await branch.name() for branch in await session.branches()] == [
                "idea-b", "main", "try-1", "try-2", "try-3",
            ]  # fmt: skip
            assert {await branch.rev() for branch in tries} == {f"{session.id}/try-{n}" for n in (1, 2, 3)}
            base = await store.merge_base(idea, main)
            assert base is not None
            assert base.seq == 2
            diff = await store.diff(idea, await main.rev())
            assert (diff.left_count, diff.right_count, diff.base) == (1, 1, base)
            assert [event.type async for event in diff.left] == ["tool_result"]
            await main.extend(diff.left)
            assert [event.type async for event in main.events(3)] == ["note", "tool_result"]
            tag = await session.tag("here", at=3)
            view = await store.view(tag.rev)
            assert (await view.head()).seq == 3
            assert [event.seq async for event in view.events(reverse=True, types={"note", "user_message"})] == [3, 1]
            assert await session.promote("idea-b", onto="main") == main
            assert (await main.read(3)).payload == {"ok": False}
            assert [move.op for move in await main.reflog()] == ["create", "promote"]
            await tries[0].rename("try-one")
            await tries[1].delete()
            undeleted = await store.undelete(f"{session.id}/try-2")
            assert undeleted == tries[1]
            await session.relabel(team=None, stage="done")
            assert (await session.labels(), await session.title()) == ({"stage": "done"}, "fix the login bug")
            assert await store.current() is None
            assert await store.checkout(await main.rev()) == await store.current() == main
            assert [match.event.seq async for match in store.grep("hi", [main], fixed=True)] == [1]
            file = io.BytesIO()
            assert await store.export(main, file) == 3
            assert (await store.verify(deep=True)).ok
            assert (await store.usage(main)).events > 0
            assert len({main, idea, await session.branch("main")}) == 2
            assert "main" in repr(main)
            for handle in (store, session, main, view):
                with pytest.raises(TypeError, match=r"rev|id|target"):
                    pickle.dumps(handle)

    asyncio.run(run())


def test_errors_are_those_of_the_other_side(target: str) -> None:
    """What append, extend, events and the rest raise there they raise here, with the same facts."""

    async def run() -> None:
        async with new_branch(target) as branch:
            with pytest.raises(castlog.Invalid):
                await branch.append("note", {"bad": float("nan")})
            with pytest.raises(castlog.Invalid):
                await branch.extend([castlog.Draft("note", castlog.Raw(5))])  # type: ignore[arg-type]
            with pytest.raises(castlog.Conflict) as caught:
                await branch.append("note", {}, expect=7)
            assert caught.value.expected == 7
            with pytest.raises(castlog.Invalid):
                await anext(branch.events(-1))
            with pytest.raises(castlog.NotFound):
                await branch.read(1)
            assert await branch.extend([]) == []
            await branch.fork("idea")
            await branch.delete()
            with pytest.raises(castlog.NotFound):
                await branch.append("note", {})

    asyncio.run(run())


# --- appends ------------------------------------------------------------------------------------


def test_concurrent_appends_share_commits(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand appends are a few commits, keep their order, and a chunk they fill is encoded once."""
    encoded = []
    seal = sealing._seal
    monkeypatch.setattr(sealing, "_seal", lambda *words, **more: encoded.append(words) or seal(*words, **more))

    async def run() -> None:
        async with new_branch(target) as branch:
            before = commits(branch)
            events = await asyncio.gather(*(branch.append("note", {"n": n}) for n in range(1000)))
            assert [event.seq for event in events] == list(range(1, 1001))
            assert commits(branch) - before <= 10
            assert len(encoded) <= 10
            assert threading.active_count() < 15
            assert [event.payload["n"] async for event in branch.events()] == list(range(1000))
            await branch.append("note", {})
            assert (await branch.session.info()).events == 1001

    asyncio.run(run())


def test_large_appends_are_prepared_elsewhere(target: str) -> None:
    """The loop goes on while payloads of any shape, size or origin are made ready, and they come out whole."""
    large = [
        {"text": "word " * 200_000},
        list(range(100_000)),
        {"nested": [{"n": n} for n in range(20_000)]},
        castlog.Raw(b'"' + b"x" * 2_000_000 + b'"'),
    ]

    async def run() -> None:
        async with new_branch(target) as branch:
            loop_thread = threading.get_ident()
            core, who = branch._twin._core, []
            prepare = core.prepare
            core.prepare = lambda *words: who.append(threading.get_ident()) or prepare(*words)  # type: ignore
            events = [await branch.append("large", payload) for payload in large]
            await branch.extend(events)
            await branch.extend([("note", {"n": n}) for n in range(600)])
            assert loop_thread not in who
            await branch.append("note", {"small": True})
            assert who[-1] == loop_thread
            payloads = [event.payload async for event in branch.events(until=8)]
            assert payloads[:4] == payloads[4:]
            assert payloads[:3] == large[:3]
            assert (await branch.head()).seq == 609
            del core.prepare

    asyncio.run(run())


def test_the_same_key_writes_once(target: str) -> None:
    """Repeating an append, at the same time or later, returns the first event."""

    async def run() -> None:
        async with new_branch(target) as branch:
            events = await asyncio.gather(*(branch.append("note", {}, key="k") for _ in range(20)))
            events.append(await branch.append("note", {}, key="k"))
            assert {event.id for event in events} == {(await branch.head()).id}

    asyncio.run(run())


def test_a_cancelled_append_is_written_or_not_and_nothing_hangs(target: str) -> None:
    """Whatever moment the cancellation hits; repeated with its key, each is there exactly once."""

    async def run() -> None:
        async with new_branch(target) as branch:

            def appends(size: int) -> list[asyncio.Task[castlog.Event]]:
                payload = "x" * size
                return [asyncio.create_task(branch.append("note", payload, key=f"{size} {n}")) for n in range(40)]

            for size in (10, 20_000):
                tasks = appends(size)
                for n, task in enumerate(tasks):
                    await asyncio.sleep(0 if n % 4 else 0.000_2)
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.gather(*appends(size))
            keys = [event.key async for event in branch.events()]
            assert sorted(str(key) for key in keys) == sorted(f"{size} {n}" for size in (10, 20_000) for n in range(40))

    asyncio.run(run())


def test_a_loop_may_end_with_appends_in_line(target: str, capfd: pytest.CaptureFixture[str]) -> None:
    """They are committed all the same, and no thread complains that the loop is gone."""
    store = castlog.open(target)
    branch = store.create_session("fix").branch("main")
    free = threading.Event()
    ours = castlog.aio.Branch(branch)
    blocker = threading.Thread(target=lambda: store._core.engine.update(lambda txn: free.wait(30)))
    blocker.start()

    async def run() -> None:
        tasks = [asyncio.ensure_future(ours.append("note", {"n": n})) for n in range(5)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks)

    asyncio.run(run())
    free.set()
    blocker.join()
    assert branch.append("note", {}).seq == 6
    store.close()
    assert capfd.readouterr().err == ""


def test_close_ends_what_is_in_line(target: str) -> None:
    """Appends that were handed in before `close` are durable; later ones are refused and do not hang."""

    async def run() -> None:
        async with new_branch(target) as branch:
            tasks = [asyncio.create_task(branch.append("note", {"n": n})) for n in range(50)]
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks)
        assert [event.seq for event in results] == list(range(1, 51))
        with pytest.raises(castlog.Unavailable):
            await branch.append("note", {})

    asyncio.run(run())


def test_two_loops_in_two_threads_share_a_store(target: str) -> None:
    """Each loop is woken for its own."""
    store = castlog.open(target)
    branch = castlog.aio.Branch(store.create_session("fix").branch("main"))

    async def run() -> list[int]:
        return [event.seq for event in await asyncio.gather(*(branch.append("note", {}) for _ in range(100)))]

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(asyncio.run(run()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == list(range(1, 301))
    store.close()


# --- streams ------------------------------------------------------------------------------------


def test_events_are_read_by_the_page(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker thread is asked once a chunk, not once an event, and payloads are decoded when asked for."""
    calls = []

    async def run() -> None:
        async with new_branch(target) as branch:
            await branch.extend([("note", {"n": n}) for n in range(2560)])
            hop = castlog.aio._in_thread
            monkeypatch.setattr(castlog.aio, "_in_thread", lambda *words: calls.append(words) or hop(*words))
            assert [event.payload["n"] async for event in branch.events()] == list(range(2560))

    asyncio.run(run())
    assert 10 <= len(calls) <= 20


def test_follow_yields_what_others_append(target: str) -> None:
    """Events of this loop and of other threads come as they are appended; a quiet time ends it."""

    async def run() -> None:
        async with new_branch(target) as branch:
            await branch.append("note", {"n": 0})

            async def write() -> None:
                for n in range(1, 6):
                    await asyncio.sleep(0.005)
                    await asyncio.to_thread(branch._twin.append, "note", {"n": n})

            writing = asyncio.create_task(write())
            assert [event.payload["n"] async for event in branch.follow(after=0, timeout=0.5)] == list(range(6))
            await writing
            with pytest.raises(castlog.Invalid):
                await anext(branch.follow(timeout=-1))

    asyncio.run(run())


def test_follow_raises_when_the_branch_moves_off(target: str) -> None:
    """As on the other side: Conflict when it was reset, NotFound when deleted."""

    async def run() -> None:
        async with new_branch(target) as branch:
            await branch.extend([("note", n) for n in range(3)])
            async with aclosing(branch.follow(after=0)) as stream:
                assert [(await anext(stream)).seq for _ in range(3)] == [1, 2, 3]
                await branch.reset(1)
                with pytest.raises(castlog.Conflict):
                    await anext(stream)
            await branch.fork("idea")
            stream = branch.follow()
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.01)
            await branch.delete()
            with pytest.raises(castlog.NotFound):
                await waiting

    asyncio.run(run())


def test_a_hundred_followers_hold_no_threads_and_end_at_once(target: str) -> None:
    """Waiting costs a timer, not a thread; cancelled, or closed in the middle, they are gone at once."""

    async def run() -> None:
        async with new_branch(target) as branch:
            await branch.extend([("note", {})] * 10)

            async def follow() -> None:
                async for _ in branch.follow():
                    pass

            tasks = [asyncio.create_task(follow()) for _ in range(100)]
            await asyncio.sleep(0.1)
            await asyncio.wait_for(branch.append("note", {}), 10)
            assert threading.active_count() < 50
            began = time.monotonic()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stream = branch.events()
            assert (await anext(stream)).seq == 1
            await stream.aclose()
            assert time.monotonic() - began < 5

    asyncio.run(run())


def test_a_stream_that_is_left_holds_nothing(tmp_path: Path) -> None:
    """After a break the store can be closed and its file replaced: no transaction stays open."""

    async def run() -> None:
        async with new_branch(str(tmp_path / "store")) as branch:
            await branch.extend([("note", {})] * 1000)
            async for _ in branch.events():
                break
            gc.collect()
            assert branch._twin._core.engine._shared.gate.guests() == []  # type: ignore[attr-defined]

    asyncio.run(run())


# --- the loop -----------------------------------------------------------------------------------


def test_the_loop_goes_on_while_the_store_is_locked(target: str) -> None:
    """Whatever waits for the write lock waits elsewhere."""

    async def run() -> None:
        async with new_branch(target) as branch:
            inside, free = threading.Event(), threading.Event()
            engine = branch._twin._core.engine
            thread = threading.Thread(target=lambda: engine.update(lambda txn: (inside.set(), free.wait(30))))
            thread.start()
            await asyncio.to_thread(inside.wait)
            waiting: list[Coroutine[Any, Any, object]] = [
                branch.append("note", {}),
                branch.append("note", "x" * 50_000),
                branch.fork("idea", 0),
                branch.session.rename("other"),
            ]
            tasks = [asyncio.ensure_future(each) for each in waiting]
            began = time.monotonic()
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert (await branch.head()).seq == 0
            assert time.monotonic() - began < 5
            assert not any(task.done() for task in tasks)
            free.set()
            await asyncio.gather(*tasks)
            thread.join()

    asyncio.run(run())


def test_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store that nobody got is closed, also when the loop ends meanwhile."""
    opened: list[castlog.Store] = []
    free = threading.Event()

    def slow() -> castlog.Store:
        free.wait(30)
        opened.append(castlog.open(tmp_path / "store"))
        return opened[-1]

    async def run() -> None:
        opening = asyncio.ensure_future(castlog.aio.Opening(slow)._open())
        await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        asyncio.get_running_loop().call_later(0.01, free.set)
        asyncio.get_running_loop().run_in_executor(None, free.wait, 30)

    asyncio.run(run())
    with pytest.raises(castlog.Unavailable):
        opened[0].sessions()


def test_no_thread_is_left(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loop and the store there are as many threads as before."""
    monkeypatch.setattr(limits, "COMMITTER_SECONDS", 60)
    before = threading.active_count()

    async def run() -> None:
        async with new_branch(target) as branch:
            await asyncio.gather(*(branch.append("note", {}) for _ in range(10)))
            _ = [event async for event in branch.events()]

    asyncio.run(run())
    assert threading.active_count() == before
