"""What cannot name a store or bound a wait: refused in one sentence before anything is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import castlog


@pytest.mark.parametrize("how", [{}, {"create": False}, {"read_only": True}])
@pytest.mark.parametrize("target", ["x\0y", "lmdb:x\0y", "\udcff", "a/" * 3000])
def test_what_cannot_be_a_path_is_one_sentence_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, how: dict[str, bool]
) -> None:
    """A program that handles castlog.Error handles a bad path too, and finds no half-made folder afterwards."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(castlog.Invalid) as caught:
        castlog.open(target, **how)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert len(sentence) < 200
    assert sentence.isprintable()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_gone_from_under_the_process_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means nothing then, and the failure is castlog's."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(castlog.Unavailable, match="No such file"):
        castlog.open("store")


@pytest.mark.parametrize("seconds", [float("nan"), -1, -0.001, "10", None, True, 10**400])
@pytest.mark.parametrize("target", ["memory:", "store"])
def test_a_lock_timeout_that_is_no_time_is_invalid(tmp_path: Path, target: str, seconds: object) -> None:
    """It fails on opening and not, as something else, at the first write that has to wait."""
    name = target if target == "memory:" else str(tmp_path / target)
    with pytest.raises(castlog.Invalid, match="lock_timeout"):
        castlog.open(name, lock_timeout=seconds)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("seconds", [0, 1, 0.5, float("inf")])
def test_a_lock_timeout_that_is_a_time_is_taken(tmp_path: Path, seconds: float) -> None:
    """Nought is once, infinity is for ever."""
    with castlog.open(tmp_path / "store", lock_timeout=seconds) as store:
        store.create_session("t").branch("main").append("note", 1)
