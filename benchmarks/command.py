"""The command: which verbs run, where, and how their figures come out."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from benchmarks import machine
from benchmarks.markdown import Markdown
from benchmarks.output import Lines, read
from benchmarks.peers import PEERS, missing
from benchmarks.run import Run, Teller
from benchmarks.screen import Screen
from benchmarks.verbs import BY_NAME, VERBS, summary

ALL = {**VERBS, **BY_NAME}
Printer = Screen | Lines | Markdown


class Usage(Exception):
    """What was asked for cannot be done; the message is the one sentence that says why."""


def main(arguments: list[str]) -> int:
    """Measure what was asked for and return an exit code: 1 when a verb failed, 2 when the words make no sense."""
    options = _parser().parse_args(arguments)
    printer = Lines() if options.json else Markdown() if options.markdown else Screen()
    try:
        _check(options)
        if options.list:
            for name, verb in ALL.items():
                print(f"{name:<16}{summary(verb)}{'  (only by name)' if name in BY_NAME else ''}")
            return 0
        failed = _show_again(options.read, printer) if options.read else _measure(options, arguments, printer)
    except Usage as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if isinstance(printer, Markdown):
        printer.end()
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure castlog beside its peers.")
    parser.add_argument("verbs", nargs="*", metavar="VERB", help="what to measure; all that --list shows by default")
    parser.add_argument("--list", action="store_true", help="say what the verbs are")
    parser.add_argument("--quick", action="store_true", help="smaller work: all verbs in under two minutes")
    parser.add_argument("--rounds", type=int, metavar="N", help="measure each kind of work N times")
    parser.add_argument("--peers", metavar="A,B", help=f"of these peers only: {', '.join(PEERS)}")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a folder of Claude Code and Codex transcripts")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="write below DIR instead of the temporary folder")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show what an earlier --json run wrote")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="one JSON object a line")
    shown.add_argument("--markdown", action="store_true", help="the table of benchmarks/README.md")
    return parser


def _check(options: argparse.Namespace) -> None:
    for words, given, known in (("verb", options.verbs, ALL), ("peer", _names(options.peers), PEERS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise Usage(f"there is no {words} {', '.join(unknown)}; there are {', '.join(known)}")
    for option, folder in (("--dir", options.dir), ("--corpus", options.corpus)):
        if folder is not None and not folder.is_dir():
            raise Usage(f"{option} {folder} is no folder")
    if options.read is not None and not options.read.is_file():
        raise Usage(f"--read {options.read} is no file")
    if options.rounds is not None and options.rounds < 1:
        raise Usage("--rounds needs a number from 1 on")


def _names(peers: str | None) -> list[str]:
    return [] if peers is None else [name for name in peers.split(",") if name]


def _show_again(path: Path, printer: Printer) -> bool:
    """Print an earlier run's figures."""
    try:
        with open(path, "rb") as file:
            header, found = read(file)
    except OSError as error:
        raise Usage(f"--read {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Usage(f"--read {path} is not what --json writes: {error}") from error
    printer.header(header)
    for _, group in itertools.groupby(found, lambda figure: (figure.verb, figure.case)):
        printer.figures(list(group))
    return False


def _measure(options: argparse.Namespace, arguments: list[str], printer: Printer) -> bool:
    """Run the verbs and print each one's figures as it ends; returns whether one of them failed."""
    base = options.dir or Path(tempfile.gettempdir())
    wanted = _names(options.peers) or list(PEERS)
    absent = {name: package for name, package in missing().items() if name in wanted}
    header = machine.describe(base, arguments)
    if absent:
        header["left out"] = ", ".join(f"{name} ({package})" for name, package in absent.items())
    printer.header(header)
    for note in _notes(absent, str(header["filesystem"])):
        print(f"benchmarks: {note}", file=sys.stderr)
    names = [name for name in wanted if name not in absent]
    teller = Teller()
    failed = False
    for verb in options.verbs or VERBS:
        teller.verb = verb
        with tempfile.TemporaryDirectory(prefix="castlog-bench-", dir=base) as folder:
            run = Run(Path(folder), options.quick, options.rounds, options.corpus, names, teller)
            try:
                for _, group in itertools.groupby(ALL[verb](run), lambda figure: figure.case):
                    found = list(group)
                    teller.clear()
                    printer.figures(found)
            except Exception:
                failed = True
                teller.clear()
                print(f"benchmarks: {verb} failed\n{traceback.format_exc()}", file=sys.stderr)
    return failed


def _notes(absent: dict[str, str], filesystem: str) -> Iterator[str]:
    for name, package in absent.items():
        yield f"{name} is left out: {package} is not installed (pip install 'castlog[bench]')"
    if filesystem in machine.IN_MEMORY:
        yield f"the folder lies on {filesystem}: nothing there is durable, so choose a disk with --dir"
