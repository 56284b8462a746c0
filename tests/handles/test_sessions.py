"""Sessions: made, found, listed, labelled; origins; and the sub-agents' sessions that calls started."""

from __future__ import annotations

import pytest

import castlog
from castlog import Conflict, Invalid, NotFound, Parent


def titles(sessions) -> list[str]:
    """Return the titles of sessions."""
    return [session.title for session in sessions]


def test_a_new_session_has_an_empty_main(store, clock) -> None:
    """It has an id, a title, a time and an empty branch main, and is found by its id."""
    before = clock.now
    session = store.create_session("fix the login bug", labels={"team": "web"})
    assert session.id.startswith("sess_")
    assert len(session.id) == 37
    assert (session.title, session.labels, session.origin, session.parent) == (
        "fix the login bug",
        {"team": "web"},
        None,
        None,
    )
    assert before < session.created <= clock.now
    assert session.deleted is None
    assert [b.name for b in session.branches()] == ["main"]
    assert store.session(session.id) == session
    assert session.tags() == {}


def test_ids_are_uuid7_and_sort_by_time(store) -> None:
    """Ids made one after the other sort so, and are version 7 of their kind."""
    ids = [store.create_session("x").id for _ in range(20)]
    assert ids == sorted(ids)
    assert {i[5 + 12] for i in ids} == {"7"}
    assert {i[5 + 16] for i in ids} <= set("89ab")
    assert len(set(ids)) == 20


@pytest.mark.parametrize("word", ["", "sess_", "sess_" + "0" * 31, "sess_" + "G" * 32, "0" * 32, "main", None, 7])
def test_only_full_ids_are_taken(store, session, word) -> None:
    """`store.session` wants the whole id; people's words are for `resolve`."""
    with pytest.raises(Invalid, match="not a session id"):
        store.session(word)


def test_an_unknown_id_is_not_found(store, session) -> None:
    """A well-formed id that is not here is NotFound."""
    with pytest.raises(NotFound, match="no session"):
        store.session("sess_" + "0" * 32)


def test_sessions_are_equal_when_their_ids_are(store, session) -> None:
    """Handles of one session compare equal and hash alike."""
    assert store.session(session.id) == session
    assert len({session, store.session(session.id), store.create_session("x")}) == 2
    assert session.branch("main") == store.session(session.id).branch("main")
    assert len({session.branch("main"), session.branch("main")}) == 1
    assert session != session.id
    assert session.branch("main") != "main"


def test_rename_and_relabel(store, session) -> None:
    """Titles and labels change, for every handle; None removes a label; ids and histories do not change."""
    head = session.branch("main").head
    handle = store.session(session.id)
    session.rename("another title")
    session.relabel(team="web", stage="dev")
    session.relabel({"team": "core", "stage": None, "x.y": "z"})
    assert (handle.title, handle.labels) == ("another title", {"team": "core", "x.y": "z"})
    assert session.branch("main").head == head
    with pytest.raises(Invalid):
        session.relabel({"a=b": "c"})
    with pytest.raises(Invalid):
        session.relabel({str(n): "v" for n in range(99)})
    assert handle.labels == {"team": "core", "x.y": "z"}


def test_removing_a_label_in_another_unicode_form(session) -> None:
    """A label is removed by whatever form of its name."""
    session.relabel({"caf\u00e9": "x"})
    session.relabel({"cafe\u0301": None})
    assert session.labels == {}


def test_labels_handed_out_are_copies(session) -> None:
    """Changing the dict that was returned changes nothing in the store."""
    session.relabel(a="b")
    session.labels["c"] = "d"
    assert session.labels == {"a": "b"}


# --- origins ------------------------------------------------------------------------------------


def test_an_origin_is_unique_in_the_store(store) -> None:
    """A second session with the origin is a Conflict that names the first; with exist_ok the first is returned."""
    first = store.create_session("a", origin="claude:1", labels={"x": "y"})
    with pytest.raises(Conflict, match="claude:1") as caught:
        store.create_session("b", origin="claude:1")
    assert caught.value.session_id == first.id
    again = store.create_session("b", origin="claude:1", exist_ok=True)
    assert again == first
    assert (again.title, again.labels) == ("a", {"x": "y"})
    assert len(store.sessions()) == 1
    assert store.create_session("c", origin="claude:2", exist_ok=True) != first


def test_a_session_is_found_by_its_origin(store) -> None:
    """Living or in the trash; what is unknown is None."""
    session = store.create_session("a", origin="codex:x")
    assert store.find_origin("codex:x") == session
    assert store.find_origin("codex:y") is None
    session.delete()
    found = store.find_origin("codex:x")
    assert found == session
    assert found.deleted is not None


def test_an_origin_stays_taken_while_in_the_trash(store) -> None:
    """A deleted session keeps its origin; the error says to undelete it."""
    session = store.create_session("a", origin="o")
    session.delete()
    with pytest.raises(Conflict):
        store.create_session("b", origin="o")
    with pytest.raises(NotFound, match="undelete"):
        store.create_session("b", origin="o", exist_ok=True)
    store.undelete(session.id)
    assert store.create_session("b", origin="o", exist_ok=True) == session


def test_two_unicode_forms_of_an_origin_are_one(store) -> None:
    """An origin made of a file's name is found again in the other form."""
    session = store.create_session("a", origin="caf\u00e9.jsonl")
    assert store.find_origin("cafe\u0301.jsonl") == session
    with pytest.raises(Conflict):
        store.create_session("b", origin="cafe\u0301.jsonl")


# --- parents and children -----------------------------------------------------------------------


def test_a_sub_agents_session_knows_the_call_that_started_it(store, session, main) -> None:
    """Its parent is the call: session, seq, call id and event id; the parent lists it among its children."""
    call = main.append("tool_call", {"name": "Task"}, call_id="t1")
    other = main.append("tool_call", {"name": "Task"}, call_id="t2")
    child = store.create_session("sub", parent=call)
    second = store.create_session("sub 2", parent=other)
    third = store.create_session("sub 3", parent=call)
    assert child.parent == Parent(session.id, 1, "t1", call.id)
    assert store.session(child.id).parent == child.parent
    assert session.children() == [child, second, third]
    assert session.children("t1") == [child, third]
    assert session.children("t3") == child.children() == []
    assert child.info.parent_session == session.id


def test_a_parent_may_be_given_as_a_value(store, session, main) -> None:
    """Who has only the facts of the call may give them."""
    call = main.append("tool_call", {}, call_id="t1")
    given = Parent(session.id, 1, "t1", call.id)
    assert store.create_session("sub", parent=given).parent == given


def test_the_same_child_with_and_without_parent_has_another_genesis(store, main) -> None:
    """The call's event id is part of the child's identity."""
    call = main.append("tool_call", {})
    with_parent = store.create_session("sub", parent=call)
    assert with_parent.branch("main").head.id != store.create_session("sub").branch("main").head.id


def test_children_and_parents_are_deleted_apart(store, session, main) -> None:
    """Deleting the parent leaves the child, which still names it; a deleted child is not listed."""
    child = store.create_session("sub", parent=main.append("tool_call", {}))
    child.delete()
    assert session.children() == []
    store.undelete(child.id)
    assert session.children() == [child]
    session.delete()
    assert titles(store.sessions()) == ["sub"]
    assert store.session(child.id).parent.session_id == session.id


@pytest.mark.parametrize("parent", ["t1", 3, ("a", 1), {}])
def test_a_parent_of_another_kind_is_refused(store, session, parent) -> None:
    """A parent is the event of the call."""
    with pytest.raises(Invalid, match="give the event"):
        store.create_session("sub", parent=parent)


def test_a_parent_from_elsewhere_is_not_found(store, open_store) -> None:
    """The calling session must be in the store."""
    other = open_store("other").create_session("x").branch("main").append("tool_call", {})
    with pytest.raises(NotFound):
        store.create_session("sub", parent=other)
    assert store.sessions() == []


# --- listing ------------------------------------------------------------------------------------


@pytest.fixture
def many(store) -> dict[str, castlog.Session]:
    """Five sessions with different labels, times, sizes and calls."""
    made = {}
    for n, (title, labels, ts, size) in enumerate(
        [
            ("Alpha", {"team": "web"}, 500, 10),
            ("beta", {"team": "web", "stage": "dev"}, 300, 5_000),
            ("gamma ray", {"team": "core"}, 900, 100),
            ("delta", {}, 700, 20_000),
            ("Ray of light", {"stage": "dev"}, 100, 1_000),
        ]
    ):
        session = store.create_session(title, labels=labels)
        branch = session.branch("main")
        branch.append("tool_call" if n % 2 else "note", "x" * size, ts=2_000_000_000_000_000_000 + ts, call_id="c")
        made[title] = session
    return made


def test_the_latest_activity_comes_first(store, many) -> None:
    """By default the newest event time decides; an append moves a session to the front."""
    assert titles(store.sessions()) == ["gamma ray", "delta", "Alpha", "beta", "Ray of light"]
    many["beta"].branch("main").append("note", {}, ts=2_000_000_000_000_000_950)
    assert titles(store.sessions())[:2] == ["beta", "gamma ray"]
    assert store.sessions()[0].info.activity == 2_000_000_000_000_000_950


def test_a_fork_counts_as_activity_when_it_writes(store, many) -> None:
    """An append on any branch is the session's activity."""
    fork = many["Ray of light"].branch("main").fork("f", at=0)
    assert titles(store.sessions())[0] == "gamma ray"
    fork.append("note", {}, ts=2_000_000_000_000_009_999)
    assert titles(store.sessions())[0] == "Ray of light"


def test_other_orders(store, many) -> None:
    """By creation the newest first; by size the largest first."""
    assert titles(store.sessions(sort="created")) == ["Ray of light", "delta", "gamma ray", "beta", "Alpha"]
    assert titles(store.sessions(sort="size")) == ["delta", "beta", "Ray of light", "gamma ray", "Alpha"]
    with pytest.raises(Invalid, match="activity, created or size"):
        store.sessions(sort="name")


def test_filters(store, many) -> None:
    """By labels (all must fit), a part of the title in any case, time, and calls in flight; together they narrow."""
    assert titles(store.sessions(label={"team": "web"})) == ["Alpha", "beta"]
    assert titles(store.sessions(label={"team": "web", "stage": "dev"})) == ["beta"]
    assert titles(store.sessions(label={"team": "none"})) == []
    assert titles(store.sessions(title="RAY")) == ["gamma ray", "Ray of light"]
    assert titles(store.sessions(since=2_000_000_000_000_000_500)) == ["gamma ray", "delta", "Alpha"]
    assert titles(store.sessions(in_flight=True)) == ["delta", "beta"]
    assert titles(store.sessions(in_flight=True, label={"team": "web"}, title="et", since=0)) == ["beta"]
    for order in ("created", "size"):
        assert set(titles(store.sessions(since=2_000_000_000_000_000_500, sort=order))) == {
            "gamma ray",
            "delta",
            "Alpha",
        }


def test_filters_know_unicode_forms(store) -> None:
    """Titles and labels are found in whatever form they are asked for."""
    store.create_session("caf\u00e9", labels={"ort": "caf\u00e9"})
    assert len(store.sessions(title="cafe\u0301")) == 1
    assert len(store.sessions(label={"ort": "cafe\u0301"})) == 1


def test_paging(store, many) -> None:
    """Pages of any size put together are the whole list, filtered or not; beyond the end there is nothing."""
    for sort in ("activity", "created", "size"):
        for filters in ({}, {"title": "a"}):
            whole = titles(store.sessions(sort=sort, **filters))
            for size in (1, 2, 3, 10):
                pages = [
                    titles(store.sessions(sort=sort, limit=size, offset=at, **filters))
                    for at in range(0, len(whole) + size, size)
                ]
                assert [title for page in pages for title in page] == whole
    assert store.sessions(limit=0) == []
    assert store.sessions(offset=99) == []


@pytest.mark.parametrize("page", [{"limit": -1}, {"offset": -1}, {"limit": "3"}, {"offset": 1.0}, {"since": "now"}])
def test_pages_and_times_are_whole_numbers(store, many, page) -> None:
    """A negative limit or offset, or another type, is refused instead of giving another page."""
    with pytest.raises(Invalid, match="whole number"):
        store.sessions(**page)


def test_children_can_be_left_out(store, many) -> None:
    """Sub-agents' sessions are listed unless they are not wanted."""
    store.create_session("sub", parent=many["beta"].branch("main").read(1))
    assert "sub" in titles(store.sessions())
    assert titles(store.sessions(children=False)) == ["gamma ray", "delta", "Alpha", "beta", "Ray of light"]


def test_deleted_sessions_are_not_listed(store, many) -> None:
    """A session in the trash is in no list, and back in it afterwards."""
    many["delta"].delete()
    assert titles(store.sessions(sort="size", limit=1)) == ["beta"]
    store.undelete(many["delta"].id)
    assert titles(store.sessions(sort="size", limit=1)) == ["delta"]


def test_the_listing_shows_what_a_session_holds(store, many) -> None:
    """Branches, events and bytes are those written so far, as of when the list was made."""
    session = many["Alpha"]
    session.branch("main").fork("f", at=0).append("note", "yy")
    info = next(s.info for s in store.sessions() if s == session)
    assert (info.id, info.title, info.labels) == (session.id, "Alpha", {"team": "web"})
    assert (info.branches, info.events, info.size) == (2, 2, 12 + 4)
    assert (info.created, info.origin, info.parent_session) == (session.created, None, None)
    session.branch("main").append("note", {})
    assert info.events == 2
    assert session.info.events == 3


def test_a_session_without_events_counts_from_its_creation(store, clock) -> None:
    """Before its first event a session's activity is its creation."""
    session = store.create_session("x")
    assert session.info.activity == session.created
    assert store.sessions(since=session.created) == [session]
    assert store.sessions(since=session.created + 1) == []
