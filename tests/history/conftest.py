"""What the tests of this room share: a look at every row of a store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import castlog

Rows = list[tuple[bytes, bytes]]


@pytest.fixture
def all_rows() -> Callable[[castlog.Store], Rows]:
    """Return a function that gives every key and value of a store."""

    def look(store: castlog.Store) -> Rows:
        with store._core.read() as txn:
            return list(txn.scan(b""))

    return look
