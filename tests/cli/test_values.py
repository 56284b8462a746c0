"""What people type and read: labels, times, sizes, ages; and text that a terminal must not obey."""

from __future__ import annotations

import time

import click
import pytest
from castlog_cli import text, values

DAY = 86_400 * values.SECOND


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("90s", 90), ("5m", 300), ("2h", 7200), ("3d", 259_200), ("1w", 604_800), ("2 H", 7200)],
)
def test_an_age_counts_back_from_now(typed: str, expected: int) -> None:
    """An age such as 2h is that long before now."""
    since = values.SINCE.convert(typed, None, None)
    assert abs(time.time_ns() - expected * values.SECOND - since) < 5 * values.SECOND


def test_a_date_is_taken_in_local_time_unless_it_has_a_zone() -> None:
    """An ISO date means what its zone says; without one it is local."""
    assert values.SINCE.convert("1970-01-02T00:00:00Z", None, None) == DAY
    assert values.SINCE.convert("1970-01-02T01:00+01:00", None, None) == DAY
    local = values.SINCE.convert("2026-05-06", None, None)
    assert time.localtime(local // values.SECOND)[:5] == (2026, 5, 6, 0, 0)


def test_yesterday_begins_a_day_before_today() -> None:
    """The words today and yesterday are midnights."""
    assert (
        0.9 * DAY
        < values.SINCE.convert("today", None, None) - values.SINCE.convert("yesterday", None, None)
        < 1.1 * DAY
    )


@pytest.mark.parametrize("typed", ["", "2x", "soon", "-3d", "2026-13-01", "99999999999d", "999999999w"])
def test_what_is_no_time_is_a_usage_error(typed: str) -> None:
    """A slip is refused with examples of what is taken."""
    with pytest.raises(click.BadParameter, match="write an age"):
        values.SINCE.convert(typed, None, None)


@pytest.mark.parametrize("typed", ["", "web", "=web"])
def test_a_label_needs_key_and_value(typed: str) -> None:
    """Without a key or an equals sign there is no label."""
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        values.LABEL.convert(typed, None, None)


def test_a_label_is_split_at_the_first_equals_sign() -> None:
    """A value may hold equals signs, or nothing."""
    assert values.LABEL.convert("a=b=c", None, None) == ("a", "b=c")
    assert values.LABEL.convert("a=", None, None) == ("a", "")


@pytest.mark.parametrize("ns", [0, 1, 1_000, 1_000_000, 1_778_077_381_123_456_789, -1])
def test_a_time_survives_being_written_and_read(ns: int) -> None:
    """What `iso` writes, `parse_time` reads back to the nanosecond."""
    assert values.parse_time(values.iso(ns)) == ns


def test_a_time_has_the_digits_it_needs() -> None:
    """3, 6 or 9 digits, as the event line has them."""
    assert values.iso(1_000_000) == "1970-01-01T00:00:00.001Z"
    assert values.iso(1_000) == "1970-01-01T00:00:00.000001Z"
    assert values.iso(1) == "1970-01-01T00:00:00.000000001Z"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_345, "12 kB"), (999_600, "1.0 MB"), (5 * 10**9, "5.0 GB")],
)
def test_a_size_is_short(count: int, shown: str) -> None:
    """A size has a unit that keeps it short."""
    assert values.size(count) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(1, "now"), (59, "59s ago"), (3600, "1h ago"), (5 * 86_400, "5d ago")])
def test_an_age_is_shown_in_one_unit(seconds: int, shown: str) -> None:
    """How long ago something was is one number and one unit."""
    assert values.age(0, seconds * values.SECOND) == shown


def test_escapes_become_visible_text() -> None:
    """No control character, C1 control or direction override survives; line ends and tabs do."""
    hostile = "a\x1b[2Jb\x9b31mc\u202ed\x07\x7f\r\n\te\ud800"
    shown = text.clean(hostile)
    assert shown == "a\\x1b[2Jb\\x9b31mc\\u202ed\\x07\\x7f\n\te\\ud800"
    assert text.flat(" a\n\n\tb\x1b ") == "a b\\x1b"


def test_json_for_a_terminal_means_the_same() -> None:
    """Characters a terminal obeys are written as JSON escapes of themselves."""
    import json

    line = json.dumps({"a": "\x9b31m\u202e\x7fä"}, ensure_ascii=False)
    assert json.loads(text.clean_json(line)) == json.loads(line)
    assert "\x9b" not in text.clean_json(line)
    assert "ä" in text.clean_json(line)


def test_text_is_cut_by_columns() -> None:
    """Wide characters count double, combining ones nothing."""
    assert text.cut("abcdef", 4) == "abc…"
    assert text.cut("日本語", 5) == "日本…"
    assert text.cells("e\u0301") == 1
    assert text.cells(text.pad("日本", 7)) == 7
    assert text.cut("abc", 0) == ""
