"""The steps of a run, written once for threads and for event loops.

A step that has an effect is written ahead: its call event is durable before the function is entered, and the result
follows. What the steps wait for is in `port`; between two waits nothing here blocks, and no lock is held across one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar

from castlog.branch import Branch
from castlog.engine.owner import Ownership
from castlog.errors import Conflict, Error, Invalid, Unavailable
from castlog.event import Draft, Event
from castlog.run import recovery, serving
from castlog.run.journal import Journal
from castlog.run.policy import Every
from castlog.run.port import Port, drive
from castlog.run.recovery import Plan
from castlog.run.result import HOOK, KINDS, MODEL, TOOL, Kind, Result, failure, interruption
from castlog.run.serving import Script, Step
from castlog.run.streaming import Join, Stream
from castlog.run.tools import RETRY, Call, Tool, Tools
from castlog.state import Reducer
from castlog.view import View

S = TypeVar("S")
Observer = Callable[[Event], Any]
Effect = Callable[[Event], Any]

# Steps that a tool takes while a recovery runs it do not wait for the recovery.
_recovering: ContextVar[bool] = ContextVar("recovering", default=False)


class Steps(Generic[S]):
    """A run: its journal, its script while it is replaying, and what it has in flight."""

    def __init__(
        self,
        branch: View,
        reducer: Reducer[S],
        tools: Tools,
        every: Every,
        port: Port,
        *,
        replay_from: int | None,
        live: bool,
    ) -> None:
        if live and not isinstance(branch, Branch):
            raise Invalid(f"{branch!r} cannot be appended to; give a branch, or live=False")
        self.branch = branch
        self.reducer = reducer
        self.tools = tools
        self._every = every
        self._port = port
        self._live = live
        self._from = replay_from if live or replay_from is not None else 0
        self._hold: Ownership | None = None
        self._home = port.who()
        self._alone = True
        self._script: Script | None = None
        self._recovered = False
        self._turn = port.lock()  # of recovering and of going live
        self._again: list[Event] = []  # model requests a crash left, to be issued again
        self._settled: list[Event] = []  # calls that were settled behind the harness's back
        self._open: set[str] = set()  # call ids in use
        self._results: list[Any] = []  # results in line that nobody has waited for yet
        self._observers: list[Observer] = []
        self._broken: Error | None = None
        self.closed = True
        self.begun = False
        self._telling = threading.Lock()  # never waited for

    # --- beginning and end ---

    def begin(self) -> None:
        """Own the branch and restore its state. Blocks; raises Conflict(holder, since) when another run has it."""
        if self._live:
            assert isinstance(self.branch, Branch)
            self._hold = self.branch._core.own(self.branch._number)
        try:
            restored = self.branch.restore(self.reducer, at=self._from)
            self.journal = Journal(self.reducer, restored.state, restored.seq)
            self._kept, self._kept_at = restored.snapshot_seq, self._now()
            self.closed, self.begun = False, True
            if self._from is not None:
                self._script = Script(self.branch.events(restored.seq + 1), restored.seq)
                if self._live and self._script.ended():
                    self.journal.learn(self._script.fold_rest())
                    self.journal.fold(tell=False)
                    self._script = None
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let go of the branch, whatever else is the matter."""
        self.closed = True
        if self._hold is not None:
            self._hold.release()

    async def end(self) -> None:
        """Make durable what is in line, tell the observers, and let go of the branch."""
        try:
            if not self.closed:
                await self.flush()
        finally:
            self.release()

    @property
    def replaying(self) -> bool:
        """Whether steps are served."""
        return self._script is not None

    async def flush(self) -> None:
        """Wait for results that nobody has waited for, and fold them."""
        for written in list(self._results):
            await self._settle(written)
        await self._mend()

    def look(self) -> S:
        """Return the state: from now on the harness knows of all that was settled."""
        self._settled = []
        return self.journal.state

    async def refresh(self) -> None:
        """Fold what others have appended."""
        self._require_usable()
        script = self._script
        if script is not None:
            self.journal.learn(await self._port.work(script.fold_ahead))
            self.journal.fold(tell=False)
            return
        await self.flush()
        await self._catch_up()

    def observe(self, observer: Observer) -> None:
        """Have a function called with each event from now on."""
        self._observers.append(observer)

    # --- steps ---

    async def message(self, kind: str, payload: Any) -> Event:
        """Append an event that has no effect, or serve it."""
        step = Step(kind, payload)
        served = await self._serve(step)
        if served is not None:
            return served
        await self._ready()
        return (await self._write(step))[0]

    async def value(self, kind: str, make: Callable[[], Any]) -> Any:
        """Record a value, or serve the one that was recorded."""
        served = await self._serve(Step("value", {"kind": kind}))
        if served is None:
            await self._ready()
            served = (await self._write(Step("value", {"kind": kind, "value": await self._port.tell(make)})))[0]
        return served.payload["value"]

    async def now(self) -> int:
        """Return the store's time, nanoseconds UTC."""
        return int(await self.value("now", self._now))

    async def random(self) -> float:
        """Return a random number from 0 up to 1."""
        draw = self.branch._core.random
        return float(await self.value("random", lambda: (int.from_bytes(draw(7)) >> 3) / (1 << 53)))

    async def uuid(self) -> str:
        """Return a random UUID."""
        draw = self.branch._core.random
        return str(await self.value("uuid", lambda: str(uuid.UUID(bytes=draw(16), version=4))))

    async def tool(
        self,
        name: str,
        args: Any,
        *,
        call_id: str | None,
        function: Callable[..., Any] | None,
        in_flight: str | None,
    ) -> Result:
        """Call a tool."""
        if function is not None:
            self.tools.add(name, function)
        tool = self.tools.find(name, function, in_flight)
        step = Step("tool_call", {"name": name, "args": args, "in_flight": tool.in_flight}, call_id)
        return await self._call(TOOL, step, lambda call: self._use(tool, call, 1))

    async def model(
        self, request: Any, call: Callable[..., Any], *, on_delta: Observer | None, join: Join | None
    ) -> Result:
        """Ask a model."""
        stream = Stream(join)

        async def ask(event: Event) -> Any:
            answer = await self._port.call(call, event.payload)
            if not (hasattr(answer, "__next__") or hasattr(answer, "__anext__")):
                return answer
            return await self._consume(answer, stream, on_delta)

        return await self._call(MODEL, Step("model_request", request), ask, stream=stream)

    async def hook(self, name: str, given: Any, function: Callable[..., Any], *, call_id: str | None) -> Result:
        """Ask a hook for its decision."""

        async def ask(event: Event) -> Any:
            return await self._port.call(function, event.payload["input"])

        return await self._call(HOOK, Step("hook_call", {"hook": name, "input": given}, call_id), ask)

    async def recover(self, decisions: Mapping[str, str | Result] | None = None) -> Plan:
        """Settle the calls that were in flight when the last run ended; the first time only."""
        self._require_usable()
        if self._script is not None:
            return Plan(())
        async with self._turn:
            if self._recovered:
                if decisions:
                    raise Invalid("the run has recovered already; nothing is left to be decided")
                return Plan(())
            await self._catch_up()
            plan = await self._port.work(lambda: recovery.recovery_plan(self.branch, decisions))
            plan.require_decided()
            if plan.calls:
                await self._act(plan)
            self._recovered = True
            return plan

    # --- a call, from its event to its result ---

    async def _call(self, kind: Kind, step: Step, effect: Effect, *, stream: Stream | None = None) -> Result:
        served = await self._serve(step)
        if served is not None:
            return kind.read(served)
        await self._ready()
        settled = await self._settled_answer(step)
        if settled is not None:
            return kind.read(settled)
        with self._claimed(step.call_id):
            call = await self._reopened(step) or await self._opened(kind, step)
            written = await self._attempt(kind, call, effect, stream)
        if self._port.lazy and kind is TOOL:
            return Result.later(lambda: kind.read(self._look(written)))
        return kind.read((await self._settle(written))[0])

    async def _opened(self, kind: Kind, step: Step) -> Event:
        """Return the durable event of a new call."""
        written = await self._submit([Draft(step.type, step.payload, call_id=step.call_id)])
        try:
            return (await self._settle(written))[0]
        except Exception:
            raise
        except BaseException as stop:  # it may be in the log by now, and nothing was done yet
            call = (await self._settle(written))[0]
            await self._record(kind, call, interruption(stop))
            raise

    async def _attempt(self, kind: Kind, call: Event, effect: Effect, stream: Stream | None = None) -> Any:
        """Do what a durable call asks for, and put its result in line; returns that, as written."""
        arrived = stream.partial if stream else dict
        try:
            value = await effect(call)
            return await self._answer(kind, call, kind.keep(value))
        except Exception as error:
            try:
                return await self._answer(kind, call, arrived() | failure(error))
            except Invalid:  # what arrived cannot be kept
                return await self._answer(kind, call, failure(error))
        except BaseException as stop:
            await self._record(kind, call, arrived() | interruption(stop))
            raise

    async def _answer(self, kind: Kind, call: Event, said: Any) -> Any:
        """Put a result in line, where the next step's commit may take it along, and return it as written."""
        written = await self._submit([Draft(kind.result, said, call_id=call.call_id)], linger=self._port.lazy)
        self._results.append(written)
        return written

    async def _record(self, kind: Kind, call: Event, said: dict[str, Any]) -> None:
        """Record how a call was interrupted; what interrupts it counts more than a failure to."""
        with suppress(Error):
            await self._settle(await self._submit([Draft(kind.result, said, call_id=call.call_id)]))

    async def _use(self, tool: Tool, call: Event, attempt: int) -> Any:
        assert call.call_id is not None
        args, named = tool.arguments(call.payload["args"], Call(call.call_id, call.id, attempt))
        return await self._port.call(tool.function, *args, **named)

    async def _consume(self, answer: Any, stream: Stream, on_delta: Observer | None) -> Any:
        stream.begun = True
        try:
            while True:
                more, item = await self._port.next(answer)
                if not more:
                    return stream.whole(item)
                stream.add(item)
                if on_delta is not None:
                    await self._port.tell(on_delta, item)
        finally:
            await self._port.stop(answer)

    # --- recovering ---

    async def _act(self, plan: Plan) -> None:
        """Do what a plan says, which is recorded first."""
        again = [call for call in plan.calls if call.action == RETRY]
        for call in again:
            if call.type == "tool_call" and (call.name or "") not in self.tools:
                raise recovery.unknown_tool(call, plan)
        drafts = await self._port.work(lambda: recovery.answers(self.branch, plan))
        await self._settle(await self._submit([recovery.acting(plan), *drafts]))
        token = _recovering.set(True)
        try:
            for call in again:
                if call.type == "tool_call":
                    tool, attempt = self.tools.find(call.name or ""), call.attempt + 1
                    effect = lambda event, tool=tool, attempt=attempt: self._use(tool, event, attempt)  # noqa: E731
                    await self._settle(await self._attempt(TOOL, call.event, effect))
                elif call.type == "model_request":
                    self._again.append(call.event)
        finally:
            _recovering.reset(token)

    async def _reopened(self, step: Step) -> Event | None:
        """Return the model request that a crash left, if this is it; one that is not asked again has failed."""
        if step.type != "model_request" or not self._again:
            return None
        asked = step.recorded()
        call = self._again.pop(0)
        if asked.fits(call):
            return call
        said = failure("the run ended before the response came, and then asked for something else")
        await self._settle(await self._submit([Draft(MODEL.result, said, call_id=call.call_id)]))
        return await self._reopened(step)

    # --- serving ---

    async def _serve(self, step: Step) -> Event | None:
        """Return what was recorded of a step (of a call: its result), or None when the run is live."""
        self._require_usable()
        script = self._script
        if script is None:
            return None
        self._alone = self._alone and self._port.who() == self._home
        step = step.recorded()
        served = await self._port.work(lambda: self._take(script, step))
        self.journal.fold(tell=False)
        if served is None or (served.answer is None and served.event.type in KINDS):
            if not self._live:
                raise serving.past_the_end(step) if served is None else serving.unanswered(served.event)
            await self._go_live()
            return None
        if script.ended() and self._live:
            await self._go_live()
        return served.answer or served.event

    def _take(self, script: Script, step: Step) -> serving.Served | None:
        served = script.serve(step, alone=self._alone)
        if served is not None:
            self.journal.learn(served.passed)
        return served

    async def _go_live(self) -> None:
        async with self._turn:
            script = self._script
            if script is not None:
                self.journal.learn(await self._port.work(script.fold_rest))
                self.journal.fold(tell=False)
                self._settled += script.unserved_calls()  # parallel ones, of which another was in flight
                self._script = None

    async def _settled_answer(self, step: Step) -> Event | None:
        """Return the result of a step that a recovery took, where the harness could not know of it.

        It may have decided on the step by the state before the recovery that came with its first step. Taking it once
        more would repeat the effect.
        """
        if not self._settled:
            return None
        step = step.recorded()
        call = next((call for call in self._settled if step.fits(call)), None)
        if call is None:
            return None
        self._settled.remove(call)
        results = await self._port.work(lambda: list(self.branch.events(call.seq + 1, types={KINDS[call.type].result})))
        return next((event for event in results if call.call_id in event.call_ids), None)

    # --- the log ---

    async def _ready(self) -> None:
        """Make sure that a step may begin: nothing is left in flight, all is folded, a snapshot is kept if due."""
        if not self._live:
            raise Unavailable("the run is not live")
        if not self._recovered and not _recovering.get():
            plan = await self.recover()
            self._settled += [call.event for call in plan.calls if call.type != "model_request"]
        await self._mend()
        await self._catch_up()
        await self._keep_snapshot()

    async def _write(self, step: Step) -> list[Event]:
        return await self._settle(await self._submit([Draft(step.type, step.payload, call_id=step.call_id)]))

    async def _submit(self, drafts: list[Draft], *, linger: bool = False) -> Any:
        self._require_usable()
        return await self._port.submit(drafts, linger=linger)

    async def _settle(self, written: Any) -> list[Event]:
        """Return events once they are durable, folded, and told to the observers, and all those before them too."""
        events = await (self._result(written) if written in self._results else self._port.durable(written))
        known = list(events)
        for earlier in [result for result in self._results if result.done()]:
            known += await self._result(earlier)
        self.journal.learn(known)
        await self._reach(max(event.seq for event in known))
        return events

    async def _result(self, written: Any) -> list[Event]:
        """Return the event of a result once it is durable; a run that cannot record one does not go on."""
        try:
            return await self._port.durable(written)
        except Error as error:
            self._broken = self._broken or error
            raise
        finally:
            with suppress(ValueError):  # another thread was faster
                self._results.remove(written)

    def _look(self, written: Any) -> Event:
        """Return the event of a result that was given out before it was durable."""
        return drive(self._settle(written))[0]

    async def _reach(self, until: int) -> None:
        """Fold up to a seq, reading what is not known, and tell the observers."""
        while (gap := self.journal.gap(until)) is not None:
            self.journal.learn(await self._port.work(partial(self._read, *gap)))
        self.journal.fold(tell=True)
        await self._tell()

    def _read(self, first: int, last: int) -> list[Event]:
        return list(self.branch.events(first, last))

    async def _catch_up(self) -> None:
        before = self.journal.seq
        head = (await self._port.work(lambda: self.branch.head)).seq
        if head < before:
            raise Conflict(f"the branch moved back to seq {head} under its run", head=head)
        if head > self.journal.seq:
            await self._reach(head)

    async def _mend(self) -> None:
        if self.journal.torn:
            await self._port.work(
                lambda: self.journal.mend(lambda seq: self.branch.restore(self.reducer, at=seq).state)
            )
            self.journal.fold(tell=True)

    async def _keep_snapshot(self) -> None:
        seq, now = self.journal.seq, self._now()
        if not self._every.due(seq - self._kept, now - self._kept_at):
            return
        self._kept, self._kept_at = seq, now
        branch = self.branch
        assert isinstance(branch, Branch)
        with suppress(Unavailable, Conflict):  # a disk without room for it may have room for the step
            await self._port.work(lambda: branch.snapshot(self.reducer, at=seq))

    async def _tell(self) -> None:
        """Call the observers with what is new, in order; whoever comes while that is done leaves it to them."""
        news = self.journal.news
        while news and self._telling.acquire(blocking=False):
            try:
                while news:
                    event = news.popleft()
                    for observer in self._observers:
                        await self._tell_one(observer, event)
            finally:
                self._telling.release()

    async def _tell_one(self, observer: Observer, event: Event) -> None:
        """Call an observer; what it raises is reported as a thread's failure is, and keeps no step from going on."""
        try:
            await self._port.tell(observer, event)
        except Exception as error:
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )

    # --- small things ---

    @contextmanager
    def _claimed(self, call_id: str | None) -> Iterator[None]:
        """Keep a call id from being used by two calls at the same time: a result could not be told whose it is."""
        if call_id is None:
            yield
            return
        if call_id in self._open:
            raise Invalid(f"the call {call_id!r} is in flight; give this one another id", call_id=call_id)
        self._open.add(call_id)
        try:
            yield
        finally:
            self._open.discard(call_id)

    def _require_usable(self) -> None:
        if self.closed:
            raise Unavailable("the run was closed" if self.begun else "the run has not begun; await it first")
        if self._broken is not None:
            raise Unavailable(f"a result could not be recorded ({self._broken}); begin a new run, which recovers")

    def _now(self) -> int:
        return self.branch._core.clock()
