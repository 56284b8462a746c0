"""What a Claude Code session is called: by its user, by a summary of it, or by its first prompt.

A file may open with summaries of *other* sessions; a summary counts only if the row it ends at is in this file.
"""

from __future__ import annotations

from collections import deque

from castlog.transcripts import claude_rows as rows
from castlog.transcripts import words

_BEST_FIRST = ("custom", "summary", "ai", "prompt", "command")
_KEPT_MAX = 1000  # summaries waiting for their row, and rows a summary may yet name


class Titles:
    """The titles met in one file."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._recent: deque[str] = deque(maxlen=_KEPT_MAX)

    @property
    def best(self) -> str:
        """The best title so far, or ""."""
        return next((self._found[kind] for kind in _BEST_FIRST if kind in self._found), "")

    def learn(self, row: rows.Row, blocks: list[rows.Block] | None) -> None:
        """Look at a row; `blocks` are its message's, if they were decoded."""
        self._keep("custom", row.custom_title)
        self._keep("ai", row.ai_title)
        if isinstance(row.uuid, str):
            self._recent.append(row.uuid)
            self._keep("summary", self._waiting.pop(row.uuid, None))
        if row.type == "summary" and isinstance(row.leaf_uuid, str) and isinstance(row.summary, str):
            if row.leaf_uuid in self._recent:
                self._keep("summary", row.summary)
            elif len(self._waiting) < _KEPT_MAX:
                self._waiting[row.leaf_uuid] = row.summary
        if row.type == "user" and blocks and "prompt" not in self._found:
            self._keep("prompt", rows.typed_text(row, blocks))
            if "command" not in self._found:
                self._keep("command", rows.command_text(blocks))

    def _keep(self, kind: str, text: object) -> None:
        if title := words.clean_title(text):
            self._found[kind] = title
