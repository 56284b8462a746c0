"""`castlog merge-base`: what two branches share."""

from __future__ import annotations

import click

from ..command import App, command
from ..errors import SOMETHING_FOUND as NOTHING_SHARED
from ..revision import REV


@command("merge-base", examples=("castlog merge-base idea-b main",))
@click.argument("a", type=REV)
@click.argument("b", type=REV)
def merge_base(app: App, a: str, b: str) -> int:
    """Print the last event two branches share.

    Exits 1 when they share nothing, as histories of different sessions do.
    """
    store = app.store(read_only=True)
    base = store.merge_base(app.view(store, a), app.view(store, b))
    if base is None:
        app.out.say("They share no event.")
        return NOTHING_SHARED
    if app.out.json:
        app.out.record(rev=base.rev, seq=base.seq, id=base.id)
    else:
        app.out.line(f"{base.rev}  {base.id}")
    return 0
