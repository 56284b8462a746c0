"""Tags: fixed names for points."""

from __future__ import annotations

import pytest

from castlog import Conflict, Invalid, NotFound, Point


@pytest.fixture
def five(main, small_chunks):
    """Seven events on main, five of them sealed."""
    return [main.append("note", {"n": n}) for n in range(1, 8)]


@pytest.mark.parametrize("at", [1, 3, 5, 6, 7, None])
def test_a_tag_is_a_name_for_a_point(store, session, main, five, at) -> None:
    """At a seq of main, sealed or open, or at its head."""
    seq = at or 7
    point = session.tag("here", at)
    assert point == Point(session.id, "here", seq, five[seq - 1].id)
    assert session.tags() == {"here": point}
    assert store.resolve(f"{session.id}/here") == point
    assert store.resolve(point.rev).id == point.id


def test_a_tag_at_zero_is_the_genesis(store, session, main, five) -> None:
    """The beginning of all histories can be tagged."""
    point = session.tag("start", 0)
    assert (point.seq, point.id) == (0, main.fork("empty", at=0).head.id)
    assert list(store.view(f"{session.id}/start").events()) == []


def test_a_tag_takes_a_seq_of_a_branch_a_revision_or_a_point(store, session, main, five) -> None:
    """Whichever way the place is named, it is that place."""
    idea = main.fork("idea", at=4)
    event = idea.append("note", {"idea": 1})
    assert session.tag("a", 5, branch="idea").id == event.id
    assert session.tag("b", branch="idea").id == event.id
    assert session.tag("c", f"{session.id}/idea~1").seq == 4
    assert session.tag("d", idea.head).id == event.id
    store.checkout(main.rev)
    assert session.tag("e", "a").id == event.id
    assert list(session.tags()) == ["a", "b", "c", "d", "e"]


def test_a_tag_does_not_move(store, session, main, five) -> None:
    """Resets, appends, renames and deletions leave it and all it reads."""
    idea = main.fork("idea", at=4)
    event = idea.append("note", {"idea": 1})
    session.tag("here", branch="idea")
    idea.reset(0)
    idea.append("note", {"other": 1})
    idea.delete()
    view = store.view(f"{session.id}/here")
    assert view.head.id == event.id
    assert [e.payload for e in view.events()] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}, {"idea": 1}]
    assert view.fork("back").append("note", {}).seq == 6


def test_a_name_is_taken_once(session, main, five) -> None:
    """By a tag or a branch, whichever came first; and again free when that is gone."""
    session.tag("x")
    main.fork("y")
    for name in ("x", "y", "main"):
        with pytest.raises(Conflict, match="taken"):
            session.tag(name, 1)
    session.delete_tag("x")
    assert session.tag("x", 1).seq == 1


def test_deleting_tags(session, main, five) -> None:
    """A tag is removed by name; a branch is no tag."""
    session.tag("x")
    session.delete_tag("x")
    assert session.tags() == {}
    for name in ("x", "main"):
        with pytest.raises(NotFound, match="no tag"):
            session.delete_tag(name)


def test_places_that_are_not_there(store, session, main, five) -> None:
    """Beyond the head, on an unknown branch, or in another session: refused, and no tag is made."""
    other = store.create_session("other")
    other.branch("main").append("note", {})
    for at, branch in ((8, "main"), (-1, "main"), (1, "nope"), (f"{session.id}/nope", "main")):
        with pytest.raises(NotFound):
            session.tag("t", at, branch=branch)
    for at in (other.branch("main").head, other.branch("main").rev):
        with pytest.raises(Invalid, match="another session"):
            session.tag("t", at)
    for at in (1.5, True, b"x", [1]):
        with pytest.raises(Invalid):
            session.tag("t", at)
    assert session.tags() == {}
