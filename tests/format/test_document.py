"""FORMAT.md against the code: its tables are parsed and compared with structs, constants and keys."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

import castlog.format
from castlog import limits
from castlog.format import chunk, identity, line, objects, record, rows, snapshot
from castlog.history import calls
from castlog.ops import bundle, jsonl

TEXT = (Path(castlog.format.__file__).parent / "FORMAT.md").read_text("utf-8")

STRUCTS: tuple[type[msgspec.Struct], ...] = (
    identity.Genesis,
    identity.Header,
    record.TailRecord,
    record.Record,
    record.Stored,
    chunk.ChunkHeader,
    chunk.OpenCall,
    snapshot.Snapshot,
    *(
        value
        for value in vars(rows).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == rows.__name__
    ),
)
TABLES = {name: value for name, value in vars(rows).items() if isinstance(value, rows.Table)}


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading of any level."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert match, f"FORMAT.md has no heading {title!r}"
    return match[1]


def tables(title: str) -> list[list[list[str]]]:
    """Return the tables under a heading: rows of cells, the head row first, code marks left out."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", section(title), re.MULTILINE):
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in block.splitlines()]
        found.append([[re.sub(r"^`([^`]*)`$", r"\1", cell) for cell in row] for row in (lines[0], *lines[2:])])
    return found


def body(title: str, head: list[str]) -> list[list[str]]:
    """Return the rows, without the head, of the table under a heading that has this head."""
    for table in tables(title):
        if table[0] == head:
            return table[1:]
    raise AssertionError(f"no table with the head {head} under {title!r}")


def words(annotation: Any) -> str:
    """Return what FORMAT.md calls a field's type."""
    plain = {int: "int", str: "str", bytes: "bin"}
    if annotation in plain:
        return plain[annotation]
    if get_origin(annotation) is tuple:
        return f"array of {words(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return "map of {} to {}".format(*map(words, get_args(annotation)))
    options = get_args(annotation)
    if options:
        return " or ".join(words(option) for option in options if option is not type(None)) + " or nil"
    return str(annotation.__name__)


def shown_default(field: msgspec.structs.FieldInfo) -> str:
    """Return how FORMAT.md writes a field's default."""
    if field.required:
        return ""
    default = field.default
    if default is None:
        return "nil"
    return "empty" if default in ("", b"", ()) else str(default)


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_structs_match_their_tables(kind: type[msgspec.Struct]) -> None:
    """Each struct on disk has a table with its fields in order, their types and their defaults, and nothing else."""
    assert kind.__struct_config__.array_like
    written = [row[:4] for row in body(f"`{kind.__name__}`", ["#", "field", "type", "default", "meaning"])]
    assert written == [
        [str(number), field.name, words(field.type), shown_default(field)]
        for number, field in enumerate(msgspec.structs.fields(kind))
    ]


def test_every_struct_heading_is_a_struct() -> None:
    """No heading in the document describes a struct that the code does not have."""
    described = set(re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE))
    assert described == {kind.__name__ for kind in STRUCTS}


def key_code(fields: str) -> str:
    """Return the struct code of a key's described fields; a name's UTF-8 counts for nothing."""
    code = ""
    for part in filter(None, fields.split(", ")):
        width = part.split()[-2:]
        if width[1] == "bytes":
            code += f"{width[0]}s"
        elif width[1] != "UTF-8":
            code += {"u8": "B", "u16": "H", "u64": "Q"}[width[1]]
    return code


def test_tables_match() -> None:
    """Letter, kind, key fields and row of every table are as described, and no table is left out."""
    described = body("4. The map", ["table", "letter", "kind", "key fields", "row", "holds"])
    names = [row[0] for row in described]
    assert sorted(names) == sorted([*TABLES, "RECORDS", "PARTS"])
    places = set()
    for name, letter, kind, fields, row, _ in described:
        code = key_code(fields)
        places.add((letter, kind))
        values = [bytes(range(size)) if size else number + 1 for number, size in enumerate(_sizes(code))]
        head = struct.pack(f">c{code[:1]}", letter.encode(), *values[:1]) if kind else letter.encode()
        expected = head + (bytes((int(kind),)) + struct.pack(f">{code[1:]}", *values[1:]) if kind else b"")
        if not kind:
            expected += struct.pack(f">{code}", *values)
        if name == "RECORDS":
            assert (rows.record_key(*values), row) == (expected, "TailRecord")
        elif name == "PARTS":
            assert (rows.part_key(*values), row) == (expected, "")
        else:
            table = TABLES[name]
            assert (table.key(*values), table.row.__name__) == (expected, row)
            assert table.fields(expected) == tuple(values)
    assert len(places) == len(described), "two tables share a letter and a kind"


def _sizes(code: str) -> list[int]:
    """Return the byte counts of a struct code's fields, 0 for a number."""
    return [int(size) if size else 0 for size, _ in re.findall(r"(\d*)([sBHQ])", code)]


def test_a_name_ends_its_key() -> None:
    """The key of a name is the letter, the session and the name's UTF-8."""
    assert rows.NAMES.of(b"s" * 16, "größe") == b"B" + b"s" * 16 + "größe".encode()


def test_reserved_letters_are_free() -> None:
    """Letters kept for later versions are used by no table."""
    reserved = re.search(r"^Reserved for later versions, as letters:(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert reserved
    letters = set(re.findall(r"`([A-Z])`", reserved[1]))
    used = {row[1] for row in body("4. The map", ["table", "letter", "kind", "key fields", "row", "holds"])}
    assert len(letters) == 5
    assert not letters & used


def test_digests_match() -> None:
    """Mode, context and length of every digest are as described."""
    rules = {row[0]: row[1:] for row in body("3. Identity", ["digest", "mode", "key or context", "input", "bytes"])}
    contexts = {name: row[1] for name, row in rules.items() if row[0] == "derive-key"}
    assert contexts == {
        "salt digest": identity._SALT,
        "genesis": identity._GENESIS,
        "event id": identity._EVENT,
        "short name": identity._NAME,
    }
    assert {name for name, row in rules.items() if row[0] == "keyed"} == {"commitment", "object digest"}
    lengths = {name: int(row[3]) for name, row in rules.items()}
    assert lengths == {
        "salt digest": len(identity.salt_digest(b"x")),
        "genesis": len(identity.genesis_digest(identity.Genesis(1, b"", 0, None, b""))),
        "commitment": len(identity.commitment(bytes(32), b"x")),
        "event id": len(identity.event_id(b"", identity.Header(1, 0, "t", 1, None, (), None), b"")),
        "short name": len(identity.short_digest("x")),
        "object digest": len(objects.digest(bytes(32), objects.PIECE, b"x")),
    }


def test_forms_match() -> None:
    """The flags are numbered as described, the listed forms decode, and all others are refused."""
    flags = {name: int(number) for number, name in body("`Stored`", ["flag", "form"])}
    assert flags == {"PIECES": record.PIECES, "ENCRYPTED": record.ENCRYPTED, "TOMBSTONE": record.TOMBSTONE}
    listed = body("`Stored`", ["form", "stored bytes", "recipe", "remains", "data", "in a chunk's payload section"])
    legal = {(int(row[0]), *(cell == "yes" for cell in row[2:5])) for row in listed if row[0] != "nil"}
    for form in range(-1, 18):
        for recipe in (False, True):
            for remains in (False, True):
                for data in (False, True):
                    gone = form == record.TOMBSTONE and not remains
                    stored = record.Stored(
                        form, bytes(32), (0,) if recipe else (), bytes(32) if remains else b"", b"xy" if data else b""
                    )
                    item = record.Record(0, "t", 1, None, (), None, 0 if gone else 2, stored)
                    sound = record._is_sound(stored, item.size, 1)
                    assert sound == ((form, recipe, remains, data) in legal), (form, recipe, remains, data)
                    if sound:
                        slot = next(row[5] for row in listed if row[0] == str(form) and (row[3] == "yes") == remains)
                        assert chunk.lies_inline(item) == (slot != "null")


@pytest.mark.parametrize(
    ("title", "layout", "size"),
    [("6. Chunks", chunk._PREFIX, chunk.PREFIX_BYTES), ("7. Objects", objects._PREFIX, objects.PREFIX_BYTES)],
)
def test_prefixes_match(title: str, layout: struct.Struct, size: int) -> None:
    """Offsets and sizes of a prefix are those of the struct, and what follows begins at its end."""
    assert layout.size == size
    assert layout.format.startswith("<")
    fixed = [
        row for row in body(title, ["offset", "size", "field", "meaning"]) if row[0].isdigit() and row[1].isdigit()
    ]
    codes = re.findall(r"\d*s|[BHIQ]", layout.format)
    offset = 0
    for code, row in zip(codes, fixed, strict=True):
        width = struct.calcsize(f"<{code}")
        assert row[:2] == [str(offset), str(width)]
        offset += width
        number = {"B": "u8", "H": "u16 little-endian", "I": "u32 little-endian", "Q": "u64 little-endian"}.get(code)
        assert number is None or row[3].startswith(number)
    assert offset == size
    rest = [row[0] for row in body(title, ["offset", "size", "field", "meaning"])][len(fixed)]
    assert rest == str(size)


def test_magic_matches() -> None:
    """The chunk's magic is the one described."""
    assert body("6. Chunks", ["offset", "size", "field", "meaning"])[0][3] == chunk.MAGIC.decode()


def test_kinds_and_codecs_match() -> None:
    """Kinds and codecs have the described numbers."""
    kinds = {row[1]: int(row[0]) for row in body("7. Objects", ["kind", "name", "uncompressed bytes"]) if row[1]}
    assert kinds == {name: getattr(objects, name) for name in ("CHUNK", "PIECE", "PACK", "SNAPSHOT", "DICTIONARY")}
    codecs = {row[1]: int(row[0]) for row in body("7. Objects", ["codec", "name", "frame"]) if row[1]}
    assert codecs == {name: getattr(objects, name) for name in ("STORED", "ZSTD")}


def test_bounds_match() -> None:
    """Every number the text states for parts, packs, pieces and objects is the code's."""
    text = section("7. Objects")
    assert f"as have {limits.LEAF_PART_BYTES} bytes at the most" in text
    assert f"at most {limits.PART_PAGES}, less {objects._PAGE_HEAD} bytes: {objects.PART_BYTES_MAX:,} at" in text
    assert f"whole pages of {objects._PAGE:,} bytes" in text
    assert f"{objects._PAGE - objects._PAGE_HEAD:,} bytes or more are left" in text
    assert f"at most {limits.OBJECT_BYTES_MAX:,}" in text
    text = section("8. Pieces")
    assert f"Payloads of {limits.PIECE_PAYLOAD_BYTES_MIN:,} bytes or more" in text
    assert f"once it holds {limits.PACK_BYTES:,} bytes" in text
    assert f"version {rows.Meta(1, b'', 0).cutter}" in text
    cutter = {row[0]: int(row[1]) for row in body("8. Pieces", ["parameter", "value"])}
    assert cutter == {
        "least bytes": limits.PIECE_BYTES_MIN,
        "mean bytes": limits.PIECE_BYTES_MEAN,
        "most bytes": limits.PIECE_BYTES_MAX,
        "normalization": 1,
    }
    bounds = f"Keys have 1 to\n{limits.KEY_BYTES_MAX} bytes, values at most {limits.VALUE_BYTES_MAX:,}."
    assert bounds in section("4. The map")


def test_calls_match() -> None:
    """The types that open and close calls are the described ones."""
    text = section("`OpenCall`")
    opening, closing = text.split("opens the calls")
    assert set(re.findall(r"`(\w+)`", opening.split("|")[-1])) == calls.OPENING
    named = set(re.findall(r"`(\w+)`", closing.split("closes")[0])) - {"call_ids"}
    assert named == calls.CLOSING


def test_event_line_matches() -> None:
    """The members of an event line are listed, each once, and in the order in which they are written."""
    written = [row[1] for row in body("9. The event line", ["#", "member", "value"])]
    assert sorted(written) == sorted(field.encode_name for field in msgspec.structs.fields(line.EventLine))
    common = {"session_id": "s", "branch": "b", "seq": 2, "ts": 0, "type": "t", "schema": 1, "key": "k"}
    common |= {"harness_version": "h", "id": "b3:", "commitment": bytes(32)}
    for raw, encrypted, ids in ((b"{}", False, ("a",)), (b"{}\n", False, ("a", "b")), (b"{}", True, ())):
        text = line.encode(raw=raw, encrypted=encrypted, call_ids=ids, **common)  # type: ignore[arg-type]
        members = list(msgspec.json.decode(text))
        assert members == sorted(members, key=written.index)


def test_session_line_matches() -> None:
    """The members of a session line are listed in the order in which they are written."""
    written = [row[1] for row in body("The session line", ["#", "member", "value"])]
    assert written == [field.encode_name for field in msgspec.structs.fields(jsonl.SessionLine)]
    assert f"version of these lines, {jsonl.VERSION}" in section("The session line")
    assert f"version of the bundle, {bundle.VERSION}" in section("The session line")
    shown = jsonl.SessionLine(session_id="s", genesis="g", created="c", title="t")
    begins = re.search(r"begins with the bytes `(.*?)`", section("The session line"))
    assert begins
    assert msgspec.json.encode(shown).startswith(begins[1].encode())


def test_bundle_lines_match() -> None:
    """Each structure line of a bundle has the described members, after the one that says which it is."""
    described = {row[0]: row[1] for row in body("The bundle", ["line", "members after `castlog`"])}
    kinds = (bundle.TimelineLine, bundle.RefLine, bundle.TagLine, bundle.EndLine)
    assert described == {
        str(kind.__struct_config__.tag): ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(kind))
        for kind in kinds
    }
    assert {kind.__struct_config__.tag_field for kind in kinds} == {"castlog"}


def test_versions_match() -> None:
    """The three version constants are as described, and the newest has an entry among the changes."""
    constants = {row[0]: int(row[1]) for row in body("12. Versions", ["constant", "value", "meaning"])}
    assert constants == {name: getattr(rows, name) for name in ("OLDEST_READ", "NEWEST_READ", "WRITTEN")}
    assert constants["OLDEST_READ"] <= constants["WRITTEN"] <= constants["NEWEST_READ"]
    changes = [int(row[0]) for row in body("Version changes", ["version", "castlog", "change"])]
    assert changes == list(range(1, rows.NEWEST_READ + 1))


def test_checksums_match() -> None:
    """A checksum has four bytes and covers key and value."""
    key = rows.HEAD.key()
    value = rows.HEAD.encode(key, rows.Head(b"s" * 16, 1))
    assert rows.CRC_BYTES == 4
    assert rows.guarded(key, value) == value[:-4]
    assert rows.guarded(b"I", value) is None
