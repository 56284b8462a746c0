"""Verify while others write: what moves meanwhile is no finding."""

from __future__ import annotations

import random
import threading
import time

import castlog


def test_a_store_that_is_written_has_no_findings(store: castlog.Store, small_chunks: None) -> None:
    """Appends, seals, forks, resets, renames and deletions between two looks of verify are not damage."""
    session = store.create_session("busy")
    main = session.branch("main")
    main.extend([("note", {"n": n}) for n in range(30)])
    ended, failures = threading.Event(), []

    def write() -> None:
        choose = random.Random(5)
        try:
            while not ended.is_set():
                _step(store, session, choose)
        except BaseException as exc:
            failures.append(exc)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until = time.monotonic() + 1.5
        looks = 0
        while time.monotonic() < until or looks < 3:
            report = store.verify(deep=looks % 2 == 0)
            looks += 1
            assert report.ok, report.findings
    finally:
        ended.set()
        writer.join()
    assert not failures
    assert store.verify(deep=True).ok


def _step(store: castlog.Store, session: castlog.Session, choose: random.Random) -> None:
    """Change something."""
    branch = choose.choice(session.branches())
    act = choose.random()
    head = branch.head.seq
    if act < 0.5:
        number = choose.randrange(1 << 40)
        branch.append("tool_call", {"n": number, "fill": "x" * choose.randrange(3000)}, key=f"k{number}")
    elif act < 0.7:
        branch.extend(
            [castlog.Draft("note", {"n": n}, key=f"{choose.random()}") for n in range(choose.randrange(1, 9))]
        )
    elif act < 0.8 and len(session.branches()) < 12:
        branch.fork(f"fork-{choose.randrange(1 << 40)}", at=choose.randint(0, head)).append("note", {})
    elif act < 0.86:
        branch.reset(choose.randint(0, head))
    elif act < 0.9:
        branch.rename(f"name-{choose.randrange(1 << 40)}")
    elif act < 0.95 and len(session.branches()) > 3:
        branch.delete()
    elif act < 0.97:
        store.create_session("child", parent=branch.read(head) if head else None).branch("main").append("note", {})
    else:
        session.tag(f"tag-{choose.randrange(1 << 40)}", at=branch.head)
