"""`castlog cat`: events as JSON Lines."""

from __future__ import annotations

import click

from ..command import App, command
from ..revision import REV


@command("cat", examples=("castlog cat main > main.jsonl", "castlog cat idea-b --from 41 --until 60 | jq .type"))
@click.argument("rev", required=False, type=REV)
@click.option("--from", "start", type=click.IntRange(min=1), default=1, help="The first seq; default 1.")
@click.option("--until", type=click.IntRange(min=0), help="The last seq, included; default the head.")
def cat(app: App, rev: str | None, start: int, until: int | None) -> None:
    """Print events as JSON Lines, oldest first.

    Payloads are printed as they were recorded. A revision with @SEQ ends there.
    """
    view = app.view(app.store(read_only=True), rev)
    for event in view.events(start, until):
        app.out.json_line(event.to_json())
