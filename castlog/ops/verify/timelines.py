"""Timelines: whether each fits the one it left, and its events from the fork to its end."""

from __future__ import annotations

from collections.abc import Iterator

from castlog import limits
from castlog.engine.base import ReadTxn
from castlog.format import rows
from castlog.history import calls, reader, tables, timelines
from castlog.history.timelines import GENESIS
from castlog.ops.verify import scan
from castlog.ops.verify.chain import Chain, Line
from castlog.ops.verify.chunks import check_next
from castlog.ops.verify.inspection import DAMAGE, Inspection, Totals
from castlog.ops.verify.openchunk import check_open
from castlog.ops.verify.places import Revs


def check_all(inspection: Inspection) -> None:
    """Check every timeline and every event it holds, each once."""
    revs = Revs()
    forks = _Forks(inspection)
    for number in scan.numbers(inspection, rows.TIMELINES.letter, inspection.counters.timeline):
        inspection.use_number("timeline", number)
        with inspection.core.read() as txn:
            try:
                line = _line(inspection, txn, number)
            except DAMAGE as exc:
                inspection.damaged(exc)
                inspection.whole = False
                continue
            if line is None:
                continue
            _check_row(inspection, txn, line, forks, revs)
            at_fork = _calls_at_fork(inspection, txn, number)
        chain = Chain(inspection, line, revs, at_fork)
        walked = inspection.attempt(lambda chain=chain: _walk(inspection, chain))  # type: ignore[misc]
        if not (walked and chain.complete):
            inspection.by_events[line.row.session].complete = False
        inspection.count("timelines")
        inspection.tell(line.row.session)


def _line(inspection: Inspection, txn: ReadTxn, number: int) -> Line | None:
    """Return a timeline to check; None when it is not there, or not of the session asked for."""
    row = tables.get(txn, rows.TIMELINES, number)
    if row is None:
        if inspection.only is None:
            inspection.found("missing_timeline", f"rows belong to timeline {number}, which is not there")
        return None
    if inspection.only not in (None, row.session):
        return None
    inspection.by_events.setdefault(row.session, Totals())
    session = inspection.session(txn, row.session)
    if session is None:
        inspection.found("missing_session", f"timeline {number} belongs to a session that is not there")
        return None
    return Line(number, row, session)


def _calls_at_fork(inspection: Inspection, txn: ReadTxn, number: int) -> dict[str, int] | None:
    """Return the calls in flight where a timeline began, by its rows; None when these are damaged."""
    return inspection.attempt(lambda: calls.read(txn, rows.OPEN_AT_FORK, number))


def _check_row(inspection: Inspection, txn: ReadTxn, line: Line, forks: _Forks, revs: Revs) -> None:
    """Compare a timeline's row with the timeline it left."""

    def found(name: str, message: str) -> None:
        seq = line.row.fork_seq + 1
        rev = revs.at(txn, line.row.session, line.number, seq)
        inspection.found(name, f"timeline {line.number}: {message}", rev)

    def check() -> None:
        for message in _odd(inspection, txn, line):
            found("broken_timeline", message)
        if line.row.parent != GENESIS:
            known = forks.calls(txn, line)
            if known is not None and known != calls.read(txn, rows.OPEN_AT_FORK, line.number):
                found("wrong_open_calls", "the calls in flight where it forked are others")
        elif calls.read(txn, rows.OPEN_AT_FORK, line.number):
            found("wrong_open_calls", "it begins its session and has calls in flight before it")
        after_all = rows.after(rows.TIMELINES.letter + line.number.to_bytes(8, "big"))
        beyond = scan.first_key(txn, rows.after(rows.OPEN_AT_FORK.prefix(line.number.to_bytes(8, "big"))), after_all)
        if beyond is not None:
            inspection.found("unknown_row", f"the key {beyond.hex()} belongs to no table")

    inspection.attempt(check)


def _odd(inspection: Inspection, txn: ReadTxn, line: Line) -> Iterator[str]:
    """Yield what in a timeline's row contradicts the timeline it left."""
    row = line.row
    if row.parent == GENESIS:
        if (row.fork_seq, row.depth, row.jump) != (0, 1, GENESIS):
            yield "it begins its session and has a fork point"
        if row.fork_id != line.session.genesis:
            yield "it does not begin at its session's genesis"
        return
    if row.parent >= line.number:
        yield f"it left timeline {row.parent}, which was made after it"
        return
    above = tables.get(txn, rows.TIMELINES, row.parent)
    tail = tables.get(txn, rows.TAILS, row.parent)
    if above is None or tail is None:
        yield f"it left timeline {row.parent}, which is missing"
        return
    if above.session != row.session:
        yield f"it left timeline {row.parent}, which is another session's"
    if not above.fork_seq < row.fork_seq <= tail.last:
        yield f"it left timeline {row.parent} at {row.fork_seq}, which holds {above.fork_seq + 1} to {tail.last}"
        return
    if (row.depth, row.jump) != timelines.depth_and_jump(txn, row.parent):
        yield "its depth or jump pointer is wrong"
    try:
        fork_id = reader.id_at(txn, inspection.objects, line.session, row.parent, row.fork_seq)
    except DAMAGE:
        return  # found where the events of the parent are checked
    if fork_id != row.fork_id:
        yield f"the event at its fork point, {row.fork_seq}, has another id"


class _Forks:
    """The calls in flight at fork points; many timelines leave at one."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._known: dict[tuple[int, int], dict[str, int] | None] = {}

    def calls(self, txn: ReadTxn, line: Line) -> dict[str, int] | None:
        """Return the calls in flight where a timeline forked, by the log; None when that cannot be read."""
        place = (line.row.parent, line.row.fork_seq)
        if place not in self._known:
            if len(self._known) >= limits.VERIFY_KEPT_MAX:
                self._known.clear()
            try:
                found = reader.open_calls(txn, self._inspection.objects, line.session, *place)
                self._known[place] = found
            except DAMAGE:
                self._known[place] = None
        return self._known[place]


def _walk(inspection: Inspection, chain: Chain) -> bool:
    """Check a timeline's events: its chunks one by one, then its open chunk as a whole; return whether it got there."""
    number, row = chain.line.number, chain.line.row
    while True:
        with inspection.core.read() as txn:
            tail = tables.get(txn, rows.TAILS, number)
            if tail is None or not row.fork_seq <= tail.sealed <= tail.last or tail.last == row.fork_seq:
                said = "missing" if tail is None else f"{tail.sealed} and {tail.last}, from {row.fork_seq} on"
                chain.found(txn, "wrong_tail", row.fork_seq + 1, f"the end of timeline {number} is {said}")
                return False
            at_end = chain.seq >= tail.sealed  # there is an end to check, if not an open chunk
            if at_end:
                runs = check_open(inspection, txn, chain, tail)
            else:
                runs = check_next(inspection, txn, chain, tail)
        if inspection.deep:
            for run in runs:
                chain.read_payloads(run)
        if at_end:
            return True
        inspection.tell(row.session)
