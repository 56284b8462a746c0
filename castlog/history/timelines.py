"""Timelines: who owns a seq, where two histories part, in O(log depth).

A timeline holds the events one branch wrote since it forked. Its parent is the owner of its fork seq, so fork seqs rise
strictly with depth; the skew-binary jump pointers (Myers 1983) rest on that. A place in a history is (timeline, seq)
with the timeline owning the seq; timeline 0 owns seq 0, the genesis, of every session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec

from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Corrupt
from castlog.format import rows
from castlog.history import tables

GENESIS = 0  # the timeline that owns seq 0


class Segment(msgspec.Struct, frozen=True):
    """A stretch of a history that one timeline owns; both seqs inclusive."""

    timeline: int
    first: int
    last: int


def read(txn: ReadTxn, timeline: int) -> rows.Timeline:
    """Return a timeline's row; raises Corrupt when it is missing, or points at one made later.

    Every walk upwards goes through here, so none can run in circles whatever the rows say.
    """
    row = tables.get(txn, rows.TIMELINES, timeline)
    if row is None:
        raise Corrupt(f"timeline {timeline} is missing", timeline=timeline)
    if row.parent >= timeline or row.jump >= timeline:
        raise Corrupt(f"timeline {timeline} points at one made after it", timeline=timeline)
    return row


def create(txn: WriteTxn, session: bytes, parent: int, fork_seq: int, fork_id: bytes) -> int:
    """Write a new timeline that leaves `parent` after `fork_seq`, and return its number."""
    depth, jump = depth_and_jump(txn, parent)
    number = tables.take_number(txn, "timeline")
    row = rows.Timeline(session, parent, fork_seq, fork_id, depth, jump)
    tables.put(txn, rows.TIMELINES, row, number)
    return number


def depth_and_jump(txn: ReadTxn, parent: int) -> tuple[int, int]:
    """Return how deep a timeline that leaves `parent` lies, and where its jump pointer leads."""
    if parent == GENESIS:
        return 1, GENESIS
    above = read(txn, parent)
    if above.jump != GENESIS:
        far = read(txn, above.jump)
        if above.depth - far.depth == far.depth - depth(txn, far.jump):
            return above.depth + 1, far.jump
    return above.depth + 1, parent


def owner(txn: ReadTxn, timeline: int, seq: int) -> int:
    """Return the timeline that owns `seq` in the history that ends on `timeline`."""
    if seq == 0:
        return GENESIS
    found = _first(partial(read, txn), timeline, lambda row: row.fork_seq < seq)
    if found == GENESIS:
        raise Corrupt(f"no timeline owns seq {seq}", seq=seq)
    return found


def segments(txn: ReadTxn, timeline: int, first: int, last: int) -> list[Segment]:
    """Return who owns the seqs `first` to `last` of the history that ends on `timeline`, oldest first."""
    found: list[Segment] = []
    at = owner(txn, timeline, last) if last > 0 else GENESIS
    while at != GENESIS and last >= first:
        row = read(txn, at)
        found.append(Segment(at, max(first, row.fork_seq + 1), last))
        last, at = row.fork_seq, row.parent
    found.reverse()
    return found


def merge_base(txn: ReadTxn, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """Return the last place, as (timeline, seq), that the histories ending at two places of one session share."""
    (a, a_seq), (b, b_seq) = left, right
    row = cache(partial(read, txn))  # the walks meet the same rows
    shared = _common(row, a, b)
    if shared == GENESIS:
        return GENESIS, 0
    seq = min(_leaves(row, a, a_seq, shared), _leaves(row, b, b_seq, shared))
    return owner(txn, shared, seq), seq


def ancestors(txn: ReadTxn, timeline: int) -> Iterator[int]:
    """Yield a timeline and all those above it."""
    while timeline != GENESIS:
        yield timeline
        timeline = read(txn, timeline).parent


def depth(txn: ReadTxn, timeline: int) -> int:
    """Return how many timelines a history that ends on `timeline` runs through."""
    return 0 if timeline == GENESIS else read(txn, timeline).depth


Row = Callable[[int], rows.Timeline]


def _first(row_of: Row, timeline: int, found: Callable[[rows.Timeline], bool]) -> int:
    """Return the first timeline, from `timeline` upwards, for which `found` holds, as it then does for all above.

    Takes a jump wherever it does not lead too far; reads each row once. Returns GENESIS when there is none.
    """
    if timeline == GENESIS:
        return GENESIS
    row = row_of(timeline)
    while not found(row):
        far = None if row.jump == GENESIS else row_of(row.jump)
        if far is not None and (row.jump == row.parent or not found(far)):
            timeline, row = row.jump, far
        elif row.parent == GENESIS:
            return GENESIS
        else:
            timeline = row.parent
            row = row_of(timeline)
    return timeline


def _at_depth(row_of: Row, timeline: int, wanted: int) -> int:
    """Return the ancestor of `timeline` (or itself) that is `wanted` deep."""
    return _first(row_of, timeline, lambda row: row.depth <= wanted)


def _depth(row_of: Row, timeline: int) -> int:
    return 0 if timeline == GENESIS else row_of(timeline).depth


def _common(row_of: Row, a: int, b: int) -> int:
    """Return the deepest timeline that both histories run through."""
    shallower = min(_depth(row_of, a), _depth(row_of, b))
    a, b = _at_depth(row_of, a, shallower), _at_depth(row_of, b, shallower)
    while a != b:
        above_a, above_b = row_of(a), row_of(b)
        if above_a.jump != above_b.jump:  # equal depths have equally deep jumps
            a, b = above_a.jump, above_b.jump
        else:
            a, b = above_a.parent, above_b.parent
    return a


def _leaves(row_of: Row, timeline: int, seq: int, ancestor: int) -> int:
    """Return the last seq of `ancestor` that the history ending at (timeline, seq) includes."""
    if timeline == ancestor:
        return seq
    child = _at_depth(row_of, timeline, _depth(row_of, ancestor) + 1)
    return row_of(child).fork_seq
