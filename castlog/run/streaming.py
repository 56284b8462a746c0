"""Streamed model responses: what has arrived, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Join = Callable[[Sequence[Any]], Any]


def join_text(deltas: Sequence[Any]) -> Any:
    """Return a response made of deltas: their text in one if they are texts, else the list of them."""
    if all(isinstance(delta, str) for delta in deltas):
        return {"content": "".join(deltas)}
    return {"content": list(deltas)}


class Stream:
    """The deltas of one response."""

    def __init__(self, join: Join | None) -> None:
        self._join = join or join_text
        self._deltas: list[Any] = []
        self.begun = False

    def add(self, delta: Any) -> None:
        """Take note of a delta."""
        self._deltas.append(delta)

    def whole(self, returned: Any) -> Any:
        """Return the response at its end: what the generator returned, or else the deltas joined."""
        return self._join(self._deltas) if returned is None else returned

    def partial(self) -> dict[str, Any]:
        """Return what the payload of a response that was cut short says of what had arrived."""
        if not self.begun:
            return {}
        try:
            joined = self._join(self._deltas)
        except Exception:  # it need not bear to be given half of them
            joined = join_text(self._deltas)
        return (joined if isinstance(joined, dict) else {"content": joined}) | {"partial": True}
