"""`castlog du`: what is held and what it takes."""

from __future__ import annotations

import click

from ..command import App, command
from ..revision import REV
from ..text import plural
from ..values import size


@command("du", examples=("castlog du", "castlog du 4f2a91cc --json"))
@click.argument("rev", required=False, type=REV)
def du(app: App, rev: str | None) -> None:
    """Show logical against stored bytes.

    Logical is what all branches hold when each is read in full, distinct is what is left when nothing counts twice,
    stored is what it takes in the store. Of the whole store, or of the session of REV.
    """
    store = app.store(read_only=True)
    usage = store.usage(None if rev is None else app.view(store, rev))
    if app.out.json:
        app.out.record(
            logical=usage.logical,
            distinct=usage.distinct,
            stored=usage.stored,
            sessions=usage.sessions,
            events=usage.events,
            kinds=dict(usage.kinds),
        )
        return
    width = max(map(len, usage.kinds), default=8) + 2
    app.out.line(f"{plural(usage.sessions, 'session')}, {plural(usage.events, 'event')}")
    for name in ("logical", "distinct", "stored"):
        count = getattr(usage, name)
        share = f"  {count / usage.logical:7.1%} of logical" if usage.logical and name != "logical" else ""
        app.out.line(f"{name:<{width}} {size(count):>8}{share}")
    for name, count in sorted(usage.kinds.items(), key=lambda item: -item[1]):
        app.out.line(f"  {name:<{width - 2}} {size(count):>8}")
