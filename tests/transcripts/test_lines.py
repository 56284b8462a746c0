"""Lines end at a newline and nowhere else, however the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from castlog.transcripts.lines import lines


def cut(data: bytes, size: int) -> list[bytes]:
    """Cut bytes into parts of one size."""
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xe2\x80\xa8", b"\0", b"\x0b\x0c\x1c"])).map(b"".join),
    st.integers(1, 7),
)
def test_lines_are_those_between_newlines(data: bytes, size: int) -> None:
    """Joined by newlines the lines are the file, and only its last line may lack one."""
    found = list(lines(cut(data, size)))
    assert b"".join(line.data + b"\n" * line.ended for line in found) == data
    assert [line.data for line in found] == data.split(b"\n")[: len(found)]
    assert [line.number for line in found] == list(range(1, len(found) + 1))
    assert all(data[line.offset :].startswith(line.data) for line in found)
    assert all(line.ended for line in found[:-1])
    assert all(line.whole for line in found)


@given(st.integers(1, 5))
def test_a_line_too_long_comes_in_parts(size: int) -> None:
    """No more of an endless line is held than the bound and one part, and the next line is whole again."""
    data = b"x" * 50 + b"\nshort\n"
    found = list(lines(cut(data, size), bytes_max=10))
    assert b"".join(line.data + b"\n" * line.ended for line in found) == data
    assert {line.whole for line in found if line.number == 1} == {False}
    assert next(line for line in found if line.number == 2).whole
    assert max(len(line.data) for line in found) <= 10 + size
