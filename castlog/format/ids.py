"""Ids and digests: how they are made and how they are written for people. One function parses each form back."""

from __future__ import annotations

import re

from castlog.errors import Invalid

DIGEST_BYTES = 32
SESSION_BYTES = 16

_DIGEST = re.compile(r"b3:([0-9a-f]{64})")
_SESSION = re.compile(r"sess_([0-9a-f]{32})")


def show_digest(digest: bytes) -> str:
    """Return `b3:` and the digest in hex."""
    return f"b3:{digest.hex()}"


def parse_digest(text: str) -> bytes:
    """Return the 32 bytes that `show_digest` wrote; raises Invalid for anything else."""
    match = _DIGEST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise Invalid(f"not an event id: {text!r}; one is `b3:` and 64 hex digits", value=text)
    return bytes.fromhex(match[1])


def show_session(session: bytes) -> str:
    """Return `sess_` and the session id in hex."""
    return f"sess_{session.hex()}"


def parse_session(text: str) -> bytes:
    """Return the 16 bytes that `show_session` wrote; raises Invalid for anything else."""
    match = _SESSION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise Invalid(f"not a session id: {text!r}; one is `sess_` and 32 hex digits", value=text)
    return bytes.fromhex(match[1])


def uuid7(time_ns: int, random: bytes) -> bytes:
    """Return a UUID version 7 (RFC 9562, section 5.7) from a time and at least 8 random bytes.

    The 12 bits after the milliseconds carry the fraction of the millisecond (method 3 of section 6.2), so that ids
    made in one process sort by time.
    """
    millis, rest = divmod(time_ns, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    value = (millis & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | fraction << 64
    value |= 0b10 << 62 | int.from_bytes(random[:8], "big") >> 2
    return value.to_bytes(SESSION_BYTES, "big")
