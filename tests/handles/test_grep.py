"""Search over payloads: what matches, each shared event once, and bytes that cannot match left alone."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castlog import Invalid, NotFound, Raw


def seqs(matches) -> list[int]:
    """Return the seqs of matches."""
    return [match.event.seq for match in matches]


@pytest.fixture
def talk(main, small_chunks):
    """A short talk with tools on main."""
    main.extend(
        [
            ("user_message", {"text": "Please fix the login bug\nand the other one"}),
            ("tool_call", {"name": "Bash", "args": {"command": "pytest -x"}}),
            ("tool_result", {"ok": False, "error": "1 failed: test_login"}),
            ("model_response", {"content": "Ich schaue über die Übersicht"}),
            ("tool_call", {"name": "Edit", "args": {"file": "src/api.py", "line": 42, "ratio": 0.5}}),
            ("note", None),
            ("note", "plain LOGIN text"),
            ("note", [True, 1.25, ["nested", {"key": "value"}]]),
            ("model_request", {"text": "login " + "filler " * 3000 + "the end"}),
        ]
    )
    return main


@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        ("login", {}, [1, 3, 9]),
        ("login", {"ignore_case": True}, [1, 3, 7, 9]),
        ("log.n b", {}, [1]),
        ("^and", {}, [1]),
        ("bug$", {}, [1]),
        ("fix.*bug", {}, [1]),
        ("bug.*other", {}, []),
        (r"bug\nand", {}, [1]),
        ("über", {}, [4]),
        ("über", {"ignore_case": True}, [4]),
        ("ÜBER", {"ignore_case": True}, [4]),
        ("1.25", {"fixed": True}, [8]),
        ("4[12]", {}, [5]),
        ("0.5", {"fixed": True}, [5]),
        ("command", {}, [2]),
        ("the end", {}, [9]),
        ("nested|1 failed", {}, [3, 8]),
        ("[", {"fixed": True}, []),
        ("test_login", {"fixed": True}, [3]),
        ("login", {"types": {"user_message", "note"}}, [1]),
        ("login", {"types": "tool_result"}, [3]),
        ("login", {"types": ()}, []),
        (".", {"tool": "Edit"}, [5]),
        (".", {"tool": "Bash"}, [2]),
        ("pytest", {"tool": "Edit"}, []),
        ("true", {}, []),
        ("null", {}, []),
        ("Bash", {}, [2]),
    ],
)
def test_what_matches(store, talk, pattern, options, expected) -> None:
    """Keys, strings and numbers are searched, one by one, as text; JSON's own words and signs are not."""
    assert seqs(store.grep(pattern, **options)) == expected


def test_a_match_shows_its_line(store, session, talk) -> None:
    """It has the event, a branch that has it, the line around the match, and where in it the match lies."""
    (match,) = store.grep("other")
    assert match.event == talk.read(1)
    assert match.rev == f"{session.id}/main@1"
    assert match.text == "and the other one"
    assert match.text[slice(*match.span)] == "other"
    (long,) = store.grep("the end")
    assert len(long.text) < 300
    assert long.text[slice(*long.span)] == "the end"


def test_payloads_with_escapes_are_found(store, main) -> None:
    """However the bytes spell a character, the text is what is searched."""
    for data in (b'"caf\\u00e9 \\u0041pple"', b'"\\ud83d\\ude00 smile"', '"café Apple"'.encode(), b'"tab\\there"'):
        main.append("note", Raw(data))
    assert seqs(store.grep("Apple")) == [1, 3]
    assert seqs(store.grep("café")) == [1, 3]
    assert seqs(store.grep("😀")) == [2]
    assert seqs(store.grep("tab\there", fixed=True)) == [4]
    assert seqs(store.grep("tab.here")) == [4]


TEXT = st.text(alphabet='ab A\\"\n/é0.', max_size=8)
VALUES = st.recursive(
    TEXT | st.integers(0, 50) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def texts(value) -> list[str]:
    """Return every key, string and number of a value as text."""
    if isinstance(value, dict):
        return [t for key, item in value.items() for t in (key, *texts(item))]
    if isinstance(value, list):
        return [t for item in value for t in texts(item)]
    if isinstance(value, str):
        return [value]
    return [] if value is None or isinstance(value, bool) else [str(value)]


@given(
    values=st.lists(VALUES, min_size=1, max_size=8),
    pattern=st.text(alphabet="ab A.*é0", min_size=1, max_size=4),
    fixed=st.booleans(),
    ignore_case=st.booleans(),
    escaped=st.booleans(),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_like_a_plain_search(store, values, pattern, fixed, ignore_case, escaped) -> None:
    """Leaving out what cannot match loses nothing: the result is that of searching every text of every payload."""
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        compiled = re.compile(re.escape(pattern) if fixed else pattern, flags)
    except re.error:
        with pytest.raises(Invalid):
            store.grep(pattern, fixed=fixed)
        return
    main = store.create_session("x").branch("main")
    main.extend([("note", Raw(json.dumps(value, ensure_ascii=escaped).encode())) for value in values])
    expected = [n for n, value in enumerate(values, 1) if any(compiled.search(t) for t in texts(value))]
    assert seqs(store.grep(pattern, [main], fixed=fixed, ignore_case=ignore_case)) == expected


def test_a_shared_event_is_found_once(store, session, talk) -> None:
    """However many branches and tags reach it."""
    for fork in talk.fork_many(20, at=3):
        fork.append("note", "login of " + fork.name)
    session.tag("t", at=1)
    talk.reset(2)
    matches = list(store.grep("login"))
    assert len(matches) == 2 + 20
    assert len({m.event.id for m in matches}) == len(matches)
    for match in matches:
        assert store.view(match.rev).read(match.event.seq) == match.event


def test_every_event_of_a_grown_session_is_found_once(store, grove) -> None:
    """Whatever forks, resets and promotions made of the session."""
    matches = list(store.grep("n"))
    assert sorted(m.event.id for m in matches) == sorted(grove.distinct())


def test_revisions_narrow_the_search(store, session, talk) -> None:
    """Branches, tags, points and sessions may be named; together their events are searched, each once."""
    idea = talk.fork("idea", at=1)
    idea.append("note", "login here")
    session.tag("t", at=1)
    other = store.create_session("other")
    other.branch("main").append("note", "login there")
    assert seqs(store.grep("login", [idea])) == [1, 2]
    assert seqs(store.grep("login", [f"{session.id}/t"])) == [1]
    assert seqs(store.grep("login", [f"{session.id}/main@3", idea.rev])) == [1, 3, 2]
    assert [m.event.payload for m in store.grep("login", [other.id])] == ["login there"]
    assert len(list(store.grep("login"))) == 5
    with pytest.raises(NotFound):
        store.grep("login", ["nope"])


def test_the_trash_is_not_searched(store, session, talk) -> None:
    """Deleted sessions, and events that only a deleted branch has, are not found."""
    idea = talk.fork("idea")
    idea.append("note", "only here")
    assert seqs(store.grep("only here")) == [10]
    idea.delete()
    assert seqs(store.grep("only here")) == []
    session.delete()
    assert seqs(store.grep("login")) == []


def test_a_bad_pattern_is_refused_at_once(store, talk) -> None:
    """The sentence says what is wrong and that fixed strings are possible."""
    with pytest.raises(Invalid, match="fixed"):
        store.grep("(")


def test_nothing_is_decoded_that_cannot_match(store, talk, monkeypatch) -> None:
    """Events of other types, and payloads without the words, are never turned into objects."""
    from castlog.format import codec

    decoded = []
    decode = codec.decode
    monkeypatch.setattr(codec, "decode", lambda data: decoded.append(data) or decode(data))
    assert seqs(store.grep("pytest")) == [2]
    assert len(decoded) == 1


def test_progress_counts_events(store, talk) -> None:
    """A caller may watch."""
    seen = []
    list(store.grep("login", progress=seen.append))
    assert seen[-1].done == 9
    assert seen[-1].unit == "events"


def test_searching_goes_on_beside_appends(store, talk) -> None:
    """The search holds no transaction while the caller has a match."""
    found = []
    for match in store.grep("login"):
        found.append(match.event.seq)
        talk.append("note", "login again")
    assert found[:3] == [1, 3, 9]
