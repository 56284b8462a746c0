"""Parcels: an export as it arrives, checked from the first byte to the last before anything of it is written.

Reading twice keeps memory small and the store clean: the first pass chains every event and keeps only ids; the second
hands out events that are known to be sound.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import msgspec
import zstandard
from blake3 import blake3

from castlog import limits
from castlog.errors import Corrupt, Error, Invalid, Unavailable
from castlog.event import Parent, Progress
from castlog.format import codec, identity, ids, line, names, rows
from castlog.format.record import header
from castlog.history import drafts
from castlog.history.drafts import Ready
from castlog.ops import bundle, jsonl

_Structure = bundle.TimelineLine | bundle.RefLine | bundle.TagLine | bundle.EndLine
_STRUCTURE: msgspec.json.Decoder[_Structure] = msgspec.json.Decoder(_Structure)
_SESSION = msgspec.json.Decoder(jsonl.SessionLine)
_MARK = b'{"castlog":'
_HINT = "Fetch or make the file again; nothing was written."
_CHANGED = "Import it again when nobody writes to it; what is in the store is sound."


class Head(msgspec.Struct, frozen=True):
    """A branch or tag of a parcel."""

    name: str
    timeline: int
    seq: int
    tag: bool


class Line(msgspec.Struct):
    """A timeline of a parcel: where it leaves its parent, and the ids of its events, 32 bytes each.

    `depth` and `jump` shorten the way up, as in `history.timelines`.
    """

    parent: int
    fork_seq: int
    ids: bytearray
    depth: int
    jump: int

    @property
    def last(self) -> int:
        """The seq of its last event."""
        return self.fork_seq + len(self.ids) // ids.DIGEST_BYTES

    def id_at(self, seq: int) -> bytes:
        """Return the id of one of its own events."""
        start = (seq - self.fork_seq - 1) * ids.DIGEST_BYTES
        return bytes(self.ids[start : start + ids.DIGEST_BYTES])


class Parcel(msgspec.Struct):
    """A checked export: the session, its timelines by number (0 is the genesis), and its branches and tags."""

    path: str
    session: bytes
    row: rows.Session
    bundle: bool
    lines: dict[int, Line]
    heads: list[Head]
    events: int

    def add(self, parent: int, fork_seq: int) -> None:
        """Begin the next timeline."""
        depth, jump = 1, 0
        if parent:
            above = self.lines[parent]
            far, farther = self._depth(above.jump), self._depth(self._jump(above.jump))
            depth = above.depth + 1
            jump = self._jump(above.jump) if above.jump and above.depth - far == far - farther else parent
        self.lines[len(self.lines) + 1] = Line(parent, fork_seq, bytearray(), depth, jump)

    def id_at(self, timeline: int, seq: int) -> bytes:
        """Return the id at a place of the history that ends on `timeline`."""
        timeline = self.owner(timeline, seq)
        return self.lines[timeline].id_at(seq) if timeline else self.row.genesis

    def owner(self, timeline: int, seq: int) -> int:
        """Return the timeline that owns `seq` in the history that ends on `timeline`; 0 for the genesis."""
        while timeline and self.lines[timeline].fork_seq >= seq:
            jump = self.lines[timeline].jump
            timeline = jump if jump and self.lines[jump].fork_seq >= seq else self.lines[timeline].parent
        return timeline

    def _depth(self, timeline: int) -> int:
        return self.lines[timeline].depth if timeline else 0

    def _jump(self, timeline: int) -> int:
        return self.lines[timeline].jump if timeline else 0


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open an export once for both passes, so that what takes its place meanwhile does not matter."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; only opening is to be caught here
    except OSError as exc:
        raise Invalid(f"{path} cannot be read: {exc.strerror}", path=path) from exc
    with file:
        yield file


def check(path: str, file: BinaryIO, secret: bytes, progress: Callable[[Progress], None] | None) -> Parcel:
    """Read an export through and return what it holds.

    Raises Invalid for what is no export, Corrupt when an event does not fit its id or the end is missing, Unavailable
    for one that a newer castlog wrote.
    """
    try:
        return _checked(path, file, secret, progress)
    except Corrupt as exc:
        raise Corrupt(f"{exc}; fetch it again", **{**exc.facts, "hint": _HINT}) from exc


def events(parcel: Parcel, file: BinaryIO, secret: bytes, missing: Mapping[int, range]) -> Iterator[tuple[int, Ready]]:
    """Yield a checked parcel's events with the `missing` seqs of each timeline, ready to be written, in file order.

    Each comes with its timeline. Raises Corrupt for what is not what `check` read.
    """
    at, seq = (0, 0) if parcel.bundle else (1, 0)
    for number, data in _numbered(parcel.path, file):
        if number == 1:
            continue
        with _at_line(parcel.path, number):
            if data.startswith(_MARK):
                start = _structure(data)
                if not isinstance(start, bundle.TimelineLine):
                    return
                at, seq = start.n, start.fork_seq
                continue
            seq += 1
            if at not in missing or seq not in missing[at]:
                continue
            ready = _ready(line.decode(data), parcel.row.salt, secret)
            if _event_id(parcel.id_at(at, seq - 1), seq, ready) != parcel.id_at(at, seq):
                raise Corrupt(f"seq {seq} has changed since the file was checked", seq=seq, hint=_CHANGED)
        yield at, ready


def _checked(path: str, file: BinaryIO, secret: bytes, progress: Callable[[Progress], None] | None) -> Parcel:
    checker: _Checker | None = None
    number = 0
    for number, data in _numbered(path, file):
        with _at_line(path, number):
            if checker is None:
                checker = _Checker(path, data, secret)
            else:
                checker.take(data)
        if progress is not None and number % 1000 == 0:
            progress(Progress(number, None, "lines", path))
    if checker is None and os.fstat(file.fileno()).st_size:
        raise Corrupt(f"{path} ends before its first line", path=path)
    if checker is None:
        raise Invalid(f"{path} is empty; an export begins with its session's line", path=path)
    return checker.finish(number)


@contextlib.contextmanager
def _at_line(path: str, number: int) -> Iterator[None]:
    """Say where in an export an error is."""
    try:
        yield
    except Error as exc:
        raise type(exc)(f"{path}, line {number}: {exc}", **{**exc.facts, "line": number}) from exc


class _Checker:
    """What is known after each line of an export."""

    def __init__(self, path: str, data: bytes, secret: bytes) -> None:
        self._secret = secret
        self._digest = blake3(data)
        session, row, head = _session(data)
        self._branch = head.branch or "main"
        self.parcel = Parcel(path, session, row, bool(head.bundle), {}, [], 0)
        self._at = 0
        self._parent = row.genesis
        self._ended = False
        if not head.bundle:
            self.parcel.add(0, 0)
            self._at = 1

    def take(self, data: bytes) -> None:
        """Check the next line; raises Invalid or Corrupt."""
        if self._ended:
            raise Invalid("something follows the end of the bundle")
        if not data.startswith(_MARK):
            self._event(data)
        elif self.parcel.bundle:
            self._structure(data)
        else:
            raise Invalid("a bundle's line in an export of one branch")
        self._digest.update(data)

    def finish(self, number: int) -> Parcel:
        """Return the parcel, whole; raises Corrupt when its end is missing."""
        parcel = self.parcel
        if parcel.bundle and not self._ended:
            raise Corrupt(f"{parcel.path} ends after line {number} without its end line")
        if not parcel.bundle:
            parcel.heads.append(Head(self._branch, 1, parcel.lines[1].last, False))
        return parcel

    def _event(self, data: bytes) -> None:
        event = line.decode(data)
        current = self.parcel.lines.get(self._at)
        if current is None:
            raise Invalid("an event before the first timeline")
        if event.seq != current.last + 1:
            raise Corrupt(f"seq {event.seq} follows {current.last}")
        ready = _ready(event, self.parcel.row.salt, self._secret, cut=False)
        if ready.needs_call_id:
            raise Invalid(f"seq {event.seq} opens a call and has no call id")
        self._parent = _event_id(self._parent, event.seq, ready)
        if event.id != ids.show_digest(self._parent):
            raise Corrupt(f"seq {event.seq} does not fit its id; the file was changed", seq=event.seq)
        current.ids += self._parent
        self.parcel.events += 1

    def _structure(self, data: bytes) -> None:
        parcel = self.parcel
        item = _structure(data)
        if isinstance(item, bundle.TimelineLine):
            if item.n != len(parcel.lines) + 1 or not 0 <= item.parent < item.n:
                raise Invalid(f"timeline {item.n} is out of order")
            leaves = self._owns(item.parent, item.fork_seq) if item.parent else item.fork_seq == 0
            if not leaves:
                raise Invalid(f"timeline {item.n} leaves a parent that has no seq {item.fork_seq}")
            parcel.add(item.parent, item.fork_seq)
            self._at = item.n
            self._parent = parcel.id_at(item.parent, item.fork_seq)
        elif isinstance(item, bundle.EndLine):
            if item.digest != ids.show_digest(self._digest.digest()) or item.events != parcel.events:
                raise Corrupt("the bundle does not match the digest at its end")
            self._ended = True
        else:
            if not (item.timeline == 0 and item.seq == 0) and not self._owns(item.timeline, item.seq):
                raise Invalid(f"{item.name!r} points at seq {item.seq}, which is not there")
            if item.id != ids.show_digest(parcel.id_at(item.timeline, item.seq)):
                raise Corrupt(f"{item.name!r} does not fit its id")
            name = names.check_name(item.name)
            parcel.heads.append(Head(name, item.timeline, item.seq, isinstance(item, bundle.TagLine)))

    def _owns(self, timeline: int, seq: int) -> bool:
        item = self.parcel.lines.get(timeline)
        return item is not None and item.fork_seq < seq <= item.last


def _session(data: bytes) -> tuple[bytes, rows.Session, jsonl.SessionLine]:
    """Return the session a first line describes, its genesis checked."""
    try:
        head = _SESSION.decode(data)
        salt = bytes.fromhex(head.salt)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as exc:
        raise Invalid(f"not the session's line of an export ({exc}); make one with `castlog export`") from exc
    if head.type != "session":
        raise Invalid("not the session's line of an export; make one with `castlog export`")
    if head.castlog > jsonl.VERSION or head.bundle > bundle.VERSION:
        raise Unavailable(f"the export has version {max(head.castlog, head.bundle)}; upgrade castlog to read it")
    if not salt and head.salt_digest:
        raise Unavailable("the session was shredded; this castlog cannot import its remains")
    if len(salt) != identity.SALT_BYTES:
        raise Invalid(f"the salt is {len(salt)} bytes, not {identity.SALT_BYTES}")
    session, created = ids.parse_session(head.session_id), line.parse_time(head.created)
    caller = None if head.parent is None else _caller(head.parent)
    genesis = identity.Genesis(
        identity.GENESIS_VERSION,
        session,
        created,
        None if caller is None else caller.id,
        identity.salt_digest(salt),
    )
    row = rows.Session(
        created,
        salt,
        identity.genesis_digest(genesis),
        names.check_title(head.title),
        names.check_labels(head.labels),
        None if head.origin is None else names.check_origin(head.origin),
        caller,
    )
    if head.genesis != ids.show_digest(row.genesis):
        raise Corrupt("the session's line does not fit its genesis digest; the file was changed")
    if head.branch is not None:
        names.check_name(head.branch)
    return session, row, head


def _caller(parent: Parent) -> rows.ParentCall:
    return rows.ParentCall(
        ids.parse_session(parent.session_id), parent.seq, parent.call_id, ids.parse_digest(parent.id)
    )


def _structure(data: bytes) -> _Structure:
    try:
        return _STRUCTURE.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Invalid(f"not a line of a bundle: {exc}") from exc


def _ready(event: line.EventLine, salt: bytes, secret: bytes, *, cut: bool = True) -> Ready:
    """Return an event of a line, checked as a draft is, ready to be written; without its pieces unless `cut`."""
    if event.ciphertext is not None or event.commitment is not None:
        what = "redacted" if event.ciphertext is None else "locked"
        raise Unavailable(f"seq {event.seq} is {what}; this castlog cannot import such events")
    payload = line.payload_bytes(event)
    if not payload:
        raise Invalid(f"seq {event.seq} has no payload")
    codec.validate(payload)
    call_ids = event.call_ids or (() if event.call_id is None else (event.call_id,))
    if not 1 <= event.schema < 1 << 31:
        raise Invalid(f"schema is {event.schema}; it is a whole number from 1 on")
    return drafts.seal(
        salt,
        secret,
        payload,
        ts=line.parse_time(event.ts),
        type=names.check_type(event.type),
        schema=event.schema,
        harness_version=names.check_harness_version(event.harness_version),
        call_ids=names.check_call_ids(call_ids),
        key=None if event.key is None else names.check_key(event.key),
        cut=cut,
    )


def _event_id(parent: bytes, seq: int, ready: Ready) -> bytes:
    return identity.event_id(parent, header(seq, ready.record), ready.commitment)


def _numbered(path: str, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield an export's lines with their line ends, numbered from 1; decompresses as it goes."""
    bound = 2 * limits.EVENT_BYTES_MAX
    try:
        file.seek(0)
        compressed = file.read(4) == zstandard.FRAME_HEADER
        file.seek(0)
        source = file
        if compressed:
            stream = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
            source = io.BufferedReader(stream, 1 << 20)
        number = 0
        while data := source.readline(bound):
            number += 1
            if len(data) >= bound:
                raise Invalid(f"{path}, line {number} is longer than any event", line=number)
            if data != b"\n":
                yield number, data
    except zstandard.ZstdError as exc:
        raise Corrupt(f"{path} does not decompress: {exc}", path=path) from exc
    except OSError as exc:
        raise Invalid(f"{path} cannot be read: {exc.strerror}", path=path) from exc
