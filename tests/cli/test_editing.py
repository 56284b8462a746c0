"""What-if: a fork with one event edited in its place, by an editor or from a file."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from pathlib import Path

import pytest

import castlog

from .conftest import PROGRAM, Run, rows


@pytest.fixture
def editor(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the shell commands that stand for a person's editing; $1 is the file edited."""
    script = home / "editor"
    script.write_text("exit 9\n")
    monkeypatch.setenv("EDITOR", f"sh {script}")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("TMPDIR", str(home))
    monkeypatch.setattr("tempfile.tempdir", None)
    return script


def left(home: Path) -> list[Path]:
    """Return the files that editing left behind."""
    return sorted(home.glob("castlog-*.json"))


def test_the_fork_has_the_edited_event_in_its_place(store: str, home: Path, editor: Path, run: Run) -> None:
    """Same type, call ids and schema, a new time; everything before is shared, and the source is as it was."""
    before = run("cat", "main").stdout
    editor.write_text('grep -q "    \\"file\\": \\"src/api.py\\"" "$1" && sed -i s/api/web/ "$1"\n')
    assert run("fork", "what-if", "main@6", "--edit").stdout == f"{store}/what-if\n"
    assert run("cat", "main").stdout == before
    old, new = json.loads(before.splitlines()[5]), json.loads(run("cat", "what-if", "--from", "6").stdout)
    assert new["payload"] == {"name": "Edit", "args": {"file": "src/web.py"}}
    assert new["id"] != old["id"]
    assert new["ts"] > old["ts"]
    kept = ("seq", "type", "call_id", "schema")
    assert [new[key] for key in kept] == [old[key] for key in kept]
    assert rows(run("merge-base", "what-if", "main", "--json"))[0]["seq"] == 5
    assert left(home) == []
    assert run("verify", "--deep").exit_code == 0


def test_an_event_in_the_middle_takes_nothing_that_came_after(store: str, editor: Path, run: Run) -> None:
    """The fork ends with the edited event, so that a harness goes on live from it; it can be made current."""
    editor.write_text("""printf '{"text": "leave it"}' > "$1"\n""")
    run("fork", "what-if", "main@1", "--edit", "--checkout")
    (event,) = rows(run("cat"))
    assert (event["seq"], event["payload"]) == (1, {"text": "leave it"})


def test_a_file_or_stdin_can_stand_for_the_editor(store: str, home: Path, run: Run) -> None:
    """Without a terminal: --edit-with."""
    (home / "answer.json").write_text('{"ok": true}\n')
    (row,) = rows(run("fork", "one", "main@4", "--edit-with", str(home / "answer.json"), "--json"))
    assert (row["rev"], row["seq"]) == (f"{store}/one", 4)
    assert rows(run("cat", "one", "--from", "4"))[0]["payload"] == {"ok": True}
    run("fork", "two", "main@4", "--edit-with", "-", input='{"ok": null}')
    assert rows(run("cat", "two", "--from", "4"))[0]["payload"] == {"ok": None}


def test_what_is_no_json_is_refused_and_kept(store: str, home: Path, editor: Path, run: Run) -> None:
    """Nothing is forked, the error names the file, and the command it gives takes the text up once it is mended."""
    editor.write_text("""printf '{"text": oops}' > "$1"\n""")
    error = json.loads(run("fork", "what-if", "main@5", "--edit", "--json", code=4).stderr)
    (file,) = left(home)
    assert error["facts"]["file"] == str(file)
    assert file.read_text() == '{"text": oops}'
    assert file.stat().st_mode & 0o777 == 0o600
    run("log", "what-if", code=3)
    file.write_text('{"text": "mended"}')
    (command,) = re.findall(r"castlog (fork .*)", error["hint"])
    run(*command.split())
    assert rows(run("cat", "what-if", "--from", "5"))[0]["payload"] == {"text": "mended"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", "as it was; nothing was forked"),
        ("""printf '{"text":"try  harder"}' > "$1"; sed -i 's/  / /' "$1" """, "as it was; nothing was forked"),
        ("exit 3", "ended with exit code 3; nothing was forked"),
        ("""printf '{"a": 1, "a": 2}' > "$1" """, "is no payload"),
        (""": > "$1" """, "is no payload"),
    ],
)
def test_without_a_change_nothing_is_forked(script: str, said: str, store: str, editor: Path, run: Run) -> None:
    """An unchanged payload, however it is laid out, an editor that failed, and what no payload can be."""
    editor.write_text(script + "\n")
    assert said in run("fork", "what-if", "main@5", "--edit", code=4).stderr
    run("log", "what-if", code=3)


def test_a_name_that_is_taken_is_said_before_anybody_edits(store: str, home: Path, editor: Path, run: Run) -> None:
    """The editor is not opened for nothing."""
    editor.write_text(f"touch {home}/opened\n")
    for name in ("idea-b", "before"):
        run("fork", name, "main@5", "--edit", code=5)
    assert not (home / "opened").exists()


def test_a_bad_name_does_not_cost_what_was_written(store: str, home: Path, editor: Path, run: Run) -> None:
    """What is found wrong only afterwards keeps the text too, and no fork."""
    editor.write_text("""printf '{"text": "much work"}' > "$1"\n""")
    assert "What you wrote is in" in run("fork", "a b", "main@5", "--edit", code=4).stderr
    assert "much work" in left(home)[0].read_text()


def test_a_fork_without_its_event_does_not_stay(
    store: str, home: Path, editor: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the append fails there is no half-made branch, and the text is kept."""

    def full(self: castlog.Branch, drafts: object) -> None:
        raise castlog.Unavailable("the disk is full")

    editor.write_text("""printf '{"text": "much work"}' > "$1"\n""")
    monkeypatch.setattr(castlog.Branch, "extend", full)
    assert "What you wrote is in" in run("fork", "what-if", "main@5", "--edit", code=7).stderr
    assert len(left(home)) == 1
    run("log", "what-if", code=3)


def test_on_a_terminal_one_is_asked_to_edit_again(store: str, home: Path, editor: Path) -> None:
    """Yes opens the same text again; when it is right at last the fork is made."""
    editor.write_text(
        """if grep -q oops "$1"; then printf '{"text": "mended"}' > "$1"; else printf '{"text": oops}' > "$1"; fi\n"""
    )
    leader, follower = pty.openpty()
    words = [*PROGRAM, "fork", "what-if", "main@5", "--edit"]
    with subprocess.Popen(words, stdin=follower, stdout=subprocess.PIPE, stderr=follower) as process:
        os.close(follower)
        seen = b""
        deadline = time.monotonic() + 30
        while b"Edit it again?" not in seen and time.monotonic() < deadline:
            seen += os.read(leader, 1000)
        os.write(leader, b"\n")
        assert process.stdout is not None
        assert process.stdout.read().decode() == f"{store}/what-if\n"
        assert process.wait(30) == 0
    os.close(leader)
    assert left(home) == []
