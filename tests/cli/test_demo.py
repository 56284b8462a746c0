"""The demo: what a newcomer runs first must work, be quick, and leave nothing behind."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

import castlog

from .conftest import Run, program


def test_the_demo_checks_its_own_claims(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kills an agent, goes on by each policy, forks, compares; it touches no store of the person's."""
    temporary = home / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("CASTLOG_STORE", str(home / "mine"))
    result = run("demo")
    for phrase in (
        *("kill -9", "in flight", "resume", "--decide", "attempt=2", "mail was sent once"),
        *("log --graph", "diff", "--state", "promote", "verify --deep", "ok"),
    ):
        assert phrase in result.stdout
    assert not list(temporary.iterdir())
    assert not (home / "mine").exists()


def test_the_store_can_be_kept(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --keep the store is there to look around in, with main, the ideas and what each did."""
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    result = run("demo", "--keep")
    path = result.stderr.split("The store is ")[1].split(";")[0]
    with castlog.open(Path(path), create=False) as opened:
        assert [branch.head.seq for branch in opened.sessions()[0].branches()] == [26, 26, 26, 26]


def test_the_demo_is_quick() -> None:
    """A newcomer waits five seconds at most."""
    started = time.monotonic()
    assert program("demo").returncode == 0
    assert time.monotonic() - started < 5


def test_what_the_demo_says_fits_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns its sentences are wrapped; only commands and what they print may be wider."""
    monkeypatch.setenv("COLUMNS", "80")
    assert all(len(line) <= 80 for line in run("demo").stdout.splitlines() if not line.startswith("  "))
