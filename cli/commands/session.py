"""`castlog session`: rename, label or delete a session."""

from __future__ import annotations

import click

from ..command import App, command
from ..revision import REV
from ..signals import held
from ..text import flat
from ..values import LABEL, iso
from .sessions import row


@command(
    "session",
    examples=(
        'castlog session 4f2a91cc -m "login bug, second try"',
        "castlog session 4f2a91cc/ --label kept=yes",
        "castlog session 4f2a91cc -d",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("-m", "--rename", "title", metavar="TITLE", help="Give it another title.")
@click.option(
    "-d", "--delete", is_flag=True, help="Move it to the trash, where it stays for 30 days; REV must be written."
)
@click.option("--label", "labels", multiple=True, type=LABEL, help="Set a label; may be repeated.")
@click.option("--unlabel", "removed", metavar="KEY", multiple=True, help="Take a label off; may be repeated.")
def session(
    app: App,
    rev: str | None,
    title: str | None,
    delete: bool,
    labels: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
) -> None:
    """Rename, label or delete a session.

    REV is any revision of it; without an option its particulars are shown.
    """
    changes = title is not None or bool(labels) or bool(removed)
    if delete and changes:
        raise click.UsageError("-d stands alone.")
    if delete and rev is None:
        raise click.UsageError("Write which session to delete: castlog session REV -d")
    store = app.store(read_only=not (delete or changes))
    found = app.view(store, rev).session
    with held():
        if delete:
            found.delete()
            if app.out.json:
                app.out.record(**row(found), deleted=True)
            app.out.say(f"{flat(found.title)} is in the trash; castlog undelete {found.id[-8:]} brings it back.")
            return
        if title is not None:
            found.rename(title)
        if labels or removed:
            found.relabel(dict(labels) | dict.fromkeys(removed))
    found = store.session(found.id)
    if app.out.json:
        app.out.record(**row(found), deleted=False)
        return
    for name, value in (
        ("id", found.id),
        ("title", flat(found.title)),
        ("labels", "  ".join(f"{key}={value}" for key, value in found.labels.items())),
        ("created", iso(found.created)),
        ("origin", found.origin or ""),
        ("parent", found.info.parent_session or ""),
        ("branches", f"{found.info.branches:,}"),
        ("events", f"{found.info.events:,}"),
    ):
        if value:
            app.out.line(f"{name:<9} {value}")
