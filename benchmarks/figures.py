"""Figures: what was measured, in turn with what, how far it spread, and what it says of a bar."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from benchmarks.bars import Bar

Work = Callable[[], Any]
Times = dict[str, list[float]]

_WARM = 10  # One round in so many is warm-up and dropped, at least one where there are four or more.
_BLOCKS = 8  # A ratio is taken in so many stretches of the run, since the machine may be another one in each.

Sense = Literal["rate", "time", "size"]


class Figure(msgspec.Struct, frozen=True):
    """A line of a result: a value with its quartiles, or, where `against` names a peer, a ratio to it as well.

    A verb names it; `case` is the size or the setting, `sense` what a ratio is of. A value of None
    with a note is something that was left out.
    """

    verb: str
    case: str
    what: str
    value: float | None = None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    against: str | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    sense: Sense | None = None
    row: str | None = None
    bar: float | None = None
    aim: float | None = None
    holds: bool | None = None
    note: str | None = None


class Unit(msgspec.Struct, frozen=True):
    """How measured seconds or bytes are shown: `turn` makes them the number that stands before `name`."""

    name: str
    turn: Callable[[float], float]


MICROSECONDS = Unit("us", lambda seconds: seconds * 1e6)
MILLISECONDS = Unit("ms", lambda seconds: seconds * 1e3)
SECONDS = Unit("s", lambda seconds: seconds)
KILOBYTES = Unit("KB", lambda size: size / 1e3)
MEGABYTES = Unit("MB", lambda size: size / 1e6)


def rate(count: int) -> Unit:
    """Return the unit of work that does `count` events in the measured time."""
    return Unit("events/s", lambda seconds: count / seconds)


def seconds(work: Work) -> float:
    """Return how long one call of `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(
    works: Mapping[str, Iterable[Work]],
    tell: Callable[[str], None] = lambda words: None,
    measure: Callable[[Work], float] = seconds,
) -> Times:
    """Measure several kinds of work in turn, one piece of each a round, so that a noisy moment falls on all of them.

    The order is drawn anew each round: a flush may pay for what its neighbour left to be written, and so nobody always
    has the same neighbour. A kind that runs out of pieces leaves the others to go on.
    """
    times: Times = {name: [] for name in works}
    pieces = {name: iter(work) for name, work in works.items()}
    chance = random.Random(5)
    gc.collect()
    gc.freeze()  # The events at hand are no garbage: collections of what the work makes need not look at them.
    try:
        while pieces:
            order = list(pieces)
            chance.shuffle(order)
            tell(f"round {1 + max(map(len, times.values()))}")
            for name in order:
                work = next(pieces[name], None)
                if work is None:
                    del pieces[name]
                else:
                    times[name].append(measure(work))
    finally:
        gc.unfreeze()
    return {name: found[_warm(len(found)) :] for name, found in times.items()}


def values(verb: str, case: str, times: Mapping[str, Sequence[float]], unit: Unit) -> Iterator[Figure]:
    """Yield the median and the quartiles of each kind."""
    for name, found in times.items():
        yield value(verb, case, name, found, unit)


def value(
    verb: str, case: str, what: str, found: Sequence[float], unit: Unit, bar: Bar | None = None, note: str | None = None
) -> Figure:
    """Return one value, with a bar in its own unit if it has one."""
    low, middle, high = _quartiles(found)
    least, most = sorted((unit.turn(low), unit.turn(high)))
    figure = Figure(verb, case, what, unit.turn(middle), unit.name, least, most, note=note)
    return figure if bar is None else _judged(figure, bar, unit.turn(middle))


def ratio(
    verb: str,
    case: str,
    names: tuple[str, str],
    times: Mapping[str, Sequence[float]],
    unit: Unit,
    *,
    bar: Bar | None = None,
    sense: Sense = "rate",
) -> Figure:
    """Return what castlog does against a peer: its rate over the peer's, its time, or its size."""
    what, against = names
    mine, theirs = times[what], times[against]
    low, found, high = _quartiles(list(_in_blocks(mine, theirs, sense)))
    figure = Figure(
        verb,
        case,
        what,
        unit.turn(statistics.median(mine)),
        unit.name,
        None,
        None,
        against,
        found,
        low,
        high,
        sense,
    )
    return figure if bar is None else _judged(figure, bar, found)


def against_all(
    verb: str,
    case: str,
    times: Mapping[str, Sequence[float]],
    unit: Unit,
    *,
    bars: Mapping[str, Bar] | None = None,
    sense: Sense = "rate",
    mine: str = "castlog",
) -> Iterator[Figure]:
    """Yield the values of all, and castlog's ratio to each of the others."""
    yield from values(verb, case, times, unit)
    for name in times:
        if name != mine:
            yield ratio(verb, case, (mine, name), times, unit, bar=(bars or {}).get(name), sense=sense)


def left_out(verb: str, what: str, why: str, case: str = "") -> Figure:
    """Return a line that says what was not measured."""
    return Figure(verb, case, what, note=f"left out: {why}")


def renamed(figure: Figure, verb: str) -> Figure:
    """Return the figure as another verb's."""
    return msgspec.structs.replace(figure, verb=verb)


def _judged(figure: Figure, bar: Bar, measured: float) -> Figure:
    return msgspec.structs.replace(figure, row=bar.key, bar=bar.bar, aim=bar.aim, holds=bar.holds(measured))


def _warm(count: int) -> int:
    return max(1, count // _WARM) if count > 3 else 0


def _quartiles(found: Sequence[float]) -> tuple[float, float, float]:
    if len(found) == 1:
        return found[0], found[0], found[0]
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return low, middle, high


def _over(mine: Sequence[float], theirs: Sequence[float], sense: Sense) -> float:
    left, right = statistics.median(mine), statistics.median(theirs)
    return right / left if sense == "rate" else left / right


def _in_blocks(mine: Sequence[float], theirs: Sequence[float], sense: Sense) -> Iterator[float]:
    count = min(_BLOCKS, len(mine), len(theirs))
    for block in range(count):
        yield _over(_part(mine, block, count), _part(theirs, block, count), sense)


def _part(found: Sequence[float], block: int, count: int) -> Sequence[float]:
    return found[len(found) * block // count : len(found) * (block + 1) // count]
