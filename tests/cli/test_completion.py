"""Completion as shells ask for it: commands, options, revisions; never an error in mid-line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import PROGRAM, Run, program


def _bash(line: str, breaks: str = " \t\n\"'@><=;|&(:") -> list[str]:
    """Ask as the bash function does, with the cursor at the end."""
    done = program(
        env=os.environ
        | {
            "_CASTLOG_COMPLETE": "bash_complete",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line.encode())),
            "CASTLOG_BREAKS": breaks,
        }
    )
    assert done.stderr == b""
    return [answer.partition(",")[2] for answer in done.stdout.decode().splitlines() if answer]


def test_commands_and_options(store: str) -> None:
    """Words that begin alike are offered."""
    assert _bash("castlog pro") == ["promote"]
    assert "merge-base" in _bash("castlog ")
    assert _bash("castlog log --gr") == ["--graph"]
    assert _bash("castlog sessions --sort cre") == ["created"]


def test_revisions(store: str) -> None:
    """Branches, tags and sessions of the store are offered, also behind other options."""
    assert set(_bash("castlog log ")) >= {"main", "idea-b", "before"}
    assert _bash("castlog --json log ide") == ["idea-b"]
    assert _bash("castlog diff main ide") == ["idea-b"]
    assert _bash(f"castlog log {store[-8:]}/id") == [f"{store[-8:]}/idea-b"]


def test_the_store_named_on_the_line_is_asked(store: str, home: Path, run: Run) -> None:
    """--store before or after the command decides whose revisions are offered."""
    run("--store", str(home / "other"), "new", "elsewhere")
    run("--store", str(home / "other"), "fork", "only-there")
    assert _bash(f"castlog --store {home / 'other'} log only") == ["only-there"]
    assert _bash(f"castlog log --store {home / 'other'} only") == ["only-there"]
    assert _bash("castlog log only") == []


def test_words_that_bash_breaks_are_answered_from_the_break_on(store: str, run: Run) -> None:
    """Bash takes what follows @, : or = for a word of its own, so the answer has only that."""
    run("fork", "a=b")
    assert _bash("castlog log a=") == ["b"]
    assert _bash("castlog log a=", breaks=" ") == ["a=b"]


def test_calls_in_flight_are_offered_for_decisions(store: str, run: Run) -> None:
    """Each with the actions that need no more words; of the branch that is named."""
    assert _bash("castlog resume --decide ") == ["c2=retry", "c2=fail"]
    assert _bash("castlog resume main --decide c2=f", breaks=" ") == ["c2=fail"]
    assert _bash("castlog resume main --decide c2=f") == ["fail"]
    assert _bash("castlog resume idea-b --decide ") == []
    run("append", "--type", "tool_call", "--call-id", "x;reboot", "--data", "{}")
    assert _bash("castlog resume --decide x") == []


def test_no_store_is_no_error(run: Run) -> None:
    """Where nothing can be offered, nothing is said."""
    assert _bash("castlog log ma") == []
    assert _bash("castlog --store /nowhere log ma") == []


def test_names_a_shell_would_obey_are_not_offered(store: str, run: Run) -> None:
    """A branch name is data; one with $, ; or ` in it never lands on a command line."""
    for name in ("x;reboot", "x$(reboot)", "x`reboot`", "x|y", "x&y"):
        run("fork", name)
    assert _bash("castlog log x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_to_put_into_the_shells_file_works(shell: str, run: Run) -> None:
    """`completion` prints a line, and what that line runs gives a script for the shell."""
    result = run("completion", shell)
    line = result.stdout
    assert result.stderr == ""
    assert f"_CASTLOG_COMPLETE={shell}_source" in line
    done = program(env=os.environ | {"_CASTLOG_COMPLETE": f"{shell}_source"})
    assert done.returncode == 0
    assert b"castlog" in done.stdout


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_itself_completes(store: str, home: Path) -> None:
    """The script, run by bash, fills in what the person began."""
    program_file = home / "castlog"
    program_file.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in PROGRAM) + ' "$@"\n')
    program_file.chmod(0o755)
    script = (
        f"PATH={home}:$PATH\n"
        'eval "$(_CASTLOG_COMPLETE=bash_source castlog)"\n'
        "COMP_LINE='castlog log ide'; COMP_POINT=15; COMP_WORDS=(castlog log ide); COMP_CWORD=2\n"
        "_castlog_completion castlog ide log 2>/dev/null\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False, text=True)
    assert done.stdout == "idea-b\n", done.stderr
