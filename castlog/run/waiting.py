"""`castlog.aio.Run`, for harnesses on an event loop. What its steps do is in `steps`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from castlog import aio
from castlog.event import Draft, Event
from castlog.run.policy import Every
from castlog.run.recovery import Plan
from castlog.run.result import Result
from castlog.run.run import as_message, as_note
from castlog.run.steps import Steps
from castlog.run.streaming import Join
from castlog.run.tools import Tools
from castlog.state import Reducer

S = TypeVar("S")
T = TypeVar("T")
Function = Callable[..., Any]


class Run(Generic[S]):
    """What a harness on an event loop holds: `castlog.Run`, whose steps are awaited. Await it, or `async with` it.

    Tools, models and hooks may be coroutine functions; others are called in a worker thread, so that they do not block
    the loop. Observers, `on_delta` and `make` are called on the loop, and awaited if they can be. Whatever a step
    returns is durable; steps of several tasks share commits. The state changes only inside steps.

    Cancelling a step records `interrupted` and raises: what a worker thread was at goes on all the same, unseen.
    """

    def __init__(
        self,
        branch: aio.View,
        reducer: Reducer[S],
        tools: Mapping[str, Function] | Iterable[Function] | None = None,
        snapshots: Every | None = Every(),  # noqa: B008 - frozen
        *,
        replay_from: int | None = None,
        live: bool = True,
    ) -> None:
        self._branch = branch
        every = snapshots or Every(None, None)
        port = Loop(branch)
        self._steps = Steps(branch._twin, reducer, Tools(tools), every, port, replay_from=replay_from, live=live)

    @property
    def branch(self) -> aio.View:
        """The branch this is a run of."""
        return self._branch

    @property
    def state(self) -> S:
        """The fold of all that was recorded, and is durable.

        Raises InFlight while calls that a crash left are not settled: await `recover`, or a step, before looking.
        """
        return self._steps.look_now()

    @property
    def seq(self) -> int:
        """The seq of the last event in `state`."""
        return self._steps.log.journal.seq

    @property
    def replaying(self) -> bool:
        """Whether steps are served from the log."""
        return self._steps.replaying

    async def user(self, message: Any) -> Event:
        """Record a message of the user and return its event. See `castlog.Run.user`."""
        return await self._steps.message("user_message", as_message(message))

    async def note(self, note: Any) -> Event:
        """Record a note and return its event. See `castlog.Run.note`."""
        return await self._steps.message("note", as_note(note))

    async def model(
        self,
        request: Any,
        call: Callable[[Any], Any],
        *,
        on_delta: Callable[[Any], Any] | None = None,
        join: Join | None = None,
    ) -> Result:
        """Ask a model and return what it answered. See `castlog.Run.model`.

        An asynchronous generator returns nothing at its end: the response is what `join` makes of its deltas.
        """
        return await self._steps.model(request, call, on_delta=on_delta, join=join)

    async def tool(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        function: Function | None = None,
        in_flight: str | None = None,
    ) -> Result:
        """Call a tool and return what came of it. See `castlog.Run.tool`."""
        return await self._steps.tool(name, args, call_id=call_id, function=function, in_flight=in_flight)

    async def hook(self, name: str, input: Any, function: Function, *, call_id: str | None = None) -> Result:  # noqa: A002
        """Ask a hook and return its decision. See `castlog.Run.hook`."""
        return await self._steps.hook(name, input, function, call_id=call_id)

    async def now(self) -> int:
        """Record the time and return it, nanoseconds UTC."""
        return await self._steps.now()

    async def random(self) -> float:
        """Record a random number from 0 up to 1 and return it."""
        return await self._steps.random()

    async def uuid(self) -> str:
        """Record a random UUID and return it."""
        return await self._steps.uuid()

    async def value(self, kind: str, make: Callable[[], Any]) -> Any:
        """Record what `make` returns and return it. See `castlog.Run.value`."""
        return await self._steps.value(kind, make)

    async def refresh(self) -> None:
        """Fold what others have appended, as each step does before it begins."""
        await self._steps.refresh()

    async def recover(self, decisions: Mapping[str, str | Result] | None = None) -> Plan:
        """Settle the calls that were in flight when the last run ended. See `castlog.Run.recover`."""
        return await self._steps.recover(decisions)

    def observe(self, observer: Callable[[Event], Any]) -> None:
        """Have a function called with each event from now on. See `castlog.Run.observe`."""
        self._steps.log.observe(observer)

    async def flush(self) -> None:
        """Make durable what is on its way."""
        await self._steps.log.flush()

    async def close(self) -> None:
        """Let go of the branch. Calling it again does nothing."""
        await self._steps.log.end()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio Run of {self._branch!r}>"

    async def _begin(self) -> Self:
        if self._steps.log.begun:  # as in `async with await Run(...)`
            return self
        begun = asyncio.get_running_loop().run_in_executor(None, self._steps.begin)
        try:
            await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(lambda _: self._steps.log.release())  # nobody has what the thread is about to own
            raise
        return self


class Loop:
    """The port of a run whose steps are awaited, by any number of tasks of one loop."""

    lazy = False

    def __init__(self, branch: aio.View) -> None:
        self._branch = branch

    async def submit(self, drafts: Sequence[Draft], *, linger: bool) -> asyncio.Task[list[Event]]:
        """Have drafts appended by a task of their own, which goes on if the step is cancelled."""
        branch = self._branch
        assert isinstance(branch, aio.Branch)
        ready, light = await branch._prepare(drafts)
        return asyncio.get_running_loop().create_task(branch._append(ready, light=light))

    async def durable(self, written: asyncio.Task[list[Event]]) -> list[Event]:
        """Wait for the task."""
        return await asyncio.shield(written)

    async def work(self, function: Callable[[], T]) -> T:
        """Call it in a worker thread."""
        return await asyncio.to_thread(function)

    async def call(self, function: Function, *args: Any, **named: Any) -> Any:
        """Await it, or call it in a worker thread."""
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
            return await function(*args, **named)
        result = await asyncio.to_thread(function, *args, **named)
        return await result if inspect.isawaitable(result) else result

    async def tell(self, function: Function, *args: Any) -> Any:
        """Call it on the loop, and await it if it can be."""
        result = function(*args)
        return await result if inspect.isawaitable(result) else result

    async def next(self, iterator: Any) -> tuple[bool, Any]:
        """Take an item, in a worker thread unless the iterator can be awaited."""
        if not hasattr(iterator, "__anext__"):
            return await asyncio.to_thread(_next, iterator)
        try:
            return True, await iterator.__anext__()
        except StopAsyncIteration:
            return False, None

    async def stop(self, iterator: Any) -> None:
        """Close it, whichever way it is closed."""
        if hasattr(iterator, "aclose"):
            await iterator.aclose()
        elif hasattr(iterator, "close"):
            with suppress(ValueError):  # a worker thread is inside it, after a step was cancelled
                await self.call(iterator.close)

    def who(self) -> object:
        """Return the task."""
        try:
            return asyncio.current_task()
        except RuntimeError:  # made outside of the loop
            return None

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock of tasks."""
        return asyncio.Lock()


def _next(iterator: Any) -> tuple[bool, Any]:
    try:
        return True, next(iterator)
    except StopIteration as end:
        return False, end.value
