"""Room on the stack for decoders that recurse: how deep the caller stands must not decide what can be stored."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def with_room(function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Return `function(argument)`, on a stack of its own when the caller's leaves too little room.

    Decoders recurse, and CPython counts that against the frames the caller has used up already.
    """
    try:
        return function(argument)
    except RecursionError:
        pass
    done = _thread.allocate_lock()
    results: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function(argument))
        except BaseException as exc:
            failures.append(exc)
        finally:
            done.release()

    done.acquire()
    _thread.start_new_thread(run, ())  # what `threading` does around it takes more frames than may be left
    done.acquire()
    for failure in failures:
        raise failure
    return results[0]
