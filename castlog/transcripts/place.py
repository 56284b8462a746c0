"""Where the rest of a file goes once it and the store part: on, over an unfinished end, or on a branch of its own."""

from __future__ import annotations

from typing import NamedTuple

from castlog import Branch, Session
from castlog.ops.source import source_bytes
from castlog.transcripts.match import Matcher
from castlog.transcripts.source import Source


class Place(NamedTuple):
    """The branch to append to, what that makes of the file (a status of its report), and what is worth saying about it.

    `kept` is the branch that keeps an end which was replaced.
    """

    branch: Branch
    status: str
    note: str = ""
    kept: Branch | None = None


def settle(matcher: Matcher, *, source: Source | None, end: int, only_an_end: bool) -> Place:
    """Return the place for what comes after the first `matcher.seq` events, having moved or made the branch.

    `end` is the offset in `source` up to which the file agrees; `only_an_end` says that only a gap is left of it.
    A branch that ends there is appended to. One whose rest is the beginning of the file's rest was taken while a line
    was half written: it is set back, and its old end kept. Else the file was rewritten, or is an older capture.
    """
    seq = matcher.seq
    growing = matcher.growing()
    for branch in growing:
        if branch.head.seq == seq:
            return Place(branch, "grown" if seq else "new")
    if source is not None:
        for branch in growing:
            rest = source_bytes(branch.events(seq + 1), after_record=matcher.after_record)
            if source.starts_with(rest, end):
                kept = _keep_end(matcher.session, branch)
                branch.reset(seq)
                return Place(branch, "grown", f"its end at {kept.name} was unfinished and is replaced", kept)
    if only_an_end:
        name = free_name(matcher.session, f"capture-{seq + 1}")
        return Place(matcher.branch.fork(name, at=seq), "grown", f"an older capture, kept as {name}")
    name = free_name(matcher.session, "main")
    branch = matcher.branch.fork(name, at=seq)
    return Place(branch, "rewritten", f"differs from what was imported before after seq {seq}; kept as {name}")


def free_name(session: Session, name: str) -> str:
    """Return `name`, or the first of `name-2`, `name-3` ... that no branch or tag has."""
    taken = {branch.name for branch in session.branches()} | set(session.tags())
    number = 2
    free = name
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _keep_end(session: Session, branch: Branch) -> Branch:
    """Return a branch that stays where `branch` is now, made unless there is one."""
    head = branch.head
    name = f"capture-{head.seq}"
    for other in session.branches():
        if other.name.startswith(name) and other.head.id == head.id:
            return other
    return branch.fork(free_name(session, name))
