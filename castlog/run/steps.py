"""The steps of a run, written once for threads and for event loops.

A step that has an effect is written ahead: its call event is durable before the function is entered, and the result
follows. What the steps wait for is in `port`, what they write and fold in `log`.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar

from castlog.errors import Error, InFlight, Invalid
from castlog.event import Draft, Event
from castlog.run import recovery, serving
from castlog.run.log import Log, Observer
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
Function = Callable[..., Any]
Effect = Callable[[Event], Awaitable[Any]]

# The runs whose recovery calls a tool or an observer here: what that does in them does not wait for it to end.
_recovering: ContextVar[frozenset[Steps[Any]]] = ContextVar("recovering", default=frozenset())


class Steps(Generic[S]):
    """A run: its log, its script while it is replaying, and what a crash left it."""

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
        self.log = Log(branch, reducer, every, port, live=live)
        self._tools = tools
        self._port = port
        self._from = replay_from if live or replay_from is not None else 0
        self._home = port.who()
        self._alone = True  # no other thread or task has taken a step
        self._script: Script | None = None
        self._turn = port.lock()  # of recovering and of going live
        self._recovered = False
        self._again: list[Event] = []  # model requests a crash left, to be issued again
        self._settled: list[Event] = []  # calls that have results the harness need not know of
        self._open: set[str] = set()  # call ids in use

    def begin(self) -> None:
        """Own the branch and restore its state. Blocks; raises Conflict(holder, since) when another run has it."""
        seq = self.log.begin(self._from)
        if self._from is not None:
            script = Script(self.log.branch.events(seq + 1), seq)
            if self.log.live and script.ended():
                self.log.fold_served(script.fold_rest())
            else:
                self._script = script

    @property
    def replaying(self) -> bool:
        """Whether steps are served."""
        return self._script is not None

    async def look(self) -> S:
        """Return the state, for the harness to decide on what is next.

        So what is in flight is settled first if that needs no person: a request made of the state before would ask for
        what is done already. From now on the harness knows of all that was settled.
        """
        if not self.log.closed:
            with suppress(InFlight):  # the next step says so
                if not (self._recovered or self in _recovering.get()):
                    await self.recover()
            await self.log.flush()
        self._settled = []
        return self.log.journal.state

    def look_now(self) -> S:
        """Return the state without waiting; raises InFlight while something is to be settled first."""
        unsettled = self.log.in_flight
        if unsettled and not (self._recovered or self._script or self in _recovering.get() or self.log.closed):
            raise recovery.unsettled(unsettled)
        self._settled = []
        return self.log.journal.state

    async def refresh(self) -> None:
        """Fold what others have appended."""
        with self.log.step():
            script = self._script
            if script is not None:
                self.log.fold_served(await self._port.work(script.fold_ahead))
            else:
                await self.log.flush()
                await self.log.catch_up()

    # --- steps without an effect ---

    async def message(self, kind: str, payload: Any) -> Event:
        """Append an event, or serve it."""
        with self.log.step():
            served = await self._serve(Step(kind, payload))
            if served is not None:
                return served
            await self._ready()
            return (await self.log.append(Draft(kind, payload)))[0]

    async def value(self, kind: str, make: Callable[[], Any]) -> Any:
        """Record a value, or serve the one that was recorded."""
        with self.log.step():
            event = await self._serve(Step("value", {"kind": kind}))
            if event is None:
                await self._ready()
                made = {"kind": kind, "value": await self._port.tell(make)}
                event = (await self.log.append(Draft("value", made)))[0]
            return event.payload["value"]

    async def now(self) -> int:
        """Return the store's time, nanoseconds UTC."""
        return int(await self.value("now", self.log.now))

    async def random(self) -> float:
        """Return a random number from 0 up to 1."""
        draw = self.log.branch._core.random
        return float(await self.value("random", lambda: (int.from_bytes(draw(7)) >> 3) / (1 << 53)))

    async def uuid(self) -> str:
        """Return a random UUID."""
        draw = self.log.branch._core.random
        return str(await self.value("uuid", lambda: str(uuid.UUID(bytes=draw(16), version=4))))

    # --- steps with an effect ---

    async def tool(
        self, name: str, args: Any, *, call_id: str | None, function: Function | None, in_flight: str | None
    ) -> Result:
        """Call a tool."""
        tool = self._tools.find(name, function, in_flight)
        payload = {"name": name, "args": args, "in_flight": tool.in_flight}
        return await self._call(TOOL, payload, call_id, partial(self._use, tool, 1))

    async def model(self, request: Any, call: Function, *, on_delta: Observer | None, join: Join | None) -> Result:
        """Ask a model."""
        stream = Stream(join)

        async def ask(event: Event) -> Any:
            answer = await self._port.call(call, event.payload)
            streams = hasattr(answer, "__next__") or hasattr(answer, "__anext__")
            return await self._consume(answer, stream, on_delta) if streams else answer

        return await self._call(MODEL, request, None, ask, stream)

    async def hook(self, name: str, given: Any, function: Function, *, call_id: str | None) -> Result:
        """Ask a hook for its decision."""
        payload = {"hook": name, "input": given}
        return await self._call(HOOK, payload, call_id, lambda call: self._port.call(function, call.payload["input"]))

    async def _call(
        self, kind: Kind, payload: Any, call_id: str | None, effect: Effect, stream: Stream | None = None
    ) -> Result:
        step = Step(kind.call, payload, call_id)
        with self.log.step():
            known = await self._serve(step)
            if known is None:
                await self._ready()
                known = await self._settled_answer(step)
            if known is not None:
                return kind.read(known)
            with self._claimed(call_id):
                call = await self._reopened(step) or await self._opened(kind, step)
                written = await self._attempt(kind, call, effect, stream)
            if not self._port.lazy or kind is not TOOL:
                return kind.read((await self.log.settle(written))[0])
        return Result.later(lambda: kind.read(drive(self.log.settle(written))[0]))

    async def _opened(self, kind: Kind, step: Step) -> Event:
        """Return the durable event of a new call."""
        written = await self.log.submit(Draft(step.type, step.payload, call_id=step.call_id))
        try:
            return (await self.log.settle(written))[0]
        except Exception:
            raise
        except BaseException as stop:  # it may be in the log by now, and nothing was done yet
            call = (await self.log.settle(written))[0]
            await self._record(kind, call, interruption(stop))
            raise

    async def _attempt(self, kind: Kind, call: Event, effect: Effect, stream: Stream | None = None) -> Any:
        """Do what a durable call asks for, and put its result in line; returns that, as written."""
        arrived = stream.partial if stream else dict
        try:
            value = await effect(call)
            return await self._answer(kind, call, kind.keep(value))
        except InFlight:
            raise  # a sub-agent's run needs a person: this call stays in flight until that has decided
        except Exception as error:
            try:
                return await self._answer(kind, call, arrived() | failure(error))
            except Invalid:  # what arrived cannot be kept
                return await self._answer(kind, call, failure(error))
        except BaseException as stop:
            await self._record(kind, call, arrived() | interruption(stop))
            raise

    async def _answer(self, kind: Kind, call: Event, said: Any) -> Any:
        return await self.log.answer(Draft(kind.result, said, call_id=call.call_id))

    async def _record(self, kind: Kind, call: Event, said: dict[str, Any]) -> None:
        """Record how a call was interrupted; what interrupts it counts more than a failure to."""
        with suppress(Error):
            await self.log.append(Draft(kind.result, said, call_id=call.call_id))

    async def _use(self, tool: Tool, attempt: int, call: Event) -> Any:
        given = copy.deepcopy(call.payload["args"])  # the state may hold what was recorded, and a tool may change this
        args, named = tool.arguments(given, Call.of(call, attempt))
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

    @contextmanager
    def _claimed(self, call_id: str | None) -> Iterator[None]:
        """Keep a call id from being used by two calls at the same time: a result could not be told whose it is."""
        if call_id is None:
            yield
            return
        if call_id in self._open:
            raise Invalid(f"the call {call_id!r} is in flight; give this one another id", call_id=call_id)
        try:
            self._open.add(call_id)
            yield
        finally:
            self._open.discard(call_id)

    # --- recovering ---

    async def _ready(self) -> None:
        """Make sure that a step may begin: nothing is left in flight, and all is folded."""
        if not self._recovered and self not in _recovering.get():
            await self.recover()
        await self.log.make_ready()

    async def recover(self, decisions: Mapping[str, str | Result] | None = None) -> Plan:
        """Settle the calls that were in flight when the last run ended; the first time only."""
        with self.log.step():
            if self._script is None:
                async with self._turn:
                    if not self._recovered:
                        return await self._recover(decisions)
            if decisions:
                raise Invalid("nothing is to be decided: the run has recovered, or is replaying")
            return Plan(())

    async def _recover(self, decisions: Mapping[str, str | Result] | None) -> Plan:
        token = _recovering.set(_recovering.get() | {self})
        try:
            plan = await self._settle(decisions)
        finally:
            _recovering.reset(token)
        self._settled += [call.event for call in plan.calls if call.type != MODEL.call]
        self._again = [call.event for call in plan.calls if call.type == MODEL.call and call.action == RETRY]
        self._recovered = True
        return plan

    async def _settle(self, decisions: Mapping[str, str | Result] | None) -> Plan:
        await self.log.catch_up()
        branch = self.log.branch
        plan = await self._port.work(lambda: recovery.recovery_plan(branch, decisions))
        plan.require_decided()
        recovery.require_tools(plan, self._tools)
        if plan.calls:
            drafts = await self._port.work(lambda: recovery.answers(branch, plan))
            await self.log.append(recovery.acting(plan), *drafts)
        for call in plan.calls:
            if call.action == RETRY and call.type == TOOL.call:  # a model waits for the harness to ask it again
                effect = partial(self._use, self._tools.find(call.name or ""), call.attempt + 1)
                await self.log.settle(await self._attempt(TOOL, call.event, effect))
        return plan

    async def _reopened(self, step: Step) -> Event | None:
        """Return the model request that a crash left, if this is it; one that is not asked again has failed."""
        while step.type == MODEL.call and self._again:
            call = self._again.pop(0)
            if step.recorded().fits(call):
                return call
            await self._answer(MODEL, call, failure("the run ended before the response, and then asked otherwise"))
        return None

    async def _settled_answer(self, step: Step) -> Event | None:
        """Return the result of a step that was settled without the harness, which may not know of it.

        It may have decided on the step by the state before a recovery. To take it once more would repeat the effect.
        """
        if not self._settled:
            return None
        step = step.recorded()
        call = next((call for call in self._settled if step.fits(call)), None)
        if call is None:
            return None
        self._settled.remove(call)
        return await self._port.work(lambda: recovery.result_on(self.log.branch, call, step.call_id or call.call_id))

    # --- serving ---

    async def _serve(self, step: Step) -> Event | None:
        """Return what was recorded of a step (of a call: its result), or None when the run is live."""
        script = self._script
        if script is None:
            return None
        self._alone = self._alone and self._port.who() == self._home
        step = step.recorded()
        served = await self._port.work(lambda: self._take(script, step))
        self.log.fold_served()
        if served is None or (served.answer is None and step.type in KINDS):
            if not self.log.live:
                raise serving.past_the_end(step) if served is None else serving.unanswered(served.event)
            await self._go_live()
            return None
        if self.log.live and script.ended():
            await self._go_live()
        return served.answer or served.event

    def _take(self, script: Script, step: Step) -> serving.Served | None:
        """Take a step of the script; what comes later in the log is not learnt before it."""
        served = script.serve(step, alone=self._alone)
        if served is not None:
            self.log.journal.learn(served.passed)
        return served

    async def _go_live(self) -> None:
        async with self._turn:
            script = self._script
            if script is not None:
                self.log.fold_served(await self._port.work(script.fold_rest))
                self._settled += script.unserved_calls()  # parallel ones, of which another was in flight
                self._script = None
