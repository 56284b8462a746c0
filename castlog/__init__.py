"""castlog: a content-addressed log store for agent sessions, with Git-like branching.

Open a store with `castlog.open`; the README's example shows the rest. What is listed here is public, and nothing else.
"""

from castlog.branch import Branch, Move
from castlog.errors import Conflict, Corrupt, Error, Invalid, NotFound, Unavailable
from castlog.event import Draft, Event, Parent, Point, Progress, Raw, attachment
from castlog.format.codec import validate
from castlog.ops.grep import Match
from castlog.ops.report import Damage, FileReport, ImportReport
from castlog.ops.trash import Trashed
from castlog.ops.tree import Node
from castlog.ops.usage import Usage
from castlog.ops.verify import Finding, VerifyReport
from castlog.session import Session, SessionInfo
from castlog.store import Diff, Store, open  # noqa: A004 - castlog.open
from castlog.view import View

__all__ = [
    "Branch",
    "Conflict",
    "Corrupt",
    "Damage",
    "Diff",
    "Draft",
    "Error",
    "Event",
    "FileReport",
    "Finding",
    "ImportReport",
    "Invalid",
    "Match",
    "Move",
    "Node",
    "NotFound",
    "Parent",
    "Point",
    "Progress",
    "Raw",
    "Session",
    "SessionInfo",
    "Store",
    "Trashed",
    "Unavailable",
    "Usage",
    "VerifyReport",
    "View",
    "attachment",
    "open",
    "validate",
]
