"""`castlog import`: take in transcripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path

import click

import castlog

from ..command import App, command
from ..errors import LOSSES
from ..events import short_rev
from ..output import Styled
from ..text import cells, cut, flat, plural

# castlog's own, and whatever is plugged in.
_FORMATS = ("castlog", *sorted(point.name for point in entry_points(group="castlog.transcripts")))
_FILES_SHOWN = 20
_REASONS_SHOWN = 8
_STATUSES = ("new", "grown", "rewritten", "unchanged", "skipped")
_COLOURS = {"new": "green", "grown": "green", "rewritten": "yellow", "skipped": "dim", "unchanged": "dim"}


@command(
    "import",
    examples=(
        "castlog import ~/.claude/projects",
        "castlog import ~/.codex/sessions run.jsonl",
        "castlog import export.castlog --format castlog",
    ),
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--format", "kind", type=click.Choice(_FORMATS), help="What the files are. Default: seen from their content."
)
def import_(app: App, paths: tuple[str, ...], kind: str | None) -> int:
    """Take in transcripts: castlog, Claude Code, Codex, any JSON Lines.

    Folders are searched to the bottom. Importing again adds only what is new. A record is kept byte for byte, and a
    damaged stretch is kept aside and listed; the exit code is then 8. Makes the store if there is none yet.
    """
    for path in paths:
        if not path or not Path(path).exists():
            raise castlog.NotFound(f"there is nothing at {path or 'the empty path'}", path=path)
    store = app.store(create=True)
    files: list[castlog.FileReport] = []
    try:
        with app.out.progress("importing") as progress:
            for path in paths:
                files += _take(store, path, kind, progress)
    finally:  # of what came before an error too
        if files:
            _show(app, files)
    return LOSSES if any(file.damaged for file in files) else 0


def _take(
    store: castlog.Store, path: str, kind: str | None, progress: Callable[[castlog.Progress], None] | None
) -> Sequence[castlog.FileReport]:
    try:
        return store.import_from(path, kind, progress=progress).files
    except castlog.Corrupt as error:
        facts = {"hint": _DAMAGED, **error.facts}
        raise castlog.Corrupt(str(error), **facts) from error


_DAMAGED = "If castlog verify finds the store sound, the file is what is damaged: export or fetch it again."


def _show(app: App, files: Sequence[castlog.FileReport]) -> None:
    if app.out.json:
        for file in files:
            _record(app, file)
        app.out.record(summary=True, **_sums(files))
        return
    shown = list(_worth_showing(files))
    for file in shown:
        _line(app, file)
    for file in files:
        for damage in file.damaged:
            where = f"{file.path}:{damage.line}" if damage.line else file.path
            app.out.line(
                Styled(f"{'damaged':<10}", "red bold"), f" {where}  at byte {damage.offset:,}: {damage.reason}"
            )
    sums = _sums(files)
    for status in _STATUSES:
        if count := sums[status]:
            added = sum(file.added for file in files if file.status == status)
            app.out.line(f"{status:<10} {plural(count, 'file'):>12}  {plural(added, 'event'):>15} added")
        if status == "skipped" and len(shown) < len(files):
            _reasons(app, files)
    losses = (
        f", {plural(sums['damaged'], 'damaged stretch', 'damaged stretches')} kept aside" if sums["damaged"] else ""
    )
    app.out.line(f"{plural(sums['added'], 'event')} added, {plural(sums['sessions'], 'session')}{losses}")
    if len(shown) < len(files):
        app.out.say("With --json each file is listed.")


def _reasons(app: App, files: Sequence[castlog.FileReport]) -> None:
    """Say how many files were skipped for which reason, the most frequent first."""
    reasons = Counter(flat(file.note) or "no reason given" for file in files if file.status == "skipped").most_common()
    for reason, count in reasons[:_REASONS_SHOWN]:
        app.out.line(cut(f"{count:>15,} {reason}", app.out.width))
    if rest := sum(count for _, count in reasons[_REASONS_SHOWN:]):
        app.out.line(f"{rest:>15,} for other reasons")


def _worth_showing(files: Sequence[castlog.FileReport]) -> Iterator[castlog.FileReport]:
    """Yield all of a few files; of many those that need a look."""
    for file in files:
        if len(files) <= _FILES_SHOWN or file.status == "rewritten" or (file.status != "skipped" and file.note):
            yield file


def _line(app: App, file: castlog.FileReport) -> None:
    rev = f"  {short_rev(file.rev)}" if file.rev else ""
    added = f"  +{file.added:,}" if file.added else ""
    note = f"({file.note})" if file.note else ""
    text = f" {file.path}{rev}{added}"
    fits = 10 + cells(text) + 2 + cells(note) <= app.out.width
    app.out.line(
        Styled(f"{file.status:<10}", _COLOURS.get(file.status, "dim")),
        text,
        Styled(f"  {note}" if note and fits else "", "dim"),
    )
    if note and not fits:
        app.out.line(Styled(f"{'':<10} {note}", "dim"))


def _record(app: App, file: castlog.FileReport) -> None:
    app.out.record(
        path=file.path,
        format=file.format,
        status=file.status,
        rev=file.rev,
        start=file.start,
        session_id=file.session_id,
        events=file.events,
        added=file.added,
        damaged=[{"line": it.line, "offset": it.offset, "reason": it.reason} for it in file.damaged],
        note=file.note,
    )


def _sums(files: Sequence[castlog.FileReport]) -> dict[str, int]:
    counts = Counter(file.status for file in files)
    return {
        "files": len(files),
        **{status: counts[status] for status in _STATUSES},
        "added": sum(file.added for file in files),
        "sessions": len({file.session_id for file in files if file.session_id}),
        "damaged": sum(len(file.damaged) for file in files),
    }
