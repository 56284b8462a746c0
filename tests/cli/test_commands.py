"""What the commands do, as a person works with them."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path

import pytest
from castlog_cli import errors

import castlog

from .conftest import Run, rows


def test_new_prints_the_id_and_checks_out(run: Run) -> None:
    """The id alone is on stdout, and what follows works on the new session."""
    first = run("new", "one", "--label", "a=b").stdout.strip()
    assert first.startswith("sess_")
    run("append", "--text", "hi")
    second = run("new", "two", "--no-checkout").stdout.strip()
    assert json.loads(run("cat").stdout)["session_id"] == first
    assert [row["id"] for row in rows(run("sessions", "--json", "--sort", "created"))] == [second, first]


def test_log_is_newest_first_and_can_be_narrowed(store: str, run: Run) -> None:
    """-n, --type and a revision with a place choose what is shown."""
    assert [row["seq"] for row in rows(run("log", "--json"))] == [6, 5, 4, 3, 2, 1]
    assert [row["seq"] for row in rows(run("log", "main@4", "-n", "2", "--json"))] == [4, 3]
    assert [row["seq"] for row in rows(run("log", "--type", "user_message", "--json"))] == [5, 1]
    shown = run("log", "--oneline").stdout.splitlines()
    assert shown[0].split() == ["6", "tool_call", "[c2]", "Edit(file=src/api.py)"]
    assert "please fix the login bug" in shown[-1]


def test_turns_begin_at_user_messages(store: str, run: Run) -> None:
    """One line a turn, newest first, with its seqs, and what came before the first message is a turn too."""
    assert [(row["from"], row["until"], row["tool_calls"]) for row in rows(run("log", "--turns", "--json"))] == [
        (5, 6, 1),
        (1, 4, 1),
    ]
    run("new", "odd")
    run("append", "--data", "1")
    run("append", "--text", "hi")
    assert [(row["from"], row["until"], row["text"]) for row in rows(run("log", "--turns", "--json"))] == [
        (2, 2, "hi"),
        (1, 1, None),
    ]
    assert "before the first message" in run("log", "--turns").stdout


def test_the_graph_shows_forks_tags_and_where_one_is(store: str, run: Run) -> None:
    """Branches stand beneath what they were forked from."""
    run("fork", "try", "main@6", "-n", "200")
    shown = run("log", "--graph").stdout.splitlines()
    assert "202 branches" in shown[0]
    assert shown[1].split() == ["main", "1..6", "(current,", "tag", "before@3)"]
    assert shown[2].split() == ["├─idea-b", "@4", "5..6"]
    assert shown[3].split()[:3] == ["└─try-1..200", "@6", "200"]
    assert run("log", "--graph", "-n", "2").stdout.splitlines()[-1].split() == shown[2].split()


def test_show_cuts_what_is_long_and_describes_what_is_binary(store: str, home: Path, run: Run) -> None:
    """Long strings and lists are cut unless --full; base64 is type, size and digest; nothing is decoded wrongly."""
    (home / "dot.png").write_bytes(b"\x89PNG" + bytes(996))
    with castlog.open(home / "project" / ".castlog") as opened:
        picture = castlog.attachment(home / "dot.png")
        opened.branch("main").append(
            "note",
            {
                "long": "x" * 5000,
                "list": list(range(100)),
                "source": picture,
                "odd": {"type": "base64", "data": "no base64!"},
            },
        )
    shown = run("show").stdout
    assert "4,500 more characters" in shown
    assert "70 more items" in shown
    assert "<image/png, 1.0 kB, sha256:" in shown
    assert "no base64!" in shown
    full = run("show", "--full").stdout
    assert "x" * 5000 in full
    assert "99" in full
    assert json.loads(run("show", "--json").stdout)["payload"]["source"]["data"] == picture["data"]


def test_cat_has_inclusive_bounds(store: str, run: Run) -> None:
    """--from and --until are both included; a place in the revision ends it."""
    assert [row["seq"] for row in rows(run("cat", "--from", "2", "--until", "3"))] == [2, 3]
    assert [row["seq"] for row in rows(run("cat", "main~4"))] == [1, 2]
    assert run("cat", "--from", "7").stdout == ""


def test_grep_reads_shared_events_once(store: str, run: Run) -> None:
    """A match is `rev: text` once for all branches that share it; -l, -i, -F, --type and --tool narrow it."""
    assert len(run("grep", "login bug").stdout.splitlines()) == 1
    line = run("grep", "-i", "LOGIN").stdout
    assert line.startswith(f"{store[-8:]}/main@1: ")
    run("grep", "LOGIN", code=1)
    assert len(rows(run("grep", ".", "--json", "idea-b"))) == 6
    assert rows(run("grep", "api", "--tool", "Edit", "--json"))[0]["seq"] == 6
    run("grep", "api", "--tool", "Bash", code=1)
    run("grep", "l.gin", "-F", code=1)
    assert run("grep", "-l", "way").stdout == f"{store}/idea-b@5\n"
    run("grep", "way", "--type", "user_message", code=1)


def test_grep_shows_a_value_before_a_key(store: str, run: Run) -> None:
    """Where both a key and a value match, the line shown is the value's; a key alone is found too."""
    run("append", "--data", '{"gitBranch":"main","message":{"input":{"command":"git status"}}}')
    assert run("grep", "git", "main").stdout.endswith("@7: git status\n")
    assert run("grep", "gitB", "main").stdout.endswith("@7: gitBranch\n")


def test_fork_checkout_and_promote(store: str, run: Run) -> None:
    """A fork goes on from where it was made, promote moves main there, and the reflog knows the old head."""
    run("fork", "idea-c", "before", "--checkout")
    assert run("append", "--text", "other").stdout == "4\n"
    assert rows(run("merge-base", "idea-c", "main", "--json"))[0]["seq"] == 3
    run("promote", "idea-c", "--onto", "main")
    assert [row["seq"] for row in rows(run("log", "main", "--json"))] == [4, 3, 2, 1]
    move = rows(run("reflog", "main", "--json"))[0]
    assert (move["op"], move["old_seq"], move["new_seq"]) == ("promote", 6, 4)
    run("checkout", "main@2", "-b", "idea-d")
    assert run("append", "--text", "x").stdout == "3\n"


def test_diff_shows_both_sides_and_tells_by_its_exit_code(store: str, run: Run) -> None:
    """Left events carry -, right ones +; equal histories exit 0."""
    lines = run("diff", "main", "idea-b", code=1).stdout.splitlines()
    assert [line[0] for line in lines] == ["b", "-", "-", "-", "+", "+", "+"]
    assert "main@4" in lines[0]
    assert run("diff", "main", "main").stdout.count("\n") == 1
    other = run("new", "other", "--no-checkout").stdout.strip()
    assert "share no event" in run("diff", "main", f"{other}/", code=1).stdout
    run("merge-base", "main", f"{other}/", code=1)


def test_reset_goes_back_and_says_where_it_was(store: str, run: Run) -> None:
    """Written as a place or with --to; other branches read what they read before."""
    before = run("cat", "idea-b").stdout
    assert run("reset", "main@3").stdout == f"{store}/main@3\n"
    run("reset", "main~1")
    run("reset", f"{store}/main", "--to", "1")
    assert [row["seq"] for row in rows(run("log", "--json"))] == [1]
    assert run("cat", "idea-b").stdout == before


def test_branches_are_renamed_deleted_and_brought_back(store: str, run: Run) -> None:
    """The trash gives back what was deleted, under another name if wanted."""
    run("branch", "-m", "idea-b", "kept")
    run("branch", "-d", "kept")
    run("log", "kept", code=3)
    assert "kept" in run("undelete").stdout
    run("undelete", f"{store}/kept", "--as", "back")
    assert [row["branch"] for row in rows(run("branch", "--json"))] == ["main", "back"]
    assert "* main" in run("branch").stdout


def test_a_branch_is_brought_back_by_the_words_its_deletion_prints(store: str, run: Run) -> None:
    """`branch -d` prints the command that undoes it; the bare name and /NAME do in the session they are of."""
    said = run("branch", "-d", "idea-b").stderr
    (command,) = re.findall(r"castlog (undelete \S+) brings it back", said)
    assert run(*command.split()).stdout == f"{store}/idea-b\n"
    for name in ("idea-b", "/idea-b"):
        run("branch", "-d", "idea-b")
        assert run("undelete", name).stdout == f"{store}/idea-b\n"
    run("branch", "-d", "idea-b")
    run("new", "other")
    run("undelete", "idea-b", code=3)


def test_the_environment_says_whose_branch_is_brought_back(
    store: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare name is a branch of the session CASTLOG_REV names."""
    run("branch", "-d", "idea-b")
    run("new", "other")
    monkeypatch.setenv("CASTLOG_REV", f"{store}/main")
    assert run("undelete", "idea-b").stdout == f"{store}/idea-b\n"
    run("session", "-d", f"{store}/")
    assert run("undelete", store[-8:]).stdout == f"{store}\n"


def test_deleting_the_current_branch_says_which_is_current_then(store: str, run: Run) -> None:
    """The session's main becomes current; nothing is said of it where another branch was deleted."""
    run("checkout", "idea-b")
    assert f"The current branch is {store[-8:]}/main now." in run("branch", "-d", "idea-b").stderr
    run("fork", "idea-c")
    assert "current" not in run("branch", "-d", "idea-c").stderr


def test_tags_stay_where_they_are(store: str, run: Run) -> None:
    """A tag keeps its event when its branch moves on, and is deleted by name."""
    run("tag", "here", "idea-b")
    run("append", "idea-b", "--text", "on")
    assert {row["tag"]: row["seq"] for row in rows(run("tag", "--json"))} == {"before": 3, "here": 6}
    run("tag", "-d", "here", "before")
    assert "No tag" in run("tag").stderr


def test_sessions_are_labelled_renamed_deleted(store: str, run: Run) -> None:
    """`session` changes what a listing shows; what is deleted is not listed until it is brought back."""
    run("session", "main", "-m", "second try", "--label", "kept=yes", "--unlabel", "team")
    (row,) = rows(run("sessions", "--json", "--label", "kept=yes", "--title", "second try"))
    assert row["labels"] == {"kept": "yes"}
    run("session", "main", "-d")
    assert run("sessions").stdout == ""
    assert run("undelete", store).stdout == f"{store}\n"
    assert store[-8:] in run("sessions").stdout


def test_the_environment_stands_in_for_what_is_checked_out(
    store: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASTLOG_REV is the default revision, and short forms are read in its session and branch."""
    other = run("new", "other").stdout.strip()
    run("append", "--text", "elsewhere")
    monkeypatch.setenv("CASTLOG_REV", f"{store}/idea-b")
    assert rows(run("log", "--json"))[0]["rev"] == f"{store}/idea-b@6"
    assert rows(run("log", "@5", "--json"))[0]["rev"] == f"{store}/idea-b@5"
    assert rows(run("log", "main", "--json"))[0]["rev"] == f"{store}/main@6"
    assert rows(run("log", "/main~1", "--json"))[0]["rev"] == f"{store}/main@5"
    assert rows(run("log", f"{other}/", "--json"))[0]["rev"] == f"{other}/main@1"
    assert {row["branch"]: row["current"] for row in rows(run("branch", "--json"))} == {"main": False, "idea-b": True}
    assert rows(run("checkout", "main", "--json"))[0]["rev"] == f"{store}/main"


def test_a_stale_setting_is_named(store: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If CASTLOG_REV names nothing, the sentence says that it is the variable; full revisions work all the same."""
    monkeypatch.setenv("CASTLOG_REV", "gone")
    assert "CASTLOG_REV is 'gone'" in run("log", code=3).stderr
    assert "CASTLOG_REV is 'gone'" in run("log", "main", code=3).stderr
    run("log", f"{store}/main")


def test_without_a_revision_the_sentence_says_what_to_do(home: Path, run: Run) -> None:
    """Where nothing is checked out and nothing is written, exit 3 and a way out."""
    run("init")
    assert "checkout" in run("log", code=3).stderr


def test_sub_agents_stand_beneath_what_started_them(store: str, home: Path, run: Run) -> None:
    """`--children` lists sub-agents' sessions indented; without it they are left out."""
    with castlog.open(home / "project" / ".castlog") as opened:
        call = opened.branch("main").read(6)
        child = opened.create_session("helper", parent=call)
        opened.create_session("helper of helper", parent=child.branch("main").append("tool_call", {}))
    assert len(run("sessions").stdout.splitlines()) == 1
    lines = run("sessions", "--children").stdout.splitlines()
    assert [line.partition("└")[1] for line in lines] == ["", "└", "└"]
    assert lines[2].index("└") > lines[1].index("└")
    result = run("sessions", "--children", "-n", "2")
    assert result.stdout.splitlines() == lines[:2]
    assert "1 more" in result.stderr


def test_what_a_listing_leaves_out_is_said(home: Path, run: Run) -> None:
    """Fifty sessions are listed unless told, and stderr says how many there are more."""
    with castlog.open(home / "project" / ".castlog") as opened:
        for n in range(60):
            opened.create_session(f"run {n}")
    result = run("sessions")
    assert len(result.stdout.splitlines()) == 50
    assert "10 more" in result.stderr
    assert len(run("sessions", "-n", "0").stdout.splitlines()) == 60


def test_verify_and_du_say_what_they_looked_at(store: str, run: Run) -> None:
    """A sound store is ok; sizes are given in three ways."""
    assert run("verify", "--deep").stdout.splitlines()[-1].startswith("ok: checked")
    shallow = run("verify", "idea-b")
    assert shallow.stdout.startswith("ok")
    assert "Large payloads were not re-hashed" in shallow.stderr
    assert run("verify", "--deep").stderr == ""
    report = rows(run("du", "--json"))[0]
    assert report["events"] == 8
    assert report["logical"] >= report["distinct"]


def test_damage_is_listed_and_exits_1(store: str, home: Path, run: Run) -> None:
    """A byte flipped in the file is a finding of `verify`; reading what it hit exits 6, reading the rest goes on."""
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.branch("idea-b").append("note", {"text": "marked-for-damage " + "y" * 3000})
    data = next(path for path in (home / "project" / ".castlog").rglob("*.mdb") if "lock" not in path.name)
    raw = bytearray(data.read_bytes())
    place = raw.find(b"marked-for-damage")
    assert place >= 0, "an open record is expected to lie there as it is"
    while place >= 0:
        raw[place] ^= 1
        place = raw.find(b"marked-for-damage")
    data.write_bytes(raw)
    result = run("verify", "--deep", code=1)
    assert "error" in result.stdout
    run("show", "idea-b@7", code=6)
    run("show", "main@1")
    before = data.read_bytes()
    refused = run("compact", code=6)
    assert "castlog verify" in refused.stderr
    assert refused.stdout == ""
    assert data.read_bytes() == before


def test_compact_says_what_it_saved(store: str, home: Path, run: Run) -> None:
    """One line: from how much to how much, and what went back to the disk; all reads as before."""
    with castlog.open(home / "project" / ".castlog") as opened:
        branch = opened.branch("idea-b")
        for number in range(200):
            branch.append("note", {"text": f"the same long line, number {number}; " * 20})
    before = run("cat", "idea-b").stdout
    line = run("compact").stdout
    assert re.fullmatch(r"\d\S* [kM]B -> \d\S* [kM]B, \d\S* [kM]B returned\n", line), line
    assert run("compact").stdout.endswith(", nothing to return\n")
    assert run("cat", "idea-b").stdout == before
    run("verify", "--deep")


def test_compact_says_that_another_is_under_way(store: str, home: Path, run: Run) -> None:
    """Nothing is said of locks and seconds; the hint says what to do."""
    refused = []
    with castlog.open(home / "project" / ".castlog") as opened:
        opened.compact(progress=lambda progress: refused.append(run("compact", code=5).stderr))
    assert f"is being rebuilt already, by process {os.getpid()}" in refused[0]
    assert "hint: Wait until" in refused[0]


def test_checkout_writes_a_history_as_files(store: str, home: Path, run: Run) -> None:
    """transcript.jsonl is what cat prints, state.json says what it is of, attachments are decoded; all private."""
    (home / "dot.png").write_bytes(b"\x89PNG" + bytes(100))
    with castlog.open(home / "project" / ".castlog") as opened:
        for _ in range(2):  # the same picture twice is one file
            opened.branch("main").append("note", {"content": [{"source": castlog.attachment(home / "dot.png")}]})
    run("checkout", "main", "--out", "there")
    out = home / "project" / "there"
    assert (out / "transcript.jsonl").read_text() == run("cat", "main").stdout
    state = json.loads((out / "state.json").read_text())
    assert (state["seq"], state["types"]["note"]) == (8, 2)
    assert [call["call_ids"] for call in state["in_flight"]] == [["c2"]]
    assert (state["reducer"], state["state"]["counts"]) == (
        "conversation",
        rows(run("replay", "--json"))[0]["state"]["counts"],
    )
    (picture,) = (out / "attachments").iterdir()
    assert picture.suffix == ".png"
    assert picture.read_bytes() == (home / "dot.png").read_bytes()
    assert {row["file"] for row in state["attachments"]} == {f"attachments/{picture.name}"}
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert stat.S_IMODE((out / "state.json").stat().st_mode) == 0o600


def test_checkout_of_a_point_leaves_the_current_branch(store: str, home: Path, run: Run) -> None:
    """A tag or a seq can be written out, and nothing else changes."""
    run("checkout", "before", "--out", "there")
    assert "* main" in run("branch").stdout
    assert json.loads((home / "project" / "there" / "state.json").read_text())["seq"] == 3


def test_checkout_of_a_point_names_the_option_that_forks_there(store: str, run: Run) -> None:
    """A place that is no branch is refused with the command that would do."""
    for rev in ("main~1", "main@3", "before"):
        assert f"castlog checkout {rev} -b NAME" in run("checkout", rev, code=4).stderr
    assert "-b NAME" not in run("checkout", "nowhere", code=3).stderr


def test_names_in_a_payload_lead_nowhere(store: str, home: Path, run: Run) -> None:
    """A media type made up to be a path does not become one."""
    with castlog.open(home / "project" / ".castlog") as opened:
        for media_type in ("../../../evil", "text/../../x", "image/png/../../..", ""):
            data = {"type": "base64", "media_type": media_type, "data": "AAAA", "name": "../../evil"}
            opened.branch("main").append("note", {"a": data, "b": data | {"data": "AAAB"}})
    run("checkout", "main", "--out", "deep/there")
    written = {
        path.relative_to(home / "project" / "deep") for path in (home / "project" / "deep").rglob("*") if path.is_file()
    }
    assert all(path.parts[0] == "there" for path in written)
    assert not list(home.rglob("*evil*"))


def test_force_replaces_only_what_is_named_alike(store: str, home: Path, run: Run) -> None:
    """A folder with other files keeps them; without --force nothing is touched."""
    there = home / "project" / "there"
    there.mkdir()
    (there / "mine.txt").write_text("mine")
    (there / "state.json").write_text("old")
    run("checkout", "main", "--out", "there", code=5)
    run("checkout", "main", "--out", "there", "--force")
    assert (there / "mine.txt").read_text() == "mine"
    assert json.loads((there / "state.json").read_text())["seq"] == 6
    assert sorted(path.name for path in there.iterdir()) == ["mine.txt", "state.json", "transcript.jsonl"]
    assert sorted(path.name for path in (home / "project").iterdir()) == [".castlog", "there"]


def test_export_is_private_whole_and_never_over_another_file(store: str, home: Path, run: Run) -> None:
    """-o writes 0600, refuses an existing file without --force, and gives what stdout would."""
    run("export", "main", "-o", "main.jsonl")
    path = home / "project" / "main.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == run("export", "main").stdout
    run("export", "idea-b", "-o", "main.jsonl", code=5)
    run("export", "idea-b", "-o", "main.jsonl", "--force")
    assert path.read_text() == run("export", "idea-b").stdout
    assert [item.name for item in (home / "project").iterdir() if item.name != ".castlog"] == ["main.jsonl"]
    run("export", "main", "-o", "/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_an_export_imported_elsewhere_has_equal_ids(store: str, home: Path, run: Run) -> None:
    """Jsonl and bundle travel with their ids; the second time nothing is added."""
    ids = [row["id"] for row in rows(run("cat", "idea-b"))]
    run("export", "-o", "all.bundle", "--format", "bundle")
    for added in (8, 0):
        result = rows(run("import", "all.bundle", "--store", str(home / "second"), "--json"))
        assert result[-1]["added"] == added
    copied = rows(run("--store", str(home / "second"), "cat", f"{store}/idea-b"))
    assert [row["id"] for row in copied] == ids


def test_import_keeps_damaged_lines_aside_and_exits_8(home: Path, run: Run) -> None:
    """Losses are listed with file and line, the rest is there, and the file comes back byte for byte."""
    data = b'{"a": 1}\n{"b": 2\n{"c":  3}\n'
    (home / "project" / "log.jsonl").write_bytes(data)
    result = run("import", "log.jsonl", code=8)
    assert "log.jsonl:2" in result.stdout
    assert "1 damaged stretch kept aside" in result.stdout
    (file, summary) = rows(run("import", "log.jsonl", "--json", code=8))
    assert (file["status"], summary["added"]) == ("unchanged", 0)
    assert run("export", file["rev"], "--format", "source").stdout_bytes == data


def test_a_damaged_export_is_not_called_a_damaged_store(store: str, home: Path, run: Run) -> None:
    """An export with a byte changed exits 6 with a hint about the file; verify finds the store sound."""
    run("export", "-o", "all.jsonl")
    path = home / "project" / "all.jsonl"
    path.write_bytes(path.read_bytes().replace(b"try harder", b"try HARDER"))
    said = run("--store", str(home / "second"), "import", "all.jsonl", code=6).stderr
    assert "fetch it again" in said
    assert "lists what is damaged" not in said
    run("--store", str(home / "second"), "verify")


def test_a_hint_that_came_with_the_error_is_the_one_shown() -> None:
    """The fact `hint` wins over the table's hint for its kind, and is not told twice."""
    told = errors.tell(castlog.Corrupt("broken", hint="fetch it again", path="x"))
    assert told is not None
    assert (told.hint, told.facts) == ("fetch it again", {"path": "x"})
    told = errors.tell(castlog.Corrupt("broken"))
    assert told is not None
    assert "castlog verify" in (told.hint or "")


def test_files_that_are_skipped_are_counted_by_reason(home: Path, run: Run) -> None:
    """Of many files each reason for leaving some out is said with its count."""
    folder = home / "project" / "many"
    folder.mkdir()
    for n in range(30):
        (folder / f"{n}.jsonl").write_text('{"a": 1}\n{"b": 2}\n' if n < 10 else "" if n < 19 else "[1,\n 2]\n")
    shown = run("import", "many").stdout
    assert re.search(r"^ +9 empty$", shown, re.MULTILINE)
    assert re.search(r"^ +11 [^ ]", shown, re.MULTILINE)


def test_a_note_on_an_imported_file_stands_below_where_it_does_not_fit(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long line is not made longer by its note."""
    monkeypatch.setenv("COLUMNS", "60")
    name = "a-file-with-a-rather-long-name-for-a-terminal.jsonl"
    (home / "project" / name).write_text("")
    first, second = run("import", name).stdout.splitlines()[:2]
    assert first == f"skipped    {name}"
    assert second.strip() == "(empty)"


def test_ten_thousand_sessions_are_listed_in_a_moment(home: Path, run: Run) -> None:
    """A listing streams: ten thousand rows take seconds at most, fifty much less."""
    with castlog.open("memory:") as opened:
        assert opened.sessions() == []
    path = home / "many"
    with castlog.open(path) as opened:
        for n in range(300):
            opened.create_session(f"run {n}")
    started = time.monotonic()
    assert len(run("--store", str(path), "sessions", "-n", "0").stdout.splitlines()) == 300
    assert time.monotonic() - started < 2
