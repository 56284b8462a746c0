"""Importing bundles: large ones in one pass, changing ones not at all, and everything a session can hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import castlog
from castlog.ops import parcel


def _send(source: castlog.Store, target: castlog.Store, session: str, path: Path) -> castlog.FileReport:
    with path.open("wb") as file:
        source.export(f"{session}/", file, "bundle")
    return target.import_castlog(path)


def _heads(store: castlog.Store, session: str) -> dict[str, str]:
    return {branch.name: branch.head.id for branch in store.session(session).branches()}


@pytest.fixture
def stores() -> Iterator[tuple[castlog.Store, castlog.Store]]:
    """Two empty stores."""
    with castlog.open("memory:") as here, castlog.open("memory:") as there:
        yield here, there


def test_a_thousand_branches_take_moments(tmp_path: Path, stores: tuple[castlog.Store, castlog.Store]) -> None:
    """The time grows with the bundle, not with its square, the first time and the second."""
    here, there = stores
    session = here.create_session("wide and deep")
    branch = session.branch("main")
    branch.append("note", 0)
    branch.fork_many(1500, prefix="try-")
    for number in range(700):
        branch = branch.fork(f"deep-{number}")
        branch.append("note", number)
    before = time.monotonic()
    assert _send(here, there, session.id, tmp_path / "first").added == 701
    assert _send(here, there, session.id, tmp_path / "again").status == "unchanged"
    assert time.monotonic() - before < 5
    assert _heads(there, session.id) == _heads(here, session.id)


@pytest.mark.parametrize("events", [3, 2500])
def test_an_export_that_changes_after_the_check_leaves_nothing_wrong(
    tmp_path: Path, stores: tuple[castlog.Store, castlog.Store], monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """What is written is what was checked; when the first batch is not, the session is not made either."""
    here, there = stores
    session = here.create_session("changing")
    session.branch("main").extend([("note", number) for number in range(events)])
    path = tmp_path / "export"
    with path.open("wb") as file:
        here.export(session.branch("main"), file, "jsonl")
    check = parcel.check

    def check_then_change(*args: object) -> parcel.Parcel:
        item = check(*args)  # type: ignore[arg-type]
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"payload":%d,' % (events - 2), b'"payload":%d,' % (events - 1)))
        return item

    monkeypatch.setattr(parcel, "check", check_then_change)
    with pytest.raises(castlog.Corrupt, match=f"line {events}: seq {events - 1} "):
        there.import_castlog(path)
    if events == 3:
        assert list(there.sessions()) == []
    else:
        held = [event.id for event in there.branch(f"{session.id}/main").events()]
        assert held == [event.id for event in session.branch("main").events()][: len(held)]


def test_an_export_that_is_replaced_meanwhile_arrives_as_it_was(
    tmp_path: Path, stores: tuple[castlog.Store, castlog.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is opened once."""
    here, there = stores
    session = here.create_session("replaced")
    session.branch("main").append("note", 0)
    check = parcel.check

    def check_then_replace(*args: object) -> parcel.Parcel:
        item = check(*args)  # type: ignore[arg-type]
        (tmp_path / "bundle").unlink()
        return item

    monkeypatch.setattr(parcel, "check", check_then_replace)
    assert _send(here, there, session.id, tmp_path / "bundle").added == 1


def test_a_session_of_every_kind_goes_both_ways(tmp_path: Path, stores: tuple[castlog.Store, castlog.Store]) -> None:
    """Tags on deleted branches, forks at 0, nested forks, a branch that was reset; grown on both sides and sent on."""
    here, there = stores
    session = here.create_session("all")
    main = session.branch("main")
    main.extend([("note", number) for number in range(600)])
    gone = main.fork("gone", at=300)
    gone.extend([("gone", number) for number in range(5)])
    session.tag("kept", 303, branch="gone")
    session.tag("start", 0)
    gone.delete()
    main.fork("zero", at=0).append("zero", 0)
    main.fork("empty", at=0)
    inner = main.fork("outer", at=590)
    for number in range(4):
        inner.append("inner", number)
        inner = inner.fork(f"inner-{number}")
    _send(here, there, session.id, tmp_path / "first")
    expected = _heads(here, session.id)
    assert {name: head for name, head in _heads(there, session.id).items() if name != "kept-history"} == expected
    assert {n: p.id for n, p in there.session(session.id).tags().items()} == {
        name: point.id for name, point in session.tags().items()
    }
    assert _send(here, there, session.id, tmp_path / "again").status == "unchanged"
    there.branch(f"{session.id}/outer").append("note", "there")
    there.branch(f"{session.id}/empty").append("note", "there")
    main.extend([("note", number) for number in range(1500)])
    _send(there, here, session.id, tmp_path / "back")
    _send(here, there, session.id, tmp_path / "forth")
    assert _heads(here, session.id) == _heads(there, session.id)
    assert main.head.seq == 2100
    for store in stores:
        assert not store.verify().findings
    assert _send(there, here, session.id, tmp_path / "last").status == "unchanged"


def test_branches_that_hold_the_same_ids_are_found_again(
    tmp_path: Path, stores: tuple[castlog.Store, castlog.Store]
) -> None:
    """Equal events at equal times have equal ids on whatever timeline; no import makes a branch for them again."""
    here, there = stores
    session = here.create_session("twins")
    main = session.branch("main")
    main.append("note", 0)
    _send(here, there, session.id, tmp_path / "first")
    for name, last in (("a", 1), ("b", 2)):
        main.fork(name).extend([castlog.Draft("note", number, ts=5) for number in (0, 0, last)])
        there.branch(f"{session.id}/main").fork(name).append("note", "there")
    assert _send(here, there, session.id, tmp_path / "second").added == 6
    assert _send(here, there, session.id, tmp_path / "third").status == "unchanged"
    assert sorted(_heads(there, session.id)) == ["a", "a-2", "b", "b-2", "main"]
