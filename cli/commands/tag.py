"""`castlog tag`: name events."""

from __future__ import annotations

import click

import castlog

from ..command import App, command
from ..events import short_id
from ..output import Styled
from ..revision import REV, split
from ..signals import held
from ..text import pad


@command("tag", examples=("castlog tag before-refactor main@40", "castlog tag", "castlog tag -d before-refactor"))
@click.argument("words", metavar="[NAME [REV]]", nargs=-1, type=REV)
@click.option("-d", "--delete", is_flag=True, help="Delete the tags named; the events stay.")
@click.option("--session", "session_rev", metavar="REV", type=REV, help="List the tags of this session.")
def tag(app: App, words: tuple[str, ...], delete: bool, session_rev: str | None) -> None:
    """Name an event; list or delete such names.

    A tag stays at its event for ever, whatever its branch does. REV is the current branch's head unless written.
    """
    if delete:
        _delete(app, words)
    elif words:
        _make(app, words)
    else:
        _list(app, session_rev)


def _list(app: App, rev: str | None) -> None:
    session = app.view(app.store(read_only=True), rev).session
    tags = session.tags()
    width = min(max(map(len, tags), default=0), 40)
    for name, point in sorted(tags.items()):
        if app.out.json:
            app.out.record(rev=f"{session.id}/{name}", tag=name, seq=point.seq, id=point.id)
        else:
            app.out.line(
                Styled(pad(name, max(width, len(name))), "green"), f"  {'@' + str(point.seq):>8}  {short_id(point.id)}"
            )
    if not tags:
        app.out.say("No tag here; castlog tag NAME makes one.")


def _make(app: App, words: tuple[str, ...]) -> None:
    if len(words) > 2:
        raise click.UsageError("Write castlog tag NAME [REV].")
    store = app.store()
    view = app.view(store, words[1] if len(words) == 2 else None)
    session = view.session
    with held():
        point = session.tag(words[0], view.head)
        if app.out.json:
            app.out.record(rev=f"{session.id}/{point.branch}", tag=point.branch, seq=point.seq, id=point.id)
        else:
            app.out.line(f"{session.id}/{point.branch}")


def _delete(app: App, words: tuple[str, ...]) -> None:
    if not words:
        raise click.UsageError("Write which tags to delete: castlog tag -d NAME...")
    store = app.store()
    found = [_tag_named(app, store, word) for word in words]  # all are known before one goes
    for session, name, point in found:
        with held():
            session.delete_tag(name)
            if app.out.json:
                app.out.record(rev=f"{session.id}/{name}", tag=name, seq=point.seq, id=point.id, deleted=True)
            app.out.say(f"{name} is gone; it named @{point.seq} ({short_id(point.id)}).")


def _tag_named(app: App, store: castlog.Store, word: str) -> tuple[castlog.Session, str, castlog.Point]:
    view = app.view(store, word)
    session, name = view.session, view.name
    tags = session.tags()
    if split(word)[1] or name not in tags:
        raise castlog.NotFound(f"{word} is no tag", hint="castlog tag lists the tags of a session.")
    return session, name, tags[name]
