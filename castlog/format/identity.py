"""What a history's identity is made of: genesis, commitments and the chain of event ids.

Identity is logical: nothing here depends on chunks, compression or where bytes lie. The contexts below are on disk for
ever; changing one makes every id differ.
"""

from __future__ import annotations

import msgspec
from blake3 import blake3

# BLAKE3 derive-key contexts. DO NOT CHANGE: they are part of every id ever written.
_GENESIS = "castlog v1 genesis"
_SALT = "castlog v1 salt"
_EVENT = "castlog v1 event id"
_NAME = "castlog v1 short name"

GENESIS_VERSION = 1
SALT_BYTES = 32

_pack = msgspec.msgpack.Encoder().encode


class Genesis(msgspec.Struct, frozen=True, array_like=True):
    """What a session's first parent digest covers; nothing a person can change later.

    `created` is nanoseconds UTC; `parent` is the event id of the call that started the session, or None.
    """

    version: int
    session: bytes
    created: int
    parent: bytes | None
    salt_digest: bytes


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The part of an event that is hashed as it stands, in this order, as MessagePack in shortest form."""

    seq: int
    ts: int
    type: str
    schema: int
    harness_version: str | None
    call_ids: tuple[str, ...]
    key: str | None


def salt_digest(salt: bytes) -> bytes:
    """Return the digest of a session's salt that the genesis names."""
    return blake3(salt, derive_key_context=_SALT).digest()


def genesis_digest(genesis: Genesis) -> bytes:
    """Return the digest that is the parent of a session's first event."""
    return blake3(_pack(genesis), derive_key_context=_GENESIS).digest()


def commitment(salt: bytes, payload: bytes) -> bytes:
    """Return the 32-byte commitment to stored payload bytes, keyed with the session's salt."""
    return blake3(payload, key=salt).digest()


def event_id(parent: bytes, header: Header, commits: bytes) -> bytes:
    """Return an event's 32-byte id from its parent's id, its header and its payload's commitment."""
    return blake3(parent + _pack(header) + commits, derive_key_context=_EVENT).digest()


def short_digest(text: str) -> bytes:
    """Return 16 bytes that stand for a key or an origin in a table key."""
    return blake3(text.encode("utf-8"), derive_key_context=_NAME).digest(16)
