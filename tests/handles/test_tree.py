"""The tree of a session's branches: who shares what with whom."""

from __future__ import annotations

from castlog import Branch


def shape(session) -> list[tuple[str, int, str | None, int, tuple[str, ...]]]:
    """Return the tree as plain tuples."""
    return [(n.name, n.seq, n.parent, n.fork_seq, n.tags) for n in session.tree()]


def test_a_session_with_one_branch(session, main) -> None:
    """An empty main, and one with events."""
    assert shape(session) == [("main", 0, None, 0, ())]
    main.append("note", {})
    assert shape(session) == [("main", 1, None, 0, ())]


def test_forks_hang_where_they_left(session, main) -> None:
    """Each branch names its parent and the last seq they share; tags stand at the branch that has them."""
    main.extend([("note", {"n": n}) for n in range(6)])
    idea = main.fork("idea", at=4)
    idea.extend([("note", {"idea": n}) for n in range(3)])
    deep = idea.fork("deep", at=6)
    deep.append("note", {})
    main.fork("empty", at=2)
    session.tag("t", at=3)
    session.tag("u", branch="deep")
    session.tag("v", at=5, branch="idea")
    assert shape(session) == [
        ("main", 6, None, 0, ("t@3",)),
        ("idea", 7, "main", 4, ("v@5",)),
        ("deep", 7, "idea", 6, ("u@7",)),
        ("empty", 2, "main", 2, ()),
    ]


def test_a_fork_at_zero_has_no_parent(session, main) -> None:
    """It shares nothing that could be drawn."""
    main.append("note", {})
    main.fork("fresh", at=0).append("note", {})
    assert shape(session)[1] == ("fresh", 1, None, 0, ())


def test_the_branch_that_went_on_first_keeps_its_place(session, main) -> None:
    """Whoever appended first, the older branch is drawn as the trunk and the younger as its fork."""
    main.extend([("note", {"n": n}) for n in range(3)])
    fork = main.fork("fork")
    fork.extend([("note", {"f": n}) for n in range(2)])
    assert shape(session) == [("main", 3, None, 0, ()), ("fork", 5, "main", 3, ())]
    main.append("note", {})
    assert shape(session) == [("main", 4, None, 0, ()), ("fork", 5, "main", 3, ())]


def test_a_fork_of_what_the_trunk_gave_up(session, main) -> None:
    """After the trunk was reset, two branches that share more with each other than with it are drawn so."""
    main.extend([("note", {"n": n}) for n in range(8)])
    main.fork("a", at=7)
    main.fork("b", at=6)
    main.reset(3)
    assert shape(session) == [("main", 3, None, 0, ()), ("a", 7, "main", 3, ()), ("b", 6, "a", 6, ())]


def test_promoted_branches_share_all(session, main) -> None:
    """After a promotion the two stand at one place."""
    main.extend([("note", {"n": n}) for n in range(3)])
    idea = main.fork("idea", at=1)
    idea.append("note", {})
    session.promote("idea", onto="main")
    assert shape(session) == [("main", 2, None, 0, ()), ("idea", 2, "main", 2, ())]


def test_deleted_branches_are_not_drawn(session, main) -> None:
    """Their children hang where they still share something with a branch that is there."""
    main.extend([("note", {"n": n}) for n in range(4)])
    middle = main.fork("middle", at=3)
    middle.extend([("note", {"m": n}) for n in range(2)])
    middle.fork("leaf", at=4).append("note", {})
    middle.delete()
    assert shape(session) == [("main", 4, None, 0, ()), ("leaf", 5, "main", 3, ())]


def test_every_branch_hangs_where_it_shares_most_with_an_older_one(grove) -> None:
    """In any session the fork seq is the longest history a branch shares with one listed before it."""
    nodes = grove.session.tree()
    assert {n.name for n in nodes} == set(grove.histories)
    assert [n.number for n in nodes] == sorted(n.number for n in nodes)
    for index, node in enumerate(nodes):
        assert node.seq == len(grove.histories[node.name])
        shared = [grove.shared(node.name, older.name) for older in nodes[:index]]
        assert node.fork_seq == max(shared, default=0)
        if node.fork_seq:
            assert grove.shared(node.name, node.parent) == node.fork_seq
        else:
            assert node.parent is None


def test_a_wide_tree(session, main) -> None:
    """A thousand leaves at one place."""
    main.extend([("note", {})] * 5)
    forks = main.fork_many(1000, at=4)
    assert all(isinstance(fork, Branch) for fork in forks)
    nodes = session.tree()
    assert len(nodes) == 1001
    assert {(n.parent, n.fork_seq) for n in nodes[1:]} == {("main", 4)}
