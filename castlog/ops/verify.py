"""Integrity: what a store claims, checked against what it holds. Findings are reported, never raised."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from castlog.core import Core
from castlog.event import Progress


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
        return all(finding.severity == "note" for finding in self.findings)


def run(core: Core, session: bytes | None, *, deep: bool, progress: Callable[[Progress], None] | None) -> VerifyReport:
    """Check a store, or one session of it."""
    return VerifyReport()
