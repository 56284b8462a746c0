"""`castlog fork`: start branches."""

from __future__ import annotations

import click

import castlog

from .. import editing
from ..command import App, command
from ..revision import REV, typed
from ..signals import held


@command(
    "fork",
    examples=(
        "castlog fork idea-b",
        "castlog fork idea-b main@40 --checkout",
        "castlog fork try main@40 -n 200",
        "castlog fork what-if main@47 --edit",
        "castlog fork what-if main@47 --edit-with answer.json",
    ),
)
@click.argument("name")
@click.argument("rev", required=False, type=REV)
@click.option("-n", "count", metavar="COUNT", type=click.IntRange(min=1), help="Make this many: NAME-1, NAME-2, ...")
@click.option("--edit", is_flag=True, help="Open the event's payload in $VISUAL or $EDITOR; the fork has it as edited.")
@click.option("--edit-with", "file", metavar="FILE", help="The same with the payload in FILE, or - for stdin.")
@click.option("--checkout", is_flag=True, help="Make the new branch, or the first of them, the current one.")
def fork(app: App, name: str, rev: str | None, count: int | None, edit: bool, file: str | None, checkout: bool) -> None:
    """Start branches that share everything up to an event.

    The event is REV, or the head of the current branch. A fork costs one reference, however long the history.

    With --edit the fork shares everything before the event, and in its place has one with the payload as edited: the
    same type, call ids and schema, and the time it is now. The branch it came from is not touched. A payload that is no
    JSON or has not changed is refused; what was written is kept in a file, which the error names.
    """
    if (edit or file is not None) and (count is not None or (edit and file is not None)):
        raise click.UsageError("--edit and --edit-with stand without each other and without -n.")
    store = app.store()
    view = app.view(store, rev)
    if edit or file is not None:
        _edited(app, store, view, name, rev, file, checkout)
        return
    _forked(app, store, view, name, count, checkout)


def _forked(app: App, store: castlog.Store, view: castlog.View, name: str, count: int | None, checkout: bool) -> None:
    point = view.head
    with held():
        if count is None:
            made = [view.fork(name)]
        else:
            made = view.fork_many(count, prefix=name.removesuffix("-") + "-")
        if checkout:
            store.checkout(made[0].rev)
        for new in made:
            if app.out.json:
                app.out.record(rev=new.rev, branch=new.name, session_id=point.session_id, seq=point.seq)
            elif count is None:
                app.out.line(new.rev)
        if count is not None and not app.out.json:
            app.out.line(made[0].rev + (f" .. {made[-1].name}" if count > 1 else ""))
        app.out.flush()


def _edited(
    app: App, store: castlog.Store, view: castlog.View, name: str, rev: str | None, file: str | None, checkout: bool
) -> None:
    head = view.head
    if head.seq == 0:
        raise castlog.NotFound(f"{head.rev} has no event to edit", hint="castlog append adds one.")
    event = view.read(head.seq)
    session = view.session
    if name in session.tags() or any(branch.name == name for branch in session.branches()):
        raise castlog.Conflict(f"{session.id} has a {name!r} already", name=name)  # before anybody edits anything
    if file is not None:
        _replace(app, store, view, event, name, editing.from_file(event, file), checkout)
        return
    command = " ".join(["castlog fork", typed(name), *([typed(rev)] if rev is not None else []), "--edit-with"])
    with editing.edited(event, command) as payload:
        _replace(app, store, view, event, name, payload, checkout)


def _replace(
    app: App,
    store: castlog.Store,
    view: castlog.View,
    event: castlog.Event,
    name: str,
    payload: object,
    checkout: bool,
) -> None:
    """Fork before an event, and append one like it with another payload; a fork without it does not stay."""
    draft = castlog.Draft(event.type, payload, schema=event.schema, call_ids=event.call_ids)
    with held():
        new = view.fork(name, at=event.seq - 1)
        try:
            made = new.extend([draft])[0]
        except BaseException:
            new.delete()
            raise
        if checkout:
            store.checkout(new.rev)
        if app.out.json:
            app.out.record(rev=new.rev, branch=new.name, session_id=made.session_id, seq=made.seq)
        else:
            app.out.line(new.rev)
        app.out.flush()
