"""The one table from what went wrong to exit code and hint, and how an error is told.

Sentences come from where the error was raised. A hint for one case travels as the fact `hint`; the table has the rest.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, NamedTuple

import click

from .text import clean

USAGE, NOT_FOUND, INVALID, CONFLICT, CORRUPT, UNAVAILABLE, LOSSES, INTERRUPTED = 2, 3, 4, 5, 6, 7, 8, 130
SOMETHING_FOUND = 1
TERMINATED = 143  # 128 + SIGTERM, as a shell reports it
PIPE_CLOSED = 141  # 128 + SIGPIPE, likewise
BROKEN = 70  # a mistake of ours; EX_SOFTWARE of sysexits.h

_KINDS = {
    "NotFound": (
        "not_found",
        NOT_FOUND,
        "castlog sessions lists what is there; castlog branch and castlog tag list names.",
    ),
    "Invalid": ("invalid", INVALID, None),
    "Conflict": ("conflict", CONFLICT, "castlog branch, castlog tag and castlog log show what is there now."),
    "Corrupt": ("corrupt", CORRUPT, "castlog verify lists what is damaged; all else stays readable."),
    "Unavailable": ("unavailable", UNAVAILABLE, None),
    "InFlight": ("in_flight", SOMETHING_FOUND, "castlog resume shows what is in flight, and takes decisions."),
    "Diverged": ("diverged", SOMETHING_FOUND, None),
}
_FILE_ERRORS = {
    errno.ENOENT: ("not_found", NOT_FOUND),
    errno.EEXIST: ("conflict", CONFLICT),
    errno.EISDIR: ("invalid", INVALID),
    errno.ENOTDIR: ("invalid", INVALID),
    errno.ENAMETOOLONG: ("invalid", INVALID),
}


class Told(NamedTuple):
    """What is said about an error: its kind and exit code, a sentence, a hint, and facts for programs."""

    kind: str
    code: int
    message: str
    hint: str | None = None
    facts: dict[str, Any] | None = None

    def text(self) -> str:
        """Return the lines a person reads."""
        hint = f"\nhint: {clean(self.hint)}" if self.hint else ""
        return f"castlog: {clean(self.message)}{hint}"

    def fields(self) -> dict[str, Any]:
        """Return the object a program reads."""
        return {
            "error": self.kind,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "facts": self.facts or {},
        }


def tell(error: BaseException) -> Told | None:
    """Return what to say about an error, or None for one that is no business of the person at the keyboard."""
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        return Told("usage", USAGE, error.format_message())
    if isinstance(error, KeyboardInterrupt):
        return Told("interrupted", INTERRUPTED, "interrupted")
    if isinstance(error, OSError):
        return _system(error)
    castlog = sys.modules.get("castlog")  # an error of its own means that it was imported
    if castlog is not None and isinstance(error, castlog.Error):
        return _ours(error)
    return None


def _ours(error: Any) -> Told:
    kind, code, hint = next(_KINDS[base.__name__] for base in type(error).__mro__ if base.__name__ in _KINDS)
    facts = {name: value for name, value in error.facts.items() if name != "hint"}
    message = str(error)
    if "`castlog " in message:  # it says itself what to do
        hint = None
    elif _is_bytes(error.facts.get("value")):
        hint = "What was typed holds bytes that are no UTF-8; write it in UTF-8, as your terminal does by default."
    return Told(kind, code, message, error.facts.get("hint", hint), facts)


def _is_bytes(value: object) -> bool:
    """Return whether a word from the command line holds bytes Python could not decode."""
    return isinstance(value, str) and any("\udc80" <= char <= "\udcff" for char in value)


def _usage(error: click.UsageError) -> Told:
    message = error.format_message()
    if error.ctx is None:
        return Told("usage", USAGE, message, "castlog --help lists the commands.")
    usage = " ".join(error.ctx.get_usage().split())
    hint = getattr(error, "hint", None) or f"{usage}. More: {error.ctx.command_path} --help"
    return Told("usage", USAGE, message, hint)


def _system(error: OSError) -> Told:
    kind, code = _FILE_ERRORS.get(error.errno or 0, ("unavailable", UNAVAILABLE))
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = f"{error.filename}: " if error.filename else ""
    hint = "Free some space; nothing more was written." if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    return Told(kind, code, f"{where}{reason}.", hint, {"errno": error.errno})
