"""Ids: written in one form each, parsed back from that form only, and UUIDs of version 7 that sort by time."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castlog.errors import Invalid
from castlog.format import ids

PARSERS = [(ids.parse_digest, "b3:", 64), (ids.parse_session, "sess_", 32)]


@given(st.binary(min_size=32, max_size=32))
def test_digests_come_back(digest: bytes) -> None:
    """A digest is written as `b3:` and 64 hex digits and parsed back to the same bytes."""
    text = ids.show_digest(digest)
    assert re.fullmatch("b3:[0-9a-f]{64}", text)
    assert ids.parse_digest(text) == digest


@given(st.binary(min_size=16, max_size=16))
def test_session_ids_come_back(session: bytes) -> None:
    """A session id is written as `sess_` and 32 hex digits and parsed back to the same bytes."""
    text = ids.show_session(session)
    assert re.fullmatch("sess_[0-9a-f]{32}", text)
    assert ids.parse_session(text) == session


@pytest.mark.parametrize(("parse", "prefix", "digits"), PARSERS)
def test_other_forms_are_refused(parse: Callable[[str], bytes], prefix: str, digits: int) -> None:
    """An id of another length, case, prefix, alphabet, with white space, or that is no text, is Invalid."""
    good = "0123456789abcdef" * 4
    body = good[:digits]
    assert parse(prefix + body)
    bad: list[object] = [
        "",
        prefix,
        body,
        prefix + body[1:],
        prefix + body + "0",
        prefix + body.upper(),
        prefix.upper() + body,
        prefix + "g" + body[1:],
        f" {prefix}{body}",
        f"{prefix}{body}\n",
        prefix + "\u0660" + body[1:],
        None,
        body.encode(),
        (prefix + body).encode(),
        7,
    ]
    for text in bad:
        with pytest.raises(Invalid, match="not a"):
            parse(text)  # type: ignore[arg-type]


TIMES = st.integers(0, (1 << 48) * 1_000_000 - 1)


@given(TIMES, st.binary(min_size=8, max_size=16))
def test_uuid7_has_the_fields_of_rfc_9562(time_ns: int, random: bytes) -> None:
    """Version, variant and milliseconds lie where the RFC puts them, and the rest comes from the random bytes."""
    made = uuid.UUID(bytes=ids.uuid7(time_ns, random))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == time_ns // 1_000_000
    assert made.int & (1 << 62) - 1 == int.from_bytes(random[:8], "big") >> 2


def test_uuid7_agrees_with_the_example_of_the_rfc() -> None:
    """The milliseconds and random bits of RFC 9562's example give its UUID, but for the bits we take from the time."""
    example = uuid.UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
    random = ((example.int & (1 << 62) - 1) << 2).to_bytes(8, "big")
    made = uuid.UUID(bytes=ids.uuid7(0x017F22E279B0 * 1_000_000, random))
    kept = ~(0xFFF << 64)
    assert made.int & kept == example.int & kept


@given(TIMES, st.integers(250, 1000) | TIMES, st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_uuid7_sorts_by_time(first: int, later: int, left: bytes, right: bytes) -> None:
    """Of two ids the one made 250 ns or more later sorts after the other, whatever their random bytes."""
    second = min(first + later, (1 << 48) * 1_000_000 - 1)
    if second - first >= 250:
        assert ids.uuid7(first, left) < ids.uuid7(second, right)
