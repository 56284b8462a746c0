"""What branches were like after this process's last commit, kept while nobody else commits.

An append would otherwise read and decode, each time, the rows it wrote itself a moment ago. What is kept holds good in
a transaction that builds on exactly the commit it was kept at; where anything else was written it is read again.
"""

from __future__ import annotations

import threading

from castlog import limits
from castlog.engine.base import WriteTxn
from castlog.format import rows
from castlog.history import writer
from castlog.history.objects import Objects
from castlog.history.writer import State


class _Kept:
    """Heads by branch and ends by timeline: branches may share a timeline, and one that grows has grown for all."""

    def __init__(self) -> None:
        self.heads: dict[int, State] = {}
        self.tails: dict[int, rows.Tail | None] = {}


class States:
    """The states of the branches a store appends to. `of` and `keep` belong inside a write transaction."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._number = -1  # the commit at which the settled ones hold good
        self._settled = _Kept()
        self._txn: WriteTxn | None = None  # the transaction that saw the new ones, at its last change but these
        self._touched = 0
        self._new = _Kept()

    def of(self, txn: WriteTxn, branch: int) -> State:
        """Return a branch's state as the transaction sees it; raises NotFound for a deleted branch or session."""
        if txn is not self._txn:
            self._enter(txn)
        if txn.touched != self._touched:
            self._settled, self._new, self._touched = _Kept(), _Kept(), txn.touched
        new, settled = self._new, self._settled
        state = new.heads.get(branch) or settled.heads.get(branch)
        if state is None:
            state = writer.state(txn, self._objects, branch)
            new.heads[branch] = state
            new.tails[state.ref.timeline] = state.tail
            return state
        timeline = state.ref.timeline
        tail = new.tails[timeline] if timeline in new.tails else settled.tails[timeline]
        return state if tail is state.tail else State(branch, state.ref, state.session, tail, state.head_id)

    def keep(self, txn: WriteTxn, state: State) -> None:
        """Keep what an append has just made of a branch; nothing else may have been written since `of`."""
        self._new.heads[state.branch] = state
        self._new.tails[state.ref.timeline] = state.tail
        self._touched = txn.touched

    def settle(self, txn: WriteTxn) -> None:
        """Go on with what was kept in a transaction, now that it is committed."""
        with self._lock:
            if txn is not self._txn:
                return  # it kept nothing, or the next one has begun and has looked for itself
            self._txn = None
            if txn.touched == self._touched:
                self._settled.heads.update(self._new.heads)
                self._settled.tails.update(self._new.tails)
                self._number = txn.number if txn.touched else txn.number - 1  # without changes none is used up

    def _enter(self, txn: WriteTxn) -> None:
        with self._lock:
            if txn.number != self._number + 1 or len(self._settled.heads) > limits.STATES_MAX:
                self._settled = _Kept()
                self._number = txn.number - 1
            self._txn, self._touched, self._new = txn, 0, _Kept()
