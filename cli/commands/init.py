"""`castlog init`: make a store."""

from __future__ import annotations

from pathlib import Path

import click

from .. import where
from ..command import App, command


@command("init", examples=("castlog init", "castlog init ~/runs.castlog"))
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path())
def init(app: App, directory: str | None) -> None:
    """Make a store.

    DIR is the store's own folder, new or empty. Without it: what --store or CASTLOG_STORE names, else .castlog in this
    folder, where every command run here or below finds it. A store that is there already is left as it is.
    """
    target = directory if directory is not None else app.target() if app.named() else str(Path.cwd() / where.NAME)
    if not target:
        raise click.UsageError("DIR is empty.")
    store, made = where.make(target)
    app.keep(store)
    path, shown = where.folder(target), where.shown(target)
    if app.out.json:
        app.out.record(store=shown, created=made)
        return
    app.out.line(shown)
    app.out.say("Made a store. Next: castlog new TITLE" if made else "There was a store already; it is as it was.")
    if made and path and path.name != where.NAME:
        app.out.say(f"Use it with --store {shown} or CASTLOG_STORE={shown}.")
