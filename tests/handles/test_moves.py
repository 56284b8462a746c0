"""Moving references: reset, promote, rename, delete, undelete, and the reflog that remembers it."""

from __future__ import annotations

import pytest

from castlog import Conflict, Invalid, NotFound


@pytest.fixture
def six(main, small_chunks):
    """Six events on main, the first five sealed."""
    return [main.append("note", {"n": n}) for n in range(1, 7)]


# --- reset --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [0, 1, 4, 5, 6])
def test_reset_takes_the_head_back(session, main, six, seq) -> None:
    """The branch ends at the seq, and the next append follows it."""
    main.reset(seq)
    assert list(main.events()) == six[:seq]
    assert main.head.seq == seq
    assert main.append("note", {"new": True}).seq == seq + 1
    assert list(main.events())[:-1] == six[:seq]


def test_what_a_reset_left_behind_can_be_reached(store, session, main, six) -> None:
    """The reflog has the old head, and a fork made before still has the events."""
    keep = main.fork("keep")
    main.reset(2)
    move = main.reflog()[-1]
    assert (move.op, move.old_seq, move.old_id, move.new_seq) == ("reset", 6, six[5].id, 2)
    session.promote("keep", onto="main")
    assert list(main.events()) == six
    assert keep.head.seq == 6


def test_a_reset_into_a_shared_history(main, six) -> None:
    """A fork may be reset to before its fork point; it then shares less and goes its own way from there."""
    fork = main.fork("fork", at=4)
    fork.extend([("note", {"fork": n}) for n in range(3)])
    fork.reset(2)
    fork.append("note", {"again": True})
    assert [e.payload for e in fork.events()] == [{"n": 1}, {"n": 2}, {"again": True}]
    assert list(main.events()) == six


@pytest.mark.parametrize("seq", [7, -1])
def test_reset_does_not_go_forward(main, six, seq) -> None:
    """A seq the branch does not have is NotFound, and the branch stays."""
    with pytest.raises(NotFound):
        main.reset(seq)
    assert main.head.seq == 6


def test_reset_wants_a_whole_number(main, six) -> None:
    """Anything else is Invalid."""
    for seq in ("2", None, 2.0, False):
        with pytest.raises(Invalid):
            main.reset(seq)
    assert main.head.seq == 6


# --- promote ------------------------------------------------------------------------------------


def test_promote_points_one_branch_where_another_is(session, main, six) -> None:
    """The target reads as the source from then on, and both go on apart."""
    idea = main.fork("idea", at=2)
    idea.append("note", {"idea": 1})
    promoted = session.promote("idea", onto="main")
    assert promoted == main
    assert list(main.events()) == list(idea.events())
    main.append("note", {"main": 2})
    idea.append("note", {"idea": 2})
    assert main.read(4).payload == {"main": 2}
    assert idea.read(4).payload == {"idea": 2}


def test_promote_keeps_the_old_head_in_the_reflog(session, main, six) -> None:
    """The move is logged with both heads and where it came from."""
    idea = main.fork("idea", at=0)
    event = idea.append("note", {})
    session.promote("idea", onto="main")
    move = main.reflog()[-1]
    assert (move.op, move.old_seq, move.old_id, move.new_seq, move.new_id) == ("promote", 6, six[5].id, 1, event.id)
    assert "idea" in move.note


def test_promote_with_expect_notices_that_the_target_moved(session, main, six) -> None:
    """`expect` is the seq or the event id the caller believes the target is at."""
    main.fork("idea", at=2)
    for wrong in (5, six[4].id):
        with pytest.raises(Conflict, match="main is at seq 6") as caught:
            session.promote("idea", onto="main", expect=wrong)
        assert caught.value.seq == 6
    assert main.head.seq == 6
    session.promote("idea", onto="main", expect=six[5].id)
    assert main.head.seq == 2
    main.append("note", {})
    assert session.promote("idea", onto="main", expect=3).head.seq == 2
    with pytest.raises(Invalid):
        session.promote("idea", onto="main", expect="main")


def test_promote_names_what_is_missing(session, main) -> None:
    """Unknown branches are NotFound, whichever side; a tag is no branch."""
    main.append("note", {})
    session.tag("t")
    for name, onto in (("nope", "main"), ("main", "nope"), ("t", "main"), ("main", "t")):
        with pytest.raises(NotFound, match=name if onto == "main" else onto):
            session.promote(name, onto=onto)


def test_promote_onto_itself_changes_nothing(session, main, six) -> None:
    """A branch promoted onto itself reads as before."""
    session.promote("main", onto="main")
    assert list(main.events()) == six
    assert main.append("note", {}).seq == 7


# --- rename -------------------------------------------------------------------------------------


def test_rename_keeps_the_branch(store, session, main, six) -> None:
    """Handles hold on to the branch; the old name is free, the new one leads there."""
    main.rename("trunk")
    assert main.name == session.branch("trunk").name == "trunk"
    assert main.rev == f"{session.id}/trunk"
    assert list(main.events()) == six
    with pytest.raises(NotFound):
        session.branch("main")
    session.branch("trunk").fork("main")
    assert {b.name for b in session.branches()} == {"main", "trunk"}


def test_rename_to_a_taken_name_is_a_conflict(session, main, six) -> None:
    """Neither a branch's nor a tag's name can be taken over; its own name changes nothing."""
    main.fork("other")
    session.tag("t")
    for name in ("other", "t"):
        with pytest.raises(Conflict, match="taken"):
            main.rename(name)
    main.rename("main")
    assert main.name == "main"


# --- delete and undelete ------------------------------------------------------------------------


def test_a_deleted_branch_is_gone_and_its_forks_are_not(store, session, main, six) -> None:
    """Its name is free, every use of its handle is NotFound, and what was forked from it stays."""
    fork = main.fork("fork", at=3)
    fork.append("note", {"fork": 1})
    child = fork.fork("child")
    fork.delete()
    assert [b.name for b in session.branches()] == ["child", "main"]
    assert [e.payload for e in child.events()][-1] == {"fork": 1}
    for use in (
        lambda: fork.append("note", {}),
        lambda: fork.read(1),
        lambda: fork.head,
        lambda: fork.fork("x"),
        lambda: fork.reset(0),
        lambda: fork.rename("y"),
        lambda: fork.delete(),
        lambda: fork.in_flight(),
        lambda: fork.name,
        lambda: session.branch("fork"),
        lambda: store.resolve(f"{session.id}/fork"),
    ):
        with pytest.raises(NotFound):
            use()
    assert main.fork("fork").head.seq == 6


def test_undelete_brings_a_branch_back(store, session, main, six) -> None:
    """It comes back with its name, head and reflog, and old handles work again."""
    fork = main.fork("fork", at=3)
    event = fork.append("note", {"fork": 1})
    fork.delete()
    (item,) = store.trash()
    assert (item.session_id, item.branch, item.rev) == (session.id, "fork", f"{session.id}/fork")
    back = store.undelete(item.rev)
    assert back == fork == session.branch("fork")
    assert fork.head.id == event.id
    assert store.trash() == []
    assert [m.op for m in fork.reflog()][-2:] == ["delete", "undelete"]
    assert fork.append("note", {}).seq == 5


def test_undelete_when_the_name_was_taken_meanwhile(store, session, main, six) -> None:
    """It is a Conflict that leaves it in the trash; under another name it comes back."""
    fork = main.fork("fork", at=3)
    fork.delete()
    new = main.fork("fork", at=5)
    with pytest.raises(Conflict, match="taken"):
        store.undelete(f"{session.id}/fork")
    assert len(store.trash()) == 1
    back = store.undelete(f"{session.id}/fork", name="fork-old")
    assert (back.name, back.head.seq) == ("fork-old", 3)
    assert (new.name, new.head.seq) == ("fork", 5)
    with pytest.raises(Invalid):
        store.undelete(f"{session.id}/fork", name="-x")


def test_of_several_deleted_under_one_name_the_newest_comes_back_first(store, session, main, six) -> None:
    """Each undelete takes the newest that is left."""
    for at in (1, 2, 3):
        main.fork("fork", at=at).delete()
    assert [item.branch for item in store.trash()] == ["fork"] * 3
    got = [store.undelete(f"{session.id}/fork", name=f"f{n}").head.seq for n in range(3)]
    assert got == [3, 2, 1]
    with pytest.raises(NotFound):
        store.undelete(f"{session.id}/fork")


def test_the_only_branch_cannot_be_deleted(session, main) -> None:
    """A session always has a branch: the sentence says to delete the session instead."""
    with pytest.raises(Invalid, match="delete the session"):
        main.delete()
    assert main.head.seq == 0


def test_a_deleted_session_takes_its_branches_along(store, session, main, six) -> None:
    """All uses are NotFound until it is brought back, by id, by a part of it or by title; then all is as before."""
    fork = main.fork("fork", at=2)
    session.delete()
    assert store.sessions() == []
    for use in (
        lambda: store.session(session.id),
        lambda: store.resolve(session.id),
        lambda: main.append("note", {}),
        lambda: main.head,
        lambda: list(fork.events()),
        lambda: fork.fork("x"),
        lambda: session.branch("main"),
        lambda: session.branches(),
        lambda: session.rename("x"),
        lambda: session.delete(),
        lambda: main.reset(0),
        lambda: main.rename("trunk"),
        lambda: fork.delete(),
        lambda: session.promote("fork", onto="main"),
        lambda: session.tag("t"),
    ):
        with pytest.raises(NotFound, match=r"trash|deleted|no session"):
            use()
    (item,) = store.trash()
    assert (item.branch, item.title, item.rev) == (None, "fix the login bug", session.id)
    assert session.deleted == item.deleted
    for word in (session.id, session.id[-8:], session.title):
        back = store.undelete(word)
        assert back == session
        assert back.deleted is None
        assert list(main.events()) == six
        assert {b.name for b in back.branches()} == {"fork", "main"}
        session.delete()


def test_views_and_tags_of_a_deleted_session_write_nothing(store, session, main, six) -> None:
    """A view taken before the deletion can neither be forked from nor can its tags be changed."""
    session.tag("t", at=2)
    view = store.view(f"{session.id}/t")
    session.delete()
    for use in (lambda: view.fork("x"), lambda: view.fork_many(2), lambda: session.delete_tag("t")):
        with pytest.raises(NotFound, match="trash"):
            use()
    store.undelete(session.id)
    assert {b.name for b in session.branches()} == {"main"}
    assert list(session.tags()) == ["t"]


def test_a_branch_of_a_deleted_session_comes_back_after_its_session(store, session, main, six) -> None:
    """First the session: until then the branch stays in the trash, and the error says what to do."""
    main.fork("fork").delete()
    session.delete()
    with pytest.raises(NotFound, match="undelete it first"):
        store.undelete(f"{session.id}/fork")
    assert len(store.trash()) == 2
    store.undelete(session.id)
    assert store.undelete(f"{session.id}/fork").name == "fork"


def test_the_trash_is_newest_first(store, session, main, six) -> None:
    """What was deleted last is listed first, with its time."""
    main.fork("a").delete()
    main.fork("b").delete()
    other = store.create_session("other")
    other.delete()
    items = store.trash()
    assert [(i.branch, i.title) for i in items] == [
        (None, "other"),
        ("b", "fix the login bug"),
        ("a", "fix the login bug"),
    ]
    assert items[0].deleted > items[1].deleted > items[2].deleted


@pytest.mark.parametrize("word", ["", "nowhere", "abcd", "main", "fix the login bug/nope", "\udcff", "x" * 700])
def test_what_is_not_in_the_trash_is_not_found(store, session, main, word) -> None:
    """Undelete says so for anything that fits nothing there."""
    main.fork("fork").delete()
    with pytest.raises(NotFound, match="trash"):
        store.undelete(word)


# --- reflog -------------------------------------------------------------------------------------


def test_the_reflog_lists_all_that_moved_a_branch_but_appends(session, main, six) -> None:
    """Beginning, resets, promotions, renames, deletion and return, oldest first and numbered, with their times."""
    fork = main.fork("fork", at=4)
    fork.append("note", {})
    fork.reset(2)
    session.promote("main", onto="fork")
    fork.rename("other")
    fork.delete()
    moves = fork.reflog()
    assert [m.op for m in moves] == ["fork", "reset", "promote", "rename", "delete"]
    assert [m.n for m in moves] == list(range(5))
    assert [m.ts for m in moves] == sorted(m.ts for m in moves)
    assert [(m.old_seq, m.new_seq) for m in moves] == [(0, 4), (5, 2), (2, 6), (6, 6), (6, 6)]
    assert "main" in moves[0].note
    assert moves[3].note == "fork -> other"
    assert moves[2].new_id == six[5].id


def test_a_new_sessions_main_begins_with_its_creation(main) -> None:
    """The first entry of any branch says how it began."""
    (move,) = main.reflog()
    assert (move.op, move.old_seq, move.new_seq) == ("create", 0, 0)


def test_appends_and_failed_moves_are_not_logged(main, six) -> None:
    """Only what moved the branch other than by appending is in the reflog."""
    before = main.reflog()
    main.append("note", {})
    with pytest.raises(NotFound):
        main.reset(99)
    assert main.reflog() == before
