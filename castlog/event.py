"""The values people hold: events, drafts, points. Frozen, cheap, and ignorant of how anything is stored.

An `Event` keeps a reference to where it was read from and fetches its payload and id only when asked: most readers want
one or the other, and both cost more than everything else about an event together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from castlog import schema
from castlog.errors import Unavailable
from castlog.format import codec, ids


class Source(Protocol):
    """Where an event came from: answers for the parts that are fetched on first use."""

    def raw(self, index: int) -> bytes:
        """Return the stored payload bytes of the event at `index`."""
        ...

    def payload(self, index: int) -> Any:
        """Return the decoded payload of the event at `index`; each call may hand out a new object.

        Raises Corrupt when it cannot be verified, Unavailable when it is locked.
        """
        ...

    def event_id(self, index: int) -> bytes:
        """Return the 32-byte id of the event at `index`."""
        ...

    def size(self, index: int) -> int:
        """Return the length of the payload in bytes."""
        ...

    def commitment(self, index: int) -> bytes:
        """Return the commitment the event's id covers."""
        ...

    def locked(self, index: int) -> bool:
        """Return whether the stored bytes are ciphertext."""
        ...

    def redacted(self, index: int) -> bool:
        """Return whether the event is a tombstone."""
        ...


class Event(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One immutable record of a session, as read through a branch.

    `ts` is nanoseconds since 1970 UTC. `call_ids` lists every call the event opens or closes; `call_id` is the first of
    them. Two events are equal when their ids are, whatever branch they were read through.
    """

    session_id: str
    branch: str
    seq: int
    ts: int
    type: str
    schema: int
    harness_version: str | None
    call_ids: tuple[str, ...]
    key: str | None
    _source: Source
    _index: int
    _payload: Any = UNSET
    _id: str | UnsetType = UNSET

    @property
    def call_id(self) -> str | None:
        """The call this event opens or closes, or None; the first when there are several."""
        return self.call_ids[0] if self.call_ids else None

    @property
    def parent_seq(self) -> int:
        """The seq before this one; 0 for a session's first event."""
        return self.seq - 1

    @property
    def payload(self) -> Any:
        """The payload as Python objects, decoded on first use. Of a redacted event: what remains, or None.

        A payload of an older schema is lifted by the registered upcasters. Raises Corrupt when it cannot be verified,
        Unavailable when it is encrypted, Invalid when a step from its schema to the newest is missing.
        """
        if self._payload is UNSET:
            payload = self._source.payload(self._index)
            if schema.is_old(self.type, self.schema) and not self.redacted:
                payload = schema.lift(self.type, self.schema, payload)
            force_setattr(self, "_payload", payload)
        return self._payload

    @property
    def raw(self) -> bytes:
        """The payload's stored JSON bytes, exactly as they were given."""
        return self._source.raw(self._index)

    @property
    def size(self) -> int:
        """The length of `raw` in bytes, known without reading it."""
        return self._source.size(self._index)

    @property
    def redacted(self) -> bool:
        """Whether the payload was removed, in part or whole, after it was recorded."""
        return self._source.redacted(self._index)

    @property
    def id(self) -> str:
        """The id, `b3:` and 64 hex digits: it names the whole history up to this event."""
        if self._id is UNSET:
            force_setattr(self, "_id", ids.show_digest(self._source.event_id(self._index)))
        assert isinstance(self._id, str)
        return self._id

    def to_json(self) -> str:
        """Return the event as one line of JSON without its line end, the form `export` and `cat` write."""
        from castlog.format import line  # most programs never write one

        return line.encode(
            session_id=self.session_id,
            branch=self.branch,
            seq=self.seq,
            ts=self.ts,
            type=self.type,
            raw=self.raw,
            harness_version=self.harness_version,
            schema=self.schema,
            call_ids=self.call_ids,
            key=self.key,
            id=self.id,
            commitment=self._source.commitment(self._index) if self.redacted else None,
            encrypted=self._source.locked(self._index),
        )

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Event) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return self.id != other.id if isinstance(other, Event) else NotImplemented  # a Struct's own compares identity

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        calls = f", call_id={self.call_id!r}" if self.call_ids else ""
        return f"Event({self.session_id}/{self.branch}@{self.seq}, {self.type!r}{calls}, {self.size} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _thaw,
            (
                {name: getattr(self, name) for name in _PLAIN},
                self.raw,
                ids.parse_digest(self.id),
                self._source.commitment(self._index),
                self.redacted,
                self._source.locked(self._index),
            ),
        )


_PLAIN = ("session_id", "branch", "seq", "ts", "type", "schema", "harness_version", "call_ids", "key")


class _Frozen(msgspec.Struct, frozen=True):
    """The source of an event that travels without its store, as a pickled one does."""

    data: bytes
    digest: bytes
    commits: bytes
    gone: bool
    secret: bool

    def raw(self, index: int) -> bytes:
        return self.data

    def payload(self, index: int) -> Any:
        if self.secret:
            raise Unavailable("the payload is locked; this castlog has no keys")
        return codec.decode(self.data) if self.data else None

    def event_id(self, index: int) -> bytes:
        return self.digest

    def size(self, index: int) -> int:
        return len(self.data)

    def commitment(self, index: int) -> bytes:
        return self.commits

    def locked(self, index: int) -> bool:
        return self.secret

    def redacted(self, index: int) -> bool:
        return self.gone


def _thaw(plain: dict[str, Any], *rest: Any) -> Event:
    return Event(**plain, _source=_Frozen(*rest), _index=0)


class Raw(msgspec.Struct, frozen=True):
    """JSON bytes to be validated and then stored byte for byte, white space around the value included."""

    data: bytes


class Checked(Raw, frozen=True):
    """JSON bytes that were validated when this was made, which is the only way to make one; raises Invalid.

    For who has to know before they are appended whether they can be.
    """

    def __post_init__(self) -> None:
        codec.validate(self.data)


class Draft(msgspec.Struct, frozen=True):
    """An event about to be written.

    `ts=None` takes the store's clock, `schema=None` the newest known for the type, `harness_version=None` the store's.
    `key` is the caller's idempotency key. `call_ids` is for a record that opens or closes several calls at once.
    """

    type: str
    payload: Any
    call_id: str | None = None
    ts: int | None = None
    schema: int | None = None
    key: str | None = None
    call_ids: tuple[str, ...] = ()
    harness_version: str | None = None


class Point(msgspec.Struct, frozen=True):
    """One place in a history: the event `seq` as seen from `branch`, and its id. Seq 0 is the genesis."""

    session_id: str
    branch: str
    seq: int
    id: str

    @property
    def rev(self) -> str:
        """The revision string that names this point."""
        return f"{self.session_id}/{self.branch}@{self.seq}"


class Parent(msgspec.Struct, frozen=True):
    """The call that started a sub-agent's session: where it stands, and its event id."""

    session_id: str
    seq: int
    call_id: str | None
    id: str


class Progress(msgspec.Struct, frozen=True):
    """How far a long piece of work has come: `done` of `total` in `unit`, and what it is at now."""

    done: int
    total: int | None
    unit: str
    item: str = ""


def attachment(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Return a file's content as the JSON value in which binary data travels."""
    import base64
    import mimetypes

    media_type = mimetypes.guess_type(os.path.basename(path))[0] or "application/octet-stream"
    with open(path, "rb") as file:
        data = base64.b64encode(file.read()).decode("ascii")
    return {"type": "base64", "media_type": media_type, "data": data}
