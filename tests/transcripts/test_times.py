"""Foreign times, in every form they were seen in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castlog.transcripts.times import parse_time

S = 1_735_689_600  # 2025-01-01T00:00:00Z
NS = 1_000_000_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2025-01-01T00:00:00Z", S * NS),
        ("2025-01-01T00:00:00.123Z", S * NS + 123_000_000),
        ("2025-01-01T00:00:00.123456789Z", S * NS + 123_456_789),
        ("2025-01-01T00:00:00.1234567891Z", S * NS + 123_456_789),
        ("2025-01-01T02:30:00+02:30", S * NS),
        ("2024-12-31T19:00:00-0500", S * NS),
        ("2025-01-01 00:00:00", S * NS),
        ("2016-12-31T23:59:60Z", 1_483_228_799 * NS),
        (S, S * NS),
        (S + 0.25, S * NS + NS // 4),
        (S * 1000 + 7, S * NS + 7_000_000),
        (S * 1_000_000 + 7, S * NS + 7_000),
        (S * NS + 7, S * NS + 7),
        (str(S * 1000), S * NS),
        ("2025-13-01T00:00:00Z", None),
        ("2025-01-01T00:00:00+99:00", None),
        ("9999-12-31T23:59:59Z", None),
        ("yesterday", None),
        ("", None),
        (0, None),
        (-5, None),
        (10**30, None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ({}, None),
        (["2025-01-01T00:00:00Z"], None),
    ],
)
def test_times_become_nanoseconds(value: Any, expected: int | None) -> None:
    """Every known form gives nanoseconds, with the digits it had; anything else gives None."""
    assert parse_time(value) == expected


@given(st.one_of(st.text(), st.floats(), st.integers(), st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?")))
def test_nothing_raises(value: Any) -> None:
    """Any value gives a time castlog can store, or None."""
    found = parse_time(value)
    assert found is None or -(1 << 63) <= found < 1 << 63
