"""Integrity: what a store claims, checked against what it holds. Findings are reported, never raised.

The walk goes table by table and timeline by timeline, in short transactions, while others may write. Each check that
compares rows reads them in one transaction; what is counted over many is compared only where nothing moved meanwhile.
Each stored event is met once, however many branches share it: those of living branches, tags, reflogs and the trash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from castlog.core import Core
from castlog.errors import Unavailable
from castlog.event import Progress
from castlog.ops.verify import keys, numbers, objects, references, sessions, states, timelines
from castlog.ops.verify.findings import KINDS, Finding, VerifyReport
from castlog.ops.verify.inspection import Inspection
from castlog.state import Reducer

__all__ = ["KINDS", "Finding", "VerifyReport", "run"]


def run(
    core: Core,
    session: bytes | None,
    *,
    deep: bool,
    progress: Callable[[Progress], None] | None,
    snapshots: Sequence[Reducer[Any]] = (),
    drop: bool = False,
) -> VerifyReport:
    """Check a store, or one session of it; `deep` reads every payload and piece too.

    The snapshots of the reducers given are compared with what their events fold to, and with `drop` taken away where
    they differ. Memory does not grow with the events: some twenty bytes an object and a piece, a few hundred a session.
    """
    inspection = Inspection(core, session, deep=deep, progress=progress)
    if session is None:
        if not _check_engine(inspection):
            return VerifyReport(inspection.findings.listed(), inspection.checked)
        numbers.check_letters(inspection)
        objects.take_stock(inspection)
    references.check_all(inspection)
    sessions.check_all(inspection)
    timelines.check_all(inspection)
    keys.check_all(inspection)
    sessions.check_counts(inspection)
    if session is None:
        sessions.check_parents(inspection)
        objects.check_unused(inspection)
        numbers.check_counters(inspection)
        if deep:
            objects.check_pieces(inspection)
    if snapshots:
        states.check_all(inspection, snapshots, drop=drop)
    return VerifyReport(inspection.findings.listed(), inspection.checked)


def _check_engine(inspection: Inspection) -> bool:
    """Check the engine's own structure; return whether rows can be read without risk."""
    try:
        problems = inspection.core.engine.problems()
    except Unavailable as exc:
        inspection.found("unchecked", f"the engine's own structure: {exc}")
        return True
    for problem in problems:
        inspection.found("damaged_pages", problem)
    if problems:
        # LMDB follows a broken offset wherever it leads, which can end the process; one session is a smaller risk.
        inspection.found("unchecked", "all that lies in damaged pages; verify sessions one by one to see what is lost")
    return not problems
