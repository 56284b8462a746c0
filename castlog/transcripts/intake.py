"""One file into one session: what is there already is passed over, what is new is appended, bytes in are bytes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from castlog import Damage, Draft, Session, Store
from castlog.ops.source import DAMAGED, PADDING, gap_payload
from castlog.transcripts.formats import Format, Reader
from castlog.transcripts.head import Head
from castlog.transcripts.lines import LINE_BYTES_MAX, lines
from castlog.transcripts.match import Matcher
from castlog.transcripts.place import Place, keep_end, settle, settle_whole
from castlog.transcripts.source import Source
from castlog.transcripts.split import Gap, Record, Token, split
from castlog.transcripts.write import Writer


class Taken(NamedTuple):
    """What came of a file: `seq` of `branch` is its last event, `start` its first."""

    branch: str
    seq: int
    start: int
    events: int
    added: int
    status: str
    note: str
    damaged: tuple[Damage, ...]


class Intake:
    """The taking in of one file."""

    def __init__(self, store: Store, session: Session, reader: Reader, source: Source, ts: int) -> None:
        self._session = session
        self._reader = reader
        self._source = source
        self._matcher = Matcher(store, session)
        self._writer: Writer | None = None
        self._ts = ts
        self._version: str | None = None
        self._start = 1
        self._events = 0
        self._ends_in_gap = False
        self._damaged: list[Damage] = []

    def run(self, chunks: Iterable[bytes]) -> Taken:
        """Take in the whole content; durable on return. Raises Conflict when somebody else appends meanwhile."""
        tokens = split(lines(chunks, bytes_max=LINE_BYTES_MAX), resembles=self._reader.resembles, known=self._is_known)
        token = next(tokens, None)
        while token is not None and self._agrees(token):
            token = next(tokens, None)
        if token is None:
            return self._taken(settle_whole(self._matcher, self._source))
        place, tokens = self._part(token, tokens)
        self._writer = Writer(place.branch, self._matcher.seq)
        for token in tokens:
            self._write(token, self._writer)
        self._writer.finish(at_end=place.status == "new")
        return self._taken(place)

    def _is_known(self, line: bytes) -> bool:
        return self._writer is None and self._matcher.expects(line)

    def _agrees(self, token: Token) -> bool:
        """Move over an event that is stored already; False at the first that is not."""
        event = self._matcher.step(token)
        if event is None and self._events == 0 and isinstance(token, Record) and self._finds_place(token):
            event = self._matcher.step(token)
        if event is None:
            return False
        self._ts = event.ts
        self._version = event.harness_version or self._version
        if isinstance(token, Record):
            self._reader.recall(event)
        self._count(token)
        return True

    def _finds_place(self, token: Record) -> bool:
        """Move to where a file belongs that goes on from a row stored before."""
        anchor = self._reader.anchor
        if anchor is None or not self._matcher.branch.head.seq:
            return False
        found = self._matcher.find(token, anchor, self._reader.row_id)
        self._start = self._matcher.seq + 1
        return found

    def _part(self, token: Token, rest: Iterator[Token]) -> tuple[Place, Iterator[Token]]:
        """Return the place for what is new, and all of it."""
        following = next(rest, None) if isinstance(token, Gap) else None
        only_an_end = isinstance(token, Gap) and following is None and self._matcher.seq > 0
        place = settle(self._matcher, source=self._source, only_an_end=only_an_end)
        return place, chain([token], [] if following is None else [following], rest)

    def _write(self, token: Token, writer: Writer) -> None:
        self._count(token)
        if isinstance(token, Gap):
            payload = gap_payload(
                token.raw, file=self._source.name, line=token.line, offset=token.offset, reason=token.reason
            )
            kind = DAMAGED if token.damaged else PADDING
            draft = Draft(kind, payload, ts=self._ts, schema=1, harness_version=self._version)
            writer.put(draft, len(token.raw), kind)
            return
        facts = self._reader.read(token.raw)
        self._ts = self._ts if facts.ts is None else facts.ts
        self._version = facts.harness_version or self._version
        if facts.rewind:
            self._keep_rewound(facts.rewind, writer)
        draft = Draft(
            facts.type,
            token.payload,
            ts=self._ts,
            schema=1,
            call_ids=facts.call_ids,
            harness_version=self._version,
        )
        writer.put(draft, len(token.raw), f"{self._session.labels.get('format', 'foreign')}.record")

    def _keep_rewound(self, name: str, writer: Writer) -> None:
        """Make the branch that keeps the history up to here, which the next record abandons."""
        writer.flush()
        if name not in {branch.name for branch in self._session.branches()} | set(self._session.tags()):
            writer.branch.fork(name, at=writer.seq)

    def _count(self, token: Token) -> None:
        self._events += 1
        self._ends_in_gap = isinstance(token, Gap)
        if isinstance(token, Gap) and token.damaged:
            self._damaged.append(Damage(token.line, token.offset, token.reason))

    def _taken(self, place: Place) -> Taken:
        if self._source.fault:
            self._damaged.append(Damage(0, 0, self._source.fault))
        seq = self._matcher.seq if self._writer is None else self._writer.seq
        branch = place.branch
        if self._ends_in_gap and branch.head.seq == seq:
            branch = keep_end(self._session, branch)
        note = place.note
        if self._start > 1:
            note = "; ".join(filter(None, [f"goes on from {place.branch.name}@{self._start - 1}", note]))
        return Taken(
            branch.name,
            seq,
            self._start,
            self._events,
            seq - self._matcher.seq,
            place.status,
            note,
            tuple(self._damaged),
        )


def first_time(fmt: Format, head: Head) -> int:
    """Return the first time the head's records name, or when the file was last written."""
    reader = fmt.reader(head)
    for record in head.records:
        if (ts := reader.read(msgspec.json.encode(record)).ts) is not None:
            return ts
    return head.source.mtime
