"""castlog: a content-addressed log store for agent sessions, with Git-like branching.

Open a store with `castlog.open`; the README's example shows the rest. What is listed here is public, and nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from castlog.branch import Branch, Move
from castlog.errors import Conflict, Corrupt, Diverged, Error, InFlight, Invalid, NotFound, Unavailable
from castlog.event import Draft, Event, Parent, Point, Progress, Raw, attachment
from castlog.format.codec import validate
from castlog.ops.report import Damage, FileReport, ImportReport
from castlog.ops.trash import Trashed
from castlog.ops.tree import Node
from castlog.schema import upcaster
from castlog.session import Session, SessionInfo
from castlog.store import Diff, Running, Store, open  # noqa: A004 - castlog.open
from castlog.view import View

if TYPE_CHECKING:
    from castlog.ops.bisect import Bisection, Probe
    from castlog.ops.compact import CompactReport
    from castlog.ops.grep import Match
    from castlog.ops.paths import Change, changes
    from castlog.ops.replay import Replay
    from castlog.ops.usage import Usage
    from castlog.ops.verify import Finding, VerifyReport
    from castlog.reducers.conversation import conversation
    from castlog.run.policy import Every
    from castlog.run.recovery import Plan, PlannedCall, decide, recovery_plan
    from castlog.run.result import Result
    from castlog.run.run import Run
    from castlog.run.tools import Call, tool
    from castlog.state import Reducer, Restored, Snapshot, reducer

__all__ = [
    "Bisection",
    "Branch",
    "Call",
    "Change",
    "CompactReport",
    "Conflict",
    "Corrupt",
    "Damage",
    "Diff",
    "Diverged",
    "Draft",
    "Error",
    "Event",
    "Every",
    "FileReport",
    "Finding",
    "ImportReport",
    "InFlight",
    "Invalid",
    "Match",
    "Move",
    "Node",
    "NotFound",
    "Parent",
    "Plan",
    "PlannedCall",
    "Point",
    "Probe",
    "Progress",
    "Raw",
    "Reducer",
    "Replay",
    "Restored",
    "Result",
    "Run",
    "Running",
    "Session",
    "SessionInfo",
    "Snapshot",
    "Store",
    "Trashed",
    "Unavailable",
    "Usage",
    "VerifyReport",
    "View",
    "attachment",
    "changes",
    "conversation",
    "decide",
    "open",
    "recovery_plan",
    "reducer",
    "tool",
    "upcaster",
    "validate",
]

# Results of what most programs never call: their modules are loaded when they are named.
_LATER = {
    "Reducer": "castlog.state",
    "Restored": "castlog.state",
    "Snapshot": "castlog.state",
    "reducer": "castlog.state",
    "Bisection": "castlog.ops.bisect",
    "Change": "castlog.ops.paths",
    "Call": "castlog.run.tools",
    "CompactReport": "castlog.ops.compact",
    "Every": "castlog.run.policy",
    "Plan": "castlog.run.recovery",
    "PlannedCall": "castlog.run.recovery",
    "decide": "castlog.run.recovery",
    "recovery_plan": "castlog.run.recovery",
    "Result": "castlog.run.result",
    "Run": "castlog.run.run",
    "tool": "castlog.run.tools",
    "Finding": "castlog.ops.verify",
    "Match": "castlog.ops.grep",
    "Probe": "castlog.ops.bisect",
    "Replay": "castlog.ops.replay",
    "Usage": "castlog.ops.usage",
    "VerifyReport": "castlog.ops.verify",
    "changes": "castlog.ops.paths",
    "conversation": "castlog.reducers.conversation",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'castlog' has no attribute {name!r}")
