"""The work that is measured: seeded events of the sizes real sessions have, and the session that repeats its history.

Plain events have a median of 0.7 KB, a mean of 2 KB, a 99th percentile of 20 KB of JSON. The quadratic session has 300
turns of four events, and every `model_request` carries all messages so far: 150 MB raw, about 1 MB distinct.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from castlog import Draft

Event = Draft

MEDIAN_BYTES, SIGMA, BYTES_MAX = 620, 1.52, 80_000
REPEATED = 0.62  # of the lines of a text stood somewhere before, as in code, logs and listings
TURNS = 300


def vocabulary(chance: random.Random, size: int = 4_000) -> list[str]:
    """Return words, of which texts draw the early ones far more often, as people and code do."""
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    return ["".join(chance.choice(letters) for _ in range(chance.randint(2, 9))) for _ in range(size)]


class Writer:
    """Writes texts whose lines are partly new and partly seen before."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._words = vocabulary(random.Random(7))
        self._lines = [self._line() for _ in range(3_000)]

    def text(self, size: int) -> str:
        """Return about `size` characters."""
        parts: list[str] = []
        length = 0
        while length < size:
            seen = self._chance.random() < REPEATED
            line = self._lines[int(3_000 * self._chance.random() ** 2)] if seen else self._line()
            parts.append(line)
            length += len(line) + 1
        return "\n".join(parts)[: max(size, 1)]

    def _line(self) -> str:
        count = self._chance.randint(3, 14)
        return " ".join(self._words[int(len(self._words) * self._chance.random() ** 3)] for _ in range(count))


def plain(count: int, seed: int = 1) -> Iterator[Event]:
    """Yield events as an agent's run has them: calls, results, answers, of log-normal sizes."""
    chance = random.Random(seed)
    writer = Writer(seed)
    for number in range(count):
        size = min(int(chance.lognormvariate(0, SIGMA) * MEDIAN_BYTES), BYTES_MAX)
        body = writer.text(size)
        kind = number % 4
        if kind == 0:
            yield Draft("tool_call", {"name": "Bash", "args": {"command": body, "timeout": 120}}, f"call_{number}")
        elif kind == 1:
            result = {"ok": True, "output": body, "duration_ms": chance.randrange(9_000)}
            yield Draft("tool_result", result, f"call_{number - 1}")
        elif kind == 2:
            usage = {"input": chance.randrange(90_000), "output": chance.randrange(2_000)}
            yield Draft("model_response", {"content": body, "usage": usage, "model": "model-x-1"})
        else:
            yield Draft("note", {"text": body, "path": f"src/module_{chance.randrange(40)}.py"})


def quadratic(turns: int = TURNS, seed: int = 2) -> Iterator[Event]:
    """Yield a session whose every request repeats the history."""
    writer = Writer(seed)
    messages: list[dict[str, Any]] = [{"role": "system", "content": writer.text(6_000)}]
    tools = [{"name": f"tool_{n}", "description": writer.text(400)} for n in range(12)]
    for turn in range(turns):
        said = writer.text(300)
        messages.append({"role": "user", "content": said})
        yield Draft("user_message", {"text": said})
        request = {"model": "model-x-1", "messages": list(messages), "tools": tools}
        yield Draft("model_request", request, f"request_{turn}")
        answer = writer.text(900)
        messages.append({"role": "assistant", "content": answer})
        response = {"content": answer, "usage": {"input": 900 * turn, "output": 200}}
        yield Draft("model_response", response, f"request_{turn}")
        result = writer.text(1_900)
        messages.append({"role": "tool", "content": result})
        yield Draft("tool_result", {"ok": True, "output": result})
