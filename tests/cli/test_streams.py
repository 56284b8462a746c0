"""How a run ends: closed pipes, full disks, signals, streams never open. Guards what was acknowledged already."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from castlog_cli.output import Out, Styled
from castlog_cli.signals import Terminated, held, install

import castlog

from .conftest import PROGRAM, Run, program


@contextmanager
def _running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run castlog with pipes for its streams; it does not outlive the block, whatever fails in it."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*PROGRAM, *words], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def _long(home: Path) -> None:
    with castlog.open(home / "project" / ".castlog") as store:
        main = store.branch("main")
        main.extend([("note", {"text": f"line {n} " + "x" * 200}) for n in range(3000)])


def test_a_reader_that_has_enough_ends_the_command_quietly(store: str, home: Path) -> None:
    """`castlog log | head -1`: no traceback, no sentence, and the exit code a shell gives for SIGPIPE."""
    _long(home)
    words = " ".join(["exec", *(f"'{word}'" for word in PROGRAM), "log"])
    script = f"set -o pipefail; ({words}; echo code $? >&2) | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False)
    assert done.stdout.count(b"\n") == 1
    with subprocess.Popen([*PROGRAM, "cat"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("cat",), ("--help",), ("export",), ("sessions", "--json")])
def test_a_full_disk_is_one_sentence(words: tuple[str, ...], store: str) -> None:
    """Output that cannot be written exits 7, also when it fits a buffer and fails only at the end."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 7
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_store_is_safe_from_streams_that_are_closed(store: str) -> None:
    """With stdin, stdout and stderr closed no file of the store gets their numbers, and the append is there."""
    words = " ".join(f"'{word}'" for word in [*PROGRAM, "append", "--text", "still here"])
    done = subprocess.run(["bash", "-c", f"{words} <&- >&- 2>&-"], timeout=60, check=False)
    assert done.returncode == 0
    assert b"still here" in program("cat").stdout
    assert program("verify", "--deep").returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_follower_cleanly(number: int, code: int, store: str) -> None:
    """Ctrl-C and SIGTERM close the store and exit 130 and 143 without a traceback."""
    with _running("tail", "-f") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert b"Traceback" not in said


def test_what_an_interrupted_append_printed_is_what_it_wrote(store: str) -> None:
    """Ctrl-C in mid-stream never falls between a commit and its seq: the last one printed is the last one there."""
    with _running("append", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seqs = []
        for n in range(20):
            process.stdin.write(b'{"type":"note","payload":%d}\n' % n)
            process.stdin.flush()
            seqs.append(int(process.stdout.readline()))
        process.stdin.write(b'{"type":"note","payload":"last"}\n')
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    last = int(rest.split()[-1]) if rest.split() else seqs[-1]
    with castlog.open(".castlog") as opened:
        assert opened.branch("main").head.seq == last


def test_a_seq_is_printed_as_soon_as_its_event_is_durable(store: str) -> None:
    """A harness that waits for the seq before it acts gets it though stdin stays open."""
    with subprocess.Popen([*PROGRAM, "append", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for n in range(3):
            process.stdin.write(b'{"type":"note","payload":%d}\n' % n)
            process.stdin.flush()
            assert int(process.stdout.readline()) == 7 + n
        process.stdin.close()
    assert process.returncode == 0


def test_nothing_recorded_drives_the_terminal(home: Path, store: str, run: Run) -> None:
    """Escape sequences in titles, types, payloads and call ids are shown as text, on a terminal and in a pipe."""
    attack = "\x1b[35m\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    with castlog.open(home / "project" / ".castlog") as opened:
        main = opened.branch("main")
        main.append("user_message", {"text": attack})
        main.append("note", {attack: [attack]})
        main.append("tool_call", {"name": attack, "args": {attack: attack}})
        main.append("tool_result", {"ok": False, "error": attack}, call_id="c9")
    for words in (
        ("log",), ("log", "--oneline"), ("log", "--turns"), ("tail",), ("show",), ("show", "main@8", "--full"),
        ("grep", "owned"), ("diff", "main", "idea-b"), ("sessions",), ("verify",), ("cat",), ("show", "--json"),
    ):  # fmt: skip
        seen = _on_a_terminal(*words)
        body = re.sub(r"\x1b\[(0|1|2|3[12346](;1)?)m", "", seen)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(body), (words, body)
        if words[0] not in ("cat",):
            piped = run(*words, code=None).stdout
            assert not {"\x1b", "\x07"} & set(piped), words


def test_a_line_is_cleaned_whoever_writes_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """What a command forgets to clean, the output cleans: plain and styled parts alike."""
    out = Out()
    out.line("a\x1b[2Jb", Styled("c\x07", "red"))
    out.say("d\x9be")
    out.prompt("f\x1bg> ")
    seen = capsysbinary.readouterr()
    assert seen.out == b"a\\x1b[2Jbc\\x07\nf\\x1bg> "
    assert seen.err == b"d\\x9be\n"


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_waits_until_what_was_committed_is_said(number: int, raised: type[BaseException]) -> None:
    """Inside `held` the first signal waits for the end of the block, the second of its kind does not."""
    done: list[str] = []

    def work(signals: int) -> None:
        with held():
            for _ in range(signals):
                signal.raise_signal(number)
            done.append(f"after {signals}")

    before = signal.getsignal(signal.SIGTERM)
    install()
    try:
        for signals in (1, 2):
            with pytest.raises(raised):
                work(signals)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == ["after 1"]


def test_colours_are_for_terminals_that_want_them(store: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A terminal gets colours, a pipe and NO_COLOR do not."""
    assert "\x1b[" in _on_a_terminal("log")
    assert "\x1b[" not in run("log").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in _on_a_terminal("log")


def test_lines_fit_the_terminal(store: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns a list has one line a row, however long the text."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with castlog.open(home / "project" / ".castlog") as opened:
        main = opened.branch("main")
        main.append("user_message", {"text": "日本語 " * 100}, call_id=None)
        main.rename("a-branch-with-a-name-of-some-length")
        main.reset(2)
        main.reset(1)
        main.append("user_message", {"text": "日本語 " * 100})
    for words in (
        ("log", "--oneline"),
        ("log",),
        ("log", "--turns"),
        ("grep", "日本語"),
        ("tail", "--all"),
        ("sessions",),
        ("reflog",),
        ("verify",),
    ):
        for line in _on_a_terminal(*words).splitlines():
            assert sum(2 if ord(char) > 0x2E80 else 1 for char in line) <= 80, (words, line)


def _on_a_terminal(*words: str) -> str:
    """Run castlog with a terminal as its stdout and return what arrived there."""
    leader, follower = pty.openpty()
    with subprocess.Popen([*PROGRAM, *words], stdout=follower, stderr=subprocess.PIPE):
        os.close(follower)
        parts = []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                part = os.read(leader, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(leader)
    return b"".join(parts).decode("utf-8").replace("\r\n", "\n")
