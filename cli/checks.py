"""What `bisect` asks of each state: a function of somebody's, or a command as for `git bisect run`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import castlog

from .reducers import FORM, blaming, find
from .where import shown

_SKIP = 125
_BAD_MAX = 127
_SIGNALS = 65
_SHELL_ADDS = 128  # to the number of the signal that ended a command

Check = Callable[[Any, int], bool | None]


def make(text: str, store: castlog.Store, head: castlog.Point, reducer: castlog.Reducer[Any]) -> Check:
    """Return the check that `--check` names: MODULE:FUNCTION, or anything else as a command for the shell."""
    return _function(text) if FORM.fullmatch(text) else _command(text, store, head, reducer)


def _function(text: str) -> Check:
    function = find(text, "--check")[1]

    def check(state: Any, seq: int) -> bool:
        with blaming(f"the check {text}, at seq {seq},"):
            return bool(function(state))

    return check


def _command(text: str, store: castlog.Store, head: castlog.Point, reducer: castlog.Reducer[Any]) -> Check:
    """Return a check that runs a command with the state as JSON on its stdin.

    Its stdout goes where its stderr goes, since ours is for data.
    """
    environment = os.environ | {"CASTLOG_STORE": shown(store.target)}

    def check(state: Any, seq: int) -> bool | None:
        place = {"CASTLOG_REV": f"{head.session_id}/{head.branch}@{seq}", "CASTLOG_SEQ": str(seq)}
        data = reducer.encode(state) + b"\n"
        done = subprocess.run(text, shell=True, input=data, stdout=2, env=environment | place, check=False)  # noqa: S602 - the person's own words
        return _verdict(done.returncode, seq)

    return check


def _verdict(code: int, seq: int) -> bool | None:
    """Return what an exit code says: 0 good, 125 that it cannot be told, up to 127 bad; raises Invalid for others."""
    if code == 0:
        return True
    if code == _SKIP:
        return None
    if 0 < code <= _BAD_MAX:
        return False
    number = -code if code < 0 else code - _SHELL_ADDS
    how = f"signal {number}" if number < _SIGNALS else f"exit code {code}"
    raise castlog.Invalid(
        f"the check ended with {how} at seq {seq}",
        seq=seq,
        hint="Exit codes of a check: 0 good, 1 to 124, 126 and 127 bad, 125 cannot be told; any other ends the search.",
    )
