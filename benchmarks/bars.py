"""The bars: every row of the table of goals that can be measured today, with what must be reached and what comes next.

A bar is compared with a ratio where its verb has a peer beside it, and with the value itself where it has a unit.
"""

from __future__ import annotations

import msgspec


class Bar(msgspec.Struct, frozen=True):
    """What must be reached (`bar`) and the next step (`aim`); `least` says that more is better."""

    key: str
    words: str
    bar: float
    aim: float | None
    least: bool
    unit: str = "x"

    def holds(self, measured: float) -> bool:
        """Return whether the bar is reached."""
        return self._reaches(measured, self.bar)

    def verdict(self, measured: float) -> str:
        """Say in a few words whether the bar is reached, and the aim."""
        if not self.holds(measured):
            short = abs(measured / self.bar - 1)
            return f"falls short by {short:.{0 if short > 0.02 else 1}%}"
        return "reaches the aim" if self.aim is not None and self._reaches(measured, self.aim) else "holds"

    def _reaches(self, measured: float, goal: float) -> bool:
        return measured >= goal if self.least else measured <= goal


_ROWS = (
    Bar("append_sync", "one durable append, rate of a raw LMDB commit", 0.9, 0.97, least=True),
    Bar("append_threads_lmdb", "16 threads, a branch each, rate of raw LMDB in one thread", 3, 3.8, least=True),
    Bar("append_threads_jsonl", "16 threads, a branch each, rate of an fsynced JSONL file a thread", 0.45, None, True),
    Bar("append_batch_sqlite", "100 events a commit, rate of SQLite", 0.45, 0.6, least=True),
    Bar("append_batch_lmdb", "100 events a commit, rate of raw LMDB", 0.6, None, least=True),
    Bar("fork", "a fork at the head or in the middle, time of a raw LMDB commit", 1.4, 1.15, least=False),
    Bar("read_deep", "read or merge base in deep nesting, payload not decoded", 150, 50, least=False, unit="us"),
    Bar("fork_many", "a fork with 10 events of its own, compacted", 5.5, 4.8, least=False, unit="KB"),
    Bar("append_large", "a 300 KB request that repeats history, time of a raw LMDB put", 1.15, 1.0, least=False),
    Bar("replay_jsonl", "replay, payloads decoded, rate of JSONL decoded by msgspec", 0.8, 0.95, least=True),
    Bar("replay_sqlite", "replay, payloads decoded, rate of SQLite rows decoded by msgspec", 0.9, 1.1, least=True),
    Bar("replay_raw", "replay, payloads left raw, rate of JSONL decoded by msgspec", 1.5, 1.8, least=True),
    Bar("read_far", "read one event, each from another chunk", 250, 120, least=False, unit="us"),
    Bar("read_near", "read one event, all from one chunk", 15, 8, least=False, unit="us"),
    Bar("size_plain", "plain workload, compacted, of raw JSON Lines", 0.25, 0.22, least=False),
    Bar("corpus_compacted", "transcripts, compacted, of the sum of zstd -3 a file", 1.05, 0.95, least=False),
    Bar("corpus_sealed", "transcripts, as sealed, of the sum of zstd -3 a file", 1.5, None, least=False),
    Bar("size_quadratic", "session whose requests repeat the history, compacted", 0.85, 0.6, least=False, unit="MB"),
    Bar(
        "restore_cold", "open and restore from a snapshot, cold, time of interpreter start and imports", 1.5, 1.2, False
    ),
    Bar("import_time", "`import castlog` in a fresh interpreter", 60, 45, least=False, unit="ms"),
    Bar("list_sessions", "listing 10,000 sessions", 60, 30, least=False, unit="ms"),
    Bar("memory", "memory above imports while replaying a million events", 80, 40, least=False, unit="MB"),
)

BARS = {bar.key: bar for bar in _ROWS}
