"""Wrong input to every command: the exit code of the table, a sentence that says what is wrong, nothing written."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from castlog_cli.main import COMMANDS

import castlog

from .conftest import Run, command_line

USAGE, NOT_FOUND, INVALID, CONFLICT = 2, 3, 4, 5
TALLY = ("--reducer", "tally:tally")
BAD = [
    (("init", "a", "b"), USAGE, "unexpected extra argument"),
    (("init", ""), USAGE, "DIR is empty"),
    (("init", "full"), INVALID, "holds other files"),
    (("new",), USAGE, "Missing argument 'TITLE'"),
    (("new", ""), INVALID, "empty"),
    (("new", "a\nb"), INVALID, "control character"),
    (("new", "x", "--label", "web"), USAGE, "KEY=VALUE"),
    (("new", "x" * 5000), INVALID, "bytes long"),
    (("append",), USAGE, "one of --text TEXT, --data JSON"),
    (("append", "--text", "a", "--data", "{}"), USAGE, "one of --text TEXT, --data JSON"),
    (("append", "main", "idea-b", "--text", "a"), USAGE, "at most one REV"),
    (("append", "-", "--key", "k"), USAGE, "its own call_id and key"),
    (("append", "--data", "{oops"), INVALID, "--text TEXT takes plain text"),
    (("append", "--data", ""), USAGE, "--data is empty"),
    (("append", "--data", '{"a":1,"a":2}'), INVALID, "a"),
    (("append", "--data", "[NaN]"), INVALID, ""),
    (("append", "--data", "[" * 200 + "]" * 200), INVALID, ""),
    (("append", "--text", "a", "--type", ""), INVALID, "event type"),
    (("append", "--text", "a", "--call-id", ""), INVALID, "call id"),
    (("append", "nowhere", "--text", "a"), NOT_FOUND, "nowhere"),
    (("append", "main@3", "--text", "a"), INVALID, "fork"),
    (("append", "before", "--text", "a"), INVALID, "fork"),
    (("append", "HEAD@99", "--text", "a"), NOT_FOUND, "99"),
    (("import",), USAGE, "Missing argument"),
    (("import", "nothing/here"), NOT_FOUND, "nothing/here"),
    (("import", "full", "nothing/here"), NOT_FOUND, "nothing/here"),
    (("import", ""), NOT_FOUND, "empty"),
    (("import", "full", "--format", "word"), USAGE, "word"),
    (("sessions", "-n", "-1"), USAGE, "-1"),
    (("sessions", "--since", "soon"), USAGE, "write an age"),
    (("sessions", "--sort", "beauty"), USAGE, "beauty"),
    (("sessions", "--label", "web"), USAGE, "KEY=VALUE"),
    (("log", "--graph", "--turns"), USAGE, "do not go together"),
    (("log", "-n", "x"), USAGE, "x"),
    (("log", "nowhere"), NOT_FOUND, "nowhere"),
    (("log", "main@"), INVALID, "is no revision"),
    (("log", "main@99"), NOT_FOUND, "99"),
    (("log", "main~99"), NOT_FOUND, "99"),
    (("log", "a/b/c"), NOT_FOUND, "a"),
    (("log", "--", "-x"), NOT_FOUND, "-x"),
    (("show", "main@0"), NOT_FOUND, "no event"),
    (("show", "main@b3:zz"), INVALID, "is no revision"),
    (("show", "main@b3:0000000000000000"), NOT_FOUND, "b3:0000000000000000"),
    (("show", "../x"), NOT_FOUND, ".."),
    (("cat", "main", "--from", "0"), USAGE, "0"),
    (("cat", "nowhere"), NOT_FOUND, "nowhere"),
    (("tail", "--all", "main"), USAGE, "takes no REV"),
    (("tail", "nowhere"), NOT_FOUND, "nowhere"),
    (("tail", "-f", "main@2"), INVALID, "fork"),
    (("grep",), USAGE, "Missing argument 'PATTERN'"),
    (("grep", "("), INVALID, "("),
    (("grep", "x", "nowhere"), NOT_FOUND, "nowhere"),
    (("grep", "nobody wrote this"), 1, ""),
    (("diff", "main"), USAGE, "Missing argument"),
    (("diff", "main", "nowhere"), NOT_FOUND, "nowhere"),
    (("diff", "main", "main", "--state", "--reducer", "nowhere:x"), USAGE, "no module nowhere"),
    (("merge-base", "main"), USAGE, "Missing argument"),
    (("merge-base", "nowhere", "main"), NOT_FOUND, "nowhere"),
    (("reflog", "nowhere"), NOT_FOUND, "nowhere"),
    (("reflog", "before"), INVALID, "fork"),
    (("replay", "nowhere", *TALLY), NOT_FOUND, "nowhere"),
    (("replay", "main@99", *TALLY), NOT_FOUND, "99"),
    (("replay", "--until", "99", *TALLY), NOT_FOUND, "its seqs are 0 to 6"),
    (("replay", "--until", "-1"), USAGE, "-1"),
    (("replay", "--until", "4", "--diff", "2..4"), USAGE, "do not go together"),
    (("replay", "--diff", "4"), USAGE, "is not M..N"),
    (("replay", "--diff", "4..4"), USAGE, "is not M..N"),
    (("replay", "--diff", "4..99", *TALLY), NOT_FOUND, "its seqs are 0 to 6"),
    (("replay", "--step", "--diff", "1..2"), USAGE, "neither --diff nor --json"),
    (("replay", "--reducer", "tally"), USAGE, "is not MODULE:NAME"),
    (("replay", "--reducer", "tally:broken"), INVALID, "the reducer broken, at seq 2"),
    (("bisect", "main"), USAGE, "Missing option '--check'"),
    (("bisect", "nowhere", "--check", "true", *TALLY), NOT_FOUND, "nowhere"),
    (("bisect", "--good", "4", "--bad", "4", "--check", "true", *TALLY), INVALID, "give 0 <= good < bad <= 6"),
    (("bisect", "--bad", "9", "--check", "true", *TALLY), INVALID, "give 0 <= good < bad <= 6"),
    (("bisect", "--check", "tally:nothing", *TALLY), USAGE, "has no nothing"),
    (("bisect", "--check", "nowhere:few", *TALLY), USAGE, "no module nowhere"),
    (("bisect", "--check", "tally:odd", *TALLY), INVALID, "the check tally:odd, at seq 3, raised KeyError: 'nothing'"),
    (("resume", "nowhere"), NOT_FOUND, "nowhere"),
    (("resume", "main@3"), INVALID, "fork"),
    (("resume", "--reason", "x"), USAGE, "goes with --decide"),
    (("resume", "--decide", "c2"), USAGE, "is not CALL=ACTION"),
    (("resume", "--decide", "c2=dance"), INVALID, "is no decision"),
    (("resume", "--decide", "c9=fail"), NOT_FOUND, "is not in flight"),
    (("resume", "--decide", "c2=from:idea-b"), NOT_FOUND, "has no result"),
    (("resume", "--decide", "c2=result:nothing/here"), NOT_FOUND, "nothing/here"),
    (("snapshot", "nowhere"), NOT_FOUND, "nowhere"),
    (("snapshot", "--make", "-d", "main"), USAGE, "do not go together"),
    (("snapshot", "-d"), USAGE, "snapshot -d main@40"),
    (("snapshot", "main@0", "--make", *TALLY), INVALID, "no events to fold"),
    (("snapshot", "--make", "--reducer", "nowhere:x"), USAGE, "no module nowhere"),
    (("checkout",), USAGE, "Missing argument 'REV'"),
    (("checkout", "before"), INVALID, "fork"),
    (("checkout", "main@2"), INVALID, "fork"),
    (("checkout", "nowhere"), NOT_FOUND, "nowhere"),
    (("checkout", "main", "-b", "idea-b"), CONFLICT, "idea-b"),
    (("checkout", "main", "--out", "full"), CONFLICT, "not empty"),
    (("checkout", "main", "--out", "full/file"), CONFLICT, "is a file"),
    (("checkout", "main", "--out", ""), USAGE, "name of a folder"),
    (("fork",), USAGE, "Missing argument 'NAME'"),
    (("fork", "idea-b"), CONFLICT, "idea-b"),
    (("fork", "before"), CONFLICT, "before"),
    (("fork", "\udcff\udcfe"), INVALID, "write it in UTF-8"),
    (("log", "\udcff\udcfe"), INVALID, "write it in UTF-8"),
    (("fork", "x", "main@99"), NOT_FOUND, "99"),
    (("fork", "x", "-n", "0"), USAGE, "0"),
    (("fork", "x", "-n", "100000000"), INVALID, "at a time"),
    (("fork", "idea", "main", "-n", "nine"), USAGE, "nine"),
    (("fork", "x", "--edit", "-n", "2"), USAGE, "without -n"),
    (("fork", "x", "--edit", "--edit-with", "full/file"), USAGE, "without each other"),
    (("fork", "x", "main@0", "--edit-with", "full/file"), NOT_FOUND, "no event to edit"),
    (("fork", "x", "main@4", "--edit-with", "nothing/here"), NOT_FOUND, "nothing/here"),
    (("fork", "x", "main@4", "--edit-with", "-"), INVALID, "stdin is no payload"),
    (("fork", "x", "main@4", "--edit-with", "full"), INVALID, "full"),
    (("branch", "new-one"), USAGE, "castlog fork new-one"),
    (("branch", "-m", "-d", "main"), USAGE, "do not go together"),
    (("branch", "-m"), USAGE, "-m OLD NEW"),
    (("branch", "-m", "idea-b", "main"), CONFLICT, "main"),
    (("branch", "-m", "before", "x"), INVALID, "before"),
    (("branch", "-d"), USAGE, "which branches"),
    (("branch", "-d", "idea-b", "nowhere"), NOT_FOUND, "nowhere"),
    (("branch", "--session", "ffff"), NOT_FOUND, "ffff"),
    (("tag", "main"), CONFLICT, "main"),
    (("tag", "before"), CONFLICT, "before"),
    (("tag", "x", "main", "y"), USAGE, "NAME [REV]"),
    (("tag", "x", "nowhere"), NOT_FOUND, "nowhere"),
    (("tag", "-d"), USAGE, "which tags"),
    (("tag", "-d", "before", "main"), NOT_FOUND, "is no tag"),
    (("promote",), USAGE, "Missing argument 'REV'"),
    (("promote", "nowhere"), NOT_FOUND, "nowhere"),
    (("promote", "idea-b", "--onto", "nowhere"), NOT_FOUND, "nowhere"),
    (("promote", "idea-b", "--onto", "before"), NOT_FOUND, "before"),
    (("promote", "before"), INVALID, "fork"),
    (("reset",), USAGE, "Missing argument 'REV'"),
    (("reset", "main"), USAGE, "castlog reset main@40"),
    (("reset", "@2"), USAGE, "castlog reset main@40"),
    (("reset", "main@2", "--to", "1"), USAGE, "castlog reset main@40"),
    (("reset", "main@99"), NOT_FOUND, "99"),
    (("reset", "main", "--to", "99"), NOT_FOUND, "99"),
    (("reset", "before@1"), INVALID, "fork"),
    (("session", "-d"), USAGE, "which session"),
    (("session", "main", "-d", "-m", "x"), USAGE, "stands alone"),
    (("session", "main", "-m", ""), INVALID, "empty"),
    (("session", "main", "--label", "web"), USAGE, "KEY=VALUE"),
    (("session", "nowhere"), NOT_FOUND, "nowhere"),
    (("undelete", "nowhere"), NOT_FOUND, "nowhere"),
    (("undelete", "--as", "x"), USAGE, "--as needs"),
    (("export", "nowhere"), NOT_FOUND, "nowhere"),
    (("export", "--format", "word"), USAGE, "word"),
    (("export", "main", "-o", "full/file"), CONFLICT, "exists already"),
    (("export", "main", "-o", "no/such/folder/x"), NOT_FOUND, "no folder no/such/folder hint: Make it first: mkdir"),
    (("export", "main", "-o", "full/file/x"), NOT_FOUND, "no folder full/file"),
    (("export", "main", "-o", ""), USAGE, "name of a file"),
    (("export", "main", "--from", "2"), USAGE, "--format source"),
    (("export", "main", "--format", "bundle", "--json"), USAGE, "-o FILE"),
    (("export", "main", "--format", "source", "-o", "-", "--json"), USAGE, "-o FILE"),
    (("verify", "nowhere"), NOT_FOUND, "nowhere"),
    (("verify", "--fast"), USAGE, "--fast"),
    (("verify", "--drop"), USAGE, "go with --snapshots"),
    (("verify", *TALLY), USAGE, "go with --snapshots"),
    (("verify", "--snapshots", "--reducer", "nowhere:x"), USAGE, "no module nowhere"),
    (("du", "nowhere"), NOT_FOUND, "nowhere"),
    (("compact", "extra"), USAGE, "unexpected extra argument"),
    (("completion", "tcsh"), USAGE, "tcsh"),
    (("demo", "extra"), USAGE, "unexpected extra argument"),
]  # fmt: skip


def test_the_table_has_every_command() -> None:
    """No command goes without a wrong input."""
    assert {words[0] for words, _, _ in BAD} == set(COMMANDS)


@pytest.mark.parametrize(("words", "code", "phrase"), BAD, ids=command_line)
def test_wrong_input_is_refused(
    words: tuple[str, ...], code: int, phrase: str, store: str, tally: str, home: Path, run: Run
) -> None:
    """The sentence is on stderr, stdout is empty, and the store is as it was; --json gives the same as an object."""
    folder = home / "project" / "full"
    folder.mkdir()
    (folder / "file").write_text('{"a": 1}\n')
    before = _state(home)
    result = run(*words, code=code, input="")
    assert result.stdout == ""
    assert phrase in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert _state(home) == before
    if code > 1:
        told = json.loads(run(words[0], "--json", *words[1:], code=code, input="").stderr)
        assert told["code"] == code
        assert set(told) == {"error", "code", "message", "hint", "facts"}
    assert _state(home) == before


NAMES = {
    "../x": "/",
    "-x": "begins with",
    "": "empty",
    "x" * 600: "bytes long",
    "a b": "leave out",
    "a@b": "leave out",
    "HEAD": "HEAD",
    ".x": "begins with",
    "a\x1bb": "control character",
}


NAMING = [("fork",), ("tag",), ("branch", "-m"), ("checkout", "main", "-b")]
CASES = [(words, name) for words in NAMING for name in NAMES] + [
    (("fork", "-n", "2"), name)
    for name in NAMES
    if name not in ("", "HEAD")  # with a number behind them these have no fault, or another
]


@pytest.mark.parametrize(("words", "name"), CASES, ids=lambda value: command_line(value)[:20])
def test_a_name_that_cannot_be_kept_is_refused(
    words: tuple[str, ...], name: str, store: str, home: Path, run: Run
) -> None:
    """Exit 4, what is wrong with the name, nothing written."""
    before = _state(home)
    named = ("--", name) if name.startswith("-") and words[-1] != "-b" else (name,)
    result = run(*words, *named, code=4)
    assert NAMES[name] in result.stderr
    assert "\x1b" not in result.stderr
    assert _state(home) == before


def test_two_unicode_forms_are_one_name(store: str, run: Run) -> None:
    """A name typed in either form is the same branch, and there can be only one of it."""
    composed, apart = "idée", unicodedata.normalize("NFD", "idée")
    run("fork", apart)
    assert composed in run("branch").stdout
    run("fork", composed, code=5)
    assert run("log", composed).stdout == run("log", apart).stdout


def _state(home: Path) -> object:
    """Return everything a command could have changed: all branches, tags, labels, the trash, and the files around."""
    with castlog.open(home / "project" / ".castlog", read_only=True, create=False) as store:
        sessions = [
            (s.info, {b.name: (b.head, len(b.reflog())) for b in s.branches()}, s.tags()) for s in store.sessions()
        ]
        current = store.current
        return (
            sessions,
            current and current.rev,
            store.trash(),
            sorted(str(path) for path in home.rglob("*") if ".castlog/" not in str(path)),
        )
