"""Names: what branches, tags, titles and labels may be called, and that a refusal says why and writes nothing."""

from __future__ import annotations

import unicodedata

import pytest

import castlog
from castlog import Conflict, Invalid, NotFound

BAD = {
    "empty": ("", "empty"),
    "parent folder": ("../x", "begins with '.'"),
    "option": ("-x", "begins with '-'"),
    "hidden": (".x", "begins with '.'"),
    "600 bytes": ("n" * 600, "600 bytes long; shorten it to 200"),
    "201 bytes": ("n" * 201, "201 bytes"),
    "too long in UTF-8": ("ü" * 101, "202 bytes"),
    "head": ("HEAD", "taken by castlog"),
    "slash": ("a/b", "'/'"),
    "at": ("a@1", "'@'"),
    "tilde": ("a~1", "'~'"),
    "caret": ("a^", "'^'"),
    "colon": ("b3:abcd", "':'"),
    "star": ("a*", "'*'"),
    "question": ("a?", "'?'"),
    "bracket": ("a[1]", "'['"),
    "backslash": ("a\\b", "leave out spaces"),
    "space": ("a b", "' '"),
    "no-break space": ("a\u00a0b", "leave out spaces"),
    "tab": ("a\tb", "control character"),
    "newline": ("a\n", "control character"),
    "nul": ("a\x00", "control character"),
    "escape": ("a\x1b[31m", "control character"),
    "line separator": ("a\u2028b", "control character"),
    "surrogate": ("a\udcff", "not valid Unicode"),
    "number": (7, "give text"),
    "none": (None, "give text"),
    "bytes": (b"x", "give text"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_name_is_refused_everywhere(store, session, main, case) -> None:
    """Fork, rename, tag and undelete all refuse it with the same sentence, and nothing was made."""
    name, problem = BAD[case]
    main.append("note", {})
    version = store._core.engine.version()
    for use in (
        lambda: main.fork(name),
        lambda: main.rename(name),
        lambda: session.tag(name),
    ):
        with pytest.raises(Invalid) as caught:
            use()
        assert problem in str(caught.value)
    assert store._core.engine.version() == version
    assert [b.name for b in session.branches()] == ["main"]
    assert session.tags() == {}


GOOD = [
    "a",
    "n" * 200,
    "ü" * 100,
    "日本語",
    "idea-b",
    "v1.2_3",
    "#1",
    "a.b",
    "head",
    "Head",
    "x-",
    "é",
    "🙂",
    "main2",
    "a+b=c",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_kept_and_found(store, session, main, name) -> None:
    """What is allowed comes back as given, and leads back to its branch, in Python and in revisions."""
    branch = main.fork(name)
    assert branch.name == name
    assert session.branch(name) == branch
    assert store.branch(f"{session.id}/{name}") == branch
    assert name in [b.name for b in session.branches()]


def test_two_unicode_forms_of_one_name_are_one_name(store, session, main) -> None:
    """A name is kept in NFC: the other form finds it, collides with it, and is refused as taken."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert unicodedata.normalize("NFC", decomposed) == composed
    main.append("note", {})
    branch = main.fork(decomposed)
    assert branch.name == composed
    for form in (composed, decomposed):
        assert session.branch(form) == branch
        assert store.branch(f"{session.id}/{form}") == branch
        with pytest.raises(Conflict, match="taken"):
            main.fork(form)
        with pytest.raises(Conflict, match="taken"):
            session.tag(form)
    assert session.promote("main", onto=decomposed) == branch
    assert session.tag("t", branch=decomposed).seq == 1
    branch.delete()
    assert store.undelete(f"{session.id}/{decomposed}") == branch


def test_two_unicode_forms_of_one_tag(store, session, main) -> None:
    """Tags likewise: found, and deleted, by either form."""
    main.append("note", {})
    session.tag("caf\u00e9")
    assert store.resolve(f"{session.id}/cafe\u0301").seq == 1
    session.delete_tag("cafe\u0301")
    assert session.tags() == {}


def test_compatibility_forms_stay_apart(main) -> None:
    """Only canonical equivalence joins names: a ligature or a full-width letter is a letter of its own."""
    apart = ["\ufb01", "fi", "\uff21", "A"]
    assert [main.fork(name).name for name in apart] == apart


@pytest.mark.parametrize("name", ["", "-x", "x" * 600, "\udcff", "a/b", "../x"])
def test_looking_for_a_name_that_cannot_be_one(store, session, main, name) -> None:
    """Asking for it is Invalid or NotFound, never another error, on every handle that takes a name."""
    for use in (
        lambda: session.branch(name),
        lambda: session.delete_tag(name),
        lambda: session.promote(name, onto="main"),
        lambda: session.promote("main", onto=name),
        lambda: session.tag("t", branch=name),
    ):
        with pytest.raises((Invalid, NotFound)) as caught:
            use()
        assert len(str(caught.value)) > 10


# --- titles, labels, origins --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "problem"),
    [
        ("", "empty"),
        ("t" * 1001, "1001 bytes"),
        ("a\nb", "control character"),
        ("a\x1bb", "control character"),
        ("\ud800", "not valid Unicode"),
        (None, "give text"),
        (3, "give text"),
    ],
)
def test_a_bad_title_is_refused(store, session, title, problem) -> None:
    """On creating and on renaming a session, before anything is written."""
    with pytest.raises(Invalid, match=problem):
        store.create_session(title)
    with pytest.raises(Invalid, match=problem):
        session.rename(title)
    assert [s.title for s in store.sessions()] == ["fix the login bug"]


@pytest.mark.parametrize("title", ["t" * 1000, "a/b @ c ~ d", "HEAD", "-x", "../x", " spaced ", "日本語", "main"])
def test_titles_may_be_any_line(store, title) -> None:
    """A title is one line of text; nothing but length and control characters is forbidden."""
    assert store.session(store.create_session(title).id).title == title


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"a=b": "x"},
        {"k" * 201: "x"},
        {"k": "v" * 1001},
        {"k": 3},
        {3: "v"},
        {"k\n": "v"},
        {"k": "v\x00"},
        {"\udcff": "v"},
        {"k": None},
        {3: "v", "a": "b"},
        ["team"],
        "team",
        7,
        {str(n): "v" for n in range(101)},
    ],
    ids=lambda labels: repr(labels)[:20],
)
def test_bad_labels_are_refused(store, labels) -> None:
    """Labels are at most a hundred pairs of text; a bad one refuses the whole session."""
    with pytest.raises(Invalid):
        store.create_session("x", labels=labels)
    assert store.sessions() == []


def test_labels_are_kept_sorted_and_may_be_empty(store) -> None:
    """Labels come back as a dict by key; a value may be empty."""
    session = store.create_session("x", labels={"z": "1", "a": "", "ü": "ö"})
    assert list(store.session(session.id).labels.items()) == [("a", ""), ("z", "1"), ("ü", "ö")]


@pytest.mark.parametrize("origin", ["", "o" * 1001, "a\nb", 7, b"x", "\udcff"])
def test_a_bad_origin_is_refused(store, origin) -> None:
    """An origin is a line of text up to 1,000 bytes."""
    with pytest.raises(Invalid, match="origin"):
        store.create_session("x", origin=origin)
    assert store.sessions() == []


def test_a_memory_store_and_a_disk_store_refuse_alike(tmp_path) -> None:
    """Limits do not depend on the engine: the same names go through on both."""
    seen = []
    for target in ("memory:", str(tmp_path / "store")):
        with castlog.open(target) as store:
            main = store.create_session("x").branch("main")
            outcome = []
            for name in (*GOOD, *(name for name, _ in BAD.values())):
                try:
                    outcome.append(main.fork(name).name)
                except castlog.Error as error:
                    outcome.append(str(error))
            seen.append(outcome)
    assert seen[0] == seen[1]
