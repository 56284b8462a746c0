"""What a transcript format is: a plug-in module that recognises a file and says what its records mean.

A plug-in is a module registered under the entry point group `castlog.transcripts`, its name the format's name. It has
`sniff(head) -> float`, how sure it is from 0 to 1 that a file is its own, and a class `Reader` based on the one here.
A reader never raises over what it is given: a record it cannot make sense of is kept under an opaque type.
"""

from __future__ import annotations

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import msgspec

from castlog import Event, Invalid
from castlog.transcripts.head import Head

GROUP = "castlog.transcripts"
CASTLOG = "castlog"
OPAQUE = "jsonl"
_BUILT_IN = {
    "claude_code": "castlog.transcripts.claude_code",
    "codex": "castlog.transcripts.codex",
    OPAQUE: "castlog.transcripts.opaque",
}


class Started(msgspec.Struct, frozen=True):
    """What started a sub-agent's session: a call in the session `origin`, the first that one of `keys` leads to.

    A key is `call:` and a call id, or any other text under which `Reader.links` lists the call.
    """

    origin: str
    keys: tuple[str, ...] = ()


class SessionFacts(msgspec.Struct, frozen=True):
    """What a session is made with. `started` is None for one that no call started."""

    origin: str
    title: str
    labels: dict[str, str] = {}
    started: Started | None = None


class Facts(NamedTuple):
    """What is derived from one record. `ts` None: the time of the record before it.

    `rewind` names a branch for the history up to the record before this one, the end of which this one replaces.
    """

    type: str
    call_ids: tuple[str, ...] = ()
    ts: int | None = None
    harness_version: str | None = None
    rewind: str | None = None


class Reader(ABC):
    """The meaning of one file's records, told one by one in file order."""

    def __init__(self, head: Head) -> None:
        self.head = head

    @abstractmethod
    def session(self) -> SessionFacts:
        """Return what the head says about the session the file belongs to."""

    @abstractmethod
    def read(self, raw: bytes) -> Facts:
        """Return what one record means; it is then part of what the reader has seen."""

    def recall(self, event: Event) -> None:  # noqa: B027 - most formats have nothing to remember
        """Take a record that is stored already as seen."""

    @abstractmethod
    def resembles(self, value: dict[str, Any]) -> bool:
        """Return whether an object found behind damage looks like a record of this file."""

    def title(self) -> str:
        """Return the best title among the records seen so far, or ""."""
        return ""

    @property
    def anchor(self) -> str | None:
        """The row id that the file's first row names as its parent, when the file does not hold that row."""
        return None

    @property
    def beginning(self) -> str | None:
        """What two sessions share when one was copied from the other, or None."""
        return None

    @staticmethod
    def row_id(raw: bytes) -> str | None:
        """Return the id that rows of the main line carry, or None."""
        return None

    @staticmethod
    def links(event: Event) -> Iterator[tuple[str, str]]:
        """Yield (key, call id) for each sub-agent a stored event says a call has started."""
        return iter(())

    @staticmethod
    def side_chains() -> SideChains | None:
        """Return the tool that finds sub-agents' conversations among a session's events, if there can be any."""
        return None


class SideChains(Protocol):
    """Conversations of sub-agents recorded among the rows of the session that started them."""

    types: frozenset[str]

    def place(self, event: Event, origin: str) -> tuple[str, SessionFacts | None, Facts] | None:
        """Return the chain a stored event belongs to, the session to make if it is new, and what the record means."""


class Format(NamedTuple):
    """A plug-in, loaded."""

    name: str
    module: Any

    def sniff(self, head: Head) -> float:
        """Return how sure the plug-in is that a file is its own."""
        return float(self.module.sniff(head))

    def reader(self, head: Head) -> Reader:
        """Return a reader for the file with this head."""
        reader: Reader = self.module.Reader(head)
        return reader


def formats() -> dict[str, Format]:
    """Return every format by name: castlog's own and those of installed packages. What cannot be loaded is left out."""
    found = {name: Format(name, importlib.import_module(module)) for name, module in _BUILT_IN.items()}
    for entry in entry_points(group=GROUP):
        if entry.name in found or entry.name == CASTLOG:
            continue
        try:
            found[entry.name] = Format(entry.name, entry.load())
        except (ImportError, AttributeError) as exc:
            warnings.warn(f"the transcript format {entry.name!r} cannot be loaded: {exc}", RuntimeWarning, stacklevel=2)
    return found


def format_named(name: str) -> Format:
    """Return the format of this name; raises Invalid, listing those there are."""
    known = formats()
    if name not in known:
        names = ", ".join(sorted([CASTLOG, *known]))
        raise Invalid(f"there is no transcript format {name!r}; known are {names}", value=name)
    return known[name]
