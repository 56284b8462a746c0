"""Stores to test: one on each engine, opened anew for every test, with a clock that nobody's day depends on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import castlog

Opener = Callable[..., castlog.Store]

signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup` and `&` ignore it, and children would inherit that


class Clock:
    """A clock that goes on by one millisecond at each look, and can be set."""

    def __init__(self, now: int = 1_750_000_000_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return nanoseconds UTC."""
        self.now += 1_000_000
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock of the test's own, shared by all the stores it opens."""
    return Clock()


@pytest.fixture
def open_disk_store(tmp_path: Path, clock: Clock) -> Iterator[Opener]:
    """Return a function that opens the test's store on disk, by default always the same one."""
    opened: list[castlog.Store] = []

    def opener(name: str = "store", **options: object) -> castlog.Store:
        store = castlog.open(tmp_path / name, **{"clock": clock, **options})  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def disk_store(open_disk_store: Opener) -> castlog.Store:
    """An empty store on disk, for what makes sense only there."""
    return open_disk_store()


@pytest.fixture(params=["memory", "lmdb"])
def open_store(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Opener]:
    """Return a function that opens a new store on each engine; the name tells several of one test apart."""
    opened: list[castlog.Store] = []
    on_disk: Opener | None = request.getfixturevalue("open_disk_store") if request.param == "lmdb" else None

    def opener(name: str = "store", **options: object) -> castlog.Store:
        if on_disk is not None:
            return on_disk(name, **options)
        opened.append(castlog.open("memory:", **{"clock": clock, **options}))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> castlog.Store:
    """An empty store on each engine."""
    return open_store()


@pytest.fixture
def session(store: castlog.Store) -> castlog.Session:
    """A session with an empty branch main."""
    return store.create_session("fix the login bug")


@pytest.fixture
def main(session: castlog.Session) -> castlog.Branch:
    """The empty branch main of a session."""
    return session.branch("main")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seal after five events or 2,000 bytes, and cut payloads from 1,000 bytes, so that a short test meets it all."""
    monkeypatch.setattr("castlog.limits.SEAL_EVENTS", 5)
    monkeypatch.setattr("castlog.limits.SEAL_BYTES", 2000)
    monkeypatch.setattr("castlog.limits.TAIL_BATCH_EVENTS", 3)
    monkeypatch.setattr("castlog.limits.PIECE_PAYLOAD_BYTES_MIN", 1000)


class Child:
    """A second process that opens stores of its own and does what it is asked; see child.py."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, do: str, **more: Any) -> None:
        """Ask for something without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """Return the next answer, or `(kind, sentence)` of a castlog.Error."""
        assert self.process.stdout is not None
        reply = json.loads(self.process.stdout.readline())
        return (reply["error"], reply["message"]) if "error" in reply else reply["said"]

    def ask(self, do: str, **more: Any) -> Any:
        """Have something done and return the answer."""
        self.send(do, **more)
        return self.receive()

    def end(self) -> None:
        """Let the process end and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    """One long-lived second process."""
    process = Child()
    yield process
    process.end()


@pytest.fixture(scope="module")
def second_child() -> Iterator[Child]:
    """Another such process."""
    process = Child()
    yield process
    process.end()
