"""`castlog reflog`: how a head moved."""

from __future__ import annotations

import click

from ..command import App, command
from ..events import short_id
from ..output import Styled
from ..revision import REV
from ..text import flat, pad
from ..values import iso, local


@command("reflog", examples=("castlog reflog", "castlog reflog 4f2a91cc/main"))
@click.argument("rev", required=False, type=REV)
def reflog(app: App, rev: str | None) -> None:
    """List how a branch's head moved.

    Newest first: promote, reset, rename and the like, with the heads before and after. Appends are not listed.
    """
    branch = app.branch(app.store(read_only=True), rev)
    for move in reversed(branch.reflog()):
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
        old = f"@{move.old_seq} {short_id(move.old_id or '')}"
        new = f"@{move.new_seq} {short_id(move.new_id or '')}"
        app.out.line(
            Styled(f"{move.n:>4}  ", "yellow"),
            f"{local(move.ts)}  {pad(move.op, 8)}  {old:<22} -> {new:<22}  {flat(move.note)}".rstrip(),
        )
