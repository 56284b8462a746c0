"""What goes away and what stands in its place: deleted branches, the trash by name, words that mislead."""

from __future__ import annotations

import pytest

import castlog


def test_deleting_the_current_branch_makes_main_current(store: castlog.Store) -> None:
    """After the branch that was checked out is deleted, its session's main is."""
    session = store.create_session("s")
    session.branch("main").fork("idea")
    store.checkout(f"{session.id}/idea")
    session.branch("idea").delete()
    assert store.current == session.branch("main")


def test_deleting_a_current_main_makes_another_branch_current(store: castlog.Store) -> None:
    """Without a main another branch of the session is current."""
    session = store.create_session("s")
    session.branch("main").fork("idea")
    store.checkout(f"{session.id}/main")
    session.branch("main").delete()
    assert store.current == session.branch("idea")


def test_deleting_a_branch_leaves_another_one_current(store: castlog.Store) -> None:
    """What is checked out stays so when some other branch goes."""
    session = store.create_session("s")
    session.branch("main").fork("idea")
    store.checkout(f"{session.id}/main")
    session.branch("idea").delete()
    assert store.current == session.branch("main")


@pytest.mark.parametrize("words", ["idea", "/idea"])
def test_a_branch_of_the_current_session_comes_back_by_its_name(store: castlog.Store, words: str) -> None:
    """`undelete` takes the words that deleted the branch."""
    session = store.create_session("s")
    session.branch("main").fork("idea").delete()
    with pytest.raises(castlog.NotFound):
        store.undelete(words)
    store.checkout(f"{session.id}/main")
    store.undelete(words)
    assert session.branch("idea").head.seq == 0


@pytest.mark.parametrize("name", ["pay\u200bload", "evil\u202egnp", "\u00adsoft"])
def test_invisible_characters_in_names_are_refused(store: castlog.Store, name: str) -> None:
    """A name that looks like another, or turns the line around, is no name."""
    main = store.create_session("s").branch("main")
    with pytest.raises(castlog.Invalid, match="invisible"):
        main.fork(name)


@pytest.mark.parametrize("timeout", [float("nan"), -1.0])
def test_a_timeout_that_never_comes_is_refused(store: castlog.Store, timeout: float) -> None:
    """`follow` says so at once instead of waiting for ever."""
    main = store.create_session("s").branch("main")
    with pytest.raises(castlog.Invalid):
        main.follow(timeout=timeout)


def test_a_clock_beyond_64_bits_is_refused() -> None:
    """The clock is looked at before anything is made."""
    with pytest.raises(castlog.Invalid, match="clock"):
        castlog.open("memory:", clock=lambda: 1 << 70)
