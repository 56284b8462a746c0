"""Foreign text made fit for castlog's names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import castlog
from castlog.transcripts import words


def test_a_title_is_one_short_clean_line() -> None:
    """Line ends, control characters and what turns text around on a terminal are left out, and the rest is cut."""
    assert words.clean_title(" fix\n\tthe \x1b[31mbug\u202e ") == "fix the [31mbug"
    assert words.clean_title("x" * 500) == "x" * 79 + "…"
    assert words.clean_title({"not": "text"}) == ""


@given(st.text(alphabet=st.characters(), max_size=300), st.text(max_size=300))
def test_whatever_is_left_castlog_takes(title: str, label: str) -> None:
    """Cleaned text is never refused."""
    with castlog.open("memory:") as store:
        store.create_session(words.clean_title(title) or "-", labels=words.clean_labels({"a": label}))


@given(st.lists(st.one_of(st.text(alphabet=st.characters()), st.none(), st.integers()), max_size=3))
def test_an_event_type_can_be_made_of_anything(parts: list[object]) -> None:
    """Any parts give a type castlog takes."""
    with castlog.open("memory:") as store:
        store.create_session("t").branch("main").append(words.event_type("x", *parts), {})


def test_call_ids_are_taken_as_they_are_or_not_at_all() -> None:
    """An id is never changed: what castlog could not carry counts as absent."""
    assert words.call_id("toolu_01") == "toolu_01"
    assert [words.call_id(bad) for bad in ("", "x" * 5000, "a\nb", 7, None, "é")] == [None] * 6


def test_short_ids_keep_the_digits_of_a_uuid() -> None:
    """A UUID is known by its first eight digits, anything else by a digest."""
    assert words.short("0123abcd-0000-4000-8000-000000000000") == "0123abcd"
    assert len(words.short("../odd")) == 8
