"""Events appended in batches of moderate size, each batch one commit."""

from __future__ import annotations

from castlog import Branch, Draft, Invalid

BATCH_EVENTS = 1000
BATCH_BYTES = 4 * 1024 * 1024
SEAL_BYTES_MIN = 16 * 1024  # a transcript imported again and again while it grows makes no chunk of each few events


class Writer:
    """Appends to a branch that nobody else appends to meanwhile; raises Conflict when somebody does."""

    def __init__(self, branch: Branch, seq: int) -> None:
        self.branch = branch
        self.seq = seq
        self.pending_bytes = 0
        self.bytes = 0
        self._pending: list[tuple[Draft, str]] = []

    def put(self, draft: Draft, size: int, fallback: str) -> None:
        """Take an event; `fallback` is the type it gets, without calls, should castlog refuse its header."""
        self._pending.append((draft, fallback))
        self.seq += 1
        self.pending_bytes += size
        self.bytes += size
        if len(self._pending) >= BATCH_EVENTS or self.pending_bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; durable on return."""
        pending, self._pending, self.pending_bytes = self._pending, [], 0
        if not pending:
            return
        head = self.seq - len(pending)
        try:
            self.branch.extend([draft for draft, _ in pending], expect=head)
        except Invalid:
            for number, (draft, fallback) in enumerate(pending):
                self._write_one(draft, fallback, head + number)

    def finish(self, *, at_end: bool) -> None:
        """Write what is pending, and seal it if it came to its end or is worth a chunk of its own."""
        self.flush()
        if at_end or self.bytes >= SEAL_BYTES_MIN:
            self.branch.seal()

    def _write_one(self, draft: Draft, fallback: str, head: int) -> None:
        try:
            self.branch.extend([draft], expect=head)
        except Invalid:
            self.branch.extend([Draft(fallback, draft.payload, ts=draft.ts, schema=1)], expect=head)
