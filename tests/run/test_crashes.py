"""An agent killed at every durable write, just before it and just after, under each policy, and resumed.

Guards against effects that are repeated, effects that were acknowledged and are not in the log, and states that come
back as something nobody saw. The short form kills real processes at a few writes; CASTLOG_LONG=1 at each in turn.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import castlog
from castlog import Result, decide, recovery_plan

_spec = importlib.util.spec_from_file_location("castlog_test_agent", Path(__file__).with_name("agent.py"))
assert _spec is not None
assert _spec.loader is not None
agent: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(agent)

LONG = bool(os.environ.get("CASTLOG_LONG"))
POLICIES = ["ask", "retry", "fail"]


class Dead(BaseException):
    """The end of a process, as far as a test inside it can tell."""


def die():
    """End."""
    raise Dead


class World:
    """A branch, and the effects outside of it."""

    def __init__(self, branch: castlog.Branch, effects: Path, policy: str) -> None:
        self.branch = branch
        self.effects = effects
        self.policy = policy
        self.acknowledged: list[str] = []

    def run(self, left: int | None = None, when: str = "after") -> bool:
        """Go on with the branch, dying at a commit; return whether it came to its end."""
        core = self.branch._core
        whole, run = core.engine, None
        if left is not None:
            core.engine = agent.Dying(whole, left, when, die)
        try:
            run = castlog.Run(self.branch, agent.fold, agent.tools(self.effects, self.policy), castlog.Every(events=4))
            agent.go_on(run, self.acknowledged.append)
            run.close()
            return True
        except Dead:
            return False
        finally:
            core.engine = whole
            if run is not None:
                run._steps.log.release()
            core.update(lambda txn: None)  # what waits in line dies with the process, too

    def decide(self) -> None:
        """Do what a person does: look whether the effect took place, and say so."""
        decisions: dict[str, str | Result] = {}
        done = self.keys()
        for call in recovery_plan(self.branch).undecided:
            output = {"worked": call.event.payload["args"]["n"]}
            decisions[call.call_id] = Result(True, output) if call.event.id in done else "retry"
        if decisions:
            decide(self.branch, decisions)

    def keys(self) -> Counter[str]:
        """Return the keys of the calls that had an effect, and how often."""
        return Counter(self.effects.read_text().split()) if self.effects.exists() else Counter()

    def check(self) -> None:
        """Check what must hold whenever the agent is dead."""
        branch = self.branch
        events = {event.seq: event for event in branch.events()}
        calls = {event.id: event for event in events.values() if event.type == "tool_call"}
        done = self.keys()
        assert done.keys() <= calls.keys(), "an effect without a call in the log"
        if self.policy != "retry":
            assert set(done.values()) <= {1}, "an effect that took place twice"
        results = {event.call_id for event in events.values() if event.type == "tool_result"}
        for line in self.acknowledged:
            word, *rest = line.split()
            if word == "result":
                assert rest[0] in results, "a result that was seen is not in the log"
            elif word == "state":
                state = branch.restore(agent.fold, at=int(rest[0])).state
                assert agent.digest(state) == rest[1], "a state that was seen is not what is restored"
            elif word == "answer":
                answers = [event for event in events.values() if event.type == "model_response"]
                assert len(answers) >= int(rest[0]), "a response that was seen is not in the log"
        ids = Counter(event.call_id for event in events.values() if event.type == "tool_result")
        assert set(ids.values()) <= {1}, "a call with two results"


@pytest.fixture
def world(store, tmp_path):
    """Return a function that makes a new world."""
    made = []

    def make(policy: str) -> World:
        branch = store.create_session("x").branch("main")
        made.append(World(branch, tmp_path / f"effects{len(made)}", policy))
        return made[-1]

    return make


def uninterrupted(world, policy):
    """Return the state at the end of an agent that nobody killed, without the attempt a tool is told."""
    calm = world(policy)
    assert calm.run()
    assert set(calm.keys().values()) == {1}
    return calm.branch.restore(agent.fold).state


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_at_each_write_and_resumed(world, policy, when) -> None:
    """One death, at each commit in turn; what was seen stays, and the agent comes to the end it would have come to."""
    whole = uninterrupted(world, policy)
    deaths = 0
    while True:
        killed = world(policy)
        if killed.run(deaths, when):
            break
        deaths += 1
        killed.check()
        killed.decide()
        assert killed.run()
        killed.check()
        assert killed.branch.in_flight() == []
        state = killed.branch.restore(agent.fold).state
        if policy != "fail":
            assert state == whole
        else:
            assert len(state["seen"]) == len(whole["seen"])
        assert killed.branch.session._core.engine.problems() == []
    assert deaths > 12


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_again_and_again(world, policy, when) -> None:
    """Each life is a commit longer than the one before; also recoveries are killed."""
    whole = uninterrupted(world, policy)
    for first in range(3):
        killed = world(policy)
        lives = first
        while not killed.run(lives // 3, when):
            killed.check()
            killed.decide()
            lives += 1
            assert lives < 100
        killed.check()
        assert killed.branch.in_flight() == []
        if policy != "fail":
            assert killed.branch.restore(agent.fold).state == whole


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_processes(disk_store, tmp_path, policy, when) -> None:
    """The same with kill -9 of real processes, one life each, and a fresh process that resumes."""
    session = disk_store.create_session("x")
    calm = World(session.branch("main"), tmp_path / "calm", policy)
    assert calm.run()
    whole = calm.branch.restore(agent.fold).state
    for at in range(100) if LONG else (4, 11):
        killed = World(disk_store.create_session("x").branch("main"), tmp_path / f"effects{at}", policy)
        argv = [sys.executable, agent.__file__, disk_store.target, killed.branch.rev, str(killed.effects), policy]
        first = subprocess.run([*argv, str(at), when], capture_output=True, text=True, timeout=60)
        killed.acknowledged += first.stdout.splitlines()
        if first.returncode == 0:
            assert killed.acknowledged[-1] == "done"
            break
        assert first.returncode == -9, first.stderr
        killed.check()
        killed.decide()
        second = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert second.stdout.endswith("done\n"), second.stderr
        killed.acknowledged += second.stdout.splitlines()
        killed.check()
        if policy != "fail":
            assert killed.branch.restore(agent.fold).state == whole
    assert disk_store.verify(deep=True).findings == []
    assert disk_store.running() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_killed_while_threads_call_tools(disk_store, tmp_path, policy) -> None:
    """Several calls are in flight at once: each is settled by itself, and all are done in the end."""
    for at in range(0, 40, 3) if LONG else (9,):
        killed = World(disk_store.create_session("x").branch("main"), tmp_path / f"effects{at}", policy)
        argv = [sys.executable, agent.__file__, disk_store.target, killed.branch.rev, str(killed.effects), policy]
        env = {**os.environ, "THREADS": "4"}
        first = subprocess.run([*argv, str(at), "after"], capture_output=True, text=True, timeout=60, env=env)
        killed.acknowledged += first.stdout.splitlines()
        killed.check()
        killed.decide()
        second = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
        assert second.stdout.endswith("done\n"), second.stderr
        killed.acknowledged += second.stdout.splitlines()
        killed.check()
        assert killed.branch.in_flight() == []
        assert len({event.call_id for event in killed.branch.events(types={"tool_result"})}) == 20


def test_two_processes_resume_and_one_goes_on(disk_store, tmp_path) -> None:
    """The other is told who has it, writes nothing, and may fork."""
    for number in range(10 if LONG else 2):
        killed = World(disk_store.create_session("x").branch("main"), tmp_path / f"effects{number}", "retry")
        assert not killed.run(5, "before")
        argv = [sys.executable, agent.__file__, disk_store.target, killed.branch.rev, str(killed.effects), "retry"]
        both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [process.communicate(timeout=60)[0].splitlines() for process in both]
        winners = [process for process, lines in zip(both, said, strict=True) if lines[-1] == "done"]
        for process, lines in zip(both, said, strict=True):
            if process not in winners:
                assert lines == [f"conflict {winners[0].pid}"]
            killed.acknowledged += [line for line in lines if not line.startswith("has it")]
        assert len(winners) in (1, 2)  # two, when one had ended before the other began
        killed.check()
        assert max(killed.keys().values()) <= 2
