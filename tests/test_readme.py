"""The README tells the truth: its examples run, and print what it says they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

README = Path(__file__).parents[1] / "README.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _printing() -> list[tuple[str, str]]:
    """Return the Python examples that print something, each with what the README says it prints."""
    shown = r"^```python\n((?:(?!^```).)*)^```\n\nIt prints[^\n]*\n\n```text\n(.*?)^```$"
    return re.findall(shown, README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("number", [0, 1], ids=["threads", "asyncio"])
def test_the_library_examples_run_and_print_what_the_readme_says(tmp_path: Path, number: int) -> None:
    """Each Python example prints exactly the text block that follows it."""
    example, printed = _printing()[number]
    run = _python(tmp_path, "-c", example)
    assert (run.stdout, run.stderr) == (printed, "")


def test_the_harness_examples_run_and_print_what_the_readme_says(tmp_path: Path) -> None:
    """The harness goes on as often as it is started, its crash is settled, and its record serves as a test."""
    assert len(_blocks("text")) == len(_printing())
    for block in _blocks("python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    (_, printed), *more = _printing()[2:]
    for _ in range(2):
        run = _python(tmp_path, "harness.py")
        assert (run.stdout, run.stderr) == (printed, "")
    for example, printed in more:
        run = _python(tmp_path, "-c", example)
        assert (run.stdout, run.stderr) == (printed, "")
    tested = _python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_harness.py")
    assert tested.returncode == 0, tested.stdout
    harness = tmp_path / "harness.py"
    harness.write_text(harness.read_text(encoding="utf-8").replace("m-1", "m-2"), encoding="utf-8")
    tested = _python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_harness.py")
    assert tested.returncode == 1
    assert "Diverged" in tested.stdout


def test_the_tour_prints_what_the_readme_says(tmp_path: Path) -> None:
    """Every command, typed in turn, prints the lines below it, but for ids that are new each time."""
    from castlog_cli.main import group

    tour = "".join(_blocks("console"))
    runner = CliRunner(env={"CASTLOG_STORE": str(tmp_path / "store")})
    for part in tour.split("$ castlog ")[1:]:
        command, _, expected = part.partition("\n")
        result = runner.invoke(group, shlex.split(command))
        assert result.exit_code in (0, 1), (command, result.output)
        assert _without_ids(result.stdout) == _without_ids(expected), command


def _without_ids(text: str) -> str:
    """Replace ids by what they are, so that texts with different ids compare equal."""
    text = re.sub(r"sess_[0-9a-f]{32}", "SESSION", text)
    text = re.sub(r"b3:[0-9a-f]+", "ID", text)
    text = re.sub(r"\b[0-9a-f]{8}(?=[/, ])", "SHORT", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    """Both commands make their own environment, so that a machine with only Python is enough."""
    commands = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("python3 -m venv")]
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/castlog demo",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/pytest",
    ]
