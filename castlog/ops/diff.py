"""Where two histories of one session part."""

from __future__ import annotations

from castlog.engine.base import ReadTxn
from castlog.history import timelines
from castlog.history.refs import Place


def base_of(txn: ReadTxn, left: Place, right: Place) -> Place:
    """Return the last place two histories of one session share; costs O(log depth). Its id may be unknown yet."""
    timeline, seq = timelines.merge_base(txn, (left.timeline, left.seq), (right.timeline, right.seq))
    known = next((p.id for p in (left, right) if (p.timeline, p.seq) == (timeline, seq)), b"")
    return Place(timeline, seq, known)
