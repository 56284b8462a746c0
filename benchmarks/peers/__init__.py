"""What people would use instead, each behind the same few calls. They do less than castlog, and are the measure.

`open_peers` opens those that are installed; `missing` names the others. A peer's module is imported when it is opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import msgspec

from benchmarks.peers.base import Peer, PeerMaker


class Entry(msgspec.Struct, frozen=True):
    """Where a peer's adapter is, what must be installed for it, and from which version of which package."""

    module: str
    name: str
    needs: str | None = None
    package: str | None = None


PEERS: dict[str, Entry] = {
    "lmdb": Entry("plain", "RawLmdb"),
    "jsonl": Entry("plain", "JsonLines"),
    "sqlite": Entry("plain", "Sqlite"),
    "langgraph": Entry("langgraph", "LangGraph", "langgraph.checkpoint.sqlite", "langgraph-checkpoint-sqlite"),
    "openai-agents": Entry("openai_agents", "Agents", "agents", "openai-agents"),
    "openai-agents-advanced": Entry("openai_agents", "AdvancedAgents", "agents", "openai-agents"),
    "eventsourcing": Entry("event_sourcing", "EventSourcing", "eventsourcing", "eventsourcing"),
    "git": Entry("git", "Git", "pygit2", "pygit2"),
}
PLAIN = ("lmdb", "jsonl", "sqlite")


def missing() -> dict[str, str]:
    """Return the peers that cannot be measured here, and the package each of them needs."""
    return {name: entry.package or "" for name, entry in PEERS.items() if not _is_there(entry.needs)}


def maker(name: str) -> PeerMaker:
    """Return the class of a peer (or of castlog itself); imports what it needs."""
    entry = PEERS[name] if name in PEERS else Entry("own", "Castlog")
    return cast(PeerMaker, getattr(importlib.import_module(f"benchmarks.peers.{entry.module}"), entry.name))


@contextmanager
def open_peers(folder: Path, names: Sequence[str], *, number: int = 0) -> Iterator[Mapping[str, Peer]]:
    """Open castlog and the named peers, each in a folder of its own, and close them at the end."""
    with ExitStack() as stack:
        opened: dict[str, Peer] = {}
        for name in ("castlog", *names):
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            opened[name] = maker(name)(place, number)
            stack.callback(opened[name].close)
        yield opened


def _is_there(module: str | None) -> bool:
    if module is None:
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is not there
        return False
