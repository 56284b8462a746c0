"""Where the rest of a file goes once it and the store part: on, over an unfinished end, or on a branch of its own."""

from __future__ import annotations

from typing import NamedTuple

from castlog import Branch, Session
from castlog.ops.source import source_bytes
from castlog.transcripts.match import Matcher, Parting, is_capture
from castlog.transcripts.source import Source


class Place(NamedTuple):
    """The branch to append to, what that makes of the file (a status of its report), and what else there is to say."""

    branch: Branch
    status: str
    note: str = ""


def settle(matcher: Matcher, *, source: Source | None, only_an_end: bool) -> Place:
    """Return the place for what comes after the first `matcher.seq` events, having moved or made the branch.

    `only_an_end` says that only a gap is left of the file. A branch that ends there is appended to. One whose rest is
    the beginning of the file's rest was taken while a line was half written: it is set back, and its old end kept. Else
    the file was rewritten, or is an older capture.
    """
    seq = matcher.seq
    partings = _partings(matcher)
    for parting in partings:
        if parting.seq == parting.branch.head.seq == seq:
            return Place(parting.branch, "grown" if seq else "new")
    for parting in partings:
        if source is not None and _is_unfinished(parting, source):
            return _replace_end(matcher, parting)
    if only_an_end:
        name = free_name(matcher.session, f"capture-{seq + 1}")
        return Place(matcher.branch.fork(name, at=seq), "grown", f"an older capture, kept as {name}")
    name = free_name(matcher.session, "main")
    branch = matcher.branch.fork(name, at=seq)
    return Place(branch, "rewritten", f"differs from what was imported before after seq {seq}; kept as {name}")


def settle_whole(matcher: Matcher, source: Source) -> Place:
    """Return the place of a file all of which is stored, having brought up a branch that stopped at an unfinished line.

    That happens when nothing but a newline came after what was imported, or what came is there as another capture.
    """
    for parting in _partings(matcher):
        if parting.branch.head.seq > parting.seq and _is_unfinished(parting, source):
            return _replace_end(matcher, parting)
    return Place(matcher.branch, "unchanged")


def keep_end(session: Session, branch: Branch) -> Branch:
    """Return a branch that stays at this head for good, made unless there is one.

    A file whose end is no record (no newline, half a line) may look otherwise when it has grown, and `branch` is then
    set back; what was reported of the file must stay true.
    """
    if is_capture(branch):
        return branch
    head = branch.head
    name = f"capture-{head.seq}"
    for other in session.branches():
        if is_capture(other) and other.head.id == head.id:
            return other
    return branch.fork(free_name(session, name), at=head.seq)


def free_name(session: Session, name: str) -> str:
    """Return `name`, or the first of `name-2`, `name-3` ... that no branch or tag has."""
    taken = {branch.name for branch in session.branches()} | set(session.tags())
    number = 2
    free = name
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _partings(matcher: Matcher) -> list[Parting]:
    """Return where the file parts from the branches that are appended to, the nearest first."""
    here = [matcher.here._replace(branch=branch) for branch in matcher.sharing()]
    return [parting for parting in here + matcher.left[::-1] if not is_capture(parting.branch)]


def _is_unfinished(parting: Parting, source: Source) -> bool:
    """Whether all that a branch holds from there on is what the file begins its rest with."""
    rest = source_bytes(parting.branch.events(parting.seq + 1), after_record=parting.after_record)
    return source.starts_with(rest, parting.end)


def _replace_end(matcher: Matcher, parting: Parting) -> Place:
    """Set a branch back to where it parts from the file, then forward to where the file has come on another."""
    session, branch, seq = matcher.session, parting.branch, matcher.seq
    kept = keep_end(session, branch)
    if parting.seq == seq:
        branch.reset(seq)
    else:
        ahead = matcher.branch
        if ahead.head.seq != seq:
            ahead = ahead.fork(free_name(session, f"capture-{seq}"), at=seq)
        branch = session.promote(ahead.name, onto=branch.name)
    return Place(branch, "grown", f"its unfinished end is replaced; the old one is {kept.name}")
