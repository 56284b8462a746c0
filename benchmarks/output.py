"""What a program reads: figures as JSON Lines, written and read back. And the words all outputs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from benchmarks.figures import Figure


class Lines:
    """Writes one JSON object a line: the header, then each figure."""

    def header(self, header: Mapping[str, object]) -> None:
        """Write what is measured on."""
        self._write({"header": header})

    def figures(self, found: Iterable[Figure]) -> None:
        """Write the figures."""
        for figure in found:
            self._write(figure)

    def _write(self, value: object) -> None:
        print(msgspec.json.encode(value).decode(), flush=True)


def read(lines: Iterable[bytes]) -> tuple[dict[str, object], list[Figure]]:
    """Return what `Lines` wrote: the header, and the figures. Raises ValueError naming the line that is none of it."""
    figures: list[Figure] = []
    header: _Header | None = None
    for number, line in enumerate(lines, 1):
        try:
            if header is None:
                header = msgspec.json.decode(line, type=_Header)
            else:
                figures.append(msgspec.json.decode(line, type=Figure))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"line {number}: {error}") from error
    if header is None:
        raise ValueError("it is empty")
    return header.header, figures


class _Header(msgspec.Struct):
    header: dict[str, object]


def number(value: float | None) -> str:
    """Return a number with the digits that mean something."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def measured(figure: Figure) -> float:
    """Return what a bar is compared with."""
    found = figure.value if figure.ratio is None else figure.ratio
    assert found is not None
    return found


def limit(value: float, unit: str) -> str:
    """Return a bar, an aim, or what is compared with them."""
    return f"{value:.3g}x" if unit == "x" else f"{value:.3g} {unit}"


def ratio(figure: Figure) -> str:
    """Return a ratio with its spread."""
    quartiles = ""
    if figure.ratio_low != figure.ratio_high:
        quartiles = f" ({over(figure.ratio_low)} to {over(figure.ratio_high)})"
    return f"{over(figure.ratio)}x the {figure.sense}{quartiles}"


def over(value: float | None) -> str:
    """Return the number of a ratio with two digits after the point, or with two that mean something."""
    return "" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def spread(figure: Figure) -> str:
    """Return the quartiles, if there are any."""
    return "" if figure.low == figure.high else f"{number(figure.low)} to {number(figure.high)}"
