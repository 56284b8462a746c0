"""The large payloads appended last: what the next ones are compared with before they are cut and looked up.

A model request repeats the one before it. So of each branch the last large payload of each type is kept in memory, cut,
within a bound. Nothing rests on it: a payload is cut the same without, and all its pieces are looked up then.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from castlog import limits
from castlog.format import rows
from castlog.history.drafts import Ready
from castlog.history.pieces import Cut
from castlog.history.timelines import GENESIS


class Last(msgspec.Struct, frozen=True):
    """A branch's last large payload of a type: its event's place, and the payload cut."""

    timeline: int
    seq: int
    cut: Cut
    size: int

    def precedes(self, ref: rows.Ref) -> bool:
        """Return whether its event is known to be in a branch's history. Places are never given twice."""
        return ref.timeline == self.timeline and ref.seq >= self.seq


class Needed(msgspec.Struct, frozen=True):
    """The pieces an append refers to, by digest; those not in `unsure` are pieces of `lasts` too.

    These are in the store while the events of `lasts` are in the branch's history: nothing deletes a piece that an
    event refers to. Whatever will take an event's payload away has to make `doubtful` notice.
    """

    pieces: Mapping[bytes, bytes]
    unsure: Mapping[bytes, bytes]
    lasts: Sequence[Last]

    def doubtful(self, ref: rows.Ref) -> Collection[bytes]:
        """Return the pieces to look up in the transaction that appends to a branch in this state."""
        return self.unsure if all(last.precedes(ref) for last in self.lasts) else self.pieces


class Recent:
    """The last large payloads of a store's branches, the least recently used dropped. Shared by threads."""

    def __init__(self, bytes_max: int = limits.RECENT_BYTES) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lasts: OrderedDict[tuple[int, str], Last] = OrderedDict()
        self._lock = threading.Lock()

    def cut(self, branch: int, kind: str) -> Cut:
        """Return the last large payload of a type on a branch, cut; empty when there is none."""
        with self._lock:
            last = self._lasts.get((branch, kind))
        return last.cut if last else ()

    def needed(self, branch: int, ready: Sequence[Ready]) -> Needed:
        """Return the pieces of drafts about to be appended to a branch."""
        large = [draft for draft in ready if draft.pieces]
        if not large:
            return _NOTHING
        with self._lock:
            found = [self._lasts.get((branch, kind)) for kind in {draft.record.type for draft in large}]
        lasts = [last for last in found if last is not None]
        pieces = {digest: data for draft in large for digest, data in draft.pieces}
        held = {digest for last in lasts for digest, _ in last.cut}
        unsure = {digest: data for digest, data in pieces.items() if digest not in held} if held else pieces
        return Needed(pieces, unsure, lasts)

    def keep(self, branch: int, ready: Sequence[Ready], places: Sequence[tuple[int, int]], timeline: int) -> None:
        """Take note of the new events that are durable now: in `places` their timeline is 0, which means `timeline`.

        An event that a key found is left out: how its payload lies is not known here.
        """
        large = [index for index, draft in enumerate(ready) if draft.pieces]
        for index in large:
            draft, (owner, seq) = ready[index], places[index]
            size = len(draft.payload)
            if owner != GENESIS or size > self._bytes_max:
                continue
            with self._lock:
                self._drop((branch, draft.record.type))
                self._lasts[branch, draft.record.type] = Last(timeline, seq, draft.pieces, size)
                self._bytes += size
                while self._bytes > self._bytes_max:
                    self._drop(next(iter(self._lasts)))

    def forget(self, branch: int) -> None:
        """Let go of a branch's payloads: their pieces were not there."""
        with self._lock:
            for key in [key for key in self._lasts if key[0] == branch]:
                self._drop(key)

    def _drop(self, key: tuple[int, str]) -> None:
        last = self._lasts.pop(key, None)
        if last is not None:
            self._bytes -= last.size


_NOTHING = Needed({}, {}, ())
