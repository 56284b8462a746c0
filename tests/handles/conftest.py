"""A store with many branches, and what each of them must read as, kept in plain lists."""

from __future__ import annotations

import random
from typing import Any

import pytest

import castlog

TYPES = ("user_message", "tool_call", "tool_result", "model_request", "model_response", "hook_call", "hook_decision")


class Grove:
    """A session grown at random beside a plain model: branch name -> the events of its history, oldest first."""

    def __init__(self, session: castlog.Session, seed: int) -> None:
        self.session = session
        self.random = random.Random(seed)
        self.histories: dict[str, list[castlog.Event]] = {"main": []}

    def grow(self, steps: int, branches: int = 12) -> None:
        """Do random appends, forks, resets and promotions."""
        for _ in range(steps):
            name = self.random.choice(list(self.histories))
            branch, history = self.session.branch(name), self.histories[name]
            act = self.random.random()
            if act < 0.55:
                drafts = [self.draft() for _ in range(self.random.randint(1, 4))]
                history += branch.extend(drafts)
            elif act < 0.75 and len(self.histories) < branches:
                at = self.random.choice([0, len(history), self.random.randint(0, len(history))])
                new = f"b{len(self.histories)}"
                branch.fork(new, at=at)
                self.histories[new] = history[:at]
            elif act < 0.85:
                seq = self.random.randint(0, len(history))
                branch.reset(seq)
                del history[seq:]
            elif act < 0.9:
                source = self.random.choice(list(self.histories))
                self.session.promote(source, onto=name)
                self.histories[name] = list(self.histories[source])
            else:
                history.append(branch.append("note", {"n": self.random.randint(0, 9)}))

    def draft(self) -> castlog.Draft:
        """Return a draft that often opens or closes one of a few calls, so that ids are used again."""
        kind = self.random.choice(TYPES)
        payload: dict[str, Any] = {"n": self.random.randint(0, 10**6)}
        if self.random.random() < 0.05:
            payload["text"] = "word " * self.random.randint(1, 600)
        if kind == "user_message":
            return castlog.Draft(kind, payload)
        count = self.random.choice([0, 1, 1, 1, 2])
        return castlog.Draft(kind, payload, call_ids=tuple(self.random.sample(["a", "b", "c", "d"], count)))

    def shared(self, left: str, right: str) -> int:
        """Return how many events two histories begin with in common."""
        pairs = zip(self.histories[left], self.histories[right], strict=False)
        count = 0
        for a, b in pairs:
            if a.id != b.id:
                break
            count += 1
        return count

    def distinct(self) -> dict[str, castlog.Event]:
        """Return every event that some branch has, by id."""
        return {event.id: event for history in self.histories.values() for event in history}


@pytest.fixture(params=range(3))
def grove(request: pytest.FixtureRequest, session: castlog.Session, small_chunks: None) -> Grove:
    """A session of about a dozen branches over small chunks."""
    grown = Grove(session, request.param)
    grown.grow(120)
    return grown
