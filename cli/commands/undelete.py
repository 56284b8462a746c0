"""`castlog undelete`: the trash."""

from __future__ import annotations

import time

import click

import castlog

from ..command import App, command
from ..revision import REV
from ..signals import held
from ..text import flat
from ..values import age, iso


@command(
    "undelete",
    examples=(
        "castlog undelete",
        "castlog undelete try-1",
        "castlog undelete 4f2a91cc",
        "castlog undelete 4f2a91cc/idea-b --as idea-c",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("--as", "name", metavar="NAME", help="Bring a branch back under another name.")
def undelete(app: App, rev: str | None, name: str | None) -> None:
    """List the trash, or bring something back from it.

    Deleted sessions and branches stay in the trash for 30 days. REV is a session, SESSION/BRANCH as the list shows it,
    or the bare name of a branch of the current session.
    """
    if rev is None:
        if name is not None:
            raise click.UsageError("--as needs the REV of a deleted branch.")
        _list(app)
        return
    store = app.store()
    with held():
        back = store.undelete(rev, name, current=_here(app, store, rev))
    found = back.rev if isinstance(back, castlog.Branch) else back.id
    if app.out.json:
        app.out.record(rev=found, restored="branch" if isinstance(back, castlog.Branch) else "session")
    else:
        app.out.line(found)


def _here(app: App, store: castlog.Store, rev: str) -> str | None:
    """Return what stands in for what is checked out, or None; the variable may name the very thing that is deleted."""
    try:
        return app.base(store, rev)
    except (castlog.NotFound, castlog.Invalid):
        return None


def _list(app: App) -> None:
    trash = app.store(read_only=True).trash()
    now = time.time_ns()
    for item in trash:
        if app.out.json:
            app.out.record(
                rev=item.rev,
                session_id=item.session_id,
                branch=item.branch,
                title=item.title,
                deleted=iso(item.deleted),
            )
        else:
            app.out.line(f"{item.rev}  {age(item.deleted, now):>8}  {flat(item.title)}")
    if not trash:
        app.out.say("The trash is empty.")
