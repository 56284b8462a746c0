"""`castlog sessions`: list sessions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import click

import castlog

from ..command import App, command
from ..output import Out, Styled
from ..text import cells, cut, flat, pad
from ..values import LABEL, SINCE, age, iso, local, size

_LIMIT = 50
_LABELS_ROOM_MIN = 8  # columns below which half a label says nothing


@command("sessions", examples=("castlog sessions --label team=web --since 3d", "castlog sessions --in-flight --json"))
@click.option("--label", "labels", multiple=True, type=LABEL, help="Only those with this label; may be repeated.")
@click.option("--title", help="Only those with exactly this title.")
@click.option("--since", type=SINCE, help="Only those active since: 2h, 3d, yesterday, 2026-05-06.")
@click.option("--in-flight", is_flag=True, help="Only those with a call that has no result yet.")
@click.option("--running", is_flag=True, help="Only those a harness has a run of now, and who that is.")
@click.option(
    "--sort",
    type=click.Choice(["activity", "created", "size"]),
    default="activity",
    show_default=True,
    help="What comes first.",
)
@click.option(
    "-n",
    "limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=_LIMIT,
    show_default=True,
    help="At most N, sub-agents' included; 0 for all.",
)
@click.option("--children", is_flag=True, help="Sub-agents' sessions too, beneath the ones that started them.")
def sessions(
    app: App,
    labels: tuple[tuple[str, str], ...],
    title: str | None,
    since: int | None,
    in_flight: bool,
    running: bool,
    sort: str,
    limit: int,
    children: bool,
) -> None:
    """List sessions, latest activity first.

    Columns: id (the last 8 digits, which every command takes), last activity, branches, events, size, title, labels.
    """
    store = app.store(read_only=True)
    found = store.sessions(
        label=dict(labels) or None, title=title, since=since, in_flight=in_flight, sort=sort, children=children
    )
    runs = store.running() if running else []
    if running:
        at_work = {run.session_id for run in runs}
        found = [session for session in found if session.id in at_work]
    rows = list(_walk(_forest(found), found))
    shown = rows[: limit or None]
    now = time.time_ns()
    if app.out.terminal and shown and not app.out.json:
        app.out.line(Styled(_columns("id", "active", "br", "events", "size") + "title", "dim"))
    for depth, session in shown:
        _show(app.out, session, depth, now, [run for run in runs if run.session_id == session.id])
    if len(shown) < len(rows):
        app.out.say(f"{len(rows) - len(shown):,} more; -n 0 lists all.")
    if not found:
        app.out.say("No session here." if not labels and not running else "No session fits.")


def row(session: castlog.Session) -> dict[str, object]:
    """Return what programs get to know of a session."""
    info = session.info
    return {
        "id": info.id,
        "title": info.title,
        "labels": dict(info.labels),
        "origin": info.origin,
        "parent": info.parent_session,
        "created": iso(info.created),
        "activity": iso(info.activity),
        "branches": info.branches,
        "events": info.events,
        "size": info.size,
    }


def _forest(found: Sequence[castlog.Session]) -> list[castlog.Session]:
    """Return those whose parent is not in the list."""
    ids = {session.id for session in found}
    return [session for session in found if session.info.parent_session not in ids]


def _walk(roots: Sequence[castlog.Session], found: Sequence[castlog.Session]) -> Iterator[tuple[int, castlog.Session]]:
    below: defaultdict[str, list[castlog.Session]] = defaultdict(list)
    for session in found:
        if session.info.parent_session:
            below[session.info.parent_session].append(session)
    stack = [(0, session) for session in reversed(roots)]
    while stack:
        depth, session = stack.pop()
        yield depth, session
        stack.extend((depth + 1, child) for child in reversed(below.get(session.id, ())))


def _show(out: Out, session: castlog.Session, depth: int, now: int, runs: Sequence[castlog.Running]) -> None:
    if out.json:
        out.record(**row(session), **({"running": [_run_row(run) for run in runs]} if runs else {}))
        return
    info = session.info
    start = _columns(info.id[-8:], age(info.activity, now), f"{info.branches}", f"{info.events:,}", size(info.size))
    labels = "  ".join(f"{key}={value}" for key, value in info.labels.items())
    title = "  " * min(depth, 10) + ("└ " if depth else "") + flat(info.title)
    if out.terminal:
        title = cut(title, out.width - len(start))
        room = out.width - len(start) - cells(title) - 2
        labels = cut(labels, room) if room > _LABELS_ROOM_MIN else ""
    out.line(Styled(start[:8], "yellow"), start[8:], title, Styled("  " + labels if labels else "", "dim"))
    for run in runs:
        who = f"process {run.pid} on {run.host}" if run.pid is not None else "another process"
        since = "" if run.since is None else f" since {local(run.since)[:19]}"
        out.line("          ", Styled(f"{flat(run.branch)}: {who}{since}", "green"))


def _run_row(run: castlog.Running) -> dict[str, object]:
    since = None if run.since is None else iso(run.since)
    return {"rev": run.rev, "branch": run.branch, "pid": run.pid, "host": run.host, "since": since}


def _columns(ident: str, active: str, branches: str, events: str, stored: str) -> str:
    return f"{pad(ident, 8)}  {active:>8}  {branches:>4}  {events:>7}  {stored:>7}  "
