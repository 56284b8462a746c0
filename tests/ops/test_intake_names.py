"""The names an import makes up keep the rules for names, and are found again the next time."""

from __future__ import annotations

from pathlib import Path

import pytest

import castlog
from castlog.format.names import check_name

LONG = ["n" * 200, "é" * 100, "n" * 198 + "-2"]


def _send(source: castlog.Store, target: castlog.Store, session: str, path: Path) -> castlog.FileReport:
    with path.open("wb") as file:
        source.export(f"{session}/", file, "bundle")
    return target.import_castlog(path)


@pytest.mark.parametrize("name", LONG, ids=["ascii", "accents", "numbered"])
def test_a_long_name_that_diverged_is_shortened(tmp_path: Path, name: str) -> None:
    """The newcomer's name is no longer than a name may be, and the second import finds it."""
    with castlog.open("memory:") as here, castlog.open("memory:") as there:
        session = here.create_session("long")
        session.branch("main").fork(name)
        _send(here, there, session.id, tmp_path / "first")
        here.branch(f"{session.id}/{name}").append("note", "here")
        there.branch(f"{session.id}/{name}").append("note", "there")
        assert _send(here, there, session.id, tmp_path / "second").note
        found = [branch.name for branch in there.session(session.id).branches()]
        assert len(found) == 3
        assert [check_name(item) for item in found] == found
        assert _send(here, there, session.id, tmp_path / "third").status == "unchanged"


@pytest.mark.parametrize("name", LONG, ids=["ascii", "accents", "numbered"])
def test_a_long_tag_of_a_deleted_branch_is_shortened(tmp_path: Path, name: str) -> None:
    """Neither the branch that holds a tag's history nor a tag that stands elsewhere gets too long a name."""
    with castlog.open("memory:") as here, castlog.open("memory:") as there:
        session = here.create_session("long")
        session.branch("main").append("note", 0)
        _send(here, there, session.id, tmp_path / "first")
        gone = session.branch("main").fork("gone")
        session.tag(name, gone.append("note", 1).seq, branch="gone")
        gone.delete()
        there.session(session.id).tag(name, 1)
        _send(here, there, session.id, tmp_path / "second")
        handle = there.session(session.id)
        found = [*handle.tags(), *(branch.name for branch in handle.branches())]
        assert len(found) == 4
        assert [check_name(item) for item in found] == found
        assert _send(here, there, session.id, tmp_path / "third").status == "unchanged"
