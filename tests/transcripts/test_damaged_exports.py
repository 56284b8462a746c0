"""A damaged export among good files does not end the import of their folder."""

from __future__ import annotations

from pathlib import Path

import castlog


def test_one_damaged_bundle_does_not_stop_a_folder(tmp_path: Path) -> None:
    """The damaged file is reported as lost, the files after it come in."""
    folder = tmp_path / "exports"
    folder.mkdir()
    with castlog.open("memory:") as source:
        for name in ("a-damaged.jsonl", "b-good.jsonl"):
            session = source.create_session(name)
            session.branch("main").extend([("note", {"n": number}) for number in range(5)])
            with (folder / name).open("wb") as file:
                source.export(f"{session.id}/", file)
    damaged = folder / "a-damaged.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'{"n":3}', b'{"n":4}'))
    with castlog.open("memory:") as target:
        report = target.import_from(folder)
        assert [file.status for file in report.files] == ["skipped", "new"]
        assert report.files[0].damaged
        assert report.added == 5
        assert [session.title for session in target.sessions()] == ["b-good.jsonl"]
