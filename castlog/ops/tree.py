"""The tree of a session's branches: who shares what with whom."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from castlog.engine.base import ReadTxn
from castlog.format import rows
from castlog.history import refs, timelines
from castlog.history.timelines import GENESIS


class Node(msgspec.Struct, frozen=True):
    """A branch in the tree. Its own events are those after `fork_seq`; those before are `parent`'s."""

    number: int
    name: str
    seq: int
    parent: str | None
    fork_seq: int
    tags: tuple[str, ...]


def of_session(txn: ReadTxn, session: bytes) -> list[Node]:
    """Return a session's branches, oldest first, each with the branch it came from.

    The oldest branch takes every timeline it runs through, the next what is left, and so on; costs one step a timeline.
    A branch comes from the oldest of those it shares most with. A tag is listed at the branch that took its event.
    """
    named = refs.names(txn, session)
    numbers = sorted((row.branch, name) for name, row in named if row.branch)
    taken: dict[int, list[tuple[int, str]]] = {}  # timeline -> up to which seqs branches took it, ever further
    drawn: list[tuple[int, rows.Ref, str | None, int]] = []
    for number, _ in numbers:
        ref = refs.branch(txn, number)
        at, seq = ref.timeline, ref.seq
        while at != GENESIS and at not in taken:
            taken[at] = [(seq, ref.name)]
            row = timelines.read(txn, at)
            at, seq = row.parent, row.fork_seq
        parent, fork_seq = None, 0
        if at != GENESIS:
            upto, parent = _taker(taken[at], seq)
            fork_seq = min(seq, upto)
            if upto < seq:
                taken[at].append((seq, ref.name))
        drawn.append((number, ref, parent, fork_seq))
    tags: dict[str, list[str]] = {}
    for name, item in named:
        if not item.branch and item.timeline in taken:
            tags.setdefault(_taker(taken[item.timeline], item.seq)[1], []).append(f"{name}@{item.seq}")
    return [
        Node(number, ref.name, ref.seq, parent, fork_seq, tuple(tags.get(ref.name, ())))
        for number, ref, parent, fork_seq in drawn
    ]


def _taker(taken: list[tuple[int, str]], seq: int) -> tuple[int, str]:
    """Return the first of a timeline's takers that reaches `seq`, or the one that comes nearest."""
    return taken[min(bisect_left(taken, (seq, "")), len(taken) - 1)]
