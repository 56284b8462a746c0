"""The benchmarks run and say what they say in a form that programs read. Nothing is timed here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEYS = {"verb", "what", "value", "unit", "ratio", "bar", "aim", "holds"}


def _run(*words: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "benchmarks"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *start, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def _figures(stdout: str) -> list[dict[str, Any]]:
    header, *figures = map(json.loads, stdout.splitlines())
    assert {"machine", "cpus", "python", "castlog", "lmdb", "commit", "filesystem", "command"} <= set(header["header"])
    return figures


def test_figures_are_one_object_a_line_with_keys_that_stay(tmp_path: Path) -> None:
    """Every line holds every key; castlog's ratio to a peer carries the bar of its row and whether it holds."""
    words = ["append_sync", "size_corpus", "--quick", "--rounds", "3", "--peers", "lmdb,sqlite", "--json"]
    run = _run(*words, "--dir", str(tmp_path))
    assert run.returncode == 0, run.stderr
    figures = _figures(run.stdout)
    assert all(set(figure) >= KEYS for figure in figures)
    assert {figure["what"] for figure in figures if figure["value"]} == {"castlog", "lmdb", "sqlite"}
    (barred,) = (figure for figure in figures if figure["bar"])
    assert (barred["verb"], barred["against"], barred["bar"], barred["aim"]) == ("append_sync", "lmdb", 0.9, 0.97)
    assert barred["holds"] is (barred["ratio"] >= 0.9)
    (left,) = (figure for figure in figures if figure["verb"] == "size_corpus")
    assert left["value"] is None
    assert "--corpus" in left["note"]
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_run_is_shown_again_as_a_table_and_as_a_page(tmp_path: Path) -> None:
    """What `--json` wrote is drawn for people, in signs the output can carry, and written for the README."""
    saved = tmp_path / "run.jsonl"
    saved.write_text(_run("import_time", "--quick", "--rounds", "1", "--json").stdout, encoding="utf-8")
    drawn = _run("--read", str(saved))
    assert drawn.returncode == 0, drawn.stderr
    assert "import castlog" in drawn.stdout
    assert "bar " in drawn.stdout
    page = _run("--read", str(saved), "--markdown")
    assert "| `import castlog` in a fresh interpreter | ≤ 60 ms | 45 ms |" in page.stdout


def test_writers_in_processes_of_their_own_are_measured() -> None:
    """Several processes append to one store, and are compared with one that writes alone."""
    run = _run("append_procs", "--quick", "--rounds", "1", "--json")
    assert run.returncode == 0, run.stderr
    assert "lmdb, one process" in {figure["against"] for figure in _figures(run.stdout)}


def test_only_the_peers_asked_for_are_measured(tmp_path: Path) -> None:
    """Verbs with peers of their own leave out the others too."""
    words = ["append_threads", "fork_many", "open", "restore_cold", "--quick", "--rounds", "2", "--json"]
    named = {word for name in ("lmdb", "jsonl", "sqlite") for word in (name, f"{name},")}
    for peers, expected in (("git", set()), ("jsonl", {"jsonl,"}), ("sqlite", {"sqlite"})):
        run = _run(*words, "--peers", peers, "--dir", str(tmp_path))
        assert run.returncode == 0, run.stderr
        assert {figure["what"].split()[0] for figure in _figures(run.stdout)} & named == expected


def test_a_folder_without_transcripts_is_left_out_in_a_sentence(tmp_path: Path) -> None:
    """Both verbs say so, and nothing fails."""
    (tmp_path / "notes.txt").write_text("no transcript\n", encoding="utf-8")
    run = _run("size_corpus", "import_corpus", "--corpus", str(tmp_path), "--json")
    assert run.returncode == 0, run.stderr
    found = _figures(run.stdout)
    assert [figure["verb"] for figure in found] == ["size_corpus", "import_corpus"]
    assert {figure["note"] for figure in found} == {
        "left out: the folder given with --corpus holds none of Claude Code or Codex"
    }


def test_a_file_that_is_no_earlier_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Text, other JSON, bytes, an empty file, a line that is no figure: exit code 2, and what is wrong where."""
    file = tmp_path / "run.jsonl"
    for content, named in (
        (b"hello\n", "line 1"),
        (b'{"a": 1}\n', "line 1"),
        (b"[]\n", "line 1"),
        (b'{"header": "\xff"}\n', "line 1"),
        (b"", "it is empty"),
        (b'{"header": {}}\n{"verb": 3}\n', "line 2"),
    ):
        file.write_bytes(content)
        run = _run("--read", str(file))
        assert run.returncode == 2
        assert run.stdout == ""
        (line,) = run.stderr.splitlines()
        assert "is not what --json writes" in line
        assert named in line


def test_an_unknown_word_is_refused_in_a_sentence() -> None:
    """Verbs, peers and folders that are not there end the run before anything is measured."""
    for words, named in ((["nonsense"], "nonsense"), (["--peers", "oracle"], "oracle"), (["--corpus", "/no"], "/no")):
        run = _run(*words)
        assert run.returncode == 2
        assert run.stdout == ""
        assert len(run.stderr.splitlines()) == 1
        assert named in run.stderr


def test_a_peer_that_is_not_installed_is_named_and_left_out() -> None:
    """The others are measured all the same."""
    code = """if True:
        import sys
        from benchmarks import command, peers
        peers.PEERS["absent"] = peers.Entry("plain", "RawLmdb", "no_such_module.within", "no-such-package")
        sys.exit(command.main(["append_sync", "--quick", "--rounds", "1", "--peers", "absent,lmdb", "--json"]))
    """
    run = _run(code=code)
    assert run.returncode == 0, run.stderr
    assert "absent is left out: no-such-package is not installed" in run.stderr
    assert json.loads(run.stdout.splitlines()[0])["header"]["left out"] == "absent (no-such-package)"
    assert "absent" not in {figure["what"] for figure in _figures(run.stdout)}


def test_the_list_names_every_verb_with_what_it_measures() -> None:
    """`--list` needs no store and no peer."""
    run = _run("--list")
    assert run.returncode == 0
    assert all(len(line.split(maxsplit=1)) == 2 for line in run.stdout.splitlines())
    assert {"append_sync", "memory", "scale_depth"} <= {line.split()[0] for line in run.stdout.splitlines()}


def test_the_page_has_a_row_for_every_bar(tmp_path: Path) -> None:
    """benchmarks/README.md shows each bar and aim as the table in the code has it."""
    saved = tmp_path / "empty.jsonl"
    saved.write_text('{"header": {}}\n', encoding="utf-8")
    rows = [line for line in _run("--read", str(saved), "--markdown").stdout.splitlines() if "not measured" in line]
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert len(rows) > 20
    for row in rows:
        assert row.split("not measured")[0] in page
