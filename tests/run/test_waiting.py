"""castlog.aio.Run: the same run, awaited; cancellation is recorded and raised; the loop is never blocked."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time

import pytest

import castlog
import castlog.aio
from castlog import Result


@pytest.fixture
def branch(main):
    """The branch main, awaitable."""
    return castlog.aio.Branch(main)


def test_both_runs_have_the_same_names() -> None:
    """Each public member of one is one of the other, with the same arguments."""
    plain = {"branch", "state", "seq", "replaying", "observe"}
    names = {name for name in dir(castlog.Run) if not name.startswith("_")}
    assert names == {name for name in dir(castlog.aio.Run) if not name.startswith("_")}
    for name in names:
        here, there = getattr(castlog.aio.Run, name), getattr(castlog.Run, name)
        assert here.__doc__, name
        assert inspect.iscoroutinefunction(here) is (name not in plain), name
        if not isinstance(there, property):
            assert list(inspect.signature(here).parameters) == list(inspect.signature(there).parameters), name
    assert inspect.signature(castlog.aio.Run).parameters.keys() == inspect.signature(castlog.Run).parameters.keys()


def test_an_agent_on_a_loop(main, branch, reducer) -> None:
    """Asynchronous and plain functions alike; what is recorded can be served by the other kind of run."""

    async def model(request):
        await asyncio.sleep(0)
        return {"content": f"answer {request['n']}"}

    async def double(n):
        return 2 * n

    tools = {"double": double, "thread": lambda: threading.current_thread() is threading.main_thread()}

    async def loop():
        async with castlog.aio.Run(branch, reducer, tools) as run:
            seen = []
            run.observe(lambda event: seen.append(event.seq))
            await run.user("hi")
            assert (await run.model({"n": 1}, model)).output == {"content": "answer 1"}
            assert await run.tool("double", {"n": 4}) == Result(True, 8)
            assert (await run.tool("thread")).output is False
            assert (await run.tool("late", {"n": 1}, function=double, in_flight="retry")).ok
            assert (await run.hook("pre", 1, lambda given: "allow")).output == {"decision": "allow"}
            values = [await run.now(), await run.random(), await run.uuid(), await run.value("v", lambda: 7)]
            await run.note("done")
            await branch.append("note", {"by": "another"})
            await run.refresh()
            assert run.state == main.restore(reducer).state
            assert seen == list(range(1, run.seq + 1))
            return values

    values = asyncio.run(loop())
    with castlog.Run(main, reducer, live=False) as run:
        run.user("hi")
        run.model({"n": 1}, None)
        assert run.tool("double", {"n": 4}).output == 8
        run.tool("thread")
        run.tool("late", {"n": 1})
        run.hook("pre", 1, None)
        assert [run.now(), run.random(), run.uuid(), run.value("v", None)] == values


def test_tasks_take_steps_at_once(main, branch, reducer) -> None:
    """Forty tools gathered: all in flight together, each with its own result; commits are shared."""
    inside = []

    async def tool(n):
        inside.append(n)
        while len(inside) < 40:
            await asyncio.sleep(0.001)
        return n * n

    async def loop():
        async with await castlog.aio.Run(branch, reducer, [tool]) as run:
            before = main._core.engine.version()
            results = await asyncio.gather(*(run.tool("tool", {"n": n}) for n in range(40)))
            assert [result.output for result in results] == [n * n for n in range(40)]
            assert run.state == main.restore(reducer).state
            return main._core.engine.version() - before

    assert asyncio.run(loop()) < 60


def test_serving_to_tasks(main, branch, reducer) -> None:
    """Tasks may come in another order than recorded."""

    async def loop(order, **how):
        async with castlog.aio.Run(branch, reducer, {"f": lambda n: n}, **how) as run:
            results = await asyncio.gather(*(run.tool("f", {"n": n}) for n in order))
            assert [result.output for result in results] == order
            return run.state

    recorded = asyncio.run(loop([0, 1, 2, 3, 4]))
    assert asyncio.run(loop([3, 1, 4, 0, 2], live=False)) == recorded


def test_cancelling_records_that_it_was_interrupted(main, branch, reducer) -> None:
    """A tool, a model and a hook; the run goes on, and nothing is left in flight."""

    async def forever(*args):
        await asyncio.sleep(60)

    async def loop():
        async with castlog.aio.Run(branch, reducer, {"forever": forever}) as run:
            for step in (
                lambda: run.tool("forever"),
                lambda: run.model({}, forever),
                lambda: run.hook("h", 1, forever),
            ):
                before = run.seq
                task = asyncio.create_task(step())
                while run.seq == before:
                    await asyncio.sleep(0.001)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await run.tool("forever")
            await run.user("go on")
            assert run.state == main.restore(reducer).state

    asyncio.run(loop())
    results = [event.payload for event in main.events(types={"tool_result", "model_response", "hook_decision"})]
    assert results == [{"ok": False, "error": "CancelledError", "interrupted": True}] * 4
    assert main.in_flight() == []


def test_cancelled_at_any_moment_no_call_stays_open(main, branch, reducer) -> None:
    """Whenever it comes, a call that is in the log gets a result, and an effect is never without a call."""
    effects = []

    async def tool(n):
        effects.append(n)
        await asyncio.sleep(0)
        return n

    async def loop():
        async with castlog.aio.Run(branch, reducer, [tool]) as run:
            for turns in range(40):
                task = asyncio.create_task(run.tool("tool", {"n": turns}, call_id=f"c{turns}"))
                for _ in range(turns):
                    await asyncio.sleep(0.0002)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await run.user("end")
            assert run.state == main.restore(reducer).state

    asyncio.run(loop())
    assert main.in_flight() == []
    called = [event.payload["args"]["n"] for event in main.events(types={"tool_call"})]
    assert set(effects) <= set(called)
    assert len(effects) == len(set(effects))


def test_a_model_streams_on_a_loop(main, branch, reducer) -> None:
    """From asynchronous and plain generators; cut short, what arrived is kept."""
    got = []

    async def stream(request):
        for delta in ("Hel", "lo"):
            yield delta
            await asyncio.sleep(0)

    def plain(request):
        yield "one "
        return {"content": "one two"}

    async def stuck(request):
        yield "begun"
        await asyncio.sleep(60)

    async def show(delta):
        got.append(delta)

    async def loop():
        async with castlog.aio.Run(branch, reducer) as run:
            assert (await run.model({}, stream, on_delta=show)).output == {"content": "Hello"}
            assert (await run.model({}, plain, on_delta=got.append)).output == {"content": "one two"}
            task = asyncio.create_task(run.model({}, stuck, on_delta=got.append))
            while "begun" not in got:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(loop())
    assert got == ["Hel", "lo", "one ", "begun"]
    assert main.read(6).payload == {
        "content": "begun",
        "partial": True,
        "ok": False,
        "error": "CancelledError",
        "interrupted": True,
    }


def test_recovery_on_a_loop(main, branch, reducer) -> None:
    """Before the first step, by the policies stored with the calls."""
    for policy in ("retry", "fail"):
        main.append("tool_call", {"name": "again", "args": None, "in_flight": policy}, call_id=policy)
    main.append("model_request", {"q": 1}, call_id="m")

    async def again(call):
        return call.attempt

    async def answer(request):
        return "late"

    async def loop():
        async with castlog.aio.Run(branch, reducer, [again]) as run:
            assert (await run.model({"q": 1}, answer)).ok

    asyncio.run(loop())
    assert main.in_flight() == []
    assert main.read(6).payload == {"ok": True, "output": 2}
    main.append("tool_call", {"name": "x"}, call_id="asked")

    async def ask():
        async with castlog.aio.Run(branch, reducer) as run:
            with pytest.raises(castlog.InFlight):
                await run.user("hi")
            with pytest.raises(castlog.InFlight, match="await recover"):
                run.state  # noqa: B018
            await run.recover({"asked": Result(True, 1)})
            assert run.state == main.restore(reducer).state

    asyncio.run(ask())
    assert main.in_flight() == []


def test_the_branch_is_owned(main, branch, reducer) -> None:
    """From when the run is awaited until it is closed; one that has not begun says so."""

    async def loop():
        idle = castlog.aio.Run(branch, reducer)
        with pytest.raises(castlog.Unavailable, match="await it"):
            await idle.user("hi")
        async with castlog.aio.Run(branch, reducer):
            with pytest.raises(castlog.Conflict):
                await idle
        async with idle:
            with pytest.raises(castlog.Conflict):
                castlog.Run(main, reducer)

    asyncio.run(loop())
    castlog.Run(main, reducer).close()


def test_the_loop_is_not_blocked(main, branch, reducer) -> None:
    """While a plain tool works for half a second, other tasks go on."""

    async def loop():
        ticks = 0
        async with castlog.aio.Run(branch, reducer, {"slow": lambda: time.sleep(0.5)}) as run:
            task = asyncio.create_task(run.tool("slow"))
            while not task.done():
                await asyncio.sleep(0.01)
                ticks += 1
        return ticks

    assert asyncio.run(loop()) > 15
