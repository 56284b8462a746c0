"""Snapshots against what their events fold to: each event folded once, the wrong ones found and never used again."""

from __future__ import annotations

from typing import Any

import pytest

import castlog
from castlog.errors import Unavailable


class Folds:
    """A reducer that keeps the ids of the events it folded."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.reducer = castlog.reducer("ids", 1, initial={"ids": []})(self._fold)

    def _fold(self, state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
        self.ids.append(event.id)
        state["ids"].append(event.id[:9])
        return state


@castlog.reducer("ids", 1, initial={"ids": []})
def forgetful(state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
    """Fold as `Folds` does, but for every fourth event: what a mistake in a reducer leaves behind."""
    if event.seq % 4:
        state["ids"].append(event.id[:9])
    return state


def names(report: castlog.VerifyReport) -> list[tuple[str, str | None]]:
    """Return what was found, and where."""
    return [(finding.name, finding.rev) for finding in report.findings]


def test_sound_snapshots_are_counted_and_each_event_is_folded_once(kept: Any) -> None:
    """Snapshots of a branch, its forks and their forks, of deleted branches too; nothing is read twice for them."""
    folds = Folds()
    for name in ("main", "inner", "moved"):
        branch = kept.session.branch(name)
        branch.snapshot(folds.reducer)
        branch.snapshot(folds.reducer, at=3)  # the same one for all of them
        branch.snapshot(folds.reducer, at=branch.head.seq - 1)
    gone = kept.session.branch("inner").fork("gone-too")
    gone.append("note", 1)
    gone.snapshot(folds.reducer)
    gone.delete()
    folds.ids.clear()
    report = kept.store.verify(snapshots=[folds.reducer])
    assert report.findings == []
    assert report.checked["snapshots"] == 8
    assert len(folds.ids) == len(set(folds.ids)) > kept.session.branch("main").head.seq


def test_a_wrong_snapshot_is_named_and_dropped_on_demand(kept: Any) -> None:
    """Until then it would be restored from, which the finding says; afterwards the state is folded from the events."""
    right = Folds().reducer
    main, inner = kept.session.branch("main"), kept.session.branch("inner")
    main.snapshot(right, at=3)
    main.snapshot(forgetful, at=6)
    inner.snapshot(forgetful)
    main.snapshot(forgetful, at=2)  # no event it forgets comes before this
    report = kept.store.verify(snapshots=[right])
    assert names(report) == [
        ("wrong_snapshot", f"{kept.session.id}/main@6"),
        ("wrong_snapshot", f"{kept.session.id}/inner@{inner.head.seq}"),
    ]
    assert "- ids[3]" in report.findings[0].message
    assert not report.ok
    assert main.restore(right, at=6).snapshot_seq == 6
    assert names(kept.store.verify(snapshots=[right], drop=True)) == names(report)
    assert kept.store.verify(deep=True, snapshots=[right]).findings == []
    restored = main.restore(right, at=6)
    assert restored.snapshot_seq == 3
    assert len(restored.state["ids"]) == 6
    assert [snapshot.seq for snapshot in main.snapshots()] == [3, 2]


def test_only_what_was_asked_for_is_checked(kept: Any) -> None:
    """Of one session, of the reducers given, of their version."""
    right = Folds().reducer
    other = kept.store.create_session("other").branch("main")
    other.extend([("note", n) for n in range(9)])
    for branch in (kept.session.branch("main"), other):
        branch.snapshot(forgetful)
    assert names(kept.store.verify(other.rev, snapshots=[right])) == [("wrong_snapshot", f"{other.rev}@9")]
    assert kept.store.verify().findings == []
    assert "snapshots" not in kept.store.verify().checked
    newer = castlog.reducer("ids", 2, initial={"ids": []})(right)
    assert kept.store.verify(snapshots=[newer]).findings == []


def test_the_order_of_keys_is_no_difference(kept: Any) -> None:
    """A state is a JSON value: the same one written in another order is the same."""
    main = kept.session.branch("main")
    main.snapshot(castlog.reducer("pair", 1)(lambda state, event: {"a": 1, "b": event.seq}))
    turned = castlog.reducer("pair", 1)(lambda state, event: {"b": event.seq, "a": 1})
    report = kept.store.verify(snapshots=[turned])
    assert (report.findings, report.checked["snapshots"]) == ([], 1)


def test_what_cannot_be_folded_is_a_remark(kept: Any) -> None:
    """A reducer that raises is no damage of the store; what comes before the event is checked all the same."""

    def fold(state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
        if event.seq == 5:
            raise KeyError("five")
        return forgetful(state, event)

    main = kept.session.branch("main")
    main.snapshot(Folds().reducer, at=4)
    main.snapshot(forgetful)
    kept.session.branch("inner").snapshot(forgetful)
    report = kept.store.verify(snapshots=[castlog.reducer("ids", 1, initial={"ids": []})(fold)])
    assert names(report) == [
        ("wrong_snapshot", f"{kept.session.id}/main@4"),
        ("unchecked", f"{kept.session.id}/main@5"),
    ]
    assert "from seq 5 on: KeyError: 'five'" in report.findings[1].message


def test_dropping_needs_a_store_that_can_be_written(kept_on_disk: Any, open_disk_store: Any) -> None:
    """Said before anything is checked."""
    with pytest.raises(Unavailable, match="for reading only"):
        open_disk_store(read_only=True).verify(snapshots=[forgetful], drop=True)
