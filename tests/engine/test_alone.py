"""The gate guards against resizing or closing an environment under somebody's transaction."""

from __future__ import annotations

import threading
import time

import pytest

from castlog.engine.alone import Gate, Guest
from castlog.errors import Unavailable


class Visit(Guest):
    """A transaction of the thread that makes it."""

    __slots__ = ()

    def __init__(self) -> None:
        self.thread = threading.get_ident()


def test_being_alone_waits_for_guests_of_other_threads() -> None:
    """The block begins when the last guest has left."""
    gate = Gate()
    order: list[str] = []
    inside = threading.Event()

    def visit() -> None:
        guest = Visit()
        gate.enter(guest)
        inside.set()
        time.sleep(0.05)
        order.append("left")
        gate.leave(guest)

    thread = threading.Thread(target=visit)
    thread.start()
    inside.wait()
    with gate.alone("test", 5):
        order.append("alone")
    thread.join()
    assert order == ["left", "alone"]


def test_guests_wait_outside_while_somebody_is_alone() -> None:
    """A guest that comes during the block is let in after it."""
    gate = Gate()
    order: list[str] = []

    def visit() -> None:
        guest = Visit()
        gate.enter(guest)
        order.append("entered")
        gate.leave(guest)

    with gate.alone("test", 5):
        thread = threading.Thread(target=visit)
        thread.start()
        time.sleep(0.05)
        order.append("done")
    thread.join()
    assert order == ["done", "entered"]


def test_a_thread_inside_may_enter_again() -> None:
    """Whoever is waited for gets his second transaction at once, else both would wait for ever."""
    gate = Gate()
    outer_in, closing = threading.Event(), threading.Event()
    entered = threading.Event()

    def visit() -> None:
        outer, inner = Visit(), Visit()
        gate.enter(outer)
        outer_in.set()
        closing.wait()
        while not gate.closed_by:
            time.sleep(0.001)
        gate.enter(inner)
        entered.set()
        gate.leave(inner)
        gate.leave(outer)

    thread = threading.Thread(target=visit)
    thread.start()
    outer_in.wait()
    closing.set()
    with gate.alone("test", 5):
        assert entered.is_set()
    thread.join()


def test_a_guest_of_the_same_thread_is_unavailable_at_once() -> None:
    """Nobody waits for his own transaction."""
    gate = Gate()
    guest = Visit()
    gate.enter(guest)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="this thread"), gate.alone("test", 5):
        pass
    assert time.monotonic() - began < 1
    gate.leave(guest)
    with gate.alone("test", 5):
        pass


def test_waiting_ends() -> None:
    """A guest that does not leave in time makes it Unavailable, and the gate opens again."""
    gate = Gate()
    guests: list[Visit] = []

    def visit() -> None:
        guests.append(Visit())
        gate.enter(guests[0])

    thread = threading.Thread(target=visit)
    thread.start()
    thread.join()
    with pytest.raises(Unavailable, match="other threads"), gate.alone("test", 0.02):
        pass
    assert not gate.closed_by


def test_a_lost_guest_keeps_nobody_waiting() -> None:
    """A transaction that vanished without leaving, as after an interrupt, does not count."""
    gate = Gate()
    gate.enter(Visit())
    with gate.alone("test", 0.02):
        pass


def test_a_gate_that_an_interrupt_left_closed_keeps_nobody_outside() -> None:
    """Ctrl-C at the moment the map has grown does not make every other thread wait for ever."""
    gate = Gate()
    gate.closed_by = threading.get_ident()  # as after an interrupt on the line that opens it again

    def visit() -> None:
        visitor = Visit()
        gate.enter(visitor)
        gate.leave(visitor)

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
