"""Findings: what `verify` can say. The names below are relied on by scripts; a new check gets a new name.

An error is damage: something cannot be read, or would be read wrongly. A warning is bookkeeping that is wrong while
every event is still there. A note is only remarkable.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from castlog import limits

ERROR, WARNING, NOTE = "error", "warning", "note"


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it should be. `severity` is "error", "warning" or "note"; `rev` says where, if known."""

    name: str
    severity: str
    message: str
    rev: str | None = None


class VerifyReport(msgspec.Struct):
    """What was checked, and what was found."""

    findings: list[Finding] = []
    checked: dict[str, int] = {}

    @property
    def ok(self) -> bool:
        """Whether nothing worse than a note was found."""
        return all(finding.severity == NOTE for finding in self.findings)


# Name -> severity and meaning. A redacted event is no finding: its tombstone keeps the commitment, so the chain is
# checked across it like across any other. The ledger of redactions will add `unledgered_redaction` (error: a tombstone
# without an entry), `broken_ledger` (error: the ledger's own chain) and `unapplied_redaction` (error: an entry whose
# event still has its payload).
KINDS: dict[str, tuple[str, str]] = {
    # bytes
    "damaged_pages": (ERROR, "the engine's own structure is broken, or it cannot read a stretch of the map"),
    "damaged_row": (ERROR, "a row fails its checksum or does not decode; what it says is not believed"),
    "damaged_object": (
        ERROR,
        "an object is missing, does not match its digest or does not decode; its events are lost",
    ),
    "damaged_record": (ERROR, "the record of an event in an open chunk is damaged; that event is lost"),
    "damaged_payload": (ERROR, "a payload is not the one that was committed to"),
    "damaged_piece": (ERROR, "a piece is not what its digest says (deep)"),
    "invalid_payload": (ERROR, "a payload is not JSON (deep)"),
    # histories
    "broken_chain": (ERROR, "an event's id does not follow from its content and the event before it"),
    "missing_chunk": (ERROR, "no chunk holds seqs that are sealed"),
    "missing_record": (ERROR, "an open chunk lacks the record of a seq"),
    "missing_dictionary": (ERROR, "objects were compressed with a dictionary that is not in the store"),
    "missing_piece": (ERROR, "an event uses a piece that is not in the store"),
    "misplaced_piece": (ERROR, "the index places a piece where no pack is, or outside of it"),
    "overlapping_chunks": (ERROR, "two chunks hold the same seq"),
    "wrong_chunk": (ERROR, "a chunk's header contradicts the row that points at it, or its own payloads"),
    "broken_timeline": (ERROR, "a timeline contradicts the one it left: session, fork point, depth or jump pointer"),
    "missing_timeline": (ERROR, "rows belong to a timeline that is not there"),
    "wrong_tail": (ERROR, "the row that says where a timeline ends is missing or contradicts its events"),
    "wrong_open_calls": (ERROR, "the calls in flight at a fork point or at a chunk's end are not those of the log"),
    "wrong_in_flight": (ERROR, "the calls in flight kept for a timeline's end are not those of the log"),
    "missing_key": (ERROR, "an event's idempotency key has no row: repeating the append would write it twice"),
    "wrong_key": (ERROR, "an idempotency row points at an event that does not have this key"),
    # references
    "broken_reference": (ERROR, "a branch, tag or reflog entry points at no event, or at one with another id"),
    "wrong_name": (ERROR, "a name and the branch it should mean do not agree"),
    "missing_branch": (ERROR, "rows belong to a branch that is not there, or a session has none"),
    "missing_session": (ERROR, "rows belong to a session that is not there"),
    "wrong_genesis": (ERROR, "a session's genesis digest is not that of its id, time, parent and salt"),
    "wrong_origin": (ERROR, "an origin and the session it belongs to do not agree"),
    "low_counter": (ERROR, "a counter is not above the numbers in use: one would be given out twice"),
    "wrong_child": (WARNING, "a session and the one whose call started it do not agree"),
    "missing_parent": (WARNING, "the call that started a session is not in the store"),
    "wrong_trash": (WARNING, "the trash and what is marked as deleted do not agree"),
    "stale_head": (WARNING, "HEAD points at a branch that never was in this session"),
    "reflog_gap": (WARNING, "a branch moved without an entry in its reflog"),
    "damaged_snapshot": (WARNING, "a snapshot cannot be verified; it is passed over, and its state folded from events"),
    "wrong_snapshot": (WARNING, "a snapshot is not the state that its events fold to; drop it, or it is restored from"),
    "wrong_counts": (
        WARNING,
        "a session's counts of events and bytes, or its newest time, are not those of its events",
    ),
    "wrong_tail_size": (WARNING, "the size kept of an open chunk is wrong: it is sealed too early or too late"),
    "stray_row": (WARNING, "a row lies outside of what the rows above it reach"),
    "unknown_row": (WARNING, "a row belongs to no table this version knows"),
    # remarks
    "unchecked": (NOTE, "a part of the store was not checked, and why"),
    "unused_object": (NOTE, "nothing refers to an object; gc takes it"),
    "unused_dictionary": (NOTE, "no object was compressed with a dictionary; compact drops it"),
    "unused_piece": (NOTE, "no event uses a piece; a crash during a large append leaves some, and gc takes them"),
    "unmatched_result": (NOTE, "a result answers no call that was open"),
    "reopened_call": (NOTE, "a call id was opened again while in flight"),
}


class Findings:
    """Findings as they come; of each name only the first are kept, and the rest counted."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(self, name: str, message: str, rev: str | None = None) -> None:
        """Keep a finding, or count it when many of its name are there already."""
        self._counts[name] += 1
        if self._counts[name] <= limits.FINDINGS_PER_NAME_MAX:
            self._kept.append(Finding(name, KINDS[name][0], message, rev))

    def full(self, name: str) -> bool:
        """Return whether further findings of this name are only counted; saves the work of saying where they are."""
        return self._counts[name] >= limits.FINDINGS_PER_NAME_MAX

    def listed(self) -> list[Finding]:
        """Return what was kept, and one more finding for each name of which there were too many."""
        more = [
            Finding(name, KINDS[name][0], f"{count - limits.FINDINGS_PER_NAME_MAX:,} more findings of this name")
            for name, count in self._counts.items()
            if count > limits.FINDINGS_PER_NAME_MAX
        ]
        return self._kept + more
