"""A format can come from another package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from castlog import FileReport, Store
from castlog.transcripts import formats
from castlog.transcripts.head import Head

One = Callable[..., FileReport]
DATA = b'{"mine":1}\n{"mine":2}\n'


class MyReader(formats.Reader):
    """Reads records of one kind."""

    def session(self) -> formats.SessionFacts:
        """Return one session for all files."""
        return formats.SessionFacts("mine:1", "mine", {"format": "mine"})

    def read(self, raw: bytes) -> formats.Facts:
        """Return one type for all records, and one castlog refuses for the second."""
        return formats.Facts("not\na type" if b"2" in raw else "mine.record", ("c1",), ts=7)

    def resembles(self, value: dict[str, object]) -> bool:
        """Return whether it is mine."""
        return "mine" in value


def sniff(head: Head) -> float:
    """Return how many records are mine."""
    return sum("mine" in record for record in head.records) / max(1, len(head.records))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with a format, and one that is broken."""
    module = ModuleType("mine_format")
    module.sniff = sniff  # type: ignore[attr-defined]
    module.Reader = MyReader  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine_format", module)
    entries = [
        EntryPoint("mine", "mine_format", formats.GROUP),
        EntryPoint("broken", "no_such_module", formats.GROUP),
        EntryPoint("codex", "no_such_module", formats.GROUP),
    ]
    monkeypatch.setattr(formats, "entry_points", lambda group: entries)


@pytest.mark.usefixtures("installed")
def test_a_plug_in_recognises_and_reads_its_files(one: One, store: Store) -> None:
    """An installed format is found by content like castlog's own, and what it gets wrong is kept as opaque.

    One that cannot be loaded is warned of.
    """
    with pytest.warns(RuntimeWarning, match="broken"):
        file = one(DATA)
    assert (file.format, file.events) == ("mine", 2)
    assert store.session(file.session_id or "").origin == "mine:1"
    events = [(event.type, event.ts, event.call_ids) for event in store.view(file.rev or "").events()]
    assert events == [("mine.record", 7, ("c1",)), ("mine.record", 7, ())]
    with pytest.warns(RuntimeWarning):
        assert one(DATA, format="mine").status == "unchanged"


def test_without_it_the_file_is_opaque(one: One) -> None:
    """The same file is opaque lines to a castlog that does not know the format."""
    assert one(DATA).format == "jsonl"
