"""Two stores that work on one session and exchange it both ways."""

from __future__ import annotations

from pathlib import Path

import castlog


def _send(source: castlog.Store, target: castlog.Store, session: str, path: Path) -> castlog.FileReport:
    with path.open("wb") as file:
        source.export(f"{session}/", file, "bundle")
    return target.import_castlog(path)


def test_exchanging_bundles_again_and_again_makes_no_new_branches(tmp_path: Path) -> None:
    """After both sides diverged each has both heads; sending them to and fro changes nothing more."""
    with castlog.open("memory:") as here, castlog.open("memory:") as there:
        session = here.create_session("shared")
        session.branch("main").append("note", 0)
        _send(here, there, session.id, tmp_path / "first")
        here.branch(f"{session.id}/main").append("note", "here")
        there.branch(f"{session.id}/main").append("note", "there")
        for number in range(4):
            _send(here, there, session.id, tmp_path / f"out-{number}")
            _send(there, here, session.id, tmp_path / f"back-{number}")
        heads = [{(b.name, b.head.id) for b in store.session(session.id).branches()} for store in (here, there)]
        assert [sorted(name for name, _ in found) for found in heads] == [["main", "main-2"], ["main", "main-2"]]
        assert {head for _, head in heads[0]} == {head for _, head in heads[1]}


def test_a_fork_without_events_of_its_own_arrives(tmp_path: Path) -> None:
    """Forks at one event are branches of their own in the other store too, whatever their names have in common."""
    with castlog.open("memory:") as here, castlog.open("memory:") as there:
        session = here.create_session("forked")
        main = session.branch("main")
        main.extend([("note", number) for number in range(5)])
        main.fork_many(10, at=3, prefix="try-")
        _send(here, there, session.id, tmp_path / "bundle")
        assert len(there.session(session.id).branches()) == 11
        assert _send(here, there, session.id, tmp_path / "again").status == "unchanged"


def test_a_third_line_gets_the_next_free_number(tmp_path: Path) -> None:
    """What diverges from NAME and from NAME-2 arrives as NAME-3, and is found there the next time."""
    stores = [castlog.open("memory:") for _ in range(3)]
    session = stores[0].create_session("three")
    session.branch("main").append("note", 0)
    for other in stores[1:]:
        _send(stores[0], other, session.id, tmp_path / "first")
    for number, store in enumerate(stores):
        store.branch(f"{session.id}/main").append("note", f"from {number}")
    for _ in range(2):
        for number, other in enumerate(stores[1:]):
            _send(other, stores[0], session.id, tmp_path / f"from-{number}")
    assert [branch.name for branch in stores[0].session(session.id).branches()] == ["main", "main-2", "main-3"]
    for store in stores:
        store.close()
