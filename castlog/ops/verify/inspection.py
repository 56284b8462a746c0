"""One run of `verify`: what all its checks share. Knows no table; it counts, collects and says how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from castlog import limits
from castlog.core import Core
from castlog.engine.base import ReadTxn
from castlog.errors import Corrupt, Unavailable
from castlog.event import Progress
from castlog.format import ids, rows
from castlog.history import pieces, tables
from castlog.history.objects import Objects
from castlog.ops.verify.findings import Findings
from castlog.ops.verify.inventory import Inventory, PieceIndex

T = TypeVar("T")

# What damage looks like from here: a broken page also makes the transaction that met it useless for what follows.
DAMAGE = (Corrupt, Unavailable)

_COUNTED = ("sessions", "references", "timelines", "chunks", "events")
_COUNTED_IN_STORES = ("pieces", "objects")  # no session owns them


class Totals(msgspec.Struct):
    """What a session's events, or its branches' counts, add up to. `complete` is off when some could not be read.

    With `redacted` events among them the size is of what remains, and the branches' counts are of what was written.
    """

    events: int = 0
    size: int = 0
    active: int | None = None
    complete: bool = True
    redacted: bool = False

    def add(self, events: int, size: int, active: int) -> None:
        """Take in some events and the newest of their times."""
        self.events += events
        self.size += size
        self.active = active if self.active is None else max(self.active, active)

    def agrees(self, said: Totals) -> bool:
        """Return whether branches that count this much may have written these events."""
        return (self.events, self.active) == (said.events, said.active) and (self.redacted or self.size == said.size)


class Inspection:
    """The state of one run. `only` is the session it is confined to, or None.

    It reads objects through a cache of its own: what the store's handles keep decoded may be from before the damage.
    """

    def __init__(
        self, core: Core, only: bytes | None, *, deep: bool, progress: Callable[[Progress], None] | None
    ) -> None:
        self.core = core
        self.only = only
        self.deep = deep
        self.objects = Objects(core.objects.secret)
        self.findings = Findings()
        self.checked = dict.fromkeys(_COUNTED if only else _COUNTED + _COUNTED_IN_STORES, 0)
        self.inventory = Inventory()
        self.pieces = PieceIndex()
        self.by_events: dict[bytes, Totals] = {}
        self.by_branches: dict[bytes, Totals] = {}
        self.trash: set[tuple[bytes, int]] = set()
        self.whole = True  # off when the row of a branch or timeline is damaged, so that nobody knows whose it is
        self.moved = False  # on when pieces were met no more where they had been
        self.parents: dict[bytes, list[tuple[bytes, rows.ParentCall]]] = {}
        self.keyed: dict[bytes, int] = {}
        self.highest = dict.fromkeys(("branch", "timeline", "object", "trashed"), 0)
        self.expected_events = 0
        self._progress = progress
        self._reported: set[str] = set()
        self._folded = 0
        with core.read() as txn:
            found = self.attempt(lambda: tables.get(txn, rows.COUNTERS))
        self.counters = found or rows.Counters()

    def found(self, name: str, message: str, rev: str | None = None) -> None:
        """Keep a finding."""
        self.findings.add(name, message, rev)

    def damaged(self, exc: Exception, rev: str | None = None) -> None:
        """Keep what was raised as a finding; a row that several checks meet is reported once."""
        facts = getattr(exc, "facts", {})
        if "table" in facts:
            if facts["key"] not in self._reported:
                self._reported.add(facts["key"])
                self.found("damaged_row", f"{exc} (key {facts['key']})", rev)
        elif "object" in facts:
            self.found("damaged_object", str(exc), rev)
        else:
            self.found("damaged_pages", str(exc), rev)

    def attempt(self, check: Callable[[], T], rev: str | None = None) -> T | None:
        """Return what `check` returns, or None when it meets damage, which becomes a finding."""
        try:
            return check()
        except DAMAGE as exc:
            self.damaged(exc, rev)
            return None

    def session(self, txn: ReadTxn, session: bytes) -> rows.Session | None:
        """Return a session's row, or None; raises Corrupt."""
        return tables.get(txn, rows.SESSIONS, session)

    def in_trash(self, txn: ReadTxn, session: bytes, branch: int) -> bool:
        """Return whether a branch (0: the session) lies in the trash, which is read again before this says no."""
        entry = (session, branch)
        return entry in self.trash or any((row.session, row.branch) == entry for _, row in tables.scan(txn, rows.TRASH))

    def fetch(self, digests: Sequence[bytes]) -> bytes:
        """Return the payload that pieces make up, in a transaction of its own; raises Corrupt."""
        with self.core.read() as txn:
            return pieces.join(txn, self.objects, digests)

    def use_number(self, kind: str, number: int) -> None:
        """Note a number in use, to be compared with the counters."""
        self.highest[kind] = max(self.highest[kind], number)

    def count(self, what: str, by: int = 1) -> None:
        """Count what was checked."""
        self.checked[what] += by

    def tell(self, session: bytes) -> None:
        """Say how many events were checked so far."""
        if self._progress is not None:
            self._progress(Progress(self.checked["events"], self.expected_events, "events", ids.show_session(session)))

    def tell_folded(self, session: bytes) -> None:
        """Count an event that was folded, and say now and then how many there were."""
        self._folded += 1
        if self._progress is not None and self._folded % limits.VERIFY_BATCH_ROWS == 0:
            self._progress(Progress(self._folded, None, "events folded", ids.show_session(session)))
