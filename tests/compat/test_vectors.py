"""Golden vectors: what castlog makes of fixed inputs, byte for byte, for every format ever released.

The files in `vN` were written once and are never made again (`make.py`). Each is checked twice: by castlog, and by the
second reader, which was written from FORMAT.md and shares no code with it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3

from castlog.format import chunk, identity, line, objects, record, rows
from castlog.history import pieces

from . import second

HERE = Path(__file__).parent
SECRET = bytes(range(32))


def revive(value: Any) -> Any:
    """Return a vector's value with its bytes as bytes."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if list(value) == ["hex"] else {k: revive(v) for k, v in value.items()}
    return [revive(item) for item in value] if isinstance(value, list) else value


VECTORS = revive(json.loads((HERE / "v1" / "vectors.json").read_text("utf-8")))
SESSION, CREATED, _, SALT, _, GENESIS = VECTORS["sessions"][0]


def plain(value: Any) -> Any:
    """Return a struct as the list of its fields, all the way down."""
    if isinstance(value, msgspec.Struct):
        return [plain(getattr(value, name)) for name in value.__struct_fields__]
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def test_there_is_a_folder_of_each_version() -> None:
    """Every version that can be read has golden files."""
    found = sorted(int(path.name[1:]) for path in HERE.glob("v[0-9]*"))
    assert found == list(range(rows.OLDEST_READ, rows.WRITTEN + 1))


# --- the second reader's MessagePack --------------------------------------------------------


def test_the_second_encoder_agrees() -> None:
    """Both encoders write the shortest form at every edge, and the second decoder reads it back."""
    edges = [e + d for n in (0, 5, 7, 8, 15, 16, 31, 32, 63) for e in (1 << n, -(1 << n)) for d in (-1, 0, 1)]
    lengths = [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536]
    values: list[Any] = [None, {"a": 1, "ß": [b"x"]}, (1 << 64) - 1, *(e for e in edges if e >= -(1 << 63))]
    values += [kind(n) for n in lengths for kind in (bytes, "x".__mul__, lambda n: [None] * n)]
    values += [{str(key): key for key in range(n)} for n in (0, 15, 16, 65_536)]
    for value in values:
        assert second.pack(value) == msgspec.msgpack.encode(value)
        assert second.unpack(second.pack(value)) == value


# --- identity -------------------------------------------------------------------------------


@pytest.mark.parametrize(("header", "packed"), VECTORS["headers"], ids=lambda value: None)
def test_header_bytes(header: list[Any], packed: bytes) -> None:
    """A header has these bytes for good: every edge of MessagePack's integers, texts and arrays is among them."""
    made = identity.Header(*header[:5], tuple(header[5]), header[6])
    assert identity._pack(made) == packed
    assert second.pack(header) == packed


@pytest.mark.parametrize(("session", "created", "parent", "salt", "salt_digest", "genesis"), VECTORS["sessions"])
def test_genesis(
    session: bytes, created: int, parent: bytes | None, salt: bytes, salt_digest: bytes, genesis: bytes
) -> None:
    """A session's genesis follows from id, time, parent call and salt, and from nothing else."""
    assert identity.salt_digest(salt) == salt_digest == second.derive("castlog v1 salt", salt)
    assert identity.genesis_digest(identity.Genesis(1, session, created, parent, salt_digest)) == genesis
    assert second.genesis_of(session, created, parent, salt) == genesis


@pytest.mark.parametrize(("text", "digest"), VECTORS["short_names"], ids=lambda value: None)
def test_short_names(text: str, digest: bytes) -> None:
    """Keys and origins stand in table keys as these 16 bytes."""
    assert identity.short_digest(text) == rows.key_digest(text) == digest == second.short_name(text)


def test_the_chain() -> None:
    """From the genesis on, each event's id follows from its parent, its header and its commitment."""
    parent = GENESIS
    for seq, event in enumerate(VECTORS["events"], 1):
        header = identity.Header(*event["header"][:5], tuple(event["header"][5]), event["header"][6])
        assert (event["parent"], header.seq) == (parent, seq)
        assert identity.event_id(parent, header, event["commitment"]) == event["id"]
        assert second.event_id_of(parent, event["header"], event["commitment"]) == event["id"]
        parent = event["id"]
    assert len({event["id"] for event in VECTORS["events"]}) == len(VECTORS["events"])


# --- rows and records -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "fields", "key", "row", "value"),
    VECTORS["rows"],
    ids=[f"{row[0]}-{n}" for n, row in enumerate(VECTORS["rows"])],
)
def test_rows(table: str, fields: list[Any], key: bytes, row: list[Any], value: bytes) -> None:
    """A row of each table has this key and these bytes, decodes to these fields, and is written so again."""
    kind: rows.Table[Any] = getattr(rows, table)
    assert (rows.NAMES.of(*fields) if table == "NAMES" else kind.key(*fields)) == key
    decoded = kind.decode(key, value)
    assert plain(decoded) == row
    assert kind.encode(key, decoded) == value
    assert second.read_row(key, value) == row
    assert second.write_row(key, row) == value


def test_every_table_has_a_vector() -> None:
    """No table is left out."""
    tables = {name for name, value in vars(rows).items() if isinstance(value, rows.Table)}
    assert tables == {row[0] for row in VECTORS["rows"]}


def pieces_of(event: dict[str, Any]) -> list[bytes]:
    """Return the pieces of an event in order, cut out of the vectors' pack by their digests."""
    packed = next(data for kind, data, _ in VECTORS["objects"] if kind == objects.PACK)
    fields = event["row"][1]
    stored, table = fields[2][7], fields[4]
    found, whole = [], event["stored"]
    for index in stored[2] if stored else ():
        size = next(n for n in range(1, len(whole) + 1) if second.keyed(SECRET, b"\x02" + whole[:n]) == table[index])
        assert whole[:size] in packed
        found.append(whole[:size])
        whole = whole[size:]
    return found


@pytest.mark.parametrize(
    "event", VECTORS["events"], ids=lambda event: f"{event['header'][0]}-{event['header'][2][:12]}"
)
def test_records(event: dict[str, Any]) -> None:
    """A record of each form has these bytes in an open chunk, and both readers find the same event in it."""
    key, fields, value = event["row"]
    seq = event["header"][0]
    assert key == rows.record_key(3, seq)
    body = rows.guarded(key, value)
    assert body is not None
    tail = record.decode_tail(body)
    assert plain(tail) == fields == second.read_row(key, value)
    assert rows.guard(key, record.encode_tail(tail)) == value
    assert plain(record.header(seq, tail.record)) == event["header"]
    found = second.found_in(SALT, fields[0], seq, fields[2], fields[3], pieces_of(event))
    assert (found.header, found.commitment, found.id) == (event["header"], event["commitment"], event["id"])
    assert (found.payload or b"") == event["stored"]
    assert (fields[0], fields[1]) == (event["parent"], event["id"])


def test_every_form_has_a_vector() -> None:
    """The records cover all forms, and a tombstone both with something left and with nothing."""
    forms = [(event["row"][1][2][7] or [None])[0] for event in VECTORS["events"]]
    assert sorted({form for form in forms if form}) == list(range(1, 8))
    assert None in forms
    assert {bool(event["stored"]) for event in VECTORS["events"] if (event["row"][1][2][7] or [0])[0] == 4} == {
        True,
        False,
    }


# --- chunks, objects, pieces ----------------------------------------------------------------


def test_the_chunk() -> None:
    """A chunk with a record of each form has these bytes, and both readers find the vectors' events in it."""
    header, body = chunk.decode(VECTORS["chunk"])
    starts = chunk.slots(header.records)
    slots = [body[at : at + chunk.slot_length(item)] for at, item in zip(starts, header.records, strict=True)]
    assert chunk.encode(header, slots) == VECTORS["chunk"]
    found = second.read_chunk(VECTORS["chunk"])
    assert [*found[:9]] == plain(header)
    assert found.slots == slots
    assert (found.session, found.first, found.parent) == (SESSION, 1, GENESIS)
    assert found.open == [["c2", 2], ["call-0", 10]]
    parent = found.parent
    for event, item, slot in zip(VECTORS["events"], found.records, found.slots, strict=True):
        stored = second.found_in(SALT, parent, event["header"][0], item, slot, pieces_of(event))
        assert (stored.id, stored.payload or b"") == (event["id"], event["stored"])
        assert [found.pieces[i] for i in (item[7] or [0, b"", []])[2]] == [
            second.keyed(SECRET, b"\x02" + piece) for piece in pieces_of(event)
        ]
        parent = stored.id
    assert parent == found.last_id
    assert len(json.loads(body)) == len(found.records)


@pytest.mark.parametrize(("kind", "data", "blob"), VECTORS["objects"], ids=lambda value: None)
def test_objects(kind: int, data: bytes, blob: bytes) -> None:
    """An object decodes to these bytes for good, and its prefix is written so again whatever the compressor does."""
    digest = second.keyed(SECRET, bytes([kind]) + data)
    assert objects.decode(SECRET, blob) == objects.Object(kind, digest, data)
    assert second.read_object(SECRET, blob) == (kind, data)
    again = objects.encode(SECRET, kind, data)
    assert again[: objects.PREFIX_BYTES] == blob[: objects.PREFIX_BYTES]
    assert objects.decode(SECRET, again).data == data


def test_objects_cover_both_codecs() -> None:
    """Stored and compressed objects are among the vectors."""
    assert {blob[1] for _, _, blob in VECTORS["objects"]} == {objects.STORED, objects.ZSTD}


@pytest.mark.parametrize(("size", "parts"), VECTORS["parts"])
def test_parts(size: int, parts: list[int]) -> None:
    """An object of this size lies in parts of these sizes."""
    assert [len(part) for part in objects.split(bytes(size))] == parts


@pytest.mark.parametrize(("size", "lengths"), VECTORS["cut"], ids=lambda value: None)
def test_the_cutter(size: int, lengths: list[int]) -> None:
    """The cutter of version 1 makes these cuts; others would store equal payloads twice."""
    payload = blake3(b"").digest(size // 2).hex().encode()
    cut = pieces.cut(SECRET, payload)
    assert [len(data) for _, data in cut] == lengths
    assert b"".join(data for _, data in cut) == payload
    assert all(digest == second.keyed(SECRET, b"\x02" + data) for digest, data in cut)


# --- lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", VECTORS["events"], ids=lambda event: f"{event['header'][0]}-{event['header'][2][:12]}"
)
def test_lines(event: dict[str, Any]) -> None:
    """An event's line has these bytes, gives the stored bytes back, and its id can be recomputed from it alone."""
    text, stored = event["line"], event["row"][1][2][7]
    form = stored[0] if stored else 0
    seq, ts, kind, schema, harness, calls, key = event["header"]
    assert text == line.encode(
        session_id=f"sess_{SESSION.hex()}",
        branch="main",
        seq=seq,
        ts=ts,
        type=kind,
        raw=event["stored"],
        harness_version=harness,
        schema=schema,
        call_ids=tuple(calls),
        key=key,
        id=f"b3:{event['id'].hex()}",
        commitment=event["commitment"] if form & 4 else None,
        encrypted=bool(form & 2),
    )
    value = json.loads(text)
    decoded = line.decode(text.encode())
    if "ciphertext" in value:
        payload = base64.b64decode(value["ciphertext"])
    elif "payload_text" in value:
        payload = value["payload_text"].encode()
    elif "payload" in value:
        start = text.index('"payload":') + len('"payload":')
        payload = text[start : text.index(',"parent_seq":', start)].encode()
        assert line.payload_bytes(decoded) == payload
    else:
        payload = b""
    assert payload == event["stored"]
    shown = [value["call_id"]] if "call_id" in value else value.get("call_ids", [])
    header = [value["seq"], line.parse_time(value["ts"]), value["type"], value["schema"]]
    header += [value.get("harness_version"), shown, value.get("key")]
    commitment = bytes.fromhex(value["commitment"][3:]) if form & 4 else second.keyed(SALT, payload)
    assert second.event_id_of(event["parent"], header, commitment).hex() == value["id"][3:]
    assert (value.get("redacted"), decoded.redacted) == ((True, True) if form & 4 else (None, False))
