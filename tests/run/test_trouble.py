"""Trouble: Ctrl-C on any line, disks that refuse, runs that are closed in the middle, files that are exchanged."""

from __future__ import annotations

import gc
import linecache
import os
import sys
import threading
from pathlib import Path

import pytest

import castlog
from castlog import Run
from castlog.engine.base import WriteTxn

RUN = Path(castlog.__file__).parent / "run"


def interrupted_at(place, work):
    """Call `work` with an interrupt on a line of castlog/run; return whether there was one.

    Lines that only a trace can interrupt, never a signal, are left out: those that leave a `with`.
    """
    left = place
    begun = set()

    def leaves(frame):
        here = (id(frame), frame.f_lineno)
        begins = (
            linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(("with ", "async with "))
        )
        known = begins and here in begun
        if begins:
            begun.add(here)
        return known

    def trace(frame, event, arg):
        nonlocal left
        if not Path(frame.f_code.co_filename).is_relative_to(RUN):
            return None
        if event == "line" and not leaves(frame):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_ctrl_c_on_any_line_of_a_step(store, reducer) -> None:
    """No effect without its call, none twice, and the state stays the fold of the log; a new run can go on.

    The short form interrupts every thirteenth line, CASTLOG_LONG=1 each.
    """
    stride = 1 if os.environ.get("CASTLOG_LONG") else 13
    places = 0
    while True:
        branch = store.create_session("x").branch("main")
        done: list[int] = []
        run = Run(branch, reducer, {"f": done.append}, castlog.Every(events=2))
        run.observe(lambda event: None)
        run.note("before")

        def step(run=run):
            run.tool("f", 1, call_id="c")
            run.flush()

        stopped = interrupted_at(places, step)
        store._core.update(lambda txn: None)  # behind a result that may be in line
        run.refresh()
        assert run.state == branch.restore(reducer).state
        gc.collect()
        run.close()
        calls = list(branch.events(types={"tool_call"}))
        assert len(done) <= len(calls) <= 1
        with Run(branch, reducer, {"f": done.append}) as second:
            decisions = {call.call_id: "fail" for call in branch.in_flight()}
            second.recover(decisions)
            assert second.state
            assert second.tool("f", 2).ok
            assert second.state == branch.restore(reducer).state
        assert branch.in_flight() == []
        assert done.count(1) <= 1
        if not stopped:
            break
        places += stride
    assert places > 60


class Refusing:
    """An engine whose disk is full for a while."""

    def __init__(self, engine) -> None:
        self._engine = engine
        self.full = False

    def update(self, change):
        """Refuse to commit what changes anything."""

        def refuse(txn: WriteTxn):
            result = change(txn)
            if self.full and txn.touched:
                raise castlog.Unavailable("no space is left on the disk")
            return result

        return self._engine.update(refuse)

    def __getattr__(self, name):
        return getattr(self._engine, name)


@pytest.fixture
def disk(store):
    """The engine of the store, whose disk can be full."""
    core = store._core
    core.engine = engine = Refusing(core.engine)
    yield engine
    core.engine = engine._engine


def test_a_call_that_cannot_be_recorded_is_not_made(main, reducer, bench, disk) -> None:
    """The step fails, nothing is done, and the run goes on when there is room again."""
    with Run(main, reducer, bench.tools) as run:
        disk.full = True
        for step in (lambda: run.tool("ask", {"what": 1}), lambda: run.user("x"), lambda: run.now()):
            with pytest.raises(castlog.Unavailable, match="no space"):
                step()
        disk.full = False
        assert run.tool("ask", {"what": 2}).ok
    assert bench.done == [2]
    assert main.head.seq == 2


def test_a_result_that_cannot_be_recorded_ends_the_run(main, reducer, disk) -> None:
    """The effect took place: looking at the result, and every later step, says that it is not in the log."""

    def fill():
        disk.full = True

    run = Run(main, reducer, {"fill": fill, "f": lambda: 1})
    result = run.tool("fill", call_id="c")
    with pytest.raises(castlog.Unavailable):
        result.ok  # noqa: B018
    disk.full = False
    with pytest.raises(castlog.Unavailable, match="could not be recorded"):
        run.tool("f")
    run.close()
    assert [call.call_id for call in main.in_flight()] == ["c"]
    with Run(main, reducer) as run:
        run.recover({"c": "fail"})


def test_a_run_keeps_its_branch_until_the_last_step_has_ended(main, reducer) -> None:
    """Closed while a tool is at work elsewhere, it still records the result, and nobody else takes over before."""
    inside, go = threading.Event(), threading.Event()

    def slow():
        inside.set()
        assert go.wait(10)
        return "done"

    run = Run(main, reducer, [slow])
    thread = threading.Thread(target=lambda: run.tool("slow"))
    thread.start()
    assert inside.wait(10)
    run.close()
    with pytest.raises(castlog.Conflict):
        Run(main, reducer)
    with pytest.raises(castlog.Unavailable):
        run.tool("slow")
    go.set()
    thread.join()
    with Run(main, reducer) as second:
        second.refresh()
        assert second.recover().calls == ()
    assert main.read(2).payload == {"ok": True, "output": "done"}


def test_a_run_goes_on_over_a_compaction(disk_store, reducer, bench) -> None:
    """The file is exchanged under it; it owns its branch all the same."""
    main = disk_store.create_session("x").branch("main")
    with Run(main, reducer, bench.tools) as run:
        for number in range(20):
            run.tool("ask", {"what": number})
        disk_store.compact()
        assert run.tool("ask", {"what": "after"}).ok
        assert run.state == main.restore(reducer).state
        with pytest.raises(castlog.Conflict):
            Run(main, reducer)


def test_a_sub_agent_is_a_child_of_its_call(store, main, reducer) -> None:
    """The tool that starts it knows its call; run again, it finds what it had begun and goes on with that."""

    def research(topic, call):
        found = store.sessions(title=topic)
        session = found[0] if found else store.create_session(topic, parent=call.parent)
        with Run(session.branch("main"), reducer) as sub:
            if not sub.state:
                sub.user(topic)
            return sub.model({"topic": topic}, lambda request: "known").output["content"]

    with Run(main, reducer, [research]) as run:
        assert run.tool("research", {"topic": "bees"}, call_id="r").output == "known"
    (child,) = main.session.children("r")
    assert child.parent.id == main.read(1).id
    assert [event.type for event in child.branch("main").events()] == [
        "user_message",
        "model_request",
        "model_response",
    ]


def test_a_model_is_not_asked_by_a_state_before_the_recovery(main, bench) -> None:
    """A loop that never calls recover: what was in flight has its result in the next request."""
    main.append("user_message", {"text": "begin"})
    call = {"id": "t", "name": "retry", "args": {"what": 1}}
    main.append("model_response", {"content": "", "tool_calls": [call]})
    main.append("tool_call", {"name": "retry", "args": {"what": 1}, "in_flight": "retry"}, call_id="t")
    with Run(main, castlog.conversation, bench.tools) as run:
        while run.state["awaiting"] != "user":
            messages = run.state["messages"]
            assert not messages[-1].get("synthetic")
            run.model({"messages": messages}, lambda request: {"content": str(request["messages"][-1]["content"])})
        assert "did" in run.state["messages"][-1]["content"]
    assert bench.done == [1]


def test_nothing_is_imported_into_a_branch_that_is_run(store, main, reducer, tmp_path) -> None:
    """An export that has grown elsewhere would move it; it comes in once the run has ended."""
    main.append("note", {"n": 1})
    with open(tmp_path / "a.jsonl", "wb") as file:
        store.export(main, file)
    with castlog.open("memory:") as other:
        other.import_castlog(tmp_path / "a.jsonl")
        grown = other.branch(main.rev)
        grown.append("note", {"n": 2})
        with open(tmp_path / "b.jsonl", "wb") as file:
            other.export(grown, file)
    with Run(main, reducer), pytest.raises(castlog.Conflict, match="being run by"):
        store.import_castlog(tmp_path / "b.jsonl")
    assert main.head.seq == 1
    store.import_castlog(tmp_path / "b.jsonl")
    assert main.head.seq == 2


def test_a_conversation_driven_by_its_state(main) -> None:
    """The built-in reducer is enough to go on from: who is awaited, what is to do."""

    def model(request):
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        if turn == 2:
            return {"content": "all done"}
        return {"content": "", "tool_calls": [{"id": f"t{turn}{n}", "name": "add", "args": {"n": n}} for n in range(2)]}

    with Run(main, castlog.conversation, {"add": lambda n: n + 1}) as run:
        run.user("begin")
        while (state := run.state)["awaiting"] != "user":
            if state["awaiting"] == "tools":
                for call in list(state["todo"]):
                    run.tool(call["name"], call["args"], call_id=call["id"])
            else:
                run.model({"messages": list(state["messages"])}, model)
        assert run.state["counts"]["completed"] == 4
        assert run.state["messages"][-1]["content"] == "all done"
        assert run.state == main.restore(castlog.conversation).state
