"""Records and chunks: they come back, payloads lie where the header says, and no other form is taken."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castlog.errors import Corrupt
from castlog.format import chunk, codec, objects, record
from castlog.format.record import ENCRYPTED, PIECES, TOMBSTONE, Record, Stored, TailRecord

SECRET = b"s" * 32
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
DIGEST = st.binary(min_size=32, max_size=32)
PAYLOAD = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
).map(lambda value: json.dumps(value).encode())


@st.composite
def records(draw: st.DrawFn, pieces: int) -> tuple[Record, bytes]:
    """Return any sound record whose table of pieces has this length, and the payload bytes that lie inline."""
    payload = draw(PAYLOAD)
    form = draw(
        st.sampled_from([None, *range(1, 8)] if pieces else [None, ENCRYPTED, TOMBSTONE, TOMBSTONE | ENCRYPTED])
    )
    gone = form == TOMBSTONE and draw(st.booleans())
    size, stored = 0 if gone else len(payload), None
    if form is not None:
        in_pieces = bool(form & PIECES)
        stored = Stored(
            form,
            draw(DIGEST),
            tuple(draw(st.lists(st.integers(0, pieces - 1), min_size=1, max_size=5))) if in_pieces else (),
            draw(DIGEST) if form & TOMBSTONE and not gone else b"",
            payload if form & ENCRYPTED and not in_pieces else b"",
        )
    made = Record(
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        draw(TEXT),
        draw(st.integers(1, 9)),
        draw(st.none() | TEXT),
        tuple(draw(st.lists(TEXT, max_size=2))),
        draw(st.none() | TEXT),
        size,
        stored,
    )
    return made, payload if chunk.lies_inline(made) else b""


@st.composite
def chunks(draw: st.DrawFn) -> tuple[chunk.ChunkHeader, list[bytes]]:
    """Return any chunk as its header and what stands in its payload section."""
    table = tuple(draw(st.lists(DIGEST, max_size=3, unique=True)))
    held = draw(st.lists(records(len(table)), min_size=1, max_size=6))
    first = draw(st.integers(1, 1 << 40))
    header = chunk.ChunkHeader(
        draw(st.binary(min_size=16, max_size=16)),
        first,
        first + len(held) - 1,
        draw(DIGEST),
        draw(DIGEST),
        tuple(draw(st.lists(st.builds(chunk.OpenCall, TEXT, st.integers(1, 1 << 40)), max_size=2))),
        table,
        tuple(item for item, _ in held),
    )
    return header, [payload if chunk.lies_inline(item) else chunk.EMPTY_SLOT for item, payload in held]


def sample() -> bytes:
    """Return a small chunk with a record of each form."""
    made = [Record(0, "t", 1, None, (), None, 2)]
    for form in range(1, 8):
        recipe = (0, 1, 0) if form & PIECES else ()
        data = b"cipher" if form & ENCRYPTED and not recipe else b""
        stored = Stored(form, b"c" * 32, recipe, b"r" * 32 if form & TOMBSTONE else b"", data)
        made.append(Record(form, "t", 1, "1.0", (f"c{form}",), "k", len(data) or 2, stored))
    made.append(Record(9, "t", 1, None, (), None, 0, Stored(TOMBSTONE, b"c" * 32)))
    header = chunk.ChunkHeader(
        b"S" * 16, 5, 13, b"p" * 32, b"l" * 32, (chunk.OpenCall("c1", 6),), (b"a" * 32, b"b" * 32), tuple(made)
    )
    return chunk.encode(header, [b"{}" if chunk.lies_inline(item) else chunk.EMPTY_SLOT for item in made])


# --- records --------------------------------------------------------------------------------


@given(st.data(), st.integers(0, 3))
def test_open_records_come_back(data: st.DataObject, pieces: int) -> None:
    """A record of an open chunk decodes to itself in every form its payload can lie in."""
    item, payload = data.draw(records(pieces))
    tail = TailRecord(data.draw(DIGEST), data.draw(DIGEST), item, payload, (b"d" * 32,) * pieces)
    assert record.decode_tail(record.encode_tail(tail)) == tail


@given(st.data(), st.integers(0, 3))
@settings(max_examples=25)
def test_cut_off_records_are_corrupt(data: st.DataObject, pieces: int) -> None:
    """A record cut off anywhere, or with bytes behind it, is Corrupt."""
    item, payload = data.draw(records(pieces))
    whole = record.encode_tail(TailRecord(b"p" * 32, b"i" * 32, item, payload, (b"d" * 32,) * pieces))
    for changed in (*(whole[:end] for end in range(len(whole))), whole + b"\xc0"):
        with pytest.raises(Corrupt):
            record.decode_tail(changed)


GOOD = Stored(PIECES, b"c" * 32, (0, 1))
GONE = Stored(TOMBSTONE, b"c" * 32)
LEFT = Stored(TOMBSTONE, b"c" * 32, (), b"r" * 32)
LOCKED = Stored(ENCRYPTED, b"c" * 32, (), b"", b"xy")


@pytest.mark.parametrize(
    ("stored", "size"),
    [
        (msgspec.structs.replace(GOOD, form=0), 2),
        (msgspec.structs.replace(GOOD, form=8), 2),
        (msgspec.structs.replace(GOOD, form=9), 2),
        (msgspec.structs.replace(GOOD, form=-1), 2),
        (msgspec.structs.replace(GOOD, form=1 << 40), 2),
        (msgspec.structs.replace(GOOD, form=TOMBSTONE), 2),
        (msgspec.structs.replace(GOOD, form=PIECES | TOMBSTONE), 2),
        (msgspec.structs.replace(GOOD, commitment=b""), 2),
        (msgspec.structs.replace(GOOD, commitment=b"c" * 31), 2),
        (msgspec.structs.replace(GOOD, recipe=()), 2),
        (msgspec.structs.replace(GOOD, recipe=(2,)), 2),
        (msgspec.structs.replace(GOOD, recipe=(0, -1)), 2),
        (msgspec.structs.replace(GOOD, remains=b"r" * 32), 2),
        (msgspec.structs.replace(GOOD, data=b"xy"), 2),
        (msgspec.structs.replace(GONE, data=b"x"), 0),
        (msgspec.structs.replace(GONE, recipe=(0,)), 0),
        (msgspec.structs.replace(GONE, form=TOMBSTONE | ENCRYPTED), 0),
        (GONE, 1),
        (msgspec.structs.replace(LEFT, remains=b"r" * 33), 2),
        (msgspec.structs.replace(LEFT, data=b"xy"), 2),
        (msgspec.structs.replace(LOCKED, data=b""), 2),
        (LOCKED, 3),
    ],
    ids=repr,
)
def test_forms_that_do_not_exist_are_corrupt(stored: Stored, size: int) -> None:
    """A record whose payload lies in no form of FORMAT.md is Corrupt, in an open chunk and in a sealed one."""
    item = Record(0, "t", 1, None, (), None, size, stored)
    table = (b"a" * 32, b"b" * 32)
    with pytest.raises(Corrupt, match="form that does not exist"):
        record.decode_tail(record.encode_tail(TailRecord(b"", b"", item, b"", table)))
    header = chunk.ChunkHeader(b"S" * 16, 1, 1, b"", b"", (), table, (item,))
    slot = b" " * size if chunk.lies_inline(item) else chunk.EMPTY_SLOT
    with pytest.raises(Corrupt, match="form that does not exist"):
        chunk.decode(chunk.encode(header, [slot]))


def test_the_good_forms_are_good() -> None:
    """What the test above bends is sound before it is bent."""
    for stored, size in ((GOOD, 2), (GONE, 0), (LEFT, 2), (LOCKED, 2)):
        record.check(Record(0, "t", 1, None, (), None, size, stored), 2)


# --- chunks ---------------------------------------------------------------------------------


@given(chunks())
def test_chunks_come_back(made: tuple[chunk.ChunkHeader, list[bytes]]) -> None:
    """A chunk decodes to its header and to a payload section in which each payload lies where the header puts it."""
    header, payloads = made
    decoded, body = chunk.decode(chunk.encode(header, payloads))
    assert decoded == header
    for item, start, payload in zip(header.records, chunk.slots(header.records), payloads, strict=True):
        assert body[start : start + chunk.slot_length(item)] == payload
    assert codec.decode(body) == [json.loads(payload) for payload in payloads]


@given(chunks())
@settings(max_examples=10)
def test_cut_off_chunks_are_corrupt(made: tuple[chunk.ChunkHeader, list[bytes]]) -> None:
    """A chunk cut off anywhere, or with a byte behind it, is Corrupt."""
    whole = chunk.encode(*made)
    for changed in (*(whole[:end] for end in range(len(whole))), whole + b"]"):
        with pytest.raises(Corrupt):
            chunk.decode(changed)


def test_a_flipped_byte_inside_an_object_is_corrupt() -> None:
    """Any byte changed in a stored chunk object, prefix included, is Corrupt; so is any place where it is cut off."""
    whole = objects._PREFIX.pack(objects.CHUNK, objects.STORED, 0, len(sample()), _digest(sample())) + sample()
    assert chunk.decode(objects.decode(SECRET, whole).data)[0].last_seq == 13
    for place in range(len(whole)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[place] ^= mask
            with pytest.raises(Corrupt):
                objects.decode(SECRET, bytes(changed))
    for end in range(len(whole)):
        with pytest.raises(Corrupt):
            objects.decode(SECRET, whole[:end])


def _digest(data: bytes) -> bytes:
    return objects.digest(SECRET, objects.CHUNK, data)


@pytest.mark.parametrize(
    ("magic", "head", "body"),
    [(b"CLC2", 0, 0), (b"\x00" * 4, 0, 0), (b"CLC1", 1, 0), (b"CLC1", -1, 0), (b"CLC1", 0, 1), (b"CLC1", 1, -1)],
)
def test_a_prefix_that_does_not_fit_is_corrupt(magic: bytes, head: int, body: int) -> None:
    """Another magic, or lengths that do not meet at the header's end, are Corrupt."""
    whole = sample()
    _, head_length, body_length = struct.unpack_from("<4sIQ", whole)
    with pytest.raises(Corrupt):
        chunk.decode(struct.pack("<4sIQ", magic, head_length + head, body_length + body) + whole[16:])


@pytest.mark.parametrize("change", [{"first_seq": 4}, {"last_seq": 14}, {"first_seq": 14}, {"records": ()}], ids=repr)
def test_a_header_that_counts_wrong_is_corrupt(change: dict[str, Any]) -> None:
    """A header whose seqs do not count its records is Corrupt."""
    whole = sample()
    header, body = chunk.decode(whole)
    head = msgspec.msgpack.encode(msgspec.structs.replace(header, **change))
    with pytest.raises(Corrupt, match="counts other events"):
        chunk.decode(struct.pack("<4sIQ", b"CLC1", len(head), len(body)) + head + body)


def test_payloads_must_fit_their_records() -> None:
    """Encoding payloads of other lengths than the records state is a mistake of ours, caught before it is written."""
    header, _ = chunk.decode(sample())
    slots = [b"{}" if chunk.lies_inline(item) else chunk.EMPTY_SLOT for item in header.records]
    for wrong in (slots[:-1], [b"{ }", *slots[1:]], [*slots[:-1], b""]):
        with pytest.raises(AssertionError):
            chunk.encode(header, wrong)


def test_equal_chunks_have_equal_bytes() -> None:
    """A chunk that is decoded and encoded again has the same bytes: they are canonical, as digests need."""
    header, body = chunk.decode(sample())
    starts = chunk.slots(header.records)
    again = [body[s : s + chunk.slot_length(r)] for s, r in zip(starts, header.records, strict=True)]
    assert chunk.encode(header, again) == sample()
