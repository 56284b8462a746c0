"""`castlog.Run`, for harnesses made of threads. What its steps do is in `steps`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from castlog.event import Event
from castlog.run.policy import Every
from castlog.run.port import Threads, drive
from castlog.run.recovery import Plan
from castlog.run.result import Result
from castlog.run.steps import Steps
from castlog.run.streaming import Join
from castlog.run.tools import Tools
from castlog.state import Reducer
from castlog.view import View

S = TypeVar("S")
Function = Callable[..., Any]


class Run(Generic[S]):
    """What a harness holds: the one run that goes on with a branch, its state, and its steps. A context manager.

    It restores first: `state` is the fold at the head, and the harness goes on from it, not from the top.

    What a step gives back is durable once it can be seen. The call event of a tool, model or hook is durable before the
    function is entered, with all that came before it. Events and values are durable when they are returned, and so
    are model and hook results. A tool's result goes to the disk with the next step's commit; whoever looks at it, or at
    `state`, waits for that, so that a step of a harness that reads neither costs one commit and not two. Observers
    hear of nothing that is not durable. A crash at any moment therefore leaves a log whose fold is the state that was
    last seen, or a later one.

    An exception is recorded as a failed result and returned; cancellation and Ctrl-C are recorded as `interrupted` and
    raised. Steps may be taken by any number of threads at once. The state belongs to the run: do not change it, and
    copy what you read of it while other threads take steps.

    `replay_from` starts from the state at that seq and serves what was recorded up to the head, entering no function;
    then the run goes live. With `live=False` it never writes, serves from seq 0 unless told otherwise, and works on a
    store opened for reading only; a step that differs from the recorded one raises Diverged.

    Raises Conflict(holder, since) when another run has the branch, Unavailable when it holds events of a newer schema.
    """

    def __init__(
        self,
        branch: View,
        reducer: Reducer[S],
        tools: Mapping[str, Function] | Iterable[Function] | None = None,
        snapshots: Every | None = Every(),  # noqa: B008 - frozen
        *,
        replay_from: int | None = None,
        live: bool = True,
    ) -> None:
        every = snapshots or Every(None, None)
        port = Threads(branch)
        self._steps = Steps(branch, reducer, Tools(tools), every, port, replay_from=replay_from, live=live)
        self._steps.begin()

    @property
    def branch(self) -> View:
        """The branch this is a run of."""
        return self._steps.log.branch

    @property
    def state(self) -> S:
        """The fold of all that was recorded, durable when it is returned.

        Looking at it settles first what a crash left in flight, as `recover` would, unless a person has to decide.
        """
        return drive(self._steps.look())

    @property
    def seq(self) -> int:
        """The seq of the last event in `state`."""
        return self._steps.log.journal.seq

    @property
    def replaying(self) -> bool:
        """Whether steps are served from the log."""
        return self._steps.replaying

    def user(self, message: Any) -> Event:
        """Record a message of the user, text or content or a whole payload, and return its event; durable on return."""
        return drive(self._steps.message("user_message", as_message(message)))

    def note(self, note: Any) -> Event:
        """Record a note, text or a whole payload, and return its event; durable on return."""
        return drive(self._steps.message("note", as_note(note)))

    def model(
        self,
        request: Any,
        call: Callable[[Any], Any],
        *,
        on_delta: Callable[[Any], Any] | None = None,
        join: Join | None = None,
    ) -> Result:
        """Record a request, give it to `call`, record the response and return it; durable on return.

        The result's `output` is the recorded response: what `call` returned, or `{"content": ...}` of what is no
        mapping. To stream, let `call` be a generator: each delta goes to `on_delta` at once, and the response is what
        the generator returns at its end, or else what `join` makes of the deltas (by default, their text). Of a
        response that is cut short, what arrived is recorded with `partial`.
        """
        return drive(self._steps.model(request, call, on_delta=on_delta, join=join))

    def tool(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        function: Function | None = None,
        in_flight: str | None = None,
    ) -> Result:
        """Record a call, run the tool, record what came of it and return it.

        A mapping of `args` is passed by name. `function` is for a tool found at run time, `in_flight` for a policy
        ("ask", "retry", "fail") other than the tool's. A tool nobody knows is a failed call. A tool with a parameter
        `call` gets a `castlog.Call`. Raises Invalid, before anything is recorded, for args that cannot be kept or a
        call id in use.
        """
        step = self._steps.tool(name, args, call_id=call_id, function=function, in_flight=in_flight)
        return drive(step)

    def hook(self, name: str, input: Any, function: Function, *, call_id: str | None = None) -> Result:  # noqa: A002
        """Record a hook's call, ask it, record the decision and return it; durable on return.

        `function` takes `input` and returns the decision, or a mapping with `decision` and `reason`. The result's
        `output` is the recorded mapping.
        """
        return drive(self._steps.hook(name, input, function, call_id=call_id))

    def now(self) -> int:
        """Record the time and return it, nanoseconds UTC; when replaying, the recorded one."""
        return drive(self._steps.now())

    def random(self) -> float:
        """Record a random number from 0 up to 1 and return it; when replaying, the recorded one."""
        return drive(self._steps.random())

    def uuid(self) -> str:
        """Record a random UUID and return it; when replaying, the recorded one."""
        return drive(self._steps.uuid())

    def value(self, kind: str, make: Callable[[], Any]) -> Any:
        """Record what `make` returns, a JSON value of some kind, and return it; when replaying, the recorded one."""
        return drive(self._steps.value(kind, make))

    def refresh(self) -> None:
        """Fold what others have appended, as each step does before it begins."""
        drive(self._steps.refresh())

    def recover(self, decisions: Mapping[str, str | Result] | None = None) -> Plan:
        """Settle the calls that were in flight when the last run ended, and return what was done.

        Runs before the first step if it is not called. `decisions` are a person's, by call id: "retry", "fail",
        "result:FILE", "from:BRANCH" or a `castlog.Result`. The plan is recorded before it is acted upon. Raises
        InFlight(calls, plan), having done nothing, while a person has to decide about a call.
        """
        return drive(self._steps.recover(decisions))

    def observe(self, observer: Callable[[Event], Any]) -> None:
        """Have a function called with each event from now on, at most once, in order, after it is durable.

        Nothing is observed while replaying. What an observer raises is reported and changes nothing.
        """
        self._steps.log.observe(observer)

    def flush(self) -> None:
        """Make durable what is on its way, as looking at it would."""
        drive(self._steps.log.flush())

    def close(self) -> None:
        """Make durable what is on its way and let go of the branch. Calling it again does nothing."""
        drive(self._steps.log.end())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run of {self._steps.log.branch!r} @ {self.seq}>"


def as_message(message: Any) -> Any:
    """Return the payload of a message given as text, as content, or whole."""
    if isinstance(message, str):
        return {"text": message}
    return {"content": message} if isinstance(message, list) else message


def as_note(note: Any) -> Any:
    """Return the payload of a note given as text or whole."""
    return {"text": note} if isinstance(note, str) else note
