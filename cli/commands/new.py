"""`castlog new`: create a session."""

from __future__ import annotations

import click

from ..command import App, command
from ..signals import held
from ..values import LABEL


@command("new", examples=('castlog new "fix the login bug" --label team=web', "S=$(castlog new nightly --no-checkout)"))
@click.argument("title")
@click.option("--label", "labels", multiple=True, type=LABEL, help="A label; may be given several times.")
@click.option("--no-checkout", is_flag=True, help="Leave the current revision as it is.")
def new(app: App, title: str, labels: tuple[tuple[str, str], ...], no_checkout: bool) -> None:
    """Create a session, check it out, and print its id.

    It has an empty branch main. Makes the store if there is none yet.
    """
    store = app.store(create=True)
    with held():
        session = store.create_session(title, labels=dict(labels))
        main = session.branch("main")
        if not no_checkout:
            store.checkout(main.rev)
        if app.out.json:
            app.out.record(
                session_id=session.id,
                title=session.title,
                labels=dict(session.labels),
                rev=main.rev,
                current=not no_checkout,
            )
        else:
            app.out.line(session.id)
        app.out.flush()
