"""`castlog diff`: where two branches part."""

from __future__ import annotations

import click

import castlog

from .. import deltas, events, reducers
from ..command import App, command
from ..errors import SOMETHING_FOUND as THEY_DIFFER
from ..events import short_id, short_rev
from ..output import Styled
from ..revision import REV
from ..text import plural


@command(
    "diff", examples=("castlog diff idea-b main", "castlog diff main@40 main", "castlog diff idea-b idea-c --state")
)
@click.argument("a", type=REV)
@click.argument("b", type=REV)
@click.option("--state", is_flag=True, help="Compare the states after A and after B instead of their events.")
@reducers.option
def diff(app: App, a: str, b: str, state: bool, reducer: str) -> int:
    """Show where two branches part and what each did since.

    Lines with - are events of A alone, lines with + of B alone. Exits 1 if they differ, 0 if they are the same history.

    With --state, - is what only the state of A has, + what only that of B has, and ~ has the value in A and then in B.
    It exits 1 if the states differ, whether the histories do or not.
    """
    loaded = reducers.load(reducer) if state else None
    store = app.store(read_only=True)
    left, right = app.view(store, a), app.view(store, b)
    if loaded is not None:
        return _states(app, store, left, right, loaded)
    return _histories(app, store, left, right)


def _states(app: App, store: castlog.Store, left: castlog.View, right: castlog.View, loaded: reducers.Loaded) -> int:
    with app.out.progress("folding") as progress:
        values = [
            states.value(states.head.seq)
            for states in (store.replay(view, loaded.reducer, progress=progress) for view in (left, right))
        ]
    found = castlog.changes(*values)
    if app.out.json:
        deltas.records(app.out, found)
    elif found:
        for sign, colour, view in (("-", "red", left), ("+", "green", right)):
            app.out.line(Styled(f"{sign * 3:<6}  {short_rev(view.head.rev)}", f"{colour} bold"))
        deltas.lines(app.out, found, loaded.hidden)
    else:
        app.out.say("Their states are equal.")
    return THEY_DIFFER if found else 0


def _histories(app: App, store: castlog.Store, left: castlog.View, right: castlog.View) -> int:
    found = store.diff(left, right)
    if app.out.json:
        base = found.base
        app.out.record(
            side="base",
            rev=base.rev if base else None,
            seq=base.seq if base else None,
            id=base.id if base else None,
            left_count=found.left_count,
            right_count=found.right_count,
        )
    elif found.base is None:
        app.out.line("They share no event.")
    else:
        app.out.line(f"{'base':<6}  {short_rev(found.base.rev)}  {short_id(found.base.id)}")
    for side, sign, colour, view, count, theirs in (
        ("left", "-", "red", left, found.left_count, found.left),
        ("right", "+", "green", right, found.right_count, found.right),
    ):
        if count and not app.out.json:
            app.out.line(Styled(f"{sign * 3:<6}  {short_rev(view.rev)}  {plural(count, 'event')}", f"{colour} bold"))
        for event in theirs:
            if app.out.json:
                app.out.record(side=side, **events.row(event))
            else:
                events.one_line(app.out, event, sign=sign)
    if found.left_count or found.right_count:
        return THEY_DIFFER
    app.out.say("They are the same history.")
    return 0
