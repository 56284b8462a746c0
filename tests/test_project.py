"""The project installs whole: every package is listed, every floor is named, and importing stays light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_of_the_tree_is_installed() -> None:
    """A folder with an `__init__.py` under castlog or cli is in the list of packages, and nothing else is."""
    found = set()
    for folder, name in (("castlog", "castlog"), ("cli", "castlog_cli")):
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join((name, *init.parent.relative_to(ROOT / folder).parts)))
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_files_that_are_no_modules_are_installed_with_their_package() -> None:
    """Whatever lies in castlog beside Python modules is named as package data."""
    data = {str(Path(name)) for name in PROJECT["tool"]["setuptools"]["package-data"]["castlog"]}
    found = {
        str(path.relative_to(ROOT / "castlog"))
        for path in (ROOT / "castlog").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert found == data


def test_importing_castlog_brings_in_no_command_line_and_no_network() -> None:
    """A program that uses the library pays for neither click, rich, nor anything that opens sockets."""
    code = "import castlog, sys; print(*sorted(set(sys.modules) & {'click', 'rich', 'socket', 'ssl', 'http.client'}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == ""


def test_everything_public_has_a_docstring_and_is_listed() -> None:
    """`castlog.__all__` names what a user may touch, and each of it says what it is."""
    import castlog

    for name in castlog.__all__:
        assert getattr(castlog, name).__doc__, name
    assert castlog.__all__ == sorted(castlog.__all__)


def test_only_one_module_may_import_lmdb() -> None:
    """The rule names every module of castlog but the LMDB engine itself, so that a new one falls under it too."""
    (rule,) = (
        contract
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract.get("forbidden_modules") == ["lmdb"]
    )
    named = set(rule["source_modules"])
    for path in (ROOT / "castlog").rglob("*.py"):
        parts = ("castlog", *path.relative_to(ROOT / "castlog").with_suffix("").parts)
        module = ".".join(part for part in parts if part != "__init__")
        covered = any(module == name or module.startswith(f"{name}.") for name in named)
        assert covered or module in ("castlog", "castlog.engine", "castlog.engine.disk"), module
