"""`castlog grep`: search events."""

from __future__ import annotations

import re

import click

import castlog

from ..command import App, command
from ..errors import SOMETHING_FOUND as NOTHING_FOUND
from ..events import short_rev
from ..output import Styled
from ..revision import REV
from ..text import cells, cut, flat
from ..values import iso


@command("grep", examples=("castlog grep -i 'permission denied'", "castlog grep -l --tool Edit api.py 4f2a91cc/main"))
@click.argument("pattern")
@click.argument("revs", metavar="[REV]...", nargs=-1, type=REV)
@click.option("-l", "revs_only", is_flag=True, help="Only the revisions, not the text.")
@click.option("-i", "ignore_case", is_flag=True, help="Upper and lower case alike.")
@click.option("-F", "fixed", is_flag=True, help="PATTERN is plain text, not a regular expression.")
@click.option("--type", "types", multiple=True, help="Only events of this type; may be repeated.")
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
def grep(
    app: App,
    pattern: str,
    revs: tuple[str, ...],
    revs_only: bool,
    ignore_case: bool,
    fixed: bool,
    types: tuple[str, ...],
    tool: str | None,
) -> int:
    """Search events; all branches of all sessions unless told.

    PATTERN is a regular expression of Python's, looked for in each event's payload. An event that branches share is
    read once. Exits 1 when nothing is found.
    """
    store = app.store(read_only=True)
    places = [app.view(store, rev) for rev in revs]
    found = False
    with app.out.progress("searching") as progress:
        matches = store.grep(
            pattern,
            places,
            ignore_case=ignore_case,
            fixed=fixed,
            types=set(types) or None,
            tool=tool,
            progress=progress,
        )
        for match in matches:
            found = True
            rev = _rev(match)
            if app.out.json:
                fields = {} if revs_only else {"text": match.text}
                app.out.record(rev=rev, seq=match.event.seq, type=match.event.type, ts=iso(match.event.ts), **fields)
            elif revs_only:
                app.out.line(short_rev(rev) if app.out.terminal else rev)
            else:
                app.out.line(*_marked(short_rev(rev), match.text, pattern, fixed, ignore_case, app.out.width))
    return 0 if found else NOTHING_FOUND


def _rev(match: castlog.Match) -> str:
    return match.rev if "@" in match.rev else f"{match.rev}@{match.event.seq}"


def _marked(rev: str, text: str, pattern: str, fixed: bool, ignore_case: bool, width: int) -> list[str | Styled]:
    """Return a line with the first match in view and each match marked."""
    text = flat(text)
    parts: list[str | Styled] = [Styled(rev, "yellow"), ": "]
    try:
        seek = re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0)
    except re.error:
        return [*parts, text]
    room = max(width - cells(rev) - 2, 24)
    first = seek.search(text)
    start = max(0, first.start() - room // 3) if first and first.end() > room else 0
    shown = cut(("…" if start else "") + text[start:], room)
    place = 0
    for match in seek.finditer(shown):
        if match.end() > match.start():
            parts += [shown[place : match.start()], Styled(match.group(), "red bold")]
            place = match.end()
    return [*parts, shown[place:]]
