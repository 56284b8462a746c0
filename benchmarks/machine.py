"""What the figures were measured on: machine, versions, disk, commit, command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = ("castlog", "lmdb", "blake3", "zstandard", "msgspec", "pyfastcdc")
_PEERS = ("langgraph-checkpoint-sqlite", "openai-agents", "eventsourcing", "pygit2")
IN_MEMORY = ("tmpfs", "ramfs")


def describe(folder: Path, arguments: list[str]) -> dict[str, str | int]:
    """Return what stands above every result."""
    return {
        "machine": f"{platform.machine()} {platform.system()} {platform.release().split('-')[0]}",
        "cpus": os.cpu_count() or 0,
        "filesystem": filesystem(folder),
        "python": platform.python_version(),
        **{name: found for name in (*_LIBRARIES, *_PEERS) if (found := _version(name)) is not None},
        "commit": _commit(),
        "command": shlex.join(["python", "-m", "benchmarks", *arguments]),
    }


def filesystem(folder: Path) -> str:
    """Return the kind of file system a folder lies on, or "unknown" where the system does not say."""
    path = folder.resolve()
    try:
        with open("/proc/mounts", encoding="utf-8") as mounts:
            kinds = {Path(line.split()[1].replace("\\040", " ")): line.split()[2] for line in mounts}
    except OSError:
        return "unknown"
    return next((kinds[above] for above in (path, *path.parents) if above in kinds), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"
