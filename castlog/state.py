"""Reducers: state as a fold over events.

A reducer is deterministic: it looks at the state and the event and at nothing else. Its name and version say which
states are comparable; change the version whenever the fold would come to another state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from castlog import schema
from castlog.errors import Corrupt, Invalid
from castlog.event import Event
from castlog.format import codec, names

S = TypeVar("S")


class Reducer(Generic[S]):
    """A named, versioned fold. Made by `castlog.reducer`; callable as the function it was made from."""

    def __init__(
        self,
        name: str,
        version: int | str,
        fold: Callable[[S, Event], S],
        *,
        initial: Any,
        encode: Callable[[S], Any] | None,
        decode: Callable[[Any], S] | None,
    ) -> None:
        self.name = names.check_name(name, "reducer name")
        self.version = names.check_name(str(version), "reducer version")
        self._fold = fold
        self._initial = initial
        self._encode = encode
        self._decode = decode
        self.__doc__ = fold.__doc__

    def __call__(self, state: S, event: Event) -> S:
        """Return the state after an event; it may be the object given, changed."""
        return self._fold(state, event)

    def initial(self) -> S:
        """Return a fresh state for an empty history."""
        made: S = self._initial() if callable(self._initial) else copy.deepcopy(self._initial)
        return made

    def fold(self, state: S, event: Event) -> S:
        """Return the state after an event; raises Unavailable for one that newer code wrote."""
        schema.require_known(event.type, event.schema, event.harness_version, event.seq)
        return self._fold(state, event)

    def encode(self, state: S) -> bytes:
        """Return a state as JSON bytes; raises Invalid, naming the path, for one that would not come back the same."""
        return codec.encode(state if self._encode is None else self._encode(state))

    def decode(self, data: bytes) -> S:
        """Return the state that `encode` gave these bytes for; raises Corrupt for others."""
        value = codec.decode(data)
        try:
            state: S = value if self._decode is None else self._decode(value)
        except Exception as exc:
            raise Corrupt(f"a state of {self.name} {self.version} does not decode: {exc}") from exc
        return state

    def __repr__(self) -> str:
        return f"<Reducer {self.name} {self.version}>"


class Snapshot(msgspec.Struct, frozen=True):
    """Folded state kept at a place: after event `seq`, whose id is `id`. `size` is bytes of JSON, `created` ns UTC.

    `current` says whether a reducer of this name, version and the upcasters registered now would take it up.
    """

    seq: int
    id: str
    reducer: str
    version: str
    size: int
    created: int
    current: bool


class Restored(msgspec.Struct, Generic[S], frozen=True):
    """State after event `seq`: taken from a snapshot at `snapshot_seq` (0: none) and `replayed` events folded on it.

    `in_flight` are the events that opened the calls in flight there, oldest first.
    """

    state: S
    seq: int
    snapshot_seq: int
    replayed: int
    in_flight: list[Event]


def reducer(
    name: str,
    version: int | str,
    *,
    initial: Any = dict,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[[S, Event], S]], Reducer[S]]:
    """Make a reducer of a function that takes a state and an event and returns the state after it.

    `initial` is a JSON value, copied for each fold, or a function that makes one. States are kept as JSON; `encode` and
    `decode` turn others into JSON values and back. The function must be deterministic; it may change the state it was
    given and return it.
    """

    def make(fold: Callable[[S, Event], S]) -> Reducer[S]:
        if not callable(fold):
            raise Invalid(f"a {type(fold).__name__} is no reducer; give a function of state and event")
        return Reducer(name, version, fold, initial=initial, encode=encode, decode=decode)

    return make
