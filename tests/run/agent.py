"""A small agent whose tools have effects outside of the store, to be killed anywhere. Run as a program it is a process.

`agent.py STORE REV EFFECTS POLICY [DIE_AT before|after]` goes on with a branch and says on its standard output what was
acknowledged: `state SEQ DIGEST` after each look at the state, `result CALL` after each result seen, `done` at the end.
With DIE_AT it kills itself at that commit; with THREADS in its environment it works in threads. A line in EFFECTS is an
effect: the key of the call it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import castlog

TURNS = 3


@castlog.reducer("agent", 1, initial=lambda: {"seen": [], "todo": [], "said": 0, "asked": False})
def fold(state: dict[str, Any], event: castlog.Event) -> dict[str, Any]:
    """Keep all that was said and done, without places; recoveries leave no trace but what they bring about."""
    payload = event.payload
    if event.type != "recovery":
        state["seen"].append([event.type, payload])
    if event.type == "user_message":
        state["asked"] = True
    elif event.type == "model_response" and payload.get("ok") is not False:
        state["said"] += 1
        state["todo"] += payload["tool_calls"]
    elif event.type == "tool_result":
        state["todo"] = [call for call in state["todo"] if call["id"] != event.call_id]
    return state


def model(request: Any) -> Any:
    """Ask for two tools in each turn."""
    turn = request["turn"]
    names = ["work", "note"] if turn < TURNS else []
    calls = [{"id": f"{name}{turn}", "name": name, "args": {"n": turn}} for name in names]
    return {"content": f"turn {turn}", "tool_calls": calls}


def tools(effects: Path, policy: str) -> dict[str, Callable[..., Any]]:
    """Return tools that leave a line in a file; the effect is there before they return."""

    def work(n: int, call: castlog.Call) -> dict[str, int]:
        with open(effects, "a") as file:
            file.write(f"{call.key}\n")
        return {"worked": n}

    return {"work": castlog.tool(in_flight=policy)(work), "note": castlog.tool(in_flight=policy)(work)}


def go_on(run: castlog.Run[dict[str, Any]], said: Callable[[str], object]) -> None:
    """Take steps until there is nothing left to do, always from the state and from nothing else."""
    while True:
        state = run.state
        said(f"state {run.seq} {digest(state)}")
        if not state["asked"]:
            run.user("begin")
        elif state["todo"]:
            for call in list(state["todo"]):
                result = run.tool(call["name"], call["args"], call_id=call["id"])
                if call["name"] == "work":  # the other one is not looked at
                    said(f"result {call['id']} {result.ok}")
        elif state["said"] <= TURNS:
            run.model({"turn": state["said"]}, model)
            said(f"answer {state['said']}")
        else:
            return


def go_on_in_threads(run: castlog.Run[dict[str, Any]], said: Callable[[str], object]) -> None:
    """Call the tools that were not called yet, four at a time."""
    called = {payload["args"]["n"] for kind, payload in run.state["seen"] if kind == "tool_call"}
    said(f"state {run.seq} {digest(run.state)}")

    def call(n: int) -> None:
        result = run.tool("work", {"n": n}, call_id=f"work{n}")
        said(f"result work{n} {result.ok}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, [n for n in range(20) if n not in called]))


def digest(state: Any) -> str:
    """Return what tells states apart."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


class Dying:
    """An engine with which the process ends at a commit: just before it, or just after."""

    def __init__(self, engine: Any, left: int, when: str, end: Callable[[], object]) -> None:
        self._engine = engine
        self._left = left
        self._when = when
        self._end = end

    def update(self, change: Callable[[Any], Any]) -> Any:
        """Commit a change, unless the end has come; one that writes nothing does not count."""

        def counted(txn: Any) -> Any:
            result = change(txn)
            if txn.touched:
                self._left -= 1
                if self._left < 0 and self._when == "before":
                    self._end()
            return result

        if self._left < 0:
            self._end()
        result = self._engine.update(counted)
        if self._left < 0:
            self._end()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def main() -> None:
    """Go on with a branch, or say why not."""
    path, rev, effects, policy, *dying = sys.argv[1:]

    def said(line: str) -> None:
        sys.stdout.write(f"{line}\n")  # in one, as threads acknowledge at once
        sys.stdout.flush()

    with castlog.open(path) as store:
        if dying:
            core = store._core
            core.engine = Dying(core.engine, int(dying[0]), dying[1], lambda: os.kill(os.getpid(), signal.SIGKILL))
        try:
            with castlog.Run(store.branch(rev), fold, tools(Path(effects), policy), castlog.Every(events=4)) as run:
                said("has it")
                go = go_on_in_threads if os.environ.get("THREADS") else go_on
                go(run, said)
                said("done")
        except castlog.Conflict as error:
            said(f"conflict {error.pid}")
        except castlog.InFlight as error:
            said(f"in flight {' '.join(call.call_id for call in error.plan.undecided)}")


if __name__ == "__main__":
    main()
