"""Which store a command takes, and which commands may make one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import castlog

from .conftest import Run, rows


def _made(path: Path, title: str) -> Path:
    with castlog.open(path) as store:
        store.create_session(title)
    return path


def _title(run: Run, *words: str) -> str:
    return str(rows(run(*words, "sessions", "--json"))[0]["title"])


def test_the_option_goes_before_the_variable_before_the_folder_before_the_home(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--store, CASTLOG_STORE, .castlog in a parent, ~/.castlog: the first that is given is taken."""
    _made(home / ".castlog", "home")
    _made(home / "named", "variable")
    _made(home / "other", "option")
    assert _title(run) == "home"
    _made(home / "project" / ".castlog", "parent")
    below = home / "project" / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert _title(run) == "parent"
    monkeypatch.setenv("CASTLOG_STORE", str(home / "named"))
    assert _title(run) == "variable"
    assert _title(run, "--store", str(home / "other")) == "option"
    assert rows(run("sessions", "--json", "--store", str(home / "other")))[0]["title"] == "option"


def test_a_store_of_another_user_is_passed_over(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .castlog above that somebody else owns is not opened, and stderr says so."""
    _made(home / "project" / ".castlog", "theirs")
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    result = run("sessions", code=3)
    assert "belongs to another user" in result.stderr
    assert "theirs" not in result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("sessions",), ("log",), ("show", "main"), ("cat",), ("tail",), ("grep", "x"), ("diff", "a", "b"), ("du",),
        ("append", "--text", "x"), ("fork", "x"), ("branch",), ("tag",), ("verify",), ("undelete",), ("reflog",),
        ("export",), ("checkout", "main"), ("promote", "x"), ("reset", "main@1"), ("session",),
        ("merge-base", "a", "b"),
    ],
)  # fmt: skip
def test_other_commands_make_no_store(words: tuple[str, ...], home: Path, run: Run) -> None:
    """Where there is no store, they exit 3, say how to make one, and leave nothing behind."""
    result = run(*words, code=3)
    assert "castlog init" in result.stderr
    assert not (home / ".castlog").exists()
    assert not (home / "project" / ".castlog").exists()


def test_init_makes_a_private_store_git_ignores(home: Path, run: Run) -> None:
    """`init` makes .castlog here, closed to others, with a .gitignore of *; again, it changes nothing."""
    path = home / "project" / ".castlog"
    assert run("init").stdout == f"{path}\n"
    assert (path / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in path.iterdir() if file.is_file())
    run("new", "kept")
    assert "already" in run("init").stderr
    assert _title(run) == "kept"


def test_init_takes_the_folder_named(home: Path, run: Run) -> None:
    """DIR, --store and CASTLOG_STORE all mean the store's own folder."""
    run("init", str(home / "a"))
    run("--store", str(home / "b"), "init")
    for name in "ab":
        with castlog.open(home / name, create=False):
            pass


def test_init_leaves_other_files_alone(home: Path, run: Run) -> None:
    """A folder with something else in it is refused, with the place that would do."""
    (home / "project" / "code.py").write_text("x = 1\n")
    result = run("init", ".", code=4)
    assert "holds other files" in result.stderr
    assert ".castlog" in result.stderr
    assert [path.name for path in (home / "project").iterdir()] == ["code.py"]


def test_new_makes_the_store_in_the_home(home: Path, run: Run) -> None:
    """`new` where there is no store makes ~/.castlog, with its .gitignore, and says where; the next one is silent."""
    assert f"Made a store in {home / '.castlog'}\n" in run("new", "first").stderr
    assert (home / ".castlog" / ".gitignore").read_text() == "*\n"
    assert run("new", "second").stderr == ""


def test_import_says_where_it_made_a_store(home: Path, run: Run) -> None:
    """`import` makes a store as `new` does, and says so; under --json stderr stays silent."""
    (home / "project" / "log.jsonl").write_text('{"a": 1}\n')
    assert f"Made a store in {home / '.castlog'}\n" in run("import", "log.jsonl").stderr
    assert run("--store", str(home / "b"), "import", "log.jsonl", "--json").stderr == ""


def test_an_empty_store_name_is_refused(run: Run) -> None:
    """--store '' is a mistake in a script, not a wish for the default."""
    assert "empty" in run("--store", "", "sessions", code=4).stderr
