"""`castlog snapshot`: folded state, kept."""

from __future__ import annotations

import time

import click

import castlog

from .. import reducers
from ..command import App, command
from ..events import short_id
from ..output import Styled
from ..revision import REV
from ..signals import held
from ..text import flat, pad, plural
from ..values import age, iso, size


@command(
    "snapshot",
    examples=(
        "castlog snapshot",
        "castlog snapshot main@40 --make",
        "castlog snapshot --make --reducer my_agent:plan",
        "castlog snapshot -d main@40",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("--make", is_flag=True, help="Fold the events up to REV into state, and keep that.")
@click.option("-d", "--delete", is_flag=True, help="Forget the snapshots at REV, of all reducers; REV must be written.")
@reducers.option
def snapshot(app: App, rev: str | None, make: bool, delete: bool, reducer: str) -> None:
    """List the snapshots a branch can start from, or make one.

    A snapshot is state after an event, kept so that it need not be folded from the first event again. Forks made after
    that event use it too. Listed, newest first: event, reducer and version, size, age. One of other upcasters than are
    known here is passed over. Nothing is lost with a snapshot: castlog folds the events instead.
    """
    if make and delete:
        raise click.UsageError("--make and -d do not go together.")
    if delete and rev is None:
        raise click.UsageError("Write where the snapshots are: castlog snapshot -d main@40")
    if delete:
        _delete(app, rev)
    elif make:
        _make(app, rev, reducers.load(reducer).reducer)
    else:
        _list(app, rev)


def _list(app: App, rev: str | None) -> None:
    view = app.view(app.store(read_only=True), rev)
    found = view.snapshots()
    now = time.time_ns()
    for item in found:
        if app.out.json:
            _record(app, view, item)
            continue
        start = f"{'@' + str(item.seq):>8}"
        name = pad(flat(f"{item.reducer} {item.version}"), 24)
        note = "" if item.current else "  other upcasters"
        line = f"  {name}  {size(item.size):>7}  {age(item.created, now):>8}  {short_id(item.id)}"
        app.out.line(Styled(start, "yellow"), line, Styled(note, "dim"))
    if not found:
        app.out.say("No snapshot here; castlog snapshot --make makes one.")


def _make(app: App, rev: str | None, reducer: castlog.Reducer[object]) -> None:
    view = app.view(app.store(), rev)
    with app.out.progress("folding") as progress:
        made = view.snapshot(reducers.Told(reducer, progress))
    if app.out.json:
        _record(app, view, made)
        return
    app.out.line(f"{view.session.id}/{view.name}@{made.seq}")
    app.out.say(f"{made.reducer} {made.version}, {size(made.size)}")


def _delete(app: App, rev: str | None) -> None:
    view = app.view(app.store(), rev)
    head = view.head
    with held():
        count = view.drop_snapshots()
        if app.out.json:
            app.out.record(rev=head.rev, seq=head.seq, id=head.id, deleted=count)
        app.out.say(f"{plural(count, 'snapshot')} at @{head.seq} forgotten.")


def _record(app: App, view: castlog.View, item: castlog.Snapshot) -> None:
    app.out.record(
        rev=f"{view.session.id}/{view.name}@{item.seq}",
        seq=item.seq,
        id=item.id,
        reducer=item.reducer,
        version=item.version,
        size=item.size,
        created=iso(item.created),
        current=item.current,
    )
