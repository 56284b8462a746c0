"""The call that started a sub-agent, looked up in the session it was made in, or in that session's other sub-agents."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from castlog import Event, NotFound, Parent, Session, Store, View
from castlog.transcripts.formats import Started

Links = Callable[[Event], Iterator[tuple[str, str]]]
_INDEXES_MAX = 32


class Parents:
    """Finds calls; keeps the indexes of the sessions it looked at last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._indexes: OrderedDict[tuple[str, int], _Index] = OrderedDict()

    def find(self, started: Started, links: Links) -> Parent | None:
        """Return the call that started a session, or None when no stored session has it."""
        session = self._store.find_origin(started.origin) if started.origin else None
        if session is None or session.deleted is not None:
            return None
        for candidate in _family(session):
            try:
                view = candidate.branch("main")
            except NotFound:
                continue
            if parent := self.find_in(view, started.keys, links):
                return parent
        return None

    def find_in(self, view: View, keys: tuple[str, ...], links: Links) -> Parent | None:
        """Return the call one of the keys leads to, in one history."""
        head = view.head
        key = (f"{head.session_id}/{head.branch}", head.seq)
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = _Index(view, links)
            if len(self._indexes) > _INDEXES_MAX:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(key)
        for call_id, seq in index.lookup(keys):
            return Parent(head.session_id, seq, call_id, view.read(seq).id)
        return None


class _Index:
    """Where the calls of a history stand, and which of them started whom."""

    def __init__(self, view: View, links: Links) -> None:
        self._calls: dict[str, int] = {}
        self._links: dict[str, str] = {}
        for event in view.events():
            if event.type == "tool_call":
                for call_id in event.call_ids:
                    self._calls.setdefault(call_id, event.seq)
            for key, call_id in links(event):
                self._links.setdefault(key, call_id)

    def lookup(self, keys: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Yield (call id, seq) of the calls the keys lead to, in the order of the keys."""
        for key in keys:
            call_id = key.removeprefix("call:") if key.startswith("call:") else self._links.get(key)
            if call_id is not None and call_id in self._calls:
                yield call_id, self._calls[call_id]


def _family(session: Session) -> Iterator[Session]:
    """Yield a session, its sub-agents, theirs, and so on."""
    waiting = [session]
    while waiting:
        found = waiting.pop(0)
        yield found
        waiting.extend(found.children())
