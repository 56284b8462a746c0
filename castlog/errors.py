"""The words for failure: one root and a branch for each thing a caller would do next.

Facts are attributes, the message is one sentence. This module knows nothing of the rest of castlog.
"""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """The root of everything castlog raises on purpose.

    Keyword arguments become attributes and are listed in `facts`, so that a program need not parse the sentence.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no fact {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), str(self), self.facts))


class NotFound(Error):
    """What was named does not exist here: look elsewhere."""


class Invalid(Error):
    """The input cannot be taken: mend it. Nothing was written."""


class Conflict(Error):
    """Somebody else moved or holds it: read again and retry."""


class Corrupt(Error):
    """Stored bytes are not what was written: stop and verify."""


class Unavailable(Error):
    """The store cannot serve this now: free space, reopen, or upgrade."""


class InFlight(Error):
    """Calls were begun and never answered, and a person must decide about some: see `calls` and `plan`."""


class Diverged(Error):
    """A step is not the one that was recorded: see `step` and `recorded`."""


def _rebuild(kind: type[Error], message: str, facts: dict[str, Any]) -> Error:
    return kind(message, **facts)
