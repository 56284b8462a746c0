"""`castlog replay`: state after an event, and what events changed in it."""

from __future__ import annotations

import re
from typing import Any

import click

import castlog

from .. import deltas, reducers, stepper
from ..command import App, command
from ..revision import REV
from ..text import plural


class Span(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """`M..N`: from the state after M to the state after N."""

    name = "M..N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Return the two seqs."""
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", str(value), re.ASCII)
        if not found or int(found[1]) >= int(found[2]):
            self.fail(f"{value!r} is not M..N, two seqs with M before N.", param, ctx)
        return int(found[1]), int(found[2])


@command(
    "replay",
    examples=(
        "castlog replay 4f2a91cc --until 47",
        "castlog replay main --diff 46..47",
        "castlog replay main --step --until 40",
        "castlog replay main@47 --reducer my_agent:plan --json | jq .state",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("--until", type=click.IntRange(min=0), help="The last seq to apply; default the head.")
@click.option("--diff", "span", type=Span(), help="What each event after M and up to N changed in the state.")
@click.option("--step", is_flag=True, help="Go through the events by hand, from --until or the first; ? helps.")
@reducers.option
def replay(
    app: App, rev: str | None, until: int | None, span: tuple[int, int] | None, step: bool, reducer: str
) -> None:
    """Show the state after an event, or what events changed in it.

    State is folded from recorded events, beginning at the newest snapshot before; nothing is executed or written. It is
    told in a line; --json gives all of it.

    With --diff, + is what an event added to the state, - what it removed, ~ what has another value now. Large additions
    are told as one and what a reducer keeps for itself is left out; --json gives every part.

    With --step commands are read line by line: n and p go to the next event and back, g 47 goes to one, /TEXT to the
    next that holds a text, d shows what the event changed, s the whole state, q leaves, Enter does the last again.
    """
    if span is not None and until is not None:
        raise click.UsageError("--until and --diff do not go together.")
    if step and (span is not None or app.out.json):
        raise click.UsageError("--step goes with neither --diff nor --json.")
    loaded = reducers.load(reducer)
    store = app.store(read_only=True)
    view = app.view(store, rev)
    if step:
        stepper.Stepper(app.out, store, view, loaded).run(until)
        return
    with app.out.progress("folding") as progress:
        states = store.replay(view, loaded.reducer, progress=progress)
        if span is not None:
            _deltas(app, states, loaded, *span)
        else:
            _state(app, states, loaded, states.head.seq if until is None else until)


def _state(app: App, states: castlog.Replay[Any], loaded: reducers.Loaded, seq: int) -> None:
    found = states.at(seq)
    if not app.out.json:
        app.out.line(f"Loaded {_source(found)}, applied {_applied(found)}")
        app.out.line(f"State: {loaded.line(found.state, app.out.width - 7)}")
        if found.in_flight:
            calls = ", ".join(call for event in found.in_flight for call in event.call_ids)
            app.out.say(f"{plural(len(found.in_flight), 'call')} in flight: {calls}")
        return
    app.out.record(
        rev=f"{states.head.session_id}/{states.head.branch}@{seq}",
        seq=seq,
        snapshot_seq=found.snapshot_seq,
        replayed=found.replayed,
        reducer=loaded.reducer.name,
        version=loaded.reducer.version,
        in_flight=[call for event in found.in_flight for call in event.call_ids],
        text=loaded.line(found.state, app.out.width),
        state=states.value(seq),
    )


def _deltas(app: App, states: castlog.Replay[Any], loaded: reducers.Loaded, first: int, last: int) -> None:
    for event, changed in states.walk(first + 1, last):
        if app.out.json:
            deltas.records(app.out, changed, seq=event.seq, type=event.type)
        else:
            deltas.heading(app.out, event)
            deltas.lines(app.out, changed, loaded.hidden)


def _source(found: castlog.Restored[Any]) -> str:
    return f"snapshot @ {found.snapshot_seq}" if found.snapshot_seq else "no snapshot"


def _applied(found: castlog.Restored[Any]) -> str:
    first, last = found.snapshot_seq + 1, found.seq
    if found.replayed < 2:
        return f"event {last}" if found.replayed else "no events"
    return f"events {first}..{last}"
