"""Importing: a file or a folder into a store, again as often as one likes.

Files of sessions come before files of sub-agents, so that the call that started a sub-agent is there to be its parent.
One file's trouble never stops the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from castlog import (
    Conflict,
    Corrupt,
    Damage,
    Error,
    FileReport,
    ImportReport,
    Invalid,
    NotFound,
    Progress,
    Store,
    Unavailable,
)
from castlog.transcripts import words
from castlog.transcripts.detect import Detected, detect
from castlog.transcripts.formats import CASTLOG, Format, SessionFacts, format_named, formats
from castlog.transcripts.head import Head
from castlog.transcripts.intake import Intake, first_time
from castlog.transcripts.owners import Copies, InTrash, open_session
from castlog.transcripts.parents import Parents
from castlog.transcripts.progress import Meter
from castlog.transcripts.side_chains import take_side_chains
from castlog.transcripts.source import Source
from castlog.transcripts.walk import Found, find_files

_TRIES = 3  # two imports of one folder at a time step on each other's toes now and then


def import_path(
    store: Store,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - the field's word
    progress: Callable[[Progress], None] | None = None,
) -> ImportReport:
    """Import a file, or a folder with everything below it, and report on each file in the order of their paths.

    Raises NotFound when there is nothing at `path`, Invalid for an unknown format and for a file named directly that is
    no transcript. Whatever else is wrong with a file is in the report.
    """
    known = formats() if format in (None, CASTLOG) else {str(format): format_named(str(format))}
    found = list(find_files(Path(path)))
    run = _Run(store, known, format, Meter(progress, sum(item.size for item in found)))
    return ImportReport(run.take_all(found))


class _Run:
    """What the files of one import share."""

    def __init__(self, store: Store, known: dict[str, Format], forced: str | None, meter: Meter) -> None:
        self._store = store
        self._known = known
        self._forced = forced
        self._meter = meter
        self._parents = Parents(store)
        self._copies = Copies()
        self._waiting: list[tuple[int, Found]] = []
        self._reports: dict[int, FileReport] = {}

    def take_all(self, found: list[Found]) -> list[FileReport]:
        """Take in every file and return the reports in the order of `found`."""
        for number, item in enumerate(found):
            self._attempt(number, item, may_wait=True)
        progressing = True
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for number, item in waiting:
                self._attempt(number, item, may_wait=progressing)
            progressing = len(self._waiting) < len(waiting)
        self._meter.end()
        return [self._reports[number] for number in sorted(self._reports)]

    def _attempt(self, number: int, item: Found, *, may_wait: bool) -> None:
        """Take in one file; whatever is wrong with it becomes its report, unless it was asked for by name."""
        try:
            report = self._skipped(item, item.problem, lost=item.lost) if item.problem else self._open(item, may_wait)
        except InTrash as exc:
            report = self._skipped(item, str(exc), cause=exc)
        except (Invalid, NotFound, Conflict) as exc:
            report = self._skipped(item, str(exc), lost=True, cause=exc)
        except (Corrupt, Unavailable) as exc:
            if "line" not in exc.facts and "hint" not in exc.facts:
                raise  # it is the store, not the file
            report = self._skipped(item, str(exc), lost=True, cause=exc)
        except OSError as exc:
            report = self._skipped(item, f"cannot be read: {exc.strerror or exc}", lost=True)
        if report is None:
            self._waiting.append((number, item))
        else:
            self._reports[number] = report
            self._meter.file_done(item.path.name, item.size)

    def _skipped(self, item: Found, reason: str, *, lost: bool = False, cause: Error | None = None) -> FileReport:
        """Report a file that is left out; one that was asked for by name is refused instead."""
        if item.named:
            raise cause or Invalid(f"{str(item.path)!r}: {reason}", path=str(item.path))
        damaged = (Damage(0, 0, reason),) if lost else ()
        return FileReport(str(item.path), None, "skipped", damaged=damaged, note=reason)

    def _open(self, item: Found, may_wait: bool) -> FileReport | None:
        """Take in a readable file; None when its parent may be among the files still to come."""
        head = Head(Source(item.path))
        detected = self._detect(head, item.named)
        if detected.name == CASTLOG:
            return self._store.import_castlog(item.path)
        if detected.format is None:
            if item.named and not head.data and head.whole and not head.source.fault:
                return FileReport(str(item.path), None, "skipped", note=detected.reason)
            return self._skipped(item, head.source.fault or detected.reason, lost=bool(head.source.fault))
        facts = detected.format.reader(head).session()
        if may_wait and self._parent_may_come(detected.format, head, facts):
            return None
        for left in reversed(range(_TRIES)):
            try:
                return self._take(item, head, detected.format, facts)
            except InTrash:
                raise
            except Conflict:
                if not left:
                    raise
        raise AssertionError("the loop above returns or raises")

    def _detect(self, head: Head, named: bool) -> Detected:
        if self._forced is None:
            return detect(head, self._known, named=named)
        if self._forced == CASTLOG:
            return Detected(CASTLOG)
        if not head.data:
            return Detected(None, reason="empty")
        return Detected(self._forced, self._known[self._forced])

    def _parent_may_come(self, fmt: Format, head: Head, facts: SessionFacts) -> bool:
        """Whether a file is a sub-agent's, new, and its call not in the store yet."""
        if facts.started is None or self._store.find_origin(facts.origin) is not None:
            return False
        return self._parents.find(facts.started, fmt.reader(head).links) is None

    def _take(self, item: Found, head: Head, fmt: Format, facts: SessionFacts) -> FileReport:
        reader = fmt.reader(head)
        source = head.source
        session, made = open_session(self._store, self._parents, facts, reader.links)
        intake = Intake(self._store, session, reader, source, first_time(fmt, head))
        taken = intake.run(self._meter.watch(source, source.chunks()))
        title = reader.title()
        if title and title != session.title and (made or session.title == words.clean_title(source.stem)):
            session.rename(title)
        if reader.beginning:
            self._copies.see(reader.beginning, session, source.mtime)
        branch = session.branch(taken.branch)
        more = take_side_chains(self._store, self._parents, branch, taken.seq, facts.origin, reader)
        return FileReport(
            str(item.path),
            fmt.name,
            taken.status,
            rev=f"{session.id}/{taken.branch}@{taken.seq}",
            session_id=session.id,
            events=taken.events,
            added=taken.added + more,
            damaged=taken.damaged,
            note="; ".join(filter(None, [taken.note, "decompressed" if source.compressed else ""])),
            start=taken.start,
        )
