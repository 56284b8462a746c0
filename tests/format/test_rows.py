"""Rows: they come back, they keep people's order, and no changed bit of one is believed."""

from __future__ import annotations

import re
import zlib
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castlog import limits
from castlog.errors import Corrupt
from castlog.format import rows

TABLES = {name: value for name, value in vars(rows).items() if isinstance(value, rows.Table)}
tables = pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))

U64 = st.integers(0, (1 << 64) - 1)
NUMBERS = {"Q": U64, "H": st.integers(0, (1 << 16) - 1)}
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Return any value a field of this type can hold."""
    if annotation is int:
        return st.integers(-(1 << 63), (1 << 64) - 1)
    if annotation is str:
        return TEXT
    if annotation is bytes:
        return st.binary(max_size=40)
    if get_origin(annotation) is tuple:
        return st.lists(values_of(get_args(annotation)[0]), max_size=4).map(tuple)
    if get_origin(annotation) is dict:
        return st.dictionaries(TEXT, TEXT, max_size=4)
    if get_args(annotation):
        return st.one_of(*(st.none() if kind is type(None) else values_of(kind) for kind in get_args(annotation)))
    return rows_of(annotation)


def rows_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return any value of a struct, each field over its whole range."""
    return st.builds(kind, **{field.name: values_of(field.type) for field in msgspec.structs.fields(kind)})


def fields_of(table: rows.Table[Any]) -> st.SearchStrategy[tuple[int | bytes, ...]]:
    """Return any key fields of a table."""
    layout = re.findall(r"(\d*)([sQH])", table._struct.format)
    return st.tuples(
        *(NUMBERS[code] if code != "s" else st.binary(min_size=int(n), max_size=int(n)) for n, code in layout)
    )


@tables
@settings(max_examples=30)
@given(data=st.data())
def test_rows_come_back(table: rows.Table[Any], data: st.DataObject) -> None:
    """Any row of any table decodes to itself under its key, and its key to its fields."""
    fields = data.draw(fields_of(table))
    row = data.draw(rows_of(table.row))
    key = table.key(*fields)
    assert table.fields(key) == fields
    assert table.owns(key)
    assert len(key) <= limits.KEY_BYTES_MAX
    assert table.decode(key, table.encode(key, row)) == row


@tables
@settings(max_examples=30)
@given(data=st.data())
def test_byte_order_is_field_order(table: rows.Table[Any], data: st.DataObject) -> None:
    """Keys of a table sort as their fields do, so that a scan comes in people's order."""
    left, right = data.draw(fields_of(table)), data.draw(fields_of(table))
    assert (table.key(*left) < table.key(*right)) == (left < right)


@tables
@settings(max_examples=5)
@given(data=st.data())
def test_no_flipped_bit_is_believed(table: rows.Table[Any], data: st.DataObject) -> None:
    """Any single bit flipped in the value or the key of a row makes it Corrupt, naming the table."""
    key = table.key(*data.draw(fields_of(table)))
    value = table.encode(key, data.draw(rows_of(table.row)))
    for place in range(8 * len(value)):
        changed = bytearray(value)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt) as caught:
            table.decode(key, bytes(changed))
        assert caught.value.table == table.name
    for place in range(8 * len(key)):
        moved = bytearray(key)
        moved[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt):
            table.decode(bytes(moved), value)


@tables
@settings(max_examples=5)
@given(data=st.data())
def test_no_shortened_row_is_believed(table: rows.Table[Any], data: st.DataObject) -> None:
    """A row cut off anywhere, or with bytes after it, is Corrupt."""
    key = table.key(*data.draw(fields_of(table)))
    value = table.encode(key, data.draw(rows_of(table.row)))
    for changed in (*(value[:end] for end in range(len(value))), value + b"\x00"):
        with pytest.raises(Corrupt):
            table.decode(key, changed)


@tables
def test_a_row_of_another_shape_is_corrupt(table: rows.Table[Any]) -> None:
    """A value whose checksum fits but whose content is no such row is Corrupt."""
    key = table.letter
    for body in (
        b"",
        b"\xc1",
        b"\xc0",
        b"\xa5hello",
        b"\x81\x01\x02",
        b"\x91",
        b"\x91\xa1\xff",
        b"\x9f" + b"\xc2" * 15,
    ):
        with pytest.raises(Corrupt):
            table.decode(key, rows.guard(key, body))


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=60))
def test_the_checksum_is_crc_32_over_key_and_value(key: bytes, body: bytes) -> None:
    """A value ends with the CRC-32 of key and body, little-endian."""
    value = rows.guard(key, body)
    assert value == body + zlib.crc32(key + body).to_bytes(4, "little")
    assert rows.guarded(key, value) == body


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00"])
def test_a_value_shorter_than_a_checksum_is_not_believed(value: bytes) -> None:
    """Values of less than four bytes have no body."""
    assert rows.guarded(b"M", value) is None


@given(st.binary(min_size=16, max_size=16), TEXT.filter(bool), TEXT.filter(bool))
def test_names_come_back_from_their_keys(session: bytes, left: str, right: str) -> None:
    """A name is read back from its key, and names of a session lie together in the order of their UTF-8."""
    keys = [rows.NAMES.of(session, name) for name in (left, right)]
    assert [rows.NAMES.name_in(key) for key in keys] == [left, right]
    assert (keys[0] < keys[1]) == (left.encode() < right.encode())
    assert all(key.startswith(rows.NAMES.prefix(session)) for key in keys)


def test_the_longest_key_fits() -> None:
    """The longest name makes a key that every engine takes."""
    assert len(rows.NAMES.of(bytes(16), "x" * limits.NAME_BYTES_MAX)) <= limits.KEY_BYTES_MAX


@given(U64, U64, st.integers(0, 65_535))
def test_records_and_parts_have_keys(timeline: int, seq: int, part: int) -> None:
    """The seq comes back from a record's key, records lie between their timeline's chunks and its end."""
    key = rows.record_key(timeline, seq)
    assert rows.record_seq(key) == seq
    assert rows.CHUNKS.key(timeline, (1 << 64) - 1) < key < rows.TAILS.key(timeline)
    assert not any(table.owns(key) for table in (rows.TIMELINES, rows.CHUNKS, rows.TAILS, rows.IN_FLIGHT))
    if timeline < (1 << 64) - 1:
        assert rows.part_key(timeline, part) < rows.part_key(timeline + 1, 0)


@given(U64)
def test_what_belongs_to_a_number_lies_together(number: int) -> None:
    """All rows of a timeline, and of a branch, lie in one stretch that no other's rows interrupt."""
    other = number ^ 1
    of_timeline = [
        rows.TIMELINES.key(number),
        rows.CHUNKS.key(number, 7),
        rows.record_key(number, 9),
        rows.TAILS.key(number),
        rows.IN_FLIGHT.key(number, b"i" * 16),
        rows.OPEN_AT_FORK.key(number, b"i" * 16),
    ]
    assert of_timeline == sorted(of_timeline)
    assert not of_timeline[0] < rows.TIMELINES.key(other) < of_timeline[-1]
    assert rows.REFS.key(number) < rows.REFLOG.key(number, 0) < rows.REFLOG.key(number, 1)


@given(st.binary(min_size=1, max_size=20).filter(lambda prefix: prefix.strip(b"\xff")), st.binary(max_size=5))
def test_after_is_the_end_of_a_prefix(prefix: bytes, rest: bytes) -> None:
    """Every key with a prefix sorts before `after` of it, and nothing without it lies between."""
    end = rows.after(prefix)
    assert prefix <= prefix + rest < end
    assert end[: len(prefix)] != prefix


@pytest.mark.parametrize("version", [0, 1, 2, 255, 1 << 40])
def test_the_version_is_read_from_any_store(version: int) -> None:
    """The version is the first field of META whatever follows it, also in formats not yet made."""
    for more in ([], [b"s" * 32, 0], [{"a": 1}, [None], 1.5, b""]):
        value = rows.guard(rows.META.key(), msgspec.msgpack.encode([version, *more]))
        assert rows.format_version(value) == version


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\xc0", b"\x90", b"\x91\xc0", b"\x91\xc3", b"\x91\xa11", b"\x81\x00\x01"]
)
def test_no_version_is_guessed(body: bytes) -> None:
    """A META row that is no array, or holds no number in front, is Corrupt."""
    value = rows.guard(rows.META.key(), body)
    with pytest.raises(Corrupt):
        rows.format_version(value)


def test_a_changed_bit_is_damage_and_no_other_version() -> None:
    """Any bit of the META row flipped is Corrupt; it never looks like a store of a newer format."""
    good = rows.META.encode(rows.META.key(), rows.Meta(1, b"s" * 32, 0))
    for place in range(8 * len(good)):
        changed = bytearray(good)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Corrupt):
            rows.format_version(bytes(changed))
