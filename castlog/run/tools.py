"""Tools: functions with a name and a policy for calls that were begun and never answered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from castlog.errors import Invalid
from castlog.event import Event, Parent

F = TypeVar("F", bound=Callable[..., Any])

ASK, RETRY, FAIL = "ask", "retry", "fail"
POLICIES = (ASK, RETRY, FAIL)
_MARK = "__castlog_in_flight__"


class Call(msgspec.Struct, frozen=True):
    """What a tool is told of its call, in a parameter named `call`.

    `key` is the call event's id: the same at each attempt, and at no other call, so it serves as an idempotency key
    elsewhere. `attempt` is 1 at first, and one more each time a recovery runs the call again.
    """

    id: str
    key: str
    attempt: int
    parent: Parent
    """What a session that the tool starts, as a sub-agent's, is created with."""

    @classmethod
    def of(cls, event: Event, attempt: int) -> Call:
        """Return what a tool is told of the call that an event opened."""
        parent = Parent(event.session_id, event.seq, event.call_id, event.id)
        return cls(event.call_id or "", event.id, attempt, parent)


class Tool(msgspec.Struct, frozen=True):
    """A tool as one call uses it; `takes_call` says whether the function has a parameter for a `Call`."""

    name: str
    function: Callable[..., Any]
    in_flight: str
    takes_call: bool = False

    def arguments(self, args: Any, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the function is called with: a mapping by name, None not at all, anything else as one."""
        named = dict(args) if isinstance(args, dict) else {}
        if self.takes_call and "call" not in named:
            named["call"] = call
        return () if args is None or isinstance(args, dict) else (args,), named


class Tools:
    """The tools a run knows."""

    def __init__(self, given: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] | None) -> None:
        if given is None:
            given = ()
        named = given.items() if isinstance(given, Mapping) else ((_name_of(function), function) for function in given)
        self._known: dict[str, Tool] = {}
        for name, function in named:
            self.add(name, function)

    def find(self, name: str, function: Callable[..., Any] | None = None, in_flight: str | None = None) -> Tool:
        """Return a tool for one call; a function given with it is known from then on.

        A name nobody knows gives a tool that fails whenever it is called, and so may simply fail when in flight.
        """
        if function is not None:
            self.add(name, function)
        tool = self._known.get(name) or Tool(name, _unknown(name), FAIL)
        return tool if in_flight is None else msgspec.structs.replace(tool, in_flight=check_policy(in_flight))

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Get to know a tool; raises Invalid for what cannot be called."""
        if not callable(function):
            raise Invalid(f"the tool {name!r} is a {type(function).__name__}; give a function", name=name)
        known = self._known.get(name)
        if known is None or known.function is not function:
            policy = check_policy(getattr(function, _MARK, ASK))
            self._known[name] = Tool(name, function, policy, _takes_call(function))

    def __contains__(self, name: str) -> bool:
        return name in self._known


@overload
def tool(function: F) -> F: ...
@overload
def tool(*, in_flight: str = ASK) -> Callable[[F], F]: ...
def tool(function: Any = None, *, in_flight: str = ASK) -> Any:
    """Mark a function as a tool, and say what becomes of a call that a crash left without a result.

    `ask`: a person decides. `retry`: it is run again, which is for tools that may run twice. `fail`: it counts as
    failed. The policy is stored with each call. Without the mark it is `ask`.
    """
    check_policy(in_flight)

    def mark(function: F) -> F:
        setattr(function, _MARK, in_flight)
        return function

    return mark if function is None else mark(function)


def check_policy(in_flight: object) -> str:
    """Return a policy's name; raises Invalid when there is none of that name."""
    if not isinstance(in_flight, str) or in_flight not in POLICIES:
        raise Invalid(f"{in_flight!r} is no policy for calls in flight; use ask, retry or fail", value=in_flight)
    return in_flight


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise Invalid(f"a {type(function).__name__} has no name; give tools as a mapping of names")
    return name


def _takes_call(function: Callable[..., Any]) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("call")
    except (TypeError, ValueError):  # a builtin that does not say
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _unknown(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **named: Any) -> Any:
        raise LookupError(f"there is no tool {name!r}")

    return refuse
