"""Engines to test: one of each kind, opened anew for every test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from castlog.engine.base import Engine
from castlog.engine.disk import create, open_disk
from castlog.engine.memory import MemoryEngine

Opener = Callable[..., Engine]


@pytest.fixture(params=["disk", "memory"])
def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Return a function that makes an engine holding the rows it is given."""
    made: list[Engine] = []

    def opener(rows: Iterable[tuple[bytes, bytes]] = (), *, lock_timeout: float = 10.0) -> Engine:
        engine: Engine
        if request.param == "memory":
            engine = MemoryEngine(rows, lock_timeout=lock_timeout)
        else:
            path = tmp_path / f"store-{len(made)}"
            create(path, rows)
            engine = open_disk(path, lock_timeout=lock_timeout)
        made.append(engine)
        return engine

    yield opener
    for engine in made:
        engine.close()


@pytest.fixture
def engine(open_engine: Opener) -> Engine:
    """An empty engine of each kind."""
    return open_engine()
