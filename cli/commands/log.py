"""`castlog log`: events newest first, turns, and the branch tree."""

from __future__ import annotations

from itertools import islice

import click

import castlog

from .. import events, graph
from ..command import App, command
from ..output import Out, Styled
from ..preview import preview
from ..revision import REV
from ..text import cells, plural
from ..turns import turns_of
from ..values import iso

_ON_A_SCREEN_MIN = 5


@command(
    "log",
    examples=(
        "castlog log",
        "castlog log idea-b --oneline -n 20",
        "castlog log --graph",
        "castlog log 4f2a91cc --turns",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option(
    "--graph", "as_graph", is_flag=True, help="Draw the session's branches: who forked where, and what is shared."
)
@click.option(
    "-n",
    "limit",
    metavar="N",
    type=click.IntRange(min=0),
    help="At most N lines; 0 for all. Default: a screenful on a terminal, else all.",
)
@click.option("--type", "types", multiple=True, help="Only events of this type; may be repeated.")
@click.option("--oneline", is_flag=True, help="One line an event.")
@click.option("--turns", is_flag=True, help="One line a turn with its seqs; a turn begins at a user_message.")
def log(
    app: App, rev: str | None, as_graph: bool, limit: int | None, types: tuple[str, ...], oneline: bool, turns: bool
) -> None:
    """Show events newest first, or how branches fork.

    The graph has a line for each branch beneath the one it was forked from: @40 is the fork point, up to which both
    share everything, and 41..55 are the events of its own. Leaves alike are folded into one line: try-1..200.
    """
    if as_graph + turns + bool(types) > 1:
        raise click.UsageError("--graph, --turns and --type do not go together.")
    store = app.store(read_only=True)
    view = app.view(store, rev)
    if as_graph:
        _graph(app, store, view.session, limit)
        return
    room = _screenful(app.out, 1 if turns or oneline else 2) if limit is None else limit
    if turns:
        rest = _write_turns(app, view, room)
    else:
        rest = _write_events(app, view, room, types, oneline)
    if rest and limit is None:
        app.out.say("There is more; -n 0 shows all.")


def _screenful(out: Out, lines_each: int) -> int:
    """Return how many entries fit the screen above the next prompt; 0, for all, where there is no screen."""
    return 0 if out.height is None else max((out.height - 3) // lines_each, _ON_A_SCREEN_MIN)


def _write_events(app: App, view: castlog.View, limit: int, types: tuple[str, ...], oneline: bool) -> bool:
    found = view.events(reverse=True, types=set(types) or None)
    wrote = False
    for event in islice(found, limit or None):
        wrote = True
        if app.out.json:
            app.out.record(**events.row(event))
        elif oneline:
            events.one_line(app.out, event)
        else:
            events.two_lines(app.out, event)
    if not wrote:
        app.out.say("No such event." if types else "No event yet; castlog append adds one.")
    return limit > 0 and next(found, None) is not None


def _write_turns(app: App, view: castlog.View, limit: int) -> bool:
    found = turns_of(view)
    for turn in islice(found, limit or None):
        first = turn.first
        count = turn.until - first.seq + 1
        opened = first.type == "user_message"
        if app.out.json:
            app.out.record(
                **{"from": first.seq},
                until=turn.until,
                events=count,
                tool_calls=turn.calls,
                ts=iso(first.ts),
                rev=f"{first.session_id}/{first.branch}@{turn.until}",
                text=preview(first, 500) if opened else None,
            )
            continue
        seqs = f"{first.seq}..{turn.until}"
        counts = f"{plural(count, 'event')}, {plural(turn.calls, 'call')}"
        text = preview(first, max(app.out.width - 38, 24)) if opened else "(before the first message)"
        app.out.line(Styled(f"{seqs:>13}", "yellow"), Styled(f"  {counts:<21}  ", "dim"), text)
    return limit > 0 and next(found, None) is not None


def _graph(app: App, store: castlog.Store, session: castlog.Session, limit: int | None) -> None:
    nodes = session.tree()
    current = app.here(store, session)
    if app.out.json:
        for node in nodes:
            app.out.record(
                rev=f"{session.id}/{node.name}",
                branch=node.name,
                seq=node.seq,
                parent=node.parent,
                fork_seq=node.fork_seq,
                tags=list(node.tags),
                current=node.name == current,
            )
        return
    app.out.line(
        Styled(session.title, "bold"), Styled(f"  {session.id[-8:]}, {plural(len(nodes), 'branch', 'branches')}", "dim")
    )
    rows = graph.draw(nodes, current)
    shown = list(islice(rows, limit or None))
    width = min(max((cells(row.rails + row.name) for row in shown), default=0), 40)
    for row in shown:
        gap = " " * max(width - cells(row.rails + row.name), 0)
        app.out.line(
            Styled(row.rails, "dim"),
            Styled(row.name, "green"),
            f"{gap}  {row.text}",
            Styled(f"  {row.remarks}", "yellow") if row.remarks else "",
        )
    left = sum(1 for _ in rows)
    if left:
        app.out.say(f"{left:,} more lines; -n 0 shows all.")
