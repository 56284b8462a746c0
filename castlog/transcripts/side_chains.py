"""Conversations of sub-agents that stand among the records of the session that started them, made into sessions.

They are read from the stored log, not from the file, so that it does not matter how the log came about.
"""

from __future__ import annotations

from castlog import Branch, Draft, Raw, Store
from castlog.transcripts.formats import Facts, Reader
from castlog.transcripts.match import Matcher
from castlog.transcripts.owners import open_session
from castlog.transcripts.parents import Parents
from castlog.transcripts.place import settle
from castlog.transcripts.split import Record
from castlog.transcripts.write import BATCH_BYTES, Writer


def take_side_chains(store: Store, parents: Parents, branch: Branch, until: int, origin: str, reader: Reader) -> int:
    """Bring the sessions of all side chains among a branch's events up to date; return how many events that took."""
    chains = reader.side_chains()
    if chains is None:
        return 0
    open_chains: dict[str, _Chain] = {}
    for event in branch.events(until=until, types=chains.types):
        placed = chains.place(event, origin)
        if placed is None:
            continue
        name, facts, meaning = placed
        if name not in open_chains and facts is not None:
            session, _ = open_session(store, parents, facts, reader.links)
            open_chains[name] = _Chain(Matcher(store, session))
        if name in open_chains:
            open_chains[name].put(event.raw, meaning)
        if sum(found.pending_bytes for found in open_chains.values()) > BATCH_BYTES:
            for found in open_chains.values():
                found.flush()
    for found in open_chains.values():
        found.flush()
    return sum(found.added for found in open_chains.values())


class _Chain:
    """One side chain on its way into its session."""

    def __init__(self, matcher: Matcher) -> None:
        self.added = 0
        self._matcher = matcher
        self._writer: Writer | None = None

    @property
    def pending_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.pending_bytes

    def put(self, raw: bytes, facts: Facts) -> None:
        if self._writer is None:
            if self._matcher.step(Record(Raw(raw), 0, 0)):
                return
            place = settle(self._matcher, source=None, only_an_end=False)
            self._writer = Writer(place.branch, self._matcher.seq)
        draft = Draft(
            facts.type,
            Raw(raw),
            ts=facts.ts,
            schema=1,
            call_ids=facts.call_ids,
            harness_version=facts.harness_version,
        )
        self._writer.put(draft, len(raw), "foreign.record")
        self.added += 1

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()
