"""`castlog reset`: move a head back."""

from __future__ import annotations

import click

from ..command import App, command
from ..revision import REV, split
from ..signals import held


@command("reset", examples=("castlog reset main@40", "castlog reset main~2", "castlog reset 4f2a91cc/idea-b --to 12"))
@click.argument("rev", type=REV)
@click.option("--to", type=click.IntRange(min=0), help="The seq to go back to, where REV is just the branch.")
def reset(app: App, rev: str, to: int | None) -> None:
    """Move a branch's head back along its history.

    REV names the branch and the place: main@40, main~2. What came after stays in the reflog, and what other branches
    read does not change.
    """
    name, place = split(rev)
    if not name or (not place and to is None) or (place and to is not None):
        raise click.UsageError(
            "Write the branch and where it should go: castlog reset main@40, or castlog reset main --to 40"
        )
    store = app.store()
    branch = app.branch(store, name)
    seq = app.view(store, rev).head.seq if to is None else to
    before = branch.head
    with held():
        branch.reset(seq)
        head = branch.head
        if app.out.json:
            app.out.record(rev=branch.rev, seq=head.seq, id=head.id, old_seq=before.seq, old_id=before.id)
        else:
            app.out.line(f"{branch.rev}@{head.seq}")
            app.out.say(f"{branch.name} was at @{before.seq}; castlog reflog keeps that head.")
