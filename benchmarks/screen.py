"""Figures for people: a table with bars, drawn as wide as the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from benchmarks.bars import BARS
from benchmarks.figures import Figure
from benchmarks.output import limit, measured, number, ratio, spread

_BLOCKS = " ▏▎▍▌▋▊▉█"
_ASCII = {"≥": ">=", "≤": "<="}
_BAR_CELLS_MAX = 40


class Screen:
    """Draws on a terminal, with bars of blocks where the output can carry them, and plain signs elsewhere."""

    def __init__(self) -> None:
        self._verb = ""
        self._columns = shutil.get_terminal_size((100, 24)).columns
        try:
            (_BLOCKS + "≥≤").encode(sys.stdout.encoding or "ascii")
            self._blocks = True
        except UnicodeEncodeError:
            self._blocks = False

    def header(self, header: Mapping[str, object]) -> None:
        """Say what is measured on."""
        for name, value in header.items():
            print(f"{name:<28}{value}")

    def figures(self, found: Sequence[Figure]) -> None:
        """Draw the figures of one case of a verb."""
        if found[0].verb != self._verb:
            self._verb = found[0].verb
            print(f"\n{self._verb}")
        if found[0].case:
            print(f"  {found[0].case}")
        self._values([figure for figure in found if figure.against is None and figure.value is not None])
        self._verdicts([figure for figure in found if figure.against is not None or figure.bar is not None])
        for figure in found:
            if figure.note is not None:
                print(f"    {figure.what}: {figure.note}")

    def _values(self, figures: Sequence[Figure]) -> None:
        if not figures:
            return
        units = [f.unit for f in figures]
        highest = {
            unit: max(f.value or 0 for f in figures if f.unit == unit) for unit in units if units.count(unit) > 1
        }
        spreads = [spread(figure) for figure in figures]
        wide = max(len(f.what) for f in figures)
        spread_wide = max(map(len, spreads))
        room = min(_BAR_CELLS_MAX, self._columns - wide - spread_wide - 27)
        for figure, quartiles in zip(figures, spreads, strict=True):
            top = highest.get(figure.unit)  # A value that stands alone needs no bar.
            bar = self._bar((figure.value or 0) / top, room) if top else ""
            shown = f"{number(figure.value):>9} {figure.unit:<8}"
            print(f"    {figure.what:<{wide}}  {shown}  {quartiles:<{spread_wide}}  {bar}".rstrip())

    def _bar(self, part: float, cells: int) -> str:
        if cells < 4:
            return ""
        if not self._blocks:
            return "#" * max(1, round(part * cells))
        eighths = max(1, round(part * cells * 8))
        return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()

    def _verdicts(self, figures: Sequence[Figure]) -> None:
        names = [figure.what if figure.against is None else f"{figure.what} / {figure.against}" for figure in figures]
        for figure, name in zip(figures, names, strict=True):
            found = "" if figure.ratio is None else ratio(figure)
            line = f"    {name:<{max(map(len, names))}}  {found}".rstrip()
            goal = self._goal(figure)
            if len(line) + len(goal) > self._columns:
                print(line)
                line = " " * 6
            print(f"{line}  {goal}".rstrip())

    def _goal(self, figure: Figure) -> str:
        if figure.row is None:
            return ""
        bar = BARS[figure.row]
        sign = "≥" if bar.least else "≤"
        aim = "" if bar.aim is None else f", aim {limit(bar.aim, bar.unit)}"
        shown = sign if self._blocks else _ASCII[sign]
        return f"bar {shown} {limit(bar.bar, bar.unit)}{aim}: {bar.verdict(measured(figure))}"
