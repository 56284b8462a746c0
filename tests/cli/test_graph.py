"""The branch tree: what shares what can be seen, and a thousand forks fit on a screen."""

from __future__ import annotations

from itertools import pairwise

from castlog_cli import graph

import castlog


def _node(name: str, seq: int, parent: str | None = None, fork: int = 0, tags: tuple[str, ...] = ()) -> castlog.Node:
    return castlog.Node(0, name, seq, parent, fork, tags)


def _lines(*nodes: castlog.Node, current: str | None = None) -> list[str]:
    rows = graph.draw(nodes, current)
    return [" ".join(f"{row.rails}{row.name} {row.text} {row.remarks}".split()) for row in rows]


def test_a_branch_stands_beneath_the_one_it_was_forked_from() -> None:
    """Each line shows the fork point and the branch's own events; tags and the current branch are marked."""
    assert _lines(
        _node("main", 6, tags=("before@3",)), _node("idea", 8, "main", 4), _node("deeper", 9, "idea", 8), current="idea"
    ) == ["main 1..6 (tag before@3)", "└─idea @4 5..8 (current)", "└─deeper @8 9..9"]


def test_leaves_alike_are_folded() -> None:
    """Numbered leaves of one fork point are one line that says how many and how long."""
    tries = [_node(f"try-{n}", 40, "main", 40) for n in range(1, 201)]
    runs = [_node(f"run-{n}", 40 + n, "main", 40) for n in (1, 2, 3, 7)]
    assert _lines(_node("main", 40), *tries, *runs) == [
        "main 1..40",
        "├─run-1..3,7 @40 4 branches, 1 to 7 events each",
        "└─try-1..200 @40 200 branches, nothing of their own yet",
    ]


def test_leaves_of_many_fork_points_are_folded_when_they_are_many() -> None:
    """A dozen branches with a number in the name, each forked elsewhere, are one line with the range of places."""
    nodes = [_node(f"at{n}x", n + 1, "main", n) for n in range(1, 13)]
    assert _lines(_node("main", 40), *nodes) == ["main 1..40", "└─at1..12x @1..12 12 branches, 1 event each"]
    assert len(_lines(_node("main", 40), *nodes[:9])) == 10


def test_what_is_remarkable_is_never_folded() -> None:
    """A leaf that is current, is tagged or was forked from has a line of its own."""
    nodes = [_node(f"try-{n}", 40, "main", 40) for n in range(1, 8)]
    nodes[2] = _node("try-3", 40, "main", 40, ("kept@40",))
    drawn = _lines(_node("main", 40), *nodes, _node("child", 41, "try-5", 40), current="try-7")
    assert drawn[1:] == [
        "├─try-1..2,4,6 @40 4 branches, nothing of their own yet",
        "├─try-3 @40 nothing of its own yet (tag kept@40)",
        "├─try-5 @40 nothing of its own yet",
        "│ └─child @40 41..41",
        "└─try-7 @40 nothing of its own yet (current)",
    ]


def test_a_chain_of_forks_is_one_line() -> None:
    """Ten thousand nested forks, each from the one before, fold too."""
    chain = [_node("f-1", 2, "main", 1)] + [_node(f"f-{n}", n + 1, f"f-{n - 1}", n) for n in range(2, 10_001)]
    assert _lines(_node("main", 1), *chain) == [
        "main 1..1",
        "└─f-1..10000 @1 10,000 branches, each forked from the one before, up to 10001",
    ]


def test_deep_nesting_stays_narrow() -> None:
    """Branches that cannot be folded do not move right for ever, and depth is no recursion."""
    letters = ["main"] + [f"{chr(97 + n % 26)}x{n}y" for n in range(3000)]
    nodes = [_node("main", 1)] + [_node(b, n + 2, a, n + 1) for n, (a, b) in enumerate(pairwise(letters))]
    rows = list(graph.draw(nodes, None))
    assert len(rows) == 3001
    assert max(len(row.rails) for row in rows) < 60


def test_an_empty_branch_says_so() -> None:
    """A new session's main has no range."""
    assert _lines(_node("main", 0)) == ["main empty"]


def test_two_roots_are_both_drawn() -> None:
    """Branches that were forked at 0 or lost their parent stand side by side."""
    assert _lines(_node("main", 3), _node("other", 2)) == ["├─main 1..3", "└─other 1..2"]
