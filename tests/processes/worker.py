"""A process that works on a store until it is done or killed. Run as a program: `worker.py VERB PATH SESSION ...`.

`append WHO COUNT` appends events to main. `compact` compacts over and over. `script SEED KIND` does the operations of
`script` below one after the other and says each on its standard output once it has returned, that is, once it is
durable.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import castlog
import castlog.limits

Operation = tuple[str, str, Any]
State = dict[str, list[int]]


def script(seed: int, kind: str) -> Iterator[tuple[int, Operation, State]]:
    """Yield endless operations, each with its number and the state after it: branch name -> numbers of its events.

    The number is the payload of the events the operation writes, so that a state can be read off a store.
    """
    rng = random.Random(seed)
    state: State = {"main": []}
    number = 0
    while True:
        number += 1
        name = rng.choice(sorted(state))
        act = "append" if kind == "append" else "extend" if kind == "extend" else rng.choice(MOVES)
        operation: Operation = (act, name, None)
        if act == "append":
            state[name].append(number)
        elif act == "extend":
            operation = (act, name, rng.randint(1, 12))
            state[name] += [number] * operation[2]
        elif act == "fork" and len(state) < 6:
            at = rng.randint(0, len(state[name]))
            operation = (act, name, (f"b{number}", at))
            state[f"b{number}"] = state[name][:at]
        elif act == "promote":
            onto = rng.choice(sorted(state))
            operation = (act, name, onto)
            state[onto] = list(state[name])
        elif act == "reset":
            operation = (act, name, rng.randint(0, len(state[name])))
            del state[name][operation[2] :]
        elif act == "rename" and name != "main":
            operation = (act, name, f"r{number}")
            state[f"r{number}"] = state.pop(name)
        elif act == "delete" and name != "main":
            del state[name]
        else:
            operation = ("append", name, None)
            state[name].append(number)
        yield number, operation, {key: list(events) for key, events in state.items()}


MOVES = ("append", "append", "extend", "fork", "promote", "reset", "rename", "delete")


def do(session: castlog.Session, number: int, operation: Operation) -> None:
    """Do one operation."""
    act, name, detail = operation
    branch = session.branch(name)
    if act == "append":
        branch.append("tool_call", number, call_id="c", key=f"k{number}")
    elif act == "extend":
        pads = ("", "pad" * 100, "long" * 3_000)
        branch.extend([("note", number) if n % 3 else ("other", [number, pads[number % 3]]) for n in range(detail)])
    elif act == "fork":
        branch.fork(detail[0], at=detail[1])
    elif act == "promote":
        session.promote(name, onto=detail)
    elif act == "reset":
        branch.reset(detail)
    elif act == "rename":
        branch.rename(detail)
    elif act == "delete":
        branch.delete()


def main() -> None:
    """Do what the command line says."""
    verb, path, session_id, *rest = sys.argv[1:]
    with castlog.open(path) as store:
        session = store.session(session_id)
        if verb == "append":
            branch = session.branch("main")
            for n in range(int(rest[1])):
                branch.append("note", {"who": rest[0], "n": n})
            return
        castlog.limits.SEAL_EVENTS = 6
        castlog.limits.SEAL_BYTES = 4_000
        os.write(1, b"ready\n")
        while verb == "compact":
            store.compact()
        for number, operation, _ in script(int(rest[0]), rest[1]):
            do(session, number, operation)
            os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main()
