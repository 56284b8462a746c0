"""Writes the golden files of a format version. Run by hand, once, when a version is released; it never overwrites.

    python tests/compat/make.py

makes `tests/compat/vN` for the version that castlog now writes, and stops if that folder is there. The files are what
tests of all later versions read: they are never made again. Inputs are fixed, so that a run can be compared with an
earlier one while a version is still being worked on; compressed bytes depend on the compressor's version.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lmdb
import msgspec
import zstandard
from blake3 import blake3

import castlog
from castlog.format import chunk, identity, ids, line, objects, record, rows
from castlog.format.record import ENCRYPTED, PIECES, TOMBSTONE, Record, Stored, TailRecord
from castlog.history import pieces

START = 1_750_000_000_123_456_789
SECRET = bytes(range(32))
SALT = bytes(range(32, 64))
SESSION = bytes.fromhex("0197700000007000800000000000c0de")
WORDS = (
    "the",
    "login",
    "page",
    "throws",
    "500",
    "when",
    "a",
    "session",
    "cookie",
    "is",
    "stale",
    "in",
    "api",
    "py",
    "line",
)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: structs and tuples as lists, bytes as an object with their hex."""
    if isinstance(value, msgspec.Struct):
        return [plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def text_of(seed: int, words: int) -> str:
    """Return prose that is the same in every run and that does not compress to nothing."""
    generator = random.Random(seed)
    return " ".join(generator.choice(WORDS) for _ in range(words))


def cut_input(size: int) -> bytes:
    """Return bytes to cut, which any BLAKE3 can make: hex digits of a long digest of nothing."""
    return blake3(b"").digest(size // 2).hex().encode()


def framed(*frames: bytes) -> list[bytes]:
    """Return ciphertext frames: a length and the bytes of each."""
    return [len(frame).to_bytes(4, "little") + frame for frame in frames]


class Made(msgspec.Struct):
    """An event of the vectors: its place in the chain, its record, and its bytes wherever they lie."""

    seq: int
    parent: bytes
    id: bytes
    record: Record
    commitment: bytes
    inline: bytes
    stored_bytes: bytes
    pieces: tuple[bytes, ...]


LARGE = json.dumps({"text": 2 * (700 * "a" + " stale cookie " + 700 * "b")}).encode()
# name of the form, payload (what the id covers), what remains (tombstones), whether the bytes lie in pieces
FORMS: list[tuple[int | None, list[bytes], list[bytes] | None]] = [
    (None, [b'{"text":"hi"}'], None),
    (PIECES, [LARGE], None),
    (ENCRYPTED, framed(b"\x00\xffciphertext of a small payload"), None),
    (PIECES | ENCRYPTED, framed(b"\x01" * 600, b"\x02" * 600), None),
    (TOMBSTONE, [b'{"text":"call me at 555"}'], [b'{"text":"call me at ..."}']),
    (TOMBSTONE, [b'{"secret":"gone"}'], []),
    (TOMBSTONE | PIECES, [LARGE.replace(b"stale", b"SECRET")], [LARGE]),
    (TOMBSTONE | ENCRYPTED, framed(b"ciphertext before"), framed(b"ciphertext after")),
    (TOMBSTONE | PIECES | ENCRYPTED, framed(b"\x03" * 600), framed(b"\x01" * 600, b"\x02" * 600)),
    (None, [b'\n{"text": "Gr\xc3\xbc\xc3\x9fe", "n": [1, 2.50, null]}\r\n'], None),
    (None, [b"null"], None),
]
HEADERS: list[dict[str, Any]] = [
    {"type": "user_message"},
    {"type": "model_request", "call_ids": ("c2",), "harness_version": "1.4.2"},
    {"type": "tool_call", "call_ids": ("c3", "toolu_" + "0" * 30), "schema": 3},
    {"type": "tool_result", "call_ids": ("c3",)},
    {"type": "note", "key": "once"},
    {"type": "note", "ts": -1},
    {"type": "note", "ts": -(1 << 63)},
    {"type": "Größe", "ts": (1 << 63) - 1, "schema": (1 << 31) - 1},
    {"type": "x" * 200, "key": "k" * 300, "harness_version": "h" * 32},
    {"type": "tool_call", "call_ids": tuple(f"call-{number}" for number in range(20))},
    {"type": "checkpoint"},
]


def chain(secret: bytes, salt: bytes, parent: bytes, first: int) -> tuple[list[Made], dict[bytes, bytes]]:
    """Return an event of each form, chained from `parent`, and the pieces they use; keys only if it is the first."""
    made, held = [], dict[bytes, bytes]()
    for seq, ((form, before, after), header) in enumerate(zip(FORMS, HEADERS, strict=True), first):
        now = before if after is None else after
        stored_bytes, original = b"".join(now), identity.commitment(salt, b"".join(before))
        stored, inline, table = None, stored_bytes, tuple[bytes, ...]()
        if form is not None:
            if form & PIECES:
                cut = (
                    now
                    if form & ENCRYPTED
                    else [stored_bytes[at : at + 350] for at in range(0, len(stored_bytes), 350)]
                )
                digests = [objects.digest(secret, objects.PIECE, data) for data in cut]
                held.update(zip(digests, cut, strict=True))
                table = tuple(dict.fromkeys(digests))
                recipe = tuple(table.index(digest) for digest in digests)
            remains = b"" if not after else identity.commitment(salt, stored_bytes)
            data = stored_bytes if form & ENCRYPTED and not form & PIECES else b""
            stored = Stored(form, original, recipe if form & PIECES else (), remains, data)
            if form & (PIECES | ENCRYPTED):
                inline = b""
        item = Record(
            header.get("ts", START + seq),
            header["type"],
            header.get("schema", 1),
            header.get("harness_version"),
            header.get("call_ids", ()),
            header.get("key") if first == 1 else None,
            len(stored_bytes),
            stored,
        )
        event_id = identity.event_id(parent, record.header(seq, item), original)
        made.append(Made(seq, parent, event_id, item, original, inline, stored_bytes, table))
        parent = event_id
    return made, held


def tail_record(item: Made) -> TailRecord:
    """Return an event as it lies in an open chunk."""
    return TailRecord(item.parent, item.id, item.record, item.inline, item.pieces)


def chunk_of(session: bytes, made: list[Made], open_calls: tuple[chunk.OpenCall, ...]) -> bytes:
    """Return the bytes of a chunk that holds these events."""
    table: dict[bytes, int] = {}
    records, slots = [], []
    for item in made:
        kept, stored = item.record, item.record.stored
        if stored is not None and stored.recipe:
            recipe = tuple(table.setdefault(item.pieces[index], len(table)) for index in stored.recipe)
            kept = msgspec.structs.replace(kept, stored=msgspec.structs.replace(stored, recipe=recipe))
        records.append(kept)
        slots.append(item.inline if chunk.lies_inline(kept) else chunk.EMPTY_SLOT)
    head = chunk.ChunkHeader(
        session, made[0].seq, made[-1].seq, made[0].parent, made[-1].id, open_calls, tuple(table), tuple(records)
    )
    return chunk.encode(head, slots)


# --- vectors --------------------------------------------------------------------------------


def vectors() -> dict[str, Any]:
    """Return every small vector: identities, rows, records, chunk, objects, lines."""
    parent_id = bytes(range(64, 96))
    sessions = []
    for created, parent in ((START, None), (-1, None), (START, parent_id)):
        genesis = identity.Genesis(1, SESSION, created, parent, identity.salt_digest(SALT))
        digest = identity.genesis_digest(genesis)
        sessions.append([SESSION, created, parent, SALT, genesis.salt_digest, digest])
    made, held = chain(SECRET, SALT, sessions[0][5], 1)
    open_calls = (chunk.OpenCall("c2", 2), chunk.OpenCall("call-0", 10))
    sealed = chunk_of(SESSION, made, open_calls)
    packed = b"".join(held.values())
    incompressible = random.Random(7).randbytes(100)
    return {
        "headers": [[header, msgspec.msgpack.encode(header)] for header in boundary_headers()],
        "sessions": sessions,
        "short_names": [[text, identity.short_digest(text)] for text in ("once", "größe", "k" * 1000)],
        "events": [
            {
                "header": record.header(item.seq, item.record),
                "parent": item.parent,
                "stored": item.stored_bytes,
                "commitment": item.commitment,
                "id": item.id,
                "row": row_of(rows.record_key(3, item.seq), tail_record(item)),
                "line": line_of(item),
            }
            for item in made
        ],
        "rows": [
            [table_name(table), fields, *row_of(table.key(*fields), row)] for table, fields, row in sample_rows(held)
        ]
        + [["NAMES", [SESSION, name], *row_of(rows.NAMES.of(SESSION, name), row)] for name, row in sample_names()],
        "cut": [[size, [len(data) for _, data in pieces.cut(SECRET, cut_input(size))]] for size in (8192, 300_000)],
        "chunk": sealed,
        "objects": [
            [kind, data, objects.encode(SECRET, kind, data)]
            for kind, data in (
                (objects.CHUNK, sealed),
                (objects.PACK, packed),
                (objects.CHUNK, incompressible),
                (objects.SNAPSHOT, b""),
            )
        ],
        "parts": [
            [size, [len(part) for part in objects.split(bytes(size))]]
            for size in (0, 1, 44, 4079, 4080, 4081, 8175, 8176, 57_327, 57_328, 57_329, 61_408, 200_000)
        ],
    }


def boundary_headers() -> list[identity.Header]:
    """Return headers at the edges of MessagePack's forms."""
    edges = [1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]
    times = [0, -1, -32, -33, -128, -129, -32_768, -32_769, -(1 << 31), -(1 << 31) - 1, -(1 << 63), (1 << 63) - 1, 128]
    lengths = [1, 31, 32, 255, 256, 1000]
    return [
        *(identity.Header(seq, 0, "t", 1, None, (), None) for seq in edges),
        *(identity.Header(1, ts, "t", 1, None, (), None) for ts in times),
        *(identity.Header(1, 0, "t", schema, None, (), None) for schema in (128, 65_536, (1 << 31) - 1)),
        *(identity.Header(1, 0, "t", 1, "h" * n, ("é" * (n // 2),), "k" * n) for n in lengths),
        *(identity.Header(1, 0, "t", 1, None, ("c",) * n, None) for n in (15, 16, 1000)),
    ]


def row_of(key: bytes, row: msgspec.Struct) -> list[Any]:
    """Return a row as key, fields and value."""
    return [key, row, rows.guard(key, msgspec.msgpack.encode(row))]


def line_of(item: Made) -> str:
    """Return an event's line."""
    stored = item.record.stored
    return line.encode(
        session_id=ids.show_session(SESSION),
        branch="main",
        seq=item.seq,
        ts=item.record.ts,
        type=item.record.type,
        raw=item.stored_bytes,
        harness_version=item.record.harness_version,
        schema=item.record.schema,
        call_ids=item.record.call_ids,
        key=item.record.key,
        id=ids.show_digest(item.id),
        commitment=item.commitment if stored is not None and stored.form & TOMBSTONE else None,
        encrypted=stored is not None and bool(stored.form & ENCRYPTED),
    )


def table_name(table: rows.Table[Any]) -> str:
    """Return the name a table has in the code."""
    return next(name for name, value in vars(rows).items() if value is table)


def sample_names() -> list[tuple[str, rows.Name]]:
    """Return a branch's name and a tag's."""
    return [("größe", rows.Name(2)), ("v1", rows.Name(0, 3, 5, b"t" * 32, START))]


def sample_rows(held: dict[bytes, bytes]) -> list[tuple[rows.Table[Any], tuple[int | bytes, ...], msgspec.Struct]]:
    """Return a row of each table with all it can hold, and one with as little as it can."""
    digest, large = next(iter(held)), (1 << 64) - 1
    a, b = b"a" * 32, b"b" * 32
    call = rows.ParentCall(b"P" * 16, 70_000, "c1", a)
    return [
        (rows.META, (), rows.Meta(1, SECRET, START)),
        (rows.COUNTERS, (), rows.Counters(2, 3, 1 << 40, 1)),
        (rows.HEAD, (), rows.Head(SESSION, 2)),
        (rows.SESSIONS, (SESSION,), rows.Session(START, SALT, a, "fix the login bug", {})),
        (
            rows.SESSIONS,
            (b"\xff" * 16,),
            rows.Session(-5, b"", a, "größe", {"a": "", "team": "web"}, "claude:1", call, START, b),
        ),
        (rows.ORIGINS, (identity.short_digest("claude:1"),), rows.Origin("claude:1", SESSION)),
        (rows.CHILDREN, (b"P" * 16, SESSION), rows.Child("c1")),
        (rows.CHILDREN, (b"P" * 16, b"Q" * 16), rows.Child(None)),
        (rows.REFS, (2,), rows.Ref(SESSION, "main", 0, 0, a, START, "create", 0, "")),
        (
            rows.REFS,
            (large,),
            rows.Ref(SESSION, "größe", 3, 300, b"", START, "fork", 7, "from main@7", START, 293, 1 << 33, -1, START),
        ),
        (rows.REFLOG, (2, 0), rows.Move(START, "reset", 1, 9, a, 1, 5, b"")),
        (rows.REFLOG, (2, 256), rows.Move(START, "rename", 1, 9, a, 1, 9, a, "main -> trunk")),
        (rows.TIMELINES, (1,), rows.Timeline(SESSION, 0, 0, a, 1, 0)),
        (rows.TIMELINES, (large,), rows.Timeline(SESSION, 70_000, 1 << 33, a, 10_000, 65_536)),
        (rows.CHUNKS, (1, 256), rows.Chunk(1, 7, 0, 65_700, a, b)),
        (rows.CHUNKS, (1, large), rows.Chunk(257, 1 << 40, 1 << 33, 99, b, a)),
        (rows.TAILS, (1,), rows.Tail(300, b, 256, 40_000)),
        (rows.IN_FLIGHT, (1, identity.short_digest("c1")), chunk.OpenCall("c1", 2)),
        (rows.IN_FLIGHT, (large, identity.short_digest("größe")), chunk.OpenCall("größe", large)),
        (rows.OPEN_AT_FORK, (1, identity.short_digest("größe")), chunk.OpenCall("größe", 300)),
        (rows.PIECES, (digest,), rows.Piece(9, 0, len(held[digest]))),
        (rows.KEYS, (SESSION, identity.short_digest("once"), 1), rows.Seq(5)),
        (rows.TRASH, (1,), rows.Trash(START, SESSION, 0)),
        (rows.TRASH, (2,), rows.Trash(START, SESSION, 2)),
        (rows.DICTIONARIES, (1,), rows.Dictionary(12)),
        (rows.SNAPSHOTS, (7, b"f" * 16, 42), rows.SnapshotRow(13, 1_700_000_000_000_000_000)),
    ]


# --- a store --------------------------------------------------------------------------------


class Clock:
    """A clock that goes on by a millisecond and a bit at each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """Return nanoseconds UTC."""
        self.now += 1_000_001
        return self.now


def fill(store: castlog.Store) -> castlog.Session:
    """Write a bit of everything into a store; return the session to export."""
    session = store.create_session("fix the login bug", labels={"team": "web", "größe": "ja"}, origin="claude:7f3a")
    main = session.branch("main")
    main.append("user_message", {"text": "the login page throws a 500"}, key="first")
    main.append(
        "model_request", {"model": "m", "messages": [{"role": "user", "content": text_of(2, 1900)}]}, call_id="r1"
    )
    main.append("model_response", {"content": "Grüße", "tool_calls": [{"id": "c1", "name": "Read"}]}, call_id="r1")
    main.append("tool_call", {"name": "Read", "args": {"path": "login.py"}})
    main.append("note", castlog.Raw(b'\n{ "kept":  1.50 }\n'), ts=-1)
    main.seal()
    main.append("tool_result", {"ok": True, "output": text_of(2, 1850)}, call_id="c4")
    session.tag("v1", 5)
    main.extend([castlog.Draft("tool_call", None, call_ids=("c7", "c8"), schema=2), ("damaged", "x")])
    idea = main.fork("idea-b", at=3)
    idea.extend([("note", {"n": number}) for number in range(4)])
    nested = idea.fork("nested", at=6)
    nested.append("hook_call", [True, False, None], call_id="h1")
    nested.seal()
    nested.append("hook_decision", {"decision": "allow"}, call_id="h1", key="decided")
    main.fork("idle", at=2)
    main.fork("lost", at=8).append("note", "in the trash")
    session.branch("lost").delete()
    moved = main.fork("moved")
    moved.append("note", "left behind")
    moved.reset(4)
    moved.rename("moved-again")
    moved.append("note", "a timeline of its own")
    call = main.read(7)
    child = store.create_session("look into it", parent=call)
    child.branch("main").append("user_message", {"text": "from the agent"})
    store.create_session("nothing yet")
    gone = store.create_session("thrown away")
    gone.branch("main").append("note", {})
    gone.delete()
    forms(store)
    store.checkout(idea.rev)
    return session


def forms(store: castlog.Store) -> None:
    """Write a session that holds every form of record, sealed and open, as a later version may write them."""
    session = store.create_session("every form")
    core = store._core
    main = session.branch("main")
    number, key = main._number, ids.parse_session(session.id)
    secret = core.objects.secret

    def change(txn: Any) -> None:
        row = rows.SESSIONS.decode(rows.SESSIONS.key(key), txn.get(rows.SESSIONS.key(key)))
        ref = rows.REFS.decode(rows.REFS.key(number), txn.get(rows.REFS.key(number)))
        first, held = chain(secret, row.salt, row.genesis, 1)
        second, more = chain(secret, row.salt, first[-1].id, first[-1].seq + 1)
        timeline = take(txn, "timeline")
        put(txn, rows.TIMELINES, rows.Timeline(key, 0, 0, row.genesis, 1, 0), timeline)
        pieces.write(txn, core.objects, pieces.pack(secret, {**held, **more}, {**held, **more}))
        closed = {"c3", "toolu_" + "0" * 30}
        at_end = [("c2", 2), *((f"call-{n}", 10) for n in range(20))]
        sealed = chunk_of(
            key, first, tuple(chunk.OpenCall(*call) for call in [*at_end[:1], (max(closed), 3), *at_end[1:]])
        )
        place = core.objects.write(txn, objects.encode(secret, objects.CHUNK, sealed))
        last = first[-1]
        put(txn, rows.CHUNKS, rows.Chunk(1, place, 0, len(sealed), first[0].parent, last.id), timeline, last.seq)
        for item in second:
            at = rows.record_key(timeline, item.seq)
            txn.put(at, rows.guard(at, record.encode_tail(tail_record(item))))
        end = second[-1]
        open_size = sum(len(item.inline) + 32 * len(item.pieces) + 100 for item in second)
        put(txn, rows.TAILS, rows.Tail(end.seq, end.id, last.seq, open_size), timeline)
        in_flight = {13: ("c2",), 14: (max(closed),), 21: tuple(f"call-{n}" for n in range(20))}
        for seq, call_ids in in_flight.items():
            for call_id in call_ids:
                put(txn, rows.IN_FLIGHT, chunk.OpenCall(call_id, seq), timeline, identity.short_digest(call_id))
        whole = [*first, *second]
        put(
            txn,
            rows.REFS,
            msgspec.structs.replace(
                ref,
                timeline=timeline,
                seq=end.seq,
                id=end.id,
                events=len(whole),
                size=sum(item.record.size for item in whole),
                active=max(item.record.ts for item in whole),
                appended=START,
            ),
            number,
        )
        for item in (item for item in whole if item.record.key):
            digest = identity.short_digest(str(item.record.key))
            put(txn, rows.KEYS, rows.Seq(item.seq), key, digest, timeline)

    core.update(change)


def take(txn: Any, kind: str) -> int:
    """Take the next number of a kind."""
    from castlog.history import tables

    return tables.take_number(txn, kind)


def put(txn: Any, table: rows.Table[Any], row: msgspec.Struct, *fields: int | bytes) -> None:
    """Write a row."""
    key = table.key(*fields)
    txn.put(key, table.encode(key, row))


def described(store: castlog.Store) -> dict[str, Any]:
    """Return what a store holds, as a person could list it."""
    sessions = []
    for session in sorted(store.sessions(), key=lambda item: item.created):
        branches = {
            branch.name: {
                "head": branch.head.seq,
                "in_flight": [event.seq for event in branch.in_flight()],
                "reflog": [[move.op, move.old_seq, move.new_seq, move.note] for move in branch.reflog()],
                "events": [shown(event) for event in branch.events()],
            }
            for branch in session.branches()
        }
        parent = session.parent
        sessions.append(
            {
                "id": session.id,
                "title": session.title,
                "labels": session.labels,
                "created": session.created,
                "origin": session.origin,
                "parent": parent and [parent.session_id, parent.seq, parent.call_id, parent.id],
                "tags": {name: [point.seq, point.id] for name, point in session.tags().items()},
                "branches": branches,
            }
        )
    current = store.current
    return {
        "sessions": sessions,
        "trash": [[item.session_id, item.branch, item.title, item.deleted] for item in store.trash()],
        "current": current and current.rev,
    }


def shown(event: castlog.Event) -> list[Any]:
    """Return an event as a list; of its payload the digest of its stored bytes."""
    kept = "" if event.redacted and not event.size else identity.commitment(bytes(32), event.raw).hex()
    return [
        event.seq,
        event.ts,
        event.type,
        event.schema,
        event.harness_version,
        list(event.call_ids),
        event.key,
        event.size,
        event.redacted,
        kept,
        event.id,
    ]


def main() -> None:
    """Make the folder of the version castlog now writes."""
    folder = Path(__file__).parent / f"v{rows.WRITTEN}"
    if folder.exists():
        raise SystemExit(f"{folder} exists: golden files are never made again")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "store"
        fixed = random.Random(0).randbytes
        with patch("os.urandom", fixed), castlog.open(path, clock=Clock(), harness_version="1.4.2") as store:
            session = fill(store)
            contents = described(store)
            with (Path(scratch) / "main.jsonl").open("wb") as file:
                store.export(session.branch("main").rev, file, "jsonl")
            with (Path(scratch) / "session.bundle").open("wb") as file:
                store.export(session.branch("main").rev, file, "bundle")
        with lmdb.open(str(path), readonly=True, lock=False) as environment:
            (Path(scratch) / "copy").mkdir()
            environment.copy(str(Path(scratch) / "copy"), compact=True)
        data = (Path(scratch) / "copy" / "data.mdb").read_bytes()
        folder.mkdir()
        (folder / "data.mdb.zst").write_bytes(zstandard.ZstdCompressor(level=19).compress(data))
        for name in ("main.jsonl", "session.bundle"):
            (folder / name).write_bytes((Path(scratch) / name).read_bytes())
    write_json(folder / "store.json", contents)
    write_json(folder / "vectors.json", plain(vectors()))


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write JSON that a person can look through and compare: a line for each item of each member."""
    members = []
    for name, items in value.items():
        if isinstance(items, list):
            text = ",\n".join(json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in items)
            members.append(f"{json.dumps(name)}: [\n{text}\n]")
        else:
            members.append(f"{json.dumps(name)}: {json.dumps(items, ensure_ascii=False)}")
    path.write_text("{\n" + ",\n".join(members) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
