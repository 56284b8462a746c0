"""`castlog fork`: start branches."""

from __future__ import annotations

import click

from ..command import App, command
from ..revision import REV
from ..signals import held


@command(
    "fork",
    examples=("castlog fork idea-b", "castlog fork idea-b main@40 --checkout", "castlog fork try main@40 -n 200"),
)
@click.argument("name")
@click.argument("rev", required=False, type=REV)
@click.option("-n", "count", metavar="COUNT", type=click.IntRange(min=1), help="Make this many: NAME-1, NAME-2, ...")
@click.option("--checkout", is_flag=True, help="Make the new branch, or the first of them, the current one.")
def fork(app: App, name: str, rev: str | None, count: int | None, checkout: bool) -> None:
    """Start branches that share everything up to an event.

    The event is REV, or the head of the current branch. A fork costs one reference, however long the history.
    """
    store = app.store()
    view = app.view(store, rev)
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
