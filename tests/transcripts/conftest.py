"""Small transcripts made by hand, and a store to take them in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import castlog
from castlog import FileReport, ImportReport, Store
from castlog.transcripts.driver import import_path

SESSION = "11111111-2222-3333-4444-555555555555"


class Chat:
    """Writes rows as Claude Code does, each the child of the one before unless told otherwise."""

    def __init__(self, session: str = SESSION, **common: Any) -> None:
        self.common = {"sessionId": session, "isSidechain": False, "version": "2.0.1", "cwd": "/p"} | common
        self.rows: list[dict[str, Any]] = []
        self.last: str | None = None

    def row(self, **fields: Any) -> dict[str, Any]:
        """Add a row of the tree."""
        number = len(self.rows)
        row = {
            "parentUuid": self.last,
            "uuid": f"{number:08x}-0000-4000-8000-{abs(hash(self.common['sessionId'])) % 16**12:012x}",
            "timestamp": f"2025-01-01T00:00:{number % 60:02d}.000Z",
        }
        return self.plain(**(self.common | row | fields))

    def plain(self, **fields: Any) -> dict[str, Any]:
        """Add a row as it is given."""
        self.rows.append(fields)
        self.last = fields.get("uuid", self.last)
        return fields

    def user(self, content: Any, **fields: Any) -> dict[str, Any]:
        """Add what a person, or a tool, said."""
        return self.row(type="user", message={"role": "user", "content": content}, **fields)

    def assistant(self, *blocks: Any, **fields: Any) -> dict[str, Any]:
        """Add what the model said."""
        return self.row(type="assistant", message={"role": "assistant", "content": list(blocks)}, **fields)

    def call(self, call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
        """Add a tool call."""
        return self.assistant({"type": "tool_use", "id": call_id, "name": name, "input": arguments})

    def result(self, call_id: str, text: str = "done", **fields: Any) -> dict[str, Any]:
        """Add a tool's result."""
        return self.user([{"type": "tool_result", "tool_use_id": call_id, "content": text}], **fields)

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in self.rows)


@pytest.fixture
def chat() -> Callable[..., Chat]:
    """Begin a conversation."""
    return Chat


@pytest.fixture
def store() -> Iterator[Store]:
    """Give an empty store in memory."""
    with castlog.open("memory:") as made:
        yield made


Take = Callable[..., ImportReport]


@pytest.fixture
def take(store: Store) -> Take:
    """Import a path; every file taken in must come out byte for byte."""

    def call(path: Path, **options: Any) -> ImportReport:
        report = import_path(store, path, **options)
        for file in report.files:
            if file.rev is not None and file.format not in (None, "castlog") and not file.path.endswith(".zst"):
                assert source_of(store, file) == Path(file.path).read_bytes(), file
        return report

    return call


@pytest.fixture
def one(tmp_path: Path, take: Take) -> Callable[..., FileReport]:
    """Write bytes to a file, import it alone, and give its report."""

    def call(data: bytes, name: str = f"{SESSION}.jsonl", **options: Any) -> FileReport:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        (file,) = take(path, **options).files
        return file

    return call


def source_of(store: Store, file: FileReport) -> bytes:
    """Export what a report names back to its source format."""
    out = io.BytesIO()
    assert file.rev is not None
    store.export(file.rev, out, format="source", start=file.start)
    return out.getvalue()


@pytest.fixture
def export(store: Store) -> Callable[[FileReport], bytes]:
    """Give the bytes a report's revision exports to."""
    return lambda file: source_of(store, file)
