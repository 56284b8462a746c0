"""The branch tree of a session as lines of text: rails from fork points, and leaves that are alike folded into one.

Pure: it takes branch nodes and gives lines. Deep nesting costs neither recursion nor width: past a depth the rails stop
moving right, and each line names the branch it comes from anyway.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .text import plural

if TYPE_CHECKING:
    import castlog

_FOLD_FROM = 3
_FOLD_APART_FROM = 10
_DEPTH_MAX = 16
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)")


class Row(NamedTuple):
    """One line of the drawing: the rails, the name with its ranges, and what is remarkable about it."""

    rails: str
    name: str
    text: str
    remarks: str


class Fold(NamedTuple):
    """Branches drawn as one: nothing forked from them, names that differ in a number; `own` counts their events."""

    name: str
    fork_seq: int
    fork_last: int
    own: tuple[int, int]
    branches: int


def draw(nodes: Sequence[castlog.Node], current: str | None) -> Iterator[Row]:
    """Yield the tree's lines from the root down; `current` is the branch checked out."""
    children: defaultdict[str | None, list[castlog.Node]] = defaultdict(list)
    names = {node.name for node in nodes}
    for node in nodes:
        children[node.parent if node.parent in names else None].append(node)
    keep = {current}
    stack = _level(_arranged(children[None], children, keep), "", 0)
    roots = len(stack)
    while stack:
        item, rails, last, depth = stack.pop()
        top = depth == 0
        joint = "" if top and roots == 1 else ("└─" if last else "├─")
        if isinstance(item, Fold):
            yield Row(f"{rails}{joint}", item.name, _fold_text(item), "")
            continue
        chain = _chain(item, children, keep)
        if len(chain) >= _FOLD_FROM:
            yield Row(f"{rails}{joint}", _chain_name(chain), _chain_text(chain), "")
            item = chain[-1]
        else:
            origin = f"from {item.parent} " if depth > _DEPTH_MAX else ""
            yield Row(f"{rails}{joint}", item.name, origin + _range(item), _remarks(item, current))
        if depth < _DEPTH_MAX:
            rails += "" if top and roots == 1 else ("  " if last else "│ ")
        below = _arranged(children[item.name], children, keep)
        stack.extend(_level(below, rails, depth + 1))


def _level(
    items: Sequence[castlog.Node | Fold], rails: str, depth: int
) -> list[tuple[castlog.Node | Fold, str, bool, int]]:
    """Return what is to be drawn of one level, the first on top of the stack."""
    return [(item, rails, index == 0, depth) for index, item in enumerate(reversed(items))]


def _arranged(
    siblings: Sequence[castlog.Node],
    children: Mapping[str | None, Sequence[castlog.Node]],
    keep: set[str | None],
) -> list[castlog.Node | Fold]:
    """Return siblings by fork point, with the leaves that are alike folded: of one fork point first, then of many."""
    alike: defaultdict[tuple[str, str], list[castlog.Node]] = defaultdict(list)
    apart: list[castlog.Node | Fold] = []
    for node in siblings:
        numbered = _NUMBERED.fullmatch(node.name)
        if numbered and not node.tags and not children.get(node.name) and node.name not in keep:
            alike[numbered[1], numbered[3]].append(node)
        else:
            apart.append(node)
    for affixes, members in alike.items():
        places: defaultdict[int, list[castlog.Node]] = defaultdict(list)
        for node in members:
            places[node.fork_seq].append(node)
        apart += [_fold(affixes, place) for place in places.values() if len(place) >= _FOLD_FROM]
        rest = [node for place in places.values() if len(place) < _FOLD_FROM for node in place]
        apart += [_fold(affixes, rest)] if len(rest) >= _FOLD_APART_FROM else rest
    return sorted(apart, key=lambda item: (item.fork_seq, item.name))


def _fold(affixes: tuple[str, str], nodes: Sequence[castlog.Node]) -> Fold:
    before, after = affixes
    forks = [node.fork_seq for node in nodes]
    own = [max(node.seq - node.fork_seq, 0) for node in nodes]
    numbers = sorted(int(node.name[len(before) : len(node.name) - len(after)]) for node in nodes)
    return Fold(before + _runs(numbers) + after, min(forks), max(forks), (min(own), max(own)), len(nodes))


def _chain(
    node: castlog.Node, children: Mapping[str | None, Sequence[castlog.Node]], keep: set[str | None]
) -> list[castlog.Node]:
    """Return the branches from `node` on that each have one fork only, numbered one higher, and nothing remarkable."""
    chain = [node]
    while (numbered := _NUMBERED.fullmatch(chain[-1].name)) and chain[-1].name not in keep and not chain[-1].tags:
        below = children.get(chain[-1].name, ())
        if len(below) != 1 or below[0].name != f"{numbered[1]}{int(numbered[2]) + 1}{numbered[3]}":
            break
        chain.append(below[0])
    if chain[-1].name in keep or chain[-1].tags:
        chain.pop()
    return chain


def _chain_name(chain: Sequence[castlog.Node]) -> str:
    numbered = _NUMBERED.fullmatch(chain[-1].name)
    return f"{chain[0].name}..{numbered[2] if numbered else ''}"


def _chain_text(chain: Sequence[castlog.Node]) -> str:
    return f"@{chain[0].fork_seq}  {len(chain):,} branches, each forked from the one before, up to {chain[-1].seq}"


def _runs(numbers: Sequence[int]) -> str:
    """Return sorted numbers as runs: `1..20,25,30..40`; many runs are cut short."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in runs[:6]]
    return ",".join(shown) + (f",...{numbers[-1]}" if len(runs) > 6 else "")


def _range(node: castlog.Node) -> str:
    where = f"@{node.fork_seq}  " if node.parent is not None else ""
    if node.seq == 0:
        return f"{where}empty"
    if node.seq <= node.fork_seq:
        return f"{where}nothing of its own yet"
    return f"{where}{node.fork_seq + 1}..{node.seq}" if node.parent is not None else f"1..{node.seq}"


def _fold_text(fold: Fold) -> str:
    low, high = fold.own
    each = f"{plural(high, 'event')} each" if low == high else f"{low} to {high} events each"
    where = f"@{fold.fork_seq}" + (f"..{fold.fork_last}" if fold.fork_last > fold.fork_seq else "")
    return f"{where}  {plural(fold.branches, 'branch', 'branches')}, {each if high else 'nothing of their own yet'}"


def _remarks(node: castlog.Node, current: str | None) -> str:
    parts = ["current"] * (node.name == current) + [f"tag {tag}" for tag in node.tags]
    return f"({', '.join(parts)})" if parts else ""
