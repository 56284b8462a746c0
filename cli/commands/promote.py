"""`castlog promote`: let a branch take another's place."""

from __future__ import annotations

import click

from ..command import App, command
from ..revision import REV
from ..signals import held


@command("promote", examples=("castlog promote idea-b", "castlog promote 4f2a91cc/try-7 --onto idea-b"))
@click.argument("rev", type=REV)
@click.option(
    "--onto", metavar="BRANCH", default="main", show_default=True, help="The branch of the same session to move."
)
def promote(app: App, rev: str, onto: str) -> None:
    """Point a branch at another one's head.

    The branch promoted stays as it is; the old head of the other stays in its reflog.
    """
    store = app.store()
    chosen = app.branch(store, rev)
    session = chosen.session
    before = session.branch(onto).head
    with held():
        moved = session.promote(chosen.name, onto)
        head = moved.head
        if app.out.json:
            app.out.record(rev=moved.rev, seq=head.seq, id=head.id, old_seq=before.seq, old_id=before.id)
        else:
            app.out.line(moved.rev)
            app.out.say(f"{onto} was at @{before.seq} and is at @{head.seq} now; castlog reflog keeps the old head.")
