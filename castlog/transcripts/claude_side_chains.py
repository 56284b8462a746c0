"""Sub-agents whose rows older Claude Code versions wrote among those of the session that started them.

In the session's own log such rows stay opaque, so that their calls never count as its own. Each conversation also
becomes a session: its rows again, with their real types, under the call that gave the agent its first prompt.
"""

from __future__ import annotations

from castlog import Event
from castlog.transcripts import claude_rows as rows
from castlog.transcripts import words
from castlog.transcripts.formats import Facts, SessionFacts, Started

SIDE_CHAIN = f"{rows.NAME}.sidechain"


class ClaudeSideChains:
    """The side chains of one session, told apart by following each row to the first of its line."""

    types = frozenset({SIDE_CHAIN})

    def __init__(self) -> None:
        self._first_of: dict[str, str] = {}

    def place(self, event: Event, origin: str) -> tuple[str, SessionFacts | None, Facts] | None:
        """Return the chain a row belongs to (the uuid of its first row), its session if new, and what the row means."""
        row = rows.decode_row(event.raw)
        uuid = words.identity(row.uuid) if row else None
        if row is None or uuid is None:
            return None
        blocks = rows.content(row)
        kind, call_ids = rows.kind(row, blocks)
        facts = Facts(kind, call_ids, event.ts, event.harness_version)
        parent = row.parent_uuid if isinstance(row.parent_uuid, str) else ""
        first = self._first_of.get(parent)
        self._first_of[uuid] = first or uuid
        if first:
            return first, None, facts
        prompt = rows.first_text(blocks or [])
        keys = (rows.prompt_key(prompt),) if prompt else ()
        labels = words.clean_labels({"format": rows.NAME, "cwd": row.cwd, "git_branch": row.git_branch})
        title = words.clean_title(prompt) or f"side chain {uuid[:8]}"
        session = SessionFacts(f"{origin}:sidechain:{uuid}", title, labels, Started(origin, keys))
        return uuid, session, facts
