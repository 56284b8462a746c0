"""The watch guards against commits into a file that no longer has a name."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from castlog.engine.watch import Watch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A data file in a folder of its own."""
    path = tmp_path / "store" / "data"
    path.parent.mkdir()
    path.write_bytes(b"one")
    return path


def watching(file: Path) -> Watch:
    """Return a watch that has seen the file in its place."""
    watch = Watch(file)
    watch.remember(os.stat(file))
    assert watch.in_place()
    return watch


@pytest.mark.parametrize("age", [0.0, 0.15])
def test_a_file_that_is_written_stays_in_place(file: Path, age: float) -> None:
    """Writing into the file, or beside it, is no replacement, whether the folder changed just now or a while ago."""
    time.sleep(age)
    watch = watching(file)
    file.write_bytes(b"two")
    (file.parent / "other").write_bytes(b"")
    assert watch.in_place()


@pytest.mark.parametrize("age", [0.0, 0.15])
def test_a_replaced_file_is_noticed(file: Path, age: float) -> None:
    """A rename onto the path is seen at once, also in the same tick of the clock in which the folder was made."""
    time.sleep(age)
    watch = watching(file)
    other = file.parent.parent / "other"
    other.write_bytes(b"two")
    os.replace(other, file)
    assert not watch.in_place()
    watch.remember(os.stat(file))
    assert watch.in_place()


@pytest.mark.parametrize("age", [0.0, 0.15])
def test_a_removed_file_or_folder_is_noticed(file: Path, age: float) -> None:
    """Deleting the file, or the folder with it, is seen at once."""
    time.sleep(age)
    watch = watching(file)
    file.unlink()
    assert not watch.in_place()
    shutil.rmtree(file.parent)
    assert not watch.in_place()


def test_a_folder_set_back_in_time_does_not_deceive(file: Path) -> None:
    """Restoring tools give a folder its old times back; the replaced file is seen all the same."""
    time.sleep(0.15)
    watch = watching(file)
    before = os.stat(file.parent)
    other = file.parent / "other"
    other.write_bytes(b"two")
    os.replace(other, file)
    os.utime(file.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not watch.in_place()


def test_a_folder_moved_away_is_noticed(file: Path) -> None:
    """Another folder in the old one's place is not mistaken for it."""
    time.sleep(0.15)
    watch = watching(file)
    moved = file.parent.with_name("moved")
    os.rename(file.parent, moved)
    shutil.copytree(moved, file.parent)
    assert not watch.in_place()


def test_nothing_is_in_place_after_forget(file: Path) -> None:
    """A watch that has forgotten its file answers no."""
    watch = watching(file)
    watch.forget()
    assert not watch.in_place()
