"""A store may be replaced by a newer format under a running process, which must then stop writing to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from castlog.engine.base import ReadTxn
from castlog.engine.disk import create, open_disk
from castlog.errors import Unavailable


def _refuse_newer(txn: ReadTxn) -> None:
    if txn.get(b"version") != b"1":
        raise Unavailable("the store is of a newer format")


def test_a_running_process_looks_at_the_version_of_a_file_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    """The check of opening runs again after an exchange: a newer file is not touched through old handles."""
    create(tmp_path / "store", [(b"version", b"1")])
    old = open_disk(tmp_path / "store", check=_refuse_newer)
    old.update(lambda txn: txn.put(b"a", b"1"))
    with pytest.raises(Unavailable, match="newer"):
        old.replace(lambda txn: [(b"a", b"1"), (b"version", b"2")])
    with pytest.raises(Unavailable, match="newer"):
        old.update(lambda txn: txn.put(b"a", b"2"))
    with pytest.raises(Unavailable, match="newer"), old.read() as txn:
        txn.get(b"a")
    old.close()
    newer = open_disk(tmp_path / "store")
    with newer.read() as txn:
        assert txn.get(b"a") == b"1"
    newer.close()
