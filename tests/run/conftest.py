"""A reducer that keeps all there is, and tools whose effects can be counted."""

from __future__ import annotations

from typing import Any

import pytest

import castlog
from castlog import Reducer


def everything(state: list[Any], event: castlog.Event) -> list[Any]:
    """Fold an event: its type, call and payload."""
    state.append([event.seq, event.type, event.call_id, event.payload])
    return state


@pytest.fixture
def reducer() -> Reducer[list[Any]]:
    """A state that is equal only if all events were folded, each once, in order."""
    return castlog.reducer("everything", 1, initial=list)(everything)


class Bench:
    """Tools that note what was done, and fail as they are told."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.stop: BaseException | None = None

    def do(self, what: Any) -> Any:
        """Note that something was done."""
        self.done.append(what)
        if self.stop is not None:
            stop, self.stop = self.stop, None
            raise stop
        return {"did": what}

    @property
    def tools(self) -> dict[str, Any]:
        """The tools by name, one for each policy."""
        return {
            "ask": self.do,
            "retry": castlog.tool(in_flight="retry")(lambda what, call: [self.do(what), call.attempt]),
            "fail": castlog.tool(in_flight="fail")(lambda what: self.do(what)),
        }


@pytest.fixture
def bench() -> Bench:
    """A bench nothing was done at."""
    return Bench()


def types(branch: castlog.View) -> list[str]:
    """Return the types of a branch's events."""
    return [event.type for event in branch.events()]
