"""Ctrl-C and SIGTERM: both unwind and close the store, and neither falls between a commit and the word of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn


class Terminated(BaseException):
    """SIGTERM arrived: unwind, close the store, and end."""


def install() -> None:
    """Make SIGTERM unwind like Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)


@contextmanager
def held() -> Iterator[None]:
    """Hold signals back until the block is done, so that what was made durable is also said.

    A second signal of the same kind comes through at once: waiting for another process's lock can take long.
    """
    arrived: list[int] = []
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def hold(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in arrived:
        signal.raise_signal(number)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
