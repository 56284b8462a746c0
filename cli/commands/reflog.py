"""`castlog reflog`: how a head moved."""

from __future__ import annotations

import click

from ..command import App, command
from ..events import short_id
from ..output import Styled
from ..revision import REV
from ..text import cells, cut, flat, pad
from ..values import iso, local


@command("reflog", examples=("castlog reflog", "castlog reflog 4f2a91cc/main"))
@click.argument("rev", required=False, type=REV)
def reflog(app: App, rev: str | None) -> None:
    """List how a branch's head moved.

    Newest first: promote, reset, rename and the like, with the heads before and after. Appends are not listed.
    """
    branch = app.branch(app.store(read_only=True), rev)
    moves = branch.reflog()
    width = max((len(_head(move.old_seq, move.old_id)) for move in moves), default=0)
    for move in reversed(moves):
        if app.out.json:
            app.out.record(
                n=move.n,
                ts=iso(move.ts),
                op=move.op,
                old_seq=move.old_seq,
                old_id=move.old_id,
                new_seq=move.new_seq,
                new_id=move.new_id,
                note=move.note,
            )
            continue
        start = f"{move.n:>3}  "
        heads = f"{pad(_head(move.old_seq, move.old_id), width)} -> {_head(move.new_seq, move.new_id)}"
        text = cut(f"{local(move.ts)[:19]}  {pad(move.op, 8)}  {heads}", app.out.width - len(start))
        note = flat(move.note)
        fits = len(start) + cells(text) + 2 + cells(note) <= app.out.width
        app.out.line(Styled(start, "yellow"), text, f"  {note}" if note and fits else "")
        if note and not fits:
            app.out.line(f"{'':>{len(start)}}{cut(note, app.out.width - len(start))}")


def _head(seq: int, event_id: str | None) -> str:
    return f"@{seq} {short_id(event_id)}" if event_id else f"@{seq}"
