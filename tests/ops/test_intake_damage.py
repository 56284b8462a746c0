"""A damaged export is refused whole, with the line and with what to do."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import castlog


def _export(kind: str) -> bytes:
    with castlog.open("memory:") as store:
        session = store.create_session("damaged")
        session.branch("main").extend([("note", number) for number in range(5)])
        file = io.BytesIO()
        store.export(f"{session.id}/" if kind == "bundle" else session.branch("main"), file, kind)
        return file.getvalue()


def _lines(data: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)) as stream:
        return stream.read()


DAMAGE: dict[str, Callable[[], bytes]] = {
    "an event": lambda: _export("jsonl").replace(b'"payload":3', b'"payload":4'),
    "a gap": lambda: _export("jsonl").replace(b'"seq":3', b'"seq":4'),
    "no end": lambda: _lines(_export("bundle")).rpartition(b'{"castlog":"end"')[0],
    "a digest": lambda: _lines(_export("bundle")).replace(b'"fork_seq":0', b'"fork_seq": 0'),
    "the compression": lambda: _export("bundle")[:-20],
    "a bit": lambda: _export("bundle")[:40] + b"\xff" + _export("bundle")[41:],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_export_says_what_to_do(tmp_path: Path, kind: str) -> None:
    """Corrupt names the file and ends with what to do; the store stays as it was."""
    path = tmp_path / "export"
    path.write_bytes(DAMAGE[kind]())
    with castlog.open("memory:") as store:
        with pytest.raises(castlog.Corrupt) as caught:
            store.import_castlog(path)
        assert str(caught.value).startswith(str(path))
        assert str(caught.value).endswith("; fetch it again")
        assert caught.value.hint == "Fetch or make the file again; nothing was written."
        assert list(store.sessions()) == []
