"""Drafts made ready: checked, encoded, committed to and cut, all before any lock is taken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from castlog import limits
from castlog.errors import Invalid
from castlog.event import Checked, Draft, Event, Raw
from castlog.format import codec, identity, names
from castlog.format.record import PIECES, Record, Stored
from castlog.history import pieces
from castlog.history.calls import OPENING
from castlog.history.pieces import Cut
from castlog.schema import newest

TS_MIN, TS_MAX = -(1 << 63), (1 << 63) - 1


class Ready(msgspec.Struct, frozen=True):
    """A draft ready to be written: the record it becomes, and its payload whole.

    `pieces` is empty when the payload lies inline; else it holds (digest, bytes), and `table` each digest once, as the
    record's recipe counts them. `size` is roughly what the record takes in an open chunk.
    """

    record: Record
    payload: bytes
    commitment: bytes
    size: int
    pieces: Cut = ()
    table: tuple[bytes, ...] = ()

    @property
    def needs_call_id(self) -> bool:
        """Whether the event opens a call that was given no id; it then gets `c<seq>`."""
        return not self.record.call_ids and self.record.type in OPENING


def prepare(
    draft: object,
    *,
    salt: bytes,
    secret: bytes,
    clock: Callable[[], int],
    harness_version: str | None,
    last: Callable[[str], Cut] = lambda kind: (),
) -> Ready:
    """Return what a caller handed to append or extend, ready to be written; raises Invalid.

    An Event gives its type, payload, call ids and schema; its time is new and its key is dropped. `last` gives an
    earlier payload of a type, cut: a large one is cut faster along it.
    """
    item = _as_draft(draft)
    payload = _payload_bytes(item.payload)
    if isinstance(item.call_ids, str):  # it would be taken for a list of letters
        raise Invalid(f"call_ids is the text {item.call_ids!r}; give a list of call ids", value=item.call_ids)
    call_ids = item.call_ids or (() if item.call_id is None else (item.call_id,))
    if item.call_id is not None and item.call_ids and item.call_id not in item.call_ids:
        raise Invalid("call_id is not among call_ids; give one of the two", call_id=item.call_id)
    ts = clock() if item.ts is None else item.ts
    schema = newest(item.type) if item.schema is None else item.schema
    if type(ts) is not int or not TS_MIN <= ts <= TS_MAX:
        raise Invalid(f"ts is {ts!r}; give nanoseconds since 1970 as an int", value=ts)
    if type(schema) is not int or not 1 <= schema < 1 << 31:
        raise Invalid(f"schema is {schema!r}; give a whole number from 1 on", value=schema)
    return seal(
        salt,
        secret,
        payload,
        ts=ts,
        type=names.check_type(item.type),
        schema=schema,
        harness_version=names.check_harness_version(item.harness_version) or harness_version,
        call_ids=names.check_call_ids(call_ids) if call_ids else (),
        key=None if item.key is None else names.check_key(item.key),
        last=last,
    )


def seal(
    salt: bytes,
    secret: bytes,
    payload: bytes,
    *,
    ts: int,
    type: str,  # noqa: A002 - the field's name
    schema: int,
    harness_version: str | None,
    call_ids: tuple[str, ...],
    key: str | None,
    cut: bool = True,
    last: Callable[[str], Cut] = lambda kind: (),
) -> Ready:
    """Return checked parts as a Ready: the payload committed to, and cut if it is large."""
    commitment = identity.commitment(salt, payload)
    size = 100 + len(payload) if not call_ids else 100 + len(payload) + 4 * sum(map(len, call_ids))
    if not cut or len(payload) < limits.PIECE_PAYLOAD_BYTES_MIN:
        record = Record(ts, type, schema, harness_version, call_ids, key, len(payload))
        return Ready(record, payload, commitment, size)
    parts = pieces.cut(secret, payload, last(type))
    index: dict[bytes, int] = {}
    recipe = tuple([index.setdefault(digest, len(index)) for digest, _ in parts])
    stored = Stored(PIECES, commitment, recipe)
    record = Record(ts, type, schema, harness_version, call_ids, key, len(payload), stored)
    return Ready(record, payload, commitment, size - len(payload) + 40 * len(recipe), parts, tuple(index))


def _as_draft(draft: object) -> Draft:
    if isinstance(draft, Draft):
        return draft
    if isinstance(draft, Event):
        if draft.redacted:
            raise Invalid(f"seq {draft.seq} is redacted; what is gone cannot be copied", seq=draft.seq)
        return Draft(draft.type, Raw(draft.raw), schema=draft.schema, call_ids=draft.call_ids)
    if isinstance(draft, tuple) and len(draft) == 2:
        return Draft(*draft)
    raise Invalid(f"a {type(draft).__name__} cannot be appended; give a Draft, an Event or (type, payload)")


def _payload_bytes(payload: object) -> bytes:
    if isinstance(payload, Checked):
        return payload.data
    if isinstance(payload, Raw):
        if not isinstance(payload.data, bytes):
            raise Invalid(f"Raw holds a {type(payload.data).__name__}; give bytes")
        codec.validate(payload.data)
        return payload.data
    return codec.encode(payload)
