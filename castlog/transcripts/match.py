"""A file beside what is stored of it: the session's branches are walked forward record by record, as one tree.

Branches of a session share their beginnings. The walk stays on one branch while it agrees with the file, and changes to
another only where they part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from castlog import Branch, Event, NotFound, Session, Store
from castlog.ops.source import gap_bytes
from castlog.transcripts.split import Gap, Record, Token

_GOES_ON = re.compile(r"main(-[2-9]|-[1-9]\d+)?")
_CAPTURE = re.compile(r"capture-\d+(-\d+)?")


class Parting(NamedTuple):
    """A place where a file and a branch part: after `seq` events of `branch`, at the offset `end` of the file.

    `after_record` says whether the last of them is a record of this file, so that a newline is due before the next.
    """

    branch: Branch
    seq: int
    end: int
    after_record: bool


class Matcher:
    """How far a file agrees with a session's branches: `seq` events of `branch`.

    `left` lists where the walk changed to another branch.
    """

    def __init__(self, store: Store, session: Session) -> None:
        self.session = session
        self.left: list[Parting] = []
        self._end = 0
        self._after_record = False
        self._store = store
        self._candidates = _candidates(session)
        self.jump(self._candidates[0], 0)

    @property
    def here(self) -> Parting:
        """Where the walk has come."""
        return Parting(self.branch, self.seq, self._end, self._after_record)

    def jump(self, branch: Branch, seq: int) -> None:
        """Go on from another place."""
        self.branch = branch
        self.seq = seq
        self._events = branch.events(seq + 1)
        self._next = next(self._events, None)

    def expects(self, line: bytes) -> bool:
        """Return whether the next event on the branch is a record of just these bytes."""
        return self._next is not None and self._next.size == len(line) and self._next.raw == line

    def step(self, token: Token) -> Event | None:
        """Move over the event that is this record or gap and return it; None when no branch has it next."""
        if self._next is None or not _same(self._next, token):
            for other in self.sharing():
                if other.head.seq > self.seq and _same(other.read(self.seq + 1), token):
                    self.left.append(self.here)
                    self.jump(other, self.seq)
                    break
            else:
                return None
        event = self._next
        self.seq += 1
        self._after_record = isinstance(token, Record)
        self._end = token.offset + len(token.raw) if isinstance(token, Record) else self._end + len(token.raw)
        self._next = next(self._events, None)
        return event

    def sharing(self) -> list[Branch]:
        """Return the branches that hold all that matched so far, this one first."""
        others = [branch for branch in self._candidates if branch != self.branch]
        return [self.branch, *(branch for branch in others if self._shares(branch))]

    def find(self, token: Record, row: str, row_id: Callable[[bytes], str | None]) -> bool:
        """Move to where a file belongs that goes on after the row `row` of this session, if the row is stored.

        That is before the event which is the file's first record, if the file was imported before; else after the last
        event when no other row follows `row`, else right after `row`.
        """
        for branch in self._candidates:
            after = 0
            for event in branch.events():
                if after and _same(event, token):
                    self.jump(branch, event.seq - 1)
                    return True
                if after and row_id(event.raw):
                    self.jump(branch, after)
                    return True
                if row.encode() in event.raw and row_id(event.raw) == row:
                    after = event.seq
            if after:
                self.jump(branch, _end_of_records(branch))
                return True
        return False

    def _shares(self, other: Branch) -> bool:
        base = self._store.merge_base(self.branch, other) if self.seq else None
        return self.seq == 0 or (base is not None and base.seq >= self.seq)


def is_capture(branch: Branch) -> bool:
    """Return whether a branch keeps an older capture of a file, and is not to be appended to."""
    return _CAPTURE.fullmatch(branch.name) is not None


def _same(event: Event, token: Token) -> bool:
    """Whether a stored event is this record or gap. What was redacted since stands for the record it was."""
    if isinstance(token, Gap):
        return gap_bytes(event) == token.raw
    if event.redacted:
        return True
    return event.size == len(token.raw) and event.raw == token.raw and gap_bytes(event) is None


def _candidates(session: Session) -> list[Branch]:
    """Return the branches that imports have made, `main` first; all there are when none of them is left."""
    branches = {branch.name: branch for branch in session.branches()}
    if not branches:
        raise NotFound(f"{session.id} has no branch left to compare with; bring one back with undelete")
    ours = [name for name in branches if _GOES_ON.fullmatch(name)]
    kept = [name for name in branches if _CAPTURE.fullmatch(name)]
    named = sorted(ours, key=_order) + sorted(kept, key=_order)
    return [branches[name] for name in named or sorted(branches)]


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name))


def _end_of_records(branch: Branch) -> int:
    """Return the seq to append at: the head, or the last record if what follows it does not end its line."""
    head = branch.head.seq
    last = gap_bytes(branch.read(head))
    if last is None or last.endswith(b"\n"):
        return head
    return next((event.seq for event in branch.events(reverse=True) if gap_bytes(event) is None), 0)
