"""Figures for the page about them: the table of bars with what was measured, and castlog among its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from benchmarks.bars import BARS
from benchmarks.figures import Figure
from benchmarks.output import limit, measured, number, over
from benchmarks.peers import PEERS


class Column(msgspec.Struct, frozen=True):
    """A verb in the table of peers, and what castlog is called there; of several names the last one measured stands."""

    words: str
    verb: str
    castlog: tuple[str, ...] = ("castlog",)
    case: str = ""


_SIZES = ("castlog, as sealed", "castlog, compacted")
_COLUMNS = (
    Column("one durable append", "append_sync"),
    Column("100 a commit", "append_batch"),
    Column("a 300 KB request", "append_large"),
    Column("fork at 1,000 events", "fork", case="in peers"),
    Column("replay, decoded", "replay", ("castlog, decoded",)),
    Column("size, plain", "size_plain", _SIZES),
    Column("size, quadratic", "size_quadratic", _SIZES),
)


class Markdown:
    """Writes everything at the end, since a row may have figures of several verbs."""

    def __init__(self) -> None:
        self._header: Mapping[str, object] = {}
        self._found: list[Figure] = []

    def header(self, header: Mapping[str, object]) -> None:
        """Keep what is measured on."""
        self._header = header

    def figures(self, found: Iterable[Figure]) -> None:
        """Keep the figures."""
        self._found += found

    def end(self) -> None:
        """Write it all."""
        told = (f"{name} {value}" for name, value in self._header.items() if name != "command")  # It holds paths.
        print(f"Measured on {', '.join(told)}.\n")
        print("| work | bar | aim | measured | |\n|---|---|---|---|---|")
        for row in BARS.values():
            sign = "≥" if row.least else "≤"
            aim = "" if row.aim is None else limit(row.aim, row.unit)
            figures = [figure for figure in self._found if figure.row == row.key]
            shown = "<br>".join(_measured(figure, row.unit) for figure in figures) or "not measured"
            verdicts = dict.fromkeys(row.verdict(measured(figure)) for figure in figures)
            print(f"| {row.words} | {sign} {limit(row.bar, row.unit)} | {aim} | {shown} | {', '.join(verdicts)} |")
        print(f"\n| | {' | '.join(column.words for column in _COLUMNS)} |\n|---|{'---|' * len(_COLUMNS)}")
        for name in ("castlog", *PEERS):
            print(f"| {name} | {' | '.join(self._cell(column, name) for column in _COLUMNS)} |")

    def _cell(self, column: Column, name: str) -> str:
        """Return a peer's value and castlog's ratio to it."""
        names = column.castlog if name == "castlog" else (name, f"{name}, packed")
        here = [figure for figure in self._found if figure.verb == column.verb and column.case in figure.case]
        shown = [f"{number(f.value)} {f.unit}" for f in here if f.against is None and f.value and f.what in names]
        ratios = [f"{over(f.ratio)}x" for f in here if f.against in names]
        return "<br>".join((*shown[-1:], *ratios[:1])) or "-"


def _measured(figure: Figure, unit: str) -> str:
    what = figure.what.removeprefix("castlog").strip(", ")
    place = ", ".join(words for words in (figure.case, what) if words)
    return f"{limit(measured(figure), unit)} ({place})" if place else limit(measured(figure), unit)
