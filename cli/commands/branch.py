"""`castlog branch`: list, rename, delete."""

from __future__ import annotations

import click

import castlog

from ..command import App, command
from ..events import short_id, short_rev
from ..output import Styled
from ..revision import REV, typed
from ..signals import held
from ..text import pad


@command(
    "branch",
    examples=(
        "castlog branch",
        "castlog branch --session 4f2a91cc",
        "castlog branch -m idea-b kept",
        "castlog branch -d try-1 try-2",
    ),
)
@click.argument("names", metavar="[NAME]...", nargs=-1, type=REV)
@click.option("-m", "--rename", is_flag=True, help="Rename: -m OLD NEW, or -m NEW for the current branch.")
@click.option("-d", "--delete", is_flag=True, help="Move the branches named to the trash; their forks are not touched.")
@click.option("--session", "session_rev", metavar="REV", type=REV, help="List the branches of this session.")
def branch(app: App, names: tuple[str, ...], rename: bool, delete: bool, session_rev: str | None) -> None:
    """List, rename or delete branches.

    Listed: name, head, id, and where it was forked. A deleted branch stays in the trash for 30 days (castlog undelete).
    """
    if rename and delete:
        raise click.UsageError("-m and -d do not go together.")
    if rename:
        _rename(app, names)
    elif delete:
        _delete(app, names)
    elif names:
        raise click.UsageError(f"castlog branch makes no branch; castlog fork {names[0]} does.")
    else:
        _list(app, session_rev)


def _list(app: App, rev: str | None) -> None:
    store = app.store(read_only=True)
    session = app.view(store, rev).session
    current = app.here(store, session)
    nodes = session.tree()
    heads = {found.name: found.head.id for found in session.branches()}
    width = min(max((len(node.name) for node in nodes), default=0), 40)
    for node in nodes:
        if app.out.json:
            app.out.record(
                rev=f"{session.id}/{node.name}",
                branch=node.name,
                seq=node.seq,
                id=heads.get(node.name),
                parent=node.parent,
                fork_seq=node.fork_seq,
                current=node.name == current,
            )
            continue
        origin = f"  from {node.parent}@{node.fork_seq}" if node.parent is not None else ""
        name = Styled(pad(node.name, width) if len(node.name) <= width else node.name, "green")
        app.out.line(
            "* " if node.name == current else "  ",
            name,
            f"  {'@' + str(node.seq):>8}  {short_id(heads.get(node.name, ''))}",
            origin,
        )


def _rename(app: App, names: tuple[str, ...]) -> None:
    if len(names) not in (1, 2):
        raise click.UsageError("Write castlog branch -m OLD NEW, or -m NEW for the current branch.")
    renamed = app.branch(app.store(), names[0] if len(names) == 2 else None)
    old = renamed.rev
    with held():
        renamed.rename(names[-1])
        if app.out.json:
            app.out.record(rev=renamed.rev, old=old)
        else:
            app.out.line(renamed.rev)


def _delete(app: App, names: tuple[str, ...]) -> None:
    if not names:
        raise click.UsageError("Write which branches to delete: castlog branch -d NAME...")
    store = app.store()
    found: list[castlog.Branch] = [app.branch(store, name) for name in names]  # all are known before one goes
    before = store.current
    left = before in found
    for gone in found:
        with held():
            rev, head = gone.rev, gone.head
            gone.delete()
            if app.out.json:
                app.out.record(rev=rev, seq=head.seq, id=head.id, deleted=True)
            short = short_rev(rev)
            app.out.say(f"{short} is in the trash; it was at @{head.seq} ({short_id(head.id)}).")
            app.out.say(f"castlog undelete {typed(short)} brings it back.")
    if left:
        now = store.current
        app.out.say(f"The current branch is {short_rev(now.rev)} now." if now else "No branch is current now.")
