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


@pytest.mark.parametrize("number", [0, 1], ids=["threads", "asyncio"])
def test_the_library_examples_run_and_print_what_the_readme_says(tmp_path: Path, number: int) -> None:
    """Each Python example prints exactly the text block that follows it."""
    assert len(_blocks("python")) == len(_blocks("text")) == 2
    example, printed = _blocks("python")[number], _blocks("text")[number]
    run = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.stderr == ""
    assert run.stdout == printed


def test_the_tour_prints_what_the_readme_says(tmp_path: Path) -> None:
    """Every command of the tour, typed in turn, prints the lines below it, but for ids that are new each time."""
    from castlog_cli.main import group

    (tour,) = _blocks("console")
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
