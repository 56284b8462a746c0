"""`castlog checkout`: make a branch current, or write it out."""

from __future__ import annotations

import json
from pathlib import Path

import click

import castlog

from ..attachments import Attachments
from ..command import App, command
from ..files import new_folder, private
from ..revision import REV, typed
from ..signals import held
from ..text import plural


@command(
    "checkout",
    examples=(
        "castlog checkout idea-b",
        "castlog checkout main@40 -b idea-c",
        "castlog checkout main@40 --out ./at-40",
    ),
)
@click.argument("rev", type=REV)
@click.option("-b", "--branch", "name", metavar="NAME", help="Fork NAME at REV and make that current.")
@click.option(
    "--out", "folder", metavar="DIR", type=click.Path(), help="Write transcript.jsonl, state.json and attachments here."
)
@click.option(
    "--force", is_flag=True, help="Write into DIR though it is not empty; only what is named alike is replaced."
)
def checkout(app: App, rev: str, name: str | None, folder: str | None, force: bool) -> None:
    """Make a branch the current one, or write it out as files.

    The current branch is what commands take when no REV is written. With --out a tag or REV@SEQ can be written too; the
    current branch then stays as it is.
    """
    if folder == "":
        raise click.UsageError("--out needs the name of a folder.")
    store = app.store()
    view = app.view(store, rev)
    written = _write_out(view, Path(folder), force) if folder is not None else None
    made = None
    if name is not None or written is None or _is_branch(app, store, rev):
        with held():
            target = view.fork(name).rev if name is not None else rev
            made = _make_current(app, store, target)
    if app.out.json:
        head = view.head
        app.out.record(
            rev=(made or view).rev, seq=head.seq, id=head.id, current=made is not None, out=folder, attachments=written
        )
        return
    app.out.line((made or view).rev)
    if written is not None:
        app.out.say(f"{folder}: {plural(view.head.seq, 'event')}, {plural(written, 'attachment')}")
    if made is None:
        app.out.say("This is a fixed point, so the current branch stays as it is.")


def _make_current(app: App, store: castlog.Store, rev: str) -> castlog.Branch:
    try:
        return store.checkout(rev, current=app.base(store, rev))
    except castlog.Invalid as error:
        hint = f"castlog checkout {typed(rev)} -b NAME forks a branch there and makes it current."
        raise castlog.Invalid(str(error), **{"hint": hint, **error.facts}) from error


def _is_branch(app: App, store: castlog.Store, rev: str) -> bool:
    try:
        app.branch(store, rev)
    except castlog.Invalid:
        return False
    return True


def _write_out(view: castlog.View, folder: Path, force: bool) -> int:
    """Write a history as files and return the number of attachments."""
    head = view.head
    types: dict[str, int] = {}
    with new_folder(folder, force) as made:
        attachments = Attachments(made / "attachments")
        with private(made / "transcript.jsonl") as transcript:
            for event in view.events(1, head.seq):
                transcript.write(event.to_json().encode() + b"\n")
                types[event.type] = types.get(event.type, 0) + 1
                attachments.take(event)
        state = {
            "rev": head.rev,
            "seq": head.seq,
            "id": head.id,
            "types": types,
            "in_flight": [
                {"seq": event.seq, "type": event.type, "call_ids": list(event.call_ids)}
                for event in view.in_flight(head.seq)
            ],
            "attachments": attachments.rows,
            **_folded(view, head.seq),
        }
        with private(made / "state.json") as file:
            file.write(json.dumps(state, ensure_ascii=False, indent=2).encode() + b"\n")
    return len(attachments.rows)


def _folded(view: castlog.View, seq: int) -> dict[str, object]:
    """Return the state after an event and what folded it; null where newer code than this wrote the events."""
    reducer = castlog.conversation
    try:
        state = view.restore(reducer, seq).state
    except castlog.Unavailable:
        state = None
    return {"reducer": reducer.name, "version": reducer.version, "state": state}
