"""What came of a call, and how each kind of call is kept in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from castlog.event import Event


class Result:
    """What came of a tool, model or hook call: `ok`, its `output`, or the `error` in words.

    A tool's output is what the function returned, as JSON gives it back; a model's or hook's is the payload of its
    `model_response` or `hook_decision`. A result may still be on its way to the disk while nobody has looked at it: the
    first look waits until it is durable, and raises Unavailable when it could not be kept.
    """

    __slots__ = ("_facts", "_find")
    __match_args__ = ("ok", "output", "error")

    def __init__(self, ok: bool, output: Any = None, error: str | None = None) -> None:
        self._facts: tuple[bool, Any, str | None] | None = (ok, output, error)
        self._find: Callable[[], Result] | None = None

    @classmethod
    def later(cls, find: Callable[[], Result]) -> Result:
        """Return a result that `find` gives once it is looked at."""
        result = cls(False)
        result._facts, result._find = None, find
        return result

    @property
    def ok(self) -> bool:
        """Whether the call did what it should."""
        return self._look()[0]

    @property
    def output(self) -> Any:
        """What it returned; of a failed model call, what arrived of the response."""
        return self._look()[1]

    @property
    def error(self) -> str | None:
        """Why it failed, or None."""
        return self._look()[2]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._look())

    def __eq__(self, other: object) -> bool:
        return self._look() == other._look() if isinstance(other, Result) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # the output may be a list

    def __repr__(self) -> str:
        ok, output, error = self._look()
        return f"Result(ok={ok}, output={output!r})" if error is None else f"Result(ok={ok}, error={error!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, self._look()

    def _look(self) -> tuple[bool, Any, str | None]:
        facts = self._facts
        if facts is None:
            assert self._find is not None
            facts = self._facts = self._find()._look()
        return facts


class Kind(msgspec.Struct, frozen=True):
    """A kind of call: the types of its two events, and the payload in which what it returned is kept."""

    call: str
    result: str
    keep: Callable[[Any], Any]
    whole: bool = True  # whether the output is the payload itself

    def read(self, answer: Event) -> Result:
        """Return the result that an event holds."""
        payload = answer.payload
        if not isinstance(payload, dict):
            return Result(True, payload)
        ok = payload.get("ok") is not False
        output = payload if self.whole else payload.get("output")
        return Result(ok, output, None if ok else str(payload.get("error", "failed")))


TOOL = Kind("tool_call", "tool_result", lambda value: {"ok": True, "output": value}, whole=False)
MODEL = Kind("model_request", "model_response", lambda value: value if isinstance(value, dict) else {"content": value})
HOOK = Kind(
    "hook_call",
    "hook_decision",
    lambda value: value if isinstance(value, dict) and "decision" in value else {"decision": value},
)
KINDS = {kind.call: kind for kind in (TOOL, MODEL, HOOK)}


def failure(error: BaseException | str) -> dict[str, Any]:
    """Return what the payload of a failed call says."""
    if isinstance(error, str):
        return {"ok": False, "error": error}
    kind, words = type(error).__name__, str(error)
    text = f"{kind}: {words}" if words else kind
    # File names that are no UTF-8 hold lone surrogates, which no log can keep.
    return {"ok": False, "error": text.encode("utf-8", "backslashreplace").decode("utf-8")}


def interruption(stop: BaseException) -> dict[str, Any]:
    """Return what the payload of an interrupted call says."""
    return failure(stop) | {"interrupted": True}
