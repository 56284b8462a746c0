"""Figures for the page about them: the table of bars with what was measured, and a table a verb."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.bars import BARS
from benchmarks.figures import Figure
from benchmarks.output import limit, measured, number, ratio, spread


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
        print("Measured on " + ", ".join(f"{name} {value}" for name, value in self._header.items()) + ".\n")
        print("| work | bar | aim | measured | |\n|---|---|---|---|---|")
        for row in BARS.values():
            sign = "≥" if row.least else "≤"
            aim = "" if row.aim is None else limit(row.aim, row.unit)
            figures = [figure for figure in self._found if figure.row == row.key]
            shown = "<br>".join(_measured(figure, row.unit) for figure in figures) or "not measured"
            verdicts = dict.fromkeys(row.verdict(measured(figure)) for figure in figures)
            print(f"| {row.words} | {sign} {limit(row.bar, row.unit)} | {aim} | {shown} | {', '.join(verdicts)} |")
        for verb, group in itertools.groupby(self._found, lambda figure: figure.verb):
            print(f"\n### {verb}\n\n| | | median | quartiles | castlog against it |\n|---|---|---|---|---|")
            for line in _rows(list(group)):
                print(line)


def _rows(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a table row for each value, with castlog's ratio to it where there is one."""
    ratios = {(figure.case, figure.against): figure for figure in reversed(figures) if figure.against is not None}
    for figure in figures:
        if figure.value is None:
            yield f"| | {figure.what} | {figure.note} | | |"
        elif figure.against is None:
            against = ratios.get((figure.case, figure.what))
            over = "" if against is None else ratio(against)
            value = f"{number(figure.value)} {figure.unit}"
            yield f"| {figure.case} | {figure.what} | {value} | {spread(figure)} | {over} |"


def _measured(figure: Figure, unit: str) -> str:
    what = figure.what.removeprefix("castlog").strip(", ")
    place = ", ".join(words for words in (figure.case, what) if words)
    return f"{limit(measured(figure), unit)} ({place})" if place else limit(measured(figure), unit)
