"""The first event after which the state is bad, by trying few of the states between a good and a bad one.

It is taken for granted that states are good up to some event and bad from there on. Each try halves what is left, so
that the next state is a short way from one that was folded before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from castlog import limits
from castlog.errors import Invalid
from castlog.event import Event
from castlog.ops.replay import Replay

Check = Callable[[Any, int], bool | None]


class Probe(msgspec.Struct, frozen=True):
    """A state that was tried: after event `seq`, good, bad, or None where it could not be told.

    It was folded from the state at `snapshot_seq` with `replayed` events.
    """

    seq: int
    good: bool | None
    snapshot_seq: int
    replayed: int


class Bisection(msgspec.Struct, frozen=True):
    """What was found: the state is good at seq `good` and bad at `bad`, and none between them could be told.

    `first_bad` is the event at `bad` if there is none between them, else None.
    """

    good: int
    bad: int
    first_bad: Event | None
    probes: list[Probe]


def run(
    replay: Replay[Any], check: Check, *, good: int, bad: int, probed: Callable[[Probe], None] | None = None
) -> Bisection:
    """Return the first bad event between a good and a bad seq; `probed` is told of each try.

    `check` gets a state, which it may change, and its seq; it returns whether that is good, or None to try another. An
    end is tried only where no state of its kind was met between the two, since all rests on it then.
    """
    if not 0 <= good < bad <= replay.head.seq:
        raise Invalid(
            f"the good seq is {good} and the bad one {bad}; give 0 <= good < bad <= {replay.head.seq}",
            good=good,
            bad=bad,
        )
    probes: list[Probe] = []

    def probe(seq: int) -> bool | None:
        found = replay.at(seq)
        verdict = check(found.state, seq)
        answer = None if verdict is None else bool(verdict)
        probes.append(Probe(seq, answer, found.snapshot_seq, found.replayed))
        if probed is not None:
            probed(probes[-1])
        return answer

    low, high = _narrow(probe, good, bad)
    if low == good and probe(good) is False:
        raise Invalid(f"seq {good}, which was to be good, is bad by the check; give an earlier one", good=good)
    if high == bad and probe(bad) is True:
        raise Invalid(f"seq {bad}, which was to be bad, is good by the check; give a later one", bad=bad)
    return Bisection(low, high, replay.event(high) if high - low == 1 else None, probes)


def _narrow(probe: Callable[[int], bool | None], low: int, high: int) -> tuple[int, int]:
    """Return the last good and the first bad seq that can be told."""
    untold: set[int] = set()
    in_a_row = 0
    while in_a_row < limits.BISECT_SKIPS_MAX:
        seq = next((seq for seq in _between(low, high) if seq not in untold), None)
        if seq is None:
            break
        answer = probe(seq)
        if answer is None:
            untold.add(seq)
            in_a_row += 1
        else:
            low, high = (seq, high) if answer else (low, seq)
            in_a_row = 0
    return low, high


def _between(low: int, high: int) -> Iterator[int]:
    """Yield all seqs between two, the middle one first and then in ever closer meshes; some come twice."""
    parts = 2
    while parts // 2 < high - low:
        for part in range(1, parts, 2):
            seq = low + (high - low) * part // parts
            if low < seq < high:
                yield seq
        parts *= 2
