"""How a run waits: what differs between a run of threads and one on an event loop, and nothing else.

The steps are written once, as coroutines. On an event loop they wait as coroutines do. Of a run of threads they wait
inside the call, so a coroutine goes from its beginning to its end at one `send`: `drive`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from castlog.branch import Branch
from castlog.core import Appending
from castlog.errors import Invalid
from castlog.event import Draft, Event
from castlog.view import View

T = TypeVar("T")


class Written(Protocol):
    """Drafts in line to be written."""

    def done(self) -> bool:
        """Return whether the outcome is known."""
        ...


class Port(Protocol):
    """What the steps wait for."""

    lazy: bool
    """Whether a result may be given out before it is durable, because looking at it can wait."""

    async def submit(self, drafts: Sequence[Draft], *, linger: bool) -> Any:
        """Put drafts in line behind all before them, as a `Written`; raises Invalid for what cannot be kept."""
        ...

    async def durable(self, written: Any) -> list[Event]:
        """Return the events once they are durable; raises what the append did. May be asked again."""
        ...

    async def work(self, function: Callable[[], T]) -> T:
        """Return what a function that reads or writes the store returns."""
        ...

    async def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Return what a tool, model or hook function returns, which may take its time."""
        ...

    async def tell(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what an observer or another small function of the harness returns."""
        ...

    async def next(self, iterator: Any) -> tuple[bool, Any]:
        """Return True and the next item of an iterator, or False and the value it ended with."""
        ...

    async def stop(self, iterator: Any) -> None:
        """Close an iterator that may not have come to its end, if it can be closed."""
        ...

    def who(self) -> object:
        """Return what tells callers apart that run at the same time."""
        ...

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a new lock that one of them has at a time."""
        ...


def drive(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits inside its calls to its end."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
    raise AssertionError("a step of a run of threads was suspended")


class Threads:
    """The port of a run whose steps are plain calls, from any number of threads."""

    lazy = True

    def __init__(self, branch: View) -> None:
        self._branch = branch

    async def submit(self, drafts: Sequence[Draft], *, linger: bool) -> InLine:
        """Put drafts in line; lingering ones wait a moment for others to share their commit with."""
        branch = self._branch
        assert isinstance(branch, Branch)
        core, number, row = branch._core, branch._number, branch._row
        return InLine(core.submit(number, row, core.prepare(number, row, drafts), linger=linger))

    async def durable(self, written: InLine) -> list[Event]:
        """Wait for them."""
        return written.wait()

    async def work(self, function: Callable[[], T]) -> T:
        """Call it."""
        return function()

    async def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call it; raises Invalid when it would have to be awaited."""
        result = function(*args, **named)
        if inspect.isawaitable(result) or hasattr(result, "__anext__"):
            if inspect.iscoroutine(result):
                result.close()
            raise Invalid(f"{function!r} is asynchronous; castlog.aio.Run can wait for it")
        return result

    async def tell(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it."""
        return await self.call(function, *args)

    async def next(self, iterator: Any) -> tuple[bool, Any]:
        """Take an item."""
        try:
            return True, next(iterator)
        except StopIteration as end:
            return False, end.value

    async def stop(self, iterator: Any) -> None:
        """Close it."""
        close = getattr(iterator, "close", None)
        if close is not None:
            close()

    def who(self) -> object:
        """Return the thread."""
        return threading.get_ident()

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock of threads."""
        return _Lock()


class InLine:
    """An append in line; what it came to is found out once."""

    def __init__(self, appending: Appending) -> None:
        self._appending = appending
        self._lock = threading.Lock()
        self._events: list[Event] | None = None

    def done(self) -> bool:
        """Return whether `wait` has nothing to wait for."""
        return self._appending.job.done

    def wait(self) -> list[Event]:
        """Return the events once they are durable."""
        with self._lock:
            if self._events is None:
                self._events = self._appending.wait()
            return self._events


class _Lock:
    """A lock of threads, entered as the steps enter it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
