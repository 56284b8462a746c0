"""Reducers as people name them: MODULE:NAME, imported from the current folder too, and what their mistakes look like.

Nothing is imported before a command runs: a shell that completes a line must not run anybody's module.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, NamedTuple

import click

import castlog

from .text import cut, flat

DEFAULT = "castlog.reducers.conversation:conversation"
_OWN_BUSINESS = frozenset(["fold"])  # what the default reducer goes by itself, says its docstring
_TOLD_EVENTS = 256
FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

option = click.option(
    "--reducer",
    metavar="MODULE:NAME",
    default=DEFAULT,
    help="What folds events into state; its module may lie in this folder. Default: castlog.conversation.",
)


class Loaded(NamedTuple):
    """A reducer, and how its states are told in a line: by its module's `describe`, if it has one.

    `hidden` are the keys of its states that say nothing to people.
    """

    reducer: castlog.Reducer[Any]
    describe: Callable[[Any], str] | None
    hidden: frozenset[str] = frozenset()

    def line(self, state: Any, width: int) -> str:
        """Return a state in a line: as its module describes it, else as JSON in at most `width` columns."""
        if self.describe is not None:
            with suppress(Exception):  # it may be meant for another reducer of its module
                return flat(self.describe(state))
        return cut(flat(self.reducer.encode(state).decode()), width)


def load(text: str) -> Loaded:
    """Return the reducer that MODULE:NAME names; raises a usage error in a sentence for anything else."""
    module, found = find(text, "--reducer")
    if not isinstance(found, castlog.Reducer):
        raise _wrong(f"{text} is {_kind(found)}, no reducer; @castlog.reducer makes one of a function.", "--reducer")
    describe = getattr(module, "describe", None)
    hidden = _OWN_BUSINESS if text == DEFAULT else frozenset()
    return Loaded(Told(found), describe if callable(describe) else None, hidden)


def find(text: str, option_name: str) -> tuple[ModuleType, Any]:
    """Return the module and the thing in it that MODULE:NAME names, looked for in the current folder first."""
    if not FORM.fullmatch(text):
        raise _wrong(f"{text!r} is not MODULE:NAME, such as my_agent.state:plan.", option_name)
    name, _, attribute = text.partition(":")
    try:
        with _current_folder():
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _wrong(
                f"There is no module {error.name} in this folder or among those installed.", option_name
            ) from None
        raise _wrong(f"Importing {name} fails: {_said(error)}.", option_name) from error
    except (Exception, SystemExit) as error:
        raise _wrong(f"Importing {name} fails: {_said(error)}.", option_name) from error
    if not hasattr(module, attribute):
        raise _wrong(f"The module {name} has no {attribute}.", option_name)
    return module, getattr(module, attribute)


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Tell what somebody's own code raises as the mistake of that code, and where in it."""
    try:
        yield
    except castlog.Error:
        raise
    except Exception as error:
        raise castlog.Invalid(f"{what} raised {_said(error)}") from error


class Told(castlog.Reducer[Any]):
    """A reducer of somebody's, whose exceptions are told as its own, with the event they come at.

    `progress`, where there is one, learns how many events were folded.
    """

    def __init__(self, inner: castlog.Reducer[Any], progress: Callable[[castlog.Progress], None] | None = None) -> None:
        self._inner = inner
        self._progress = progress
        self._folded = 0
        self.name, self.version = inner.name, inner.version

    def initial(self) -> Any:
        """Return the state of an empty history."""
        with blaming(f"the reducer {self.name}, making its first state,"):
            return self._inner.initial()

    def fold(self, state: Any, event: castlog.Event) -> Any:
        """Return the state after an event."""
        if self._progress is not None:
            self._folded += 1
            if self._folded % _TOLD_EVENTS == 0:
                self._progress(castlog.Progress(self._folded, None, "events"))
        with blaming(f"the reducer {self.name}, at seq {event.seq} ({event.type}),"):
            return self._inner.fold(state, event)

    def encode(self, state: Any) -> bytes:
        """Return a state as JSON bytes."""
        try:
            with blaming(f"the reducer {self.name}, encoding a state,"):
                return self._inner.encode(state)
        except castlog.Invalid as error:
            raise castlog.Invalid(f"a state of {self.name} cannot be kept: {error}", **error.facts) from error

    def decode(self, data: bytes) -> Any:
        """Return the state of JSON bytes."""
        return self._inner.decode(data)


@contextmanager
def _current_folder() -> Iterator[None]:
    """Look into the current folder first while something is imported, and last afterwards: it must hide nothing."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _said(error: BaseException) -> str:
    """Return an exception as `KeyError: 'x' (agent.py, line 12)`."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{flat(''.join(traceback.format_exception_only(error)))}{where}"


def _kind(value: Any) -> str:
    return "a function" if callable(value) and hasattr(value, "__code__") else f"a {type(value).__name__}"


def _wrong(message: str, option_name: str) -> click.BadParameter:
    return click.BadParameter(message, click.get_current_context(silent=True), param_hint=f"'{option_name}'")
