"""A snapshot's bytes: what the state was folded with and up to where, and the state or the pieces it was cut into."""

from __future__ import annotations

import msgspec

from castlog.errors import Corrupt


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """Folded state after the event `seq`, whose id is `id`.

    `name` and `version` are the reducer's, `upcasters` the fingerprint of those registered then. `size` is the length
    of the state, JSON bytes that lie in `state`, or in `pieces` when there are some.
    """

    name: str
    version: str
    upcasters: str
    seq: int
    id: bytes
    size: int
    state: bytes
    pieces: tuple[bytes, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Snapshot).decode


def encode(snapshot: Snapshot) -> bytes:
    """Return a snapshot's canonical bytes."""
    assert not snapshot.pieces or not snapshot.state
    return _encode(snapshot)


def decode(data: bytes) -> Snapshot:
    """Return the snapshot in an object's bytes; raises Corrupt for bytes of another shape."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Corrupt(f"a snapshot does not decode: {exc}") from exc
