"""`castlog export`: write out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..command import App, command
from ..files import new_file
from ..revision import REV
from ..text import plural


@command(
    "export",
    examples=(
        "castlog export main -o run.jsonl",
        "castlog export 4f2a91cc --format bundle -o session.castlog",
        "castlog export 4f2a91cc/main --format source > transcript.jsonl",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "bundle", "source"]),
    default="jsonl",
    show_default=True,
    help="What to write.",
)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write this file; it appears when it is whole.")
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=1),
    default=1,
    help="With source: the first seq, where a file began later.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(app: App, rev: str | None, kind: str, output: str | None, start: int, force: bool) -> None:
    """Write a branch or session out: JSON Lines, bundle, or its source format.

    jsonl is one branch and bundle a whole session with branches, tags and labels; importing either elsewhere gives the
    same event ids. source gives the very bytes that were imported; of events that were not imported it gives the
    payloads alone, one a line. Without -o it goes to stdout.
    """
    if start > 1 and kind != "source":
        raise click.UsageError("--from goes with --format source only; castlog cat --from prints part of a branch.")
    if output == "":
        raise click.UsageError("-o needs the name of a file.")
    if output in (None, "-") and kind == "bundle" and sys.stdout.isatty():
        raise click.UsageError("A bundle is not for a terminal; write it to a file with -o FILE.")
    if app.out.json and output in (None, "-") and kind != "jsonl":
        raise click.UsageError(f"--json prints objects, and {kind} is none; write it to a file with -o FILE.")
    store = app.store(read_only=True)
    view = app.view(store, rev)
    with app.out.progress("exporting") as progress:
        if output is None or output == "-":
            store.export(view, app.out.binary(), kind, start=start, progress=progress)
            return
        path = Path(output)
        with new_file(path, force) as file:
            count = store.export(view, file, kind, start=start, progress=progress)
    if app.out.json:
        app.out.record(file=str(path), rev=view.rev, format=kind, events=count)
    else:
        app.out.say(f"{path}: {plural(count, 'event')}")
