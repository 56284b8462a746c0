"""`castlog bisect`: the event at which a state went wrong."""

from __future__ import annotations

from typing import Any

import click

import castlog

from .. import checks, deltas, reducers
from ..command import App, command
from ..errors import SOMETHING_FOUND as NOT_NARROWED_DOWN
from ..output import Styled
from ..revision import REV
from ..text import plural

_WORDS = {True: ("good", "green"), False: ("bad", "red"), None: ("skipped", "dim")}


@command(
    "bisect",
    examples=(
        "castlog bisect main --good 40 --bad 900 --check my_checks:todo_is_short",
        """castlog bisect main --check "jq -e '.todo == []'" --json""",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("--good", type=click.IntRange(min=0), default=0, help="A seq with a good state; default 0, no event yet.")
@click.option("--bad", type=click.IntRange(min=1), help="A later seq with a bad state; default the head.")
@click.option("--check", "check_text", metavar="CMD|MODULE:FUNC", required=True, help="What tells a good state.")
@reducers.option
def bisect(app: App, rev: str | None, good: int, bad: int | None, check_text: str, reducer: str) -> int:
    """Find the first event after which the state is bad.

    Each check halves what is left, and states are folded from the nearest one known, so 100,000 events take at most 18
    checks. It is taken for granted that the state is good up to some event and bad from there on.

    CMD gets the state as JSON on stdin, and CASTLOG_SEQ, CASTLOG_REV and CASTLOG_STORE. It exits 0 for good, 125 if it
    cannot tell, 1 to 127 otherwise for bad; any other code ends the search. What it prints goes to stderr.
    MODULE:FUNC, which may lie in this folder, is called with the state and returns whether it is good.

    Exits 0 when the event was found, and 1 when the check could not tell which of several it is.
    """
    loaded = reducers.load(reducer)
    store = app.store(read_only=True)
    view = app.view(store, rev)
    asked = checks.make(check_text, store, view.head, loaded.reducer)

    def check(state: Any, seq: int) -> bool | None:
        app.out.hide_meter()  # a command may write to the terminal too
        return asked(state, seq)

    with app.out.progress("folding") as progress:
        found = store.bisect(
            view,
            loaded.reducer,
            check,
            good=good,
            bad=bad,
            probed=lambda probe: _tell(app, probe),
            progress=progress,
        )
    _show(app, found)
    return 0 if found.first_bad is not None else NOT_NARROWED_DOWN


def _tell(app: App, probe: castlog.Probe) -> None:
    word, colour = _WORDS[probe.good]
    if app.out.json:
        app.out.record(seq=probe.seq, verdict=word, snapshot_seq=probe.snapshot_seq, replayed=probe.replayed)
    else:
        app.out.line(Styled(f"{'@' + str(probe.seq):>8}", "yellow"), "  ", Styled(word, colour))
    app.out.flush()


def _show(app: App, found: castlog.Bisection) -> None:
    event = found.first_bad
    if app.out.json:
        app.out.record(
            good=found.good,
            bad=found.bad,
            checks=len(found.probes),
            first_bad=None if event is None else event.seq,
            rev=None if event is None else f"{event.session_id}/{event.branch}@{event.seq}",
            id=None if event is None else event.id,
            type=None if event is None else event.type,
        )
    elif event is None:
        app.out.line(f"The first bad event is one of {found.good + 1}..{found.bad}; the check cannot tell which.")
    else:
        app.out.line(f"The first bad event is {event.seq}, after {plural(len(found.probes), 'check')}.")
        deltas.heading(app.out, event)
