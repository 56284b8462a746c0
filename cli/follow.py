"""Following what is appended: one branch through its moves, or all branches of all sessions."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import castlog

_POLL_SECONDS = 0.25
_PAGE = 50


def branch(followed: castlog.Branch, after: int, note: Callable[[str], None]) -> Iterator[castlog.Event]:
    """Yield events of a branch from `after` on, for ever; if it is moved, `note` says so and it goes on from there."""
    while True:
        try:
            for event in followed.follow(after=after):
                after = event.seq
                yield event
        except castlog.Conflict:
            after = followed.head.seq
            note(f"{followed.name} was moved and is at {after} now")


class Watch:
    """All branches of all sessions, and how far each has been shown.

    Heads are read at the start only for sessions with several branches: with one, the count of events tells where it
    was, and ten thousand sessions cost one listing.
    """

    def __init__(self, store: castlog.Store) -> None:
        self._store = store
        self._marks: dict[str, _Mark] = {}
        self._heads: dict[tuple[str, str], int] = {}
        for session in store.sessions():
            self._marks[session.id] = _mark(session)
            if session.info.branches > 1:
                self._heads |= {(session.id, node.name): node.seq for node in session.tree()}

    def last(self, count: int) -> list[castlog.Event]:
        """Return the last `count` events of the store by time, oldest first, each shared one once."""
        found: dict[str, castlog.Event] = {}
        for session in self._store.sessions(limit=max(count, 1)):
            for node in session.tree():
                start = max(node.seq - count, node.fork_seq)
                found |= {event.id: event for event in session.branch(node.name).events(start + 1, node.seq)}
        return heapq.nlargest(count, found.values(), key=lambda event: (event.ts, event.seq))[::-1]

    def live(self) -> Iterator[castlog.Event]:
        """Yield events as they are appended anywhere, for ever."""
        while True:
            for session in self._changed():
                yield from self._news(session)
            time.sleep(_POLL_SECONDS)

    def _changed(self) -> list[castlog.Session]:
        """Return sessions with activity since the last look; they stand first in the list."""
        changed: list[castlog.Session] = []
        offset = 0
        while page := self._store.sessions(limit=_PAGE, offset=offset):
            fresh = [session for session in page if self._marks.get(session.id) != _mark(session)]
            changed += fresh
            offset += len(page)
            if len(fresh) < len(page):
                break
        return changed[::-1]

    def _news(self, session: castlog.Session) -> Iterator[castlog.Event]:
        before, now = self._marks.get(session.id), _mark(session)
        nodes = session.tree()
        for node in nodes:
            known = self._heads.get((session.id, node.name))
            if known is None:
                alone = before is not None and before.branches == 1 and node.parent is None
                known = node.seq - (now.events - before.events) if before and alone else node.fork_seq
            if node.seq > known:
                yield from session.branch(node.name).events(max(known, 0) + 1, node.seq)
            self._heads[session.id, node.name] = node.seq
        self._marks[session.id] = now


class _Mark(NamedTuple):
    """What of a session's row changes when something happens in it."""

    activity: int
    events: int
    branches: int


def _mark(session: castlog.Session) -> _Mark:
    return _Mark(session.info.activity, session.info.events, session.info.branches)
