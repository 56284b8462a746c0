"""A file imported while it grows is the same, in the end, as the file imported at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import castlog
from castlog import FileReport, Store
from castlog.ops.source import gap_bytes
from castlog.transcripts.driver import import_path

from .conftest import SESSION, Chat, source_of

PIECES = [
    b"\n",
    b"\r\n",
    b"\0\0",
    b"\xef\xbb\xbf",
    b'{"par',
    b"junk",
    b" ",
    b"\xe2\x82",
    b"12",
    b"{}",
    b'{"a":1,"a":2}',
    b"}",
]


def rows() -> list[bytes]:
    """Return a few rows without their newlines."""
    chat = Chat()
    for number in range(6):
        chat.user(f"text {number}")
    return chat.data.splitlines()


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """Draw a file, whole rows and rubbish mixed, that begins with a row; and places to cut it at."""
    first, *others = rows()
    piece = st.one_of(
        st.sampled_from(others), st.sampled_from([other + b"\n" for other in others]), st.sampled_from(PIECES)
    )
    data = first + b"\n" + b"".join(draw(st.lists(piece, max_size=8)))
    cuts = draw(st.lists(st.integers(len(first) + 1, len(data)), max_size=4))
    return data, [*cuts, len(data)]


def take(store: Store, folder: Path, data: bytes) -> FileReport:
    """Import bytes under one name, and check that they come back."""
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(data)
    (file,) = import_path(store, path).files
    assert source_of(store, file) == data
    return file


def content(store: Store, file: FileReport) -> list[tuple[str, bytes]]:
    """Return types and bytes of what `main` holds; why a gap is damaged depends on how much of the line was there."""
    events = store.branch(f"{file.session_id}/main").events()
    return [(event.type, event.raw if (gap := gap_bytes(event)) is None else gap) for event in events]


@settings(deadline=None)
@given(files())
def test_steps_end_where_one_import_does(drawn: tuple[bytes, list[int]]) -> None:
    """Any beginnings of a file, imported in order, make the same `main` as the file alone; every report stays true."""
    data, cuts = drawn
    with tempfile.TemporaryDirectory() as name, castlog.open("memory:") as grown, castlog.open("memory:") as fresh:
        folder = Path(name)
        reports = {}
        for cut in sorted(cuts):
            file = reports[cut] = take(grown, folder, data[:cut])
            assert take(grown, folder, data[:cut]).added == 0
        assert all(source_of(grown, file) == data[:cut] for cut, file in reports.items())
        assert content(grown, file) == content(fresh, take(fresh, folder, data))
        for cut in cuts:
            assert take(grown, folder, data[:cut]).added == 0
        assert grown.verify(deep=True).ok


@settings(deadline=None)
@given(files())
def test_captures_in_any_order_are_all_kept_once(drawn: tuple[bytes, list[int]]) -> None:
    """Beginnings of a file in any order come back as they were, and add nothing the second time."""
    data, cuts = drawn
    with tempfile.TemporaryDirectory() as name, castlog.open("memory:") as store:
        for cut in cuts:
            take(store, Path(name), data[:cut])
        assert [take(store, Path(name), data[:cut]).added for cut in cuts] == [0] * len(cuts)
        assert store.verify(deep=True).ok
