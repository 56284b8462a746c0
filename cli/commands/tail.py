"""`castlog tail`: the last events, then live."""

from __future__ import annotations

from collections.abc import Iterable

import click

import castlog

from .. import events, follow
from ..command import App, command
from ..revision import REV
from ..text import cut


@command("tail", examples=("castlog tail -f", "castlog tail idea-b -n 50", "castlog tail --all -f --json"))
@click.argument("rev", required=False, type=REV)
@click.option("-f", "--follow", "live", is_flag=True, help="Then show events as they are appended, until Ctrl-C.")
@click.option(
    "-n",
    "limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many events to begin with.",
)
@click.option("--all", "everywhere", is_flag=True, help="All branches of all sessions.")
def tail(app: App, rev: str | None, live: bool, limit: int, everywhere: bool) -> None:
    """Show the last events, then new ones as they come.

    Appends of other processes are seen too. If the branch is moved elsewhere, following goes on from its new head.
    """
    if everywhere and rev is not None:
        raise click.UsageError("--all takes no REV.")
    store = app.store(read_only=True)
    if everywhere:
        watch = follow.Watch(store)
        _write(app, watch.last(limit), everywhere)
        if live:
            _write(app, watch.live(), everywhere, flush=True)
        return
    view = app.branch(store, rev) if live else app.view(store, rev)
    seq = view.head.seq
    _write(app, view.events(max(seq - limit, 0) + 1, seq), everywhere)
    if isinstance(view, castlog.Branch) and live:
        _write(app, follow.branch(view, seq, app.out.say), everywhere, flush=True)


def _write(app: App, found: Iterable[castlog.Event], everywhere: bool, *, flush: bool = False) -> None:
    if flush:
        app.out.flush()
    for event in found:
        if app.out.json:
            app.out.json_line(event.to_json())
        else:
            where = f"{event.session_id[-8:]}/{event.branch}" if everywhere else ""
            events.one_line(app.out, event, where=cut(where, app.out.width // 3))
        if flush:
            app.out.flush()
