"""Revisions: `[SESSION/][BRANCH|TAG][@SEQ|@b3:PREFIX][~N]`, every part of it, and what is refused."""

from __future__ import annotations

import pytest

import castlog
from castlog import Invalid, NotFound


@pytest.fixture
def session(store, small_chunks) -> castlog.Session:
    """A session with main 1..12, idea 13..15 from 9, a tag at 5; nothing is checked out."""
    session = store.create_session("fix the login bug")
    main = session.branch("main")
    main.extend([("note", {"n": n}) for n in range(1, 8)])
    for n in range(8, 13):
        main.append("note", {"n": n})
    idea = main.fork("idea", at=9)
    idea.extend([("note", {"idea": n}) for n in range(3)])
    session.tag("before", at=5)
    return session


@pytest.fixture
def here(store, session) -> castlog.Session:
    """The same session with its main checked out."""
    store.checkout(session.branch("main").rev)
    return session


# --- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rev", "name", "seq"),
    [
        ("main", "main", 12),
        ("idea", "idea", 12),
        ("before", "before", 5),
        ("/main", "main", 12),
        ("/before", "before", 5),
        ("/", "main", 12),
        ("HEAD", "main", 12),
        ("main@4", "main", 4),
        ("main@12", "main", 12),
        ("main@0", "main", 0),
        ("main@007", "main", 7),
        ("idea@11", "idea", 11),
        ("idea@3", "idea", 3),
        ("before@5", "before", 5),
        ("before@1", "before", 1),
        ("main~1", "main", 11),
        ("main~0", "main", 12),
        ("main~12", "main", 0),
        ("main@7~3", "main", 4),
        ("before~5", "before", 0),
        ("@4", "main", 4),
        ("~2", "main", 10),
        ("@4~1", "main", 3),
        ("HEAD@4~1", "main", 3),
        ("/idea@11~2", "idea", 9),
    ],
)
def test_revisions_of_what_is_checked_out(store, here, rev, name, seq) -> None:
    """Without a session the words mean the one that is checked out; without a branch its current one."""
    point = store.resolve(rev)
    assert (point.session_id, point.branch, point.seq) == (here.id, name, seq)
    branch = here.branch("main" if name == "before" else name)
    assert point.id == (branch.read(seq).id if seq else branch.fork("empty", at=0).head.id)


@pytest.mark.parametrize("rest", ["", "main", "idea", "before", "main@4", "idea~2", "before@3", "@3", "~3"])
def test_a_session_may_be_named_by_id_ends_or_title(store, session, rest) -> None:
    """The full id, `sess_` and a beginning, a bare beginning or end of the hex, and the exact title lead to it."""
    expected = store.resolve(f"{session.id}/{rest}")
    assert expected.session_id == session.id
    hexes = session.id[5:]
    for word in (session.id, session.id[:25], hexes, hexes[:20], hexes[-8:], hexes[-4:].upper(), "fix the login bug"):
        assert store.resolve(f"{word}/{rest}") == expected
        if rest in ("", "@3", "~3"):
            assert store.resolve(f"{word}{rest}") == expected


def test_a_session_alone_means_its_main_or_its_only_branch(store, session) -> None:
    """Without main and with several branches the sentence lists them."""
    assert store.resolve(session.id).branch == "main"
    session.branch("main").rename("trunk")
    with pytest.raises(Invalid, match="no main; name one of its branches: idea, trunk"):
        store.resolve(f"{session.id}/")
    session.branch("idea").delete()
    assert store.resolve(session.id).branch == "trunk"


def test_an_id_prefix_finds_its_event(store, here) -> None:
    """From 4 digits on, on the branch that is named, however it is named; `~` counts on from it."""
    for name in ("main", "idea"):
        for event in here.branch(name).events():
            for prefix in (event.id, event.id[:35], event.id[:19]):
                assert store.resolve(f"{name}@{prefix}").seq == event.seq
    assert store.resolve(f"{here.id}/before@{here.branch('main').read(2).id[:20]}").seq == 2
    assert store.resolve(f"@{here.branch('main').read(7).id}~3").seq == 4
    assert store.resolve(f"main@{here.branch('main').fork('e', at=0).head.id}").seq == 0


def test_a_whole_id_is_looked_for_no_further_than_needed(store, here, monkeypatch) -> None:
    """The search begins at the head and ends where the id is: recent events are found without reading the rest."""
    from castlog.history import reader

    branch, looked = here.branch("main"), []
    for level in range(6):
        branch = branch.fork(f"deep{level}")
        branch.append("note", {"level": level})
    run_at = reader.run_at
    monkeypatch.setattr(reader, "run_at", lambda *words, **more: looked.append(words[4]) or run_at(*words, **more))
    assert store.resolve(f"{branch.rev}@{branch.read(18).id}").seq == 18
    looked.clear()
    assert store.resolve(f"{branch.rev}@{branch.head.id}~2").seq == 16
    assert len(looked) == 1


def test_an_id_of_another_branch_is_not_found(store, here) -> None:
    """An id is looked for in the named history only."""
    event = here.branch("idea").read(12)
    with pytest.raises(NotFound, match="no event of 'main'"):
        store.resolve(f"main@{event.id}")
    with pytest.raises(NotFound):
        store.resolve(f"before@{here.branch('main').read(6).id}")


def test_an_ambiguous_id_prefix_lists_the_seqs(store, here) -> None:
    """Events whose ids begin alike: both seqs are in the sentence, and more digits decide."""
    main = here.branch("main")
    by_prefix: dict[str, list[castlog.Event]] = {}
    while True:
        event = main.append("note", {})
        same = by_prefix.setdefault(event.id[:7], [])
        same.append(event)
        if len(same) == 2:
            break
    first, second = same
    with pytest.raises(Invalid, match=f"{first.seq}, {second.seq}.*write more"):
        store.resolve(f"main@{event.id[:7]}")
    assert store.resolve(f"main@{second.id[:20]}").seq == second.seq


# --- ambiguity ----------------------------------------------------------------------------------


def test_a_word_that_fits_a_branch_and_a_session_lists_both(store, here) -> None:
    """It is refused; `/B` and `S/` say which, and the sentence shows them so."""
    other = store.create_session("idea")
    other.branch("main").append("note", {})
    with pytest.raises(Invalid) as caught:
        store.resolve("idea")
    assert "/idea (a branch of the current session)" in str(caught.value)
    assert f"{other.id}/ (a session)" in str(caught.value)
    assert len(caught.value.candidates) == 2
    assert store.resolve("/idea").session_id == here.id
    assert store.resolve("idea/").session_id == other.id
    for listed in caught.value.candidates:
        assert store.resolve(listed.split(" ")[0]).seq in (1, 12)
    with pytest.raises(Invalid):
        store.resolve("idea@1")


def test_a_word_that_fits_a_tag_and_a_session(store, here) -> None:
    """Tags count as branches do."""
    store.create_session("before")
    with pytest.raises(Invalid, match="a tag of the current session"):
        store.resolve("before")
    assert store.resolve("/before").seq == 5


def test_sessions_of_one_title_are_listed(store, session) -> None:
    """Two sessions of one title: both ids are in the sentence, with and without a branch behind."""
    other = store.create_session(session.title)
    for rev in (session.title, f"{session.title}/main"):
        with pytest.raises(Invalid) as caught:
            store.resolve(rev)
        assert session.id in str(caught.value)
        assert other.id in str(caught.value)
    other.delete()
    assert store.resolve(session.title).session_id == session.id


def test_a_short_prefix_that_fits_many_is_refused_with_some_of_them(store, session) -> None:
    """Ids made at one time begin alike: the sentence lists a few and counts the rest."""
    for n in range(9):
        store.create_session(f"s{n}")
    with pytest.raises(Invalid, match=r"10 sessions|and 4 more"):
        store.resolve(session.id[:12])
    with pytest.raises(Invalid, match="10 sessions fit"):
        store.resolve(f"{session.id[5:12]}/main")


def test_a_title_of_hex_digits_beside_an_id_that_ends_so(store, session) -> None:
    """A title and an id are two meanings of one word; the same session under both is one meaning."""
    end = session.id[-6:]
    other = store.create_session(end)
    with pytest.raises(Invalid):
        store.resolve(end)
    other.rename("x")
    session.rename(session.id[-6:])
    assert store.resolve(end).session_id == session.id


# --- what moves and what does not ---------------------------------------------------------------


@pytest.mark.parametrize("rev", ["main", "idea", "/idea", "HEAD", "/"])
def test_a_branch_revision_is_a_branch(store, here, rev) -> None:
    """`store.branch` gives the branch, to append to."""
    assert store.branch(rev).append("note", {}).seq == 13


@pytest.mark.parametrize("rev", ["before", "main@12", "main@4", "main~0", "main~2", "@3", "HEAD~1", "before~1"])
def test_a_point_is_no_branch(store, here, rev) -> None:
    """A tag or anything with a seq is refused by `branch` and `checkout`; the sentence says to fork there."""
    for use in (store.branch, store.checkout):
        with pytest.raises(Invalid, match="fork there"):
            use(rev)
    assert store.view(rev).fork("from-there").append("note", {}).seq == store.resolve(rev).seq + 1


def test_rev_leads_back(store, session) -> None:
    """`rev` of every handle and point resolves to what it was."""
    for branch in session.branches():
        assert store.branch(branch.rev) == branch
        assert store.resolve(branch.rev) == branch.head
        assert store.resolve(branch.head.rev) == branch.head
    for point in session.tags().values():
        assert store.resolve(point.rev) == point


def test_points_are_taken_where_revisions_are(store, session) -> None:
    """Export, verify, usage, diff and tag take handles and points as well as strings."""
    import io

    branch = session.branch("idea")
    for rev in (branch, branch.head, branch.rev, store.view(branch.rev)):
        assert store.export(rev, io.BytesIO()) == 12
        assert store.usage(rev).sessions == 1


# --- current ------------------------------------------------------------------------------------


def test_current_stands_in_for_what_is_checked_out(store, here) -> None:
    """`current=` resolves other words against another branch, without checking it out."""
    other = store.create_session("other")
    other.branch("main").fork("mine").append("note", {})
    assert store.resolve("mine", current=other.id).session_id == other.id
    assert store.resolve("HEAD", current=f"{other.id}/mine").branch == "mine"
    assert store.resolve("~1", current=f"{other.id}/mine").seq == 0
    assert store.branch("/main", current=other.id).session == other
    assert store.resolve("main").session_id == here.id
    with pytest.raises(NotFound):
        store.resolve("mine")


def test_nothing_checked_out(store, session) -> None:
    """Then words that need it are NotFound with what to do; sessions are found all the same."""
    assert store.current is None
    for rev in ("HEAD", "@3", "~1", "/main", "/"):
        with pytest.raises(NotFound, match="checked out"):
            store.resolve(rev)
    with pytest.raises(NotFound, match="checked out"):
        store.resolve("main")


def test_checkout_makes_a_branch_current_for_every_handle(open_disk_store, clock) -> None:
    """It is kept in the store and follows the branch through renames; after its deletion main is current."""
    with open_disk_store() as store:
        session = store.create_session("x")
        session.branch("main").fork("idea")
        assert store.checkout(f"{session.id}/idea").name == "idea"
        assert store.current.name == "idea"
    with open_disk_store() as store:
        current = store.current
        assert current.name == "idea"
        current.rename("thought")
        assert store.current.name == "thought"
        current.delete()
        assert store.current.name == "main"
        assert store.undelete(f"{session.id}/thought") == current
        assert store.current.name == "main"
        store.session(session.id).delete()
        assert store.current is None


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rev",
    [
        "",
        "main@",
        "main@x",
        "main@-1",
        "main@1.5",
        "main@1@2",
        "main~",
        "main~x",
        "main~-1",
        "main~1~2",
        "main~1@2",
        "main@b3:",
        "main@b3:abc",
        "main@b3:xyzw",
        "main@b3:" + "a" * 65,
        "main@B3:ABCD",
        "main@ 4",
        "main@4 ",
        "main@\u0664",
        "main@" + "9" * 5000,
        "main~" + "9" * 5000,
        "main~\u00b2",
        "@",
        "~",
        None,
        4,
        b"main",
    ],
)
def test_malformed_revisions_are_invalid(store, here, rev) -> None:
    """What does not fit the grammar is refused with a sentence that shows it."""
    with pytest.raises(Invalid, match="revision"):
        store.resolve(rev)


@pytest.mark.parametrize(
    "rev",
    [
        "nope",
        "/nope",
        "nope/main",
        "abc",
        "abcdef012345",
        "main@13",
        "main@13~1",
        "main@99~95",
        "main~13",
        "before@6",
        "before@6~1",
        "main@99999999999999999999999",
        "main~99999999999999999999999",
        "main@b3:0000000000",
        "Main",
        " main",
        "main ",
        "a/b/c",
        "//",
        "main\x00",
        "\udcff",
        "/\udcff",
        "\udcff/main",
        "x" * 600,
        "/" + "x" * 600,
        "sess_" + "0" * 32,
        "sess_zzzz",
        "sess_",
    ],
)
def test_revisions_that_name_nothing_are_not_found(store, here, rev) -> None:
    """Well-formed words for what is not there are NotFound, whatever characters they hold and however long."""
    with pytest.raises(NotFound):
        store.resolve(rev)


def test_a_long_title_is_found_where_names_are_shorter(store, here) -> None:
    """A title may be longer than any branch's name, and is a revision all the same."""
    other = store.create_session("t" * 900)
    assert store.resolve("t" * 900).session_id == other.id


def test_titles_with_grammar_in_them_are_found_by_id_only(store, session) -> None:
    """A title that holds `/`, `@` or `~` is no revision; the session's id is."""
    other = store.create_session("a/b@1~2")
    with pytest.raises((Invalid, NotFound)):
        store.resolve("a/b@1~2")
    assert store.resolve(other.id).session_id == other.id


def test_deleted_things_are_not_found(store, session) -> None:
    """A deleted branch and a deleted session are no meaning of any word."""
    session.branch("idea").delete()
    with pytest.raises(NotFound, match="no branch or tag 'idea'"):
        store.resolve(f"{session.id}/idea")
    session.delete()
    for rev in (session.id, session.id[-8:], session.title, f"{session.id}/main"):
        with pytest.raises(NotFound):
            store.resolve(rev)


# --- completion ---------------------------------------------------------------------------------


def test_candidates_begin_with_what_was_typed(store, here) -> None:
    """Branches and tags of the current session, and sessions by the end of their id or by title."""
    other = store.create_session("mainframe")
    assert store.candidates("ma") == ["main", "mainframe/"]
    assert store.candidates("be") == ["before"]
    assert store.candidates(other.id[-8:-4]) == [f"{other.id[-8:]}/"]
    assert store.candidates(other.id[:30])[0].startswith(other.id[:30])
    assert store.candidates("zzz") == []
    assert {"main", "idea", "before"} <= set(store.candidates(""))


def test_candidates_behind_a_session(store, here) -> None:
    """After `S/` or `/` the names of that session; of an unknown or ambiguous session none."""
    assert store.candidates(f"{here.id}/") == [f"{here.id}/{n}" for n in ("before", "idea", "main")]
    assert store.candidates(f"{here.id[-8:]}/m") == [f"{here.id[-8:]}/main"]
    assert store.candidates("/i") == ["/idea"]
    assert store.candidates("nope/") == []
    store.create_session(here.title)
    assert store.candidates(f"{here.title}/") == []


def test_every_candidate_resolves(store, here) -> None:
    """What completion offers can be typed."""
    for n in range(5):
        store.create_session(f"title {n}")
    for prefix in ("", "m", "t", "ti", "/", here.id[:10]):
        for word in store.candidates(prefix):
            assert store.resolve(word).session_id


def test_candidates_are_bounded(store, here) -> None:
    """At most two hundred, however many there are."""
    here.branch("main").fork_many(300, prefix="try-")
    assert len(store.candidates("try-")) == len(store.candidates("/try-")) == 200


@pytest.mark.parametrize("prefix", ["\udcff", "\udcff/", "main@", "main@4", "a/b/c", "~", "x" * 700])
def test_candidates_of_nonsense_are_none(store, here, prefix) -> None:
    """Completion never raises for what was typed."""
    assert store.candidates(prefix) == []
