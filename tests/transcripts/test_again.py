"""Importing again: what is there stays as it is, and only what is new is added."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import castlog
from castlog import Conflict, Draft, FileReport, Store
from castlog.transcripts import write
from castlog.transcripts.driver import import_path

from .conftest import SESSION, Chat, Take

One = Callable[..., FileReport]
NewChat = Callable[..., Chat]


@pytest.fixture
def rows(chat: NewChat) -> list[bytes]:
    """Give ten rows of a conversation, each with its newline."""
    c = chat()
    for number in range(10):
        c.user(f"text {number}")
    return c.data.splitlines(keepends=True)


def heads(store: Store) -> dict[str, int]:
    """Return name and head of the branches of the only session."""
    (session,) = store.sessions()
    return {branch.name: branch.head.seq for branch in session.branches()}


def test_the_same_file_adds_nothing(rows: list[bytes], one: One, store: Store) -> None:
    """A second import of equal content writes nothing, whatever the file's name."""
    first = one(b"".join(rows))
    assert (first.status, first.events, first.added) == ("new", 10, 10)
    for name in (f"{SESSION}.jsonl", "copy.jsonl"):
        again = one(b"".join(rows), name)
        assert (again.status, again.events, again.added, again.rev) == ("unchanged", 10, 0, first.rev)
    assert heads(store) == {"main": 10}


def test_a_grown_file_adds_what_is_new(rows: list[bytes], one: One, store: Store) -> None:
    """The new rows go after the old ones, on the same branch."""
    one(b"".join(rows[:4]))
    grown = one(b"".join(rows))
    assert (grown.status, grown.events, grown.added) == ("grown", 10, 6)
    assert heads(store) == {"main": 10}


def test_a_shorter_file_is_part_of_what_is_there(rows: list[bytes], one: One, store: Store) -> None:
    """A file that is the beginning of one imported before adds nothing and is named as that part."""
    session = one(b"".join(rows)).session_id
    short = one(b"".join(rows[:4]))
    assert (short.status, short.added, short.rev) == ("unchanged", 0, f"{session}/main@4")


@pytest.mark.parametrize("cut", [1, 30, -2, -1])
def test_a_half_written_line_is_replaced_when_it_is_whole(cut: int, rows: list[bytes], one: One, store: Store) -> None:
    """What was taken in while a line was being written gives way to the line, and stays readable under its own name."""
    half = b"".join(rows[:3]) + rows[3][:cut]
    first = one(half)
    assert bool(first.damaged) == (cut != -1)
    grown = one(b"".join(rows))
    assert (grown.status, grown.damaged) == ("grown", ())
    assert "unfinished" in grown.note
    assert [e.type for e in store.view(grown.rev or "").events()] == ["user_message"] * 10
    old = one(half)
    assert (old.status, old.added) == ("unchanged", 0)
    assert len(heads(store)) == 2
    assert heads(store)["main"] == 10


@pytest.mark.parametrize(
    "steps",
    [
        (b"junk\n", b"junk\n#a", b"junk\n#b", b"junk\n#1", b"junk\n#1\n\n"),
        (b"", b"junk\n", b"junk\nnul", b"junk\nnull\n", b"junk\nnull\n#1\n"),
        (b"#1", b"#1\n", b"#1\n#2", b"#1\n#2\n"),
    ],
)
def test_main_follows_a_file_through_unfinished_ends(
    steps: tuple[bytes, ...], rows: list[bytes], one: One, export: Callable[[FileReport], bytes], store: Store
) -> None:
    """However a file ended each time it was looked at, `main` is what it is now, and each look stays what it was."""
    seen = []
    for step in steps:
        data = rows[0] + step.replace(b"#1", rows[1].strip()).replace(b"#2", rows[2].strip())
        data = data.replace(b"#a", rows[1][:9]).replace(b"#b", rows[1][:70])
        file = one(data)
        seen.append((file, data))
        main = file.__class__(file.path, file.format, file.status, rev=f"{file.session_id}/main")
        assert export(main) == data
        assert all(export(old) == content for old, content in seen)
        assert one(data).added == 0
    assert not any(name.startswith("main-") for name in heads(store))


def test_a_row_without_a_time_takes_the_last_one_stored(chat: NewChat, one: One, store: Store) -> None:
    """The time before a grown file's first new row is that of the row before it, stored by an earlier import."""
    c = chat()
    c.user("a", timestamp="2025-01-01T00:00:05Z")
    c.user("b", timestamp="2025-01-01T00:00:09Z")
    one(c.data)
    c.plain(type="queue-operation", operation="x", sessionId=SESSION)
    events = store.view(one(c.data).rev or "")
    assert events.read(3).ts == events.read(2).ts


def test_an_older_capture_that_ends_otherwise_is_kept_once(rows: list[bytes], one: One, store: Store) -> None:
    """A capture without its last newline, met after the whole file, adds that difference and nothing else."""
    one(b"".join(rows))
    old = one(b"".join(rows[:3]).rstrip(b"\n"))
    assert (old.added, old.rev) == (1, f"{old.session_id}/capture-4@4")
    assert one(b"".join(rows[:3]).rstrip(b"\n")).added == 0
    assert one(b"".join(rows)).added == 0
    assert heads(store) == {"main": 10, "capture-4": 4}


def test_reports_of_one_run_name_what_is_true_after_it(rows: list[bytes], take: Take, tmp_path: Path) -> None:
    """Captures of one session in one folder are each exported as they were, also those that later ones replaced."""
    for number in range(2, 8):
        (tmp_path / f"{number}.jsonl").write_bytes(b"".join(rows[:number]).rstrip(b"\n"))
    first = take(tmp_path)
    again = take(tmp_path)
    assert again.added == 0
    assert [file.rev for file in again.files] == [file.rev for file in first.files]


def test_a_rewritten_file_becomes_a_branch(rows: list[bytes], one: One, store: Store) -> None:
    """Where a file differs from what was imported it parts from it, shares the beginning, and is known again."""
    one(b"".join(rows))
    changed = [*rows[:4], *(row.replace(b"text", b"TEXT") for row in rows[4:])]
    file = one(b"".join(changed))
    assert (file.status, file.added, file.rev) == ("rewritten", 6, f"{file.session_id}/main-2@10")
    assert "main-2" in file.note
    assert one(b"".join(changed)).status == "unchanged"
    assert one(b"".join(rows)).status == "unchanged"
    more = one(b"".join([*changed, rows[0]]))
    assert (more.status, more.added, more.rev) == ("grown", 1, f"{file.session_id}/main-2@11")
    third = one(b"".join([*rows[:2], rows[9]]))
    assert third.rev == f"{file.session_id}/main-3@3"
    assert heads(store) == {"main": 10, "main-2": 11, "main-3": 3}
    assert store.verify(deep=True).ok


def test_a_file_rewritten_from_its_first_row_on_is_the_same_session(rows: list[bytes], one: One, store: Store) -> None:
    """A tool that writes the keys in another order makes a branch, not a second session."""
    one(b"".join(rows))
    sorted_rows = [json.dumps(json.loads(row), sort_keys=True).encode() + b"\n" for row in rows]
    file = one(b"".join(sorted_rows))
    assert (file.status, file.added, file.start) == ("rewritten", 10, 1)
    assert heads(store) == {"main": 10, "main-2": 10}


def test_a_delta_goes_on_where_its_first_row_says(rows: list[bytes], one: One, store: Store) -> None:
    """A file that begins in the middle is appended after the row it names as its parent, and exported alone."""
    one(b"".join(rows[:4]))
    delta = one(b"".join(rows[4:7]), "delta.jsonl")
    assert (delta.status, delta.added, delta.start) == ("grown", 3, 5)
    assert "main@4" in delta.note
    assert heads(store) == {"main": 7}
    again = one(b"".join(rows[4:7]), "delta.jsonl")
    assert (again.status, again.added, again.start, again.rev) == ("unchanged", 0, 5, delta.rev)
    assert one(b"".join(rows)).added == 3
    assert one(b"".join(rows[2:6]), "delta.jsonl").added == 0


def test_a_delta_after_an_unended_file_starts_its_own_line(rows: list[bytes], one: One, store: Store) -> None:
    """A file without a final newline does not run into what goes on from it."""
    one(b"".join(rows[:4]).rstrip(b"\n"))
    assert one(b"".join(rows[4:6]), "delta.jsonl").added == 2
    assert one(b"".join(rows[:6])).added == 0


def test_a_delta_from_the_middle_forks_there(rows: list[bytes], chat: NewChat, one: One, store: Store) -> None:
    """A delta whose parent has been answered otherwise goes onto a branch that shares what is before."""
    one(b"".join(rows))
    c = chat()
    c.last = json.loads(rows[4])["uuid"]
    c.user("something else")
    delta = one(c.data, "delta.jsonl")
    assert (delta.added, delta.start, delta.rev) == (1, 6, f"{delta.session_id}/main-2@6")
    assert one(c.data, "delta.jsonl").added == 0
    assert heads(store) == {"main": 10, "main-2": 6}


def test_what_others_appended_is_left_alone(rows: list[bytes], one: One, store: Store) -> None:
    """Events added to an imported branch by hand stay, and the grown file goes beside them."""
    session = store.session(one(b"".join(rows[:4])).session_id or "")
    session.branch("main").append("note", {"text": "mine"})
    file = one(b"".join(rows))
    assert file.rev == f"{session.id}/main-2@10"
    assert session.branch("main").read(5).type == "note"


def test_a_deleted_session_is_not_brought_back(
    rows: list[bytes], tmp_path: Path, one: One, take: Take, store: Store
) -> None:
    """A session in the trash stays there: a folder's report says so, a file asked for by name is refused."""
    store.session(one(b"".join(rows)).session_id or "").delete()
    (file,) = take(tmp_path).files
    assert (file.status, file.damaged) == ("skipped", ())
    assert "undelete" in file.note
    with pytest.raises(Conflict, match="undelete"):
        one(b"".join(rows))


def test_an_interrupted_import_is_finished_by_the_next(
    rows: list[bytes], one: One, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before an import broke off is taken up, not written twice."""
    monkeypatch.setattr(write, "BATCH_EVENTS", 3)
    calls = 0

    def breaking(self: castlog.Branch, drafts: list[Draft], *, expect: int | None = None) -> list[castlog.Event]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return extend(self, drafts, expect=expect)

    extend = castlog.Branch.extend
    with monkeypatch.context() as patch:
        patch.setattr(castlog.Branch, "extend", breaking)
        with pytest.raises(KeyboardInterrupt):
            one(b"".join(rows))
    assert heads(store) == {"main": 6}
    assert one(b"".join(rows)).added == 4
    assert heads(store) == {"main": 10}


def test_an_import_that_meets_another_tries_again(rows: list[bytes], tmp_path: Path, store: Store) -> None:
    """Somebody else who appends the same rows meanwhile costs a second look, not a second copy."""
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(b"".join(rows))
    extend = castlog.Branch.extend
    met = []

    def late(self: castlog.Branch, drafts: list[Draft], *, expect: int | None = None) -> list[castlog.Event]:
        if not met:
            met.append(True)
            extend(self, drafts[:5])
        return extend(self, drafts, expect=expect)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(castlog.Branch, "extend", late)
        (file,) = import_path(store, path).files
    assert file.added == 5
    assert heads(store) == {"main": 10}
