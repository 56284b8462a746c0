"""Steps: what each writes, when it is durable, what comes back, and what a failure or an interrupt leaves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import castlog
from castlog import Result, Run


def log(branch):
    """Return type, call id and payload of a branch's events."""
    return [(event.type, event.call_id, event.payload) for event in branch.events()]


def test_each_step_writes_its_events(main, reducer, bench) -> None:
    """Calls and results by their types and keys; messages, notes and values as single events."""
    with Run(main, reducer, bench.tools) as run:
        run.user("hi")
        run.user([{"type": "text", "text": "look"}])
        assert run.tool("ask", {"what": 1}, call_id="t1") == Result(True, {"did": 1})
        assert run.model({"model": "m"}, lambda request: {"content": "yes", "saw": request}).output["content"] == "yes"
        assert run.model({"model": "m"}, lambda request: "plain") == Result(True, {"content": "plain"})
        assert run.hook("pre", {"x": 1}, lambda given: "allow") == Result(True, {"decision": "allow"})
        assert run.hook("pre", 1, lambda given: {"decision": "deny", "reason": "no"}).output["reason"] == "no"
        run.note("so far")
        run.note({"free": 1})
        assert run.value("dice", lambda: 4) == 4
    assert log(main) == [
        ("user_message", None, {"text": "hi"}),
        ("user_message", None, {"content": [{"type": "text", "text": "look"}]}),
        ("tool_call", "t1", {"name": "ask", "args": {"what": 1}, "in_flight": "ask"}),
        ("tool_result", "t1", {"ok": True, "output": {"did": 1}}),
        ("model_request", "c5", {"model": "m"}),
        ("model_response", "c5", {"content": "yes", "saw": {"model": "m"}}),
        ("model_request", "c7", {"model": "m"}),
        ("model_response", "c7", {"content": "plain"}),
        ("hook_call", "c9", {"hook": "pre", "input": {"x": 1}}),
        ("hook_decision", "c9", {"decision": "allow"}),
        ("hook_call", "c11", {"hook": "pre", "input": 1}),
        ("hook_decision", "c11", {"decision": "deny", "reason": "no"}),
        ("note", None, {"text": "so far"}),
        ("note", None, {"free": 1}),
        ("value", None, {"kind": "dice", "value": 4}),
    ]


def test_values_are_recorded(main, reducer, clock) -> None:
    """Time, randomness and ids come from the store's sources and are in the log."""
    with Run(main, reducer) as run:
        given = [run.now(), run.random(), run.uuid()]
    assert [event.payload["value"] for event in main.events()] == given
    assert 1_750_000_000_000_000_000 < given[0] <= clock.now
    assert 0 <= given[1] < 1
    assert len(given[2]) == 36
    assert given[2][14] == "4"


def test_the_state_is_the_fold_at_the_head(main, reducer, bench) -> None:
    """It holds what was there before, what the run did, and what others appended before its last step."""
    main.append("note", {"n": 1})
    with Run(main, reducer, bench.tools) as run:
        assert len(run.state) == 1
        run.tool("ask", {"what": 1})
        assert run.state == main.restore(reducer).state
        main.append("user_message", {"text": "stop"})
        assert len(run.state) == 3
        run.refresh()
        assert run.state[3][1] == "user_message"
        main.append("user_message", {"text": "no, go"})
        run.tool("ask", {"what": 2})
        assert [row[1] for row in run.state[4:]] == ["user_message", "tool_call", "tool_result"]
        assert run.state == main.restore(reducer).state
        assert run.seq == 7


def test_the_call_is_durable_before_the_function_is_entered(main, reducer) -> None:
    """The tool itself finds its call in the log, and with it everything before."""
    seen = []
    with Run(main, reducer) as run:
        run.tool("look", function=lambda: seen.append(main.head.seq))
        run.tool("look", function=lambda: seen.append(main.head.seq))
        run.model({}, lambda request: seen.append(main.head.seq))
        run.hook("h", 1, lambda given: seen.append(main.head.seq))
    assert seen == [1, 3, 5, 7]


def test_a_result_looked_at_is_durable(main, reducer, bench) -> None:
    """Each way to see a result waits until it is in the log."""
    with Run(main, reducer, bench.tools) as run:
        looks = [
            lambda result: result.ok,
            lambda result: result.output,
            lambda result: result.error,
            lambda result: repr(result),
            lambda result: run.state,
            lambda result: run.flush(),
        ]
        for number, look in enumerate(looks, 1):
            look(run.tool("ask", {"what": number}))
            assert main.head.seq == 2 * number


def test_steps_whose_results_nobody_looks_at_cost_one_commit(disk_store, reducer, bench) -> None:
    """A result goes to the disk with the next call: a hundred steps take about a hundred commits."""
    main = disk_store.create_session("x").branch("main")
    with Run(main, reducer, bench.tools, snapshots=None) as run:
        before = disk_store._core.engine.version()
        for number in range(100):
            run.tool("ask", {"what": number})
        assert len(run.state) == 200
        assert disk_store._core.engine.version() - before < 150


def test_an_exception_is_a_failed_result(main, reducer, bench) -> None:
    """What a tool, a model or a hook raises is recorded and returned, and the run goes on."""
    with Run(main, reducer, bench.tools) as run:
        bench.stop = ValueError("no such file")
        result = run.tool("ask", {"what": 1})
        assert (result.ok, result.output, result.error) == (False, None, "ValueError: no such file")

        def broken(given):
            raise TimeoutError

        assert run.model({}, broken).error == "TimeoutError"
        assert run.hook("h", 1, broken).error == "TimeoutError"
        assert run.tool("ask", {"what": 2}).ok
    assert log(main)[1] == ("tool_result", "c1", {"ok": False, "error": "ValueError: no such file"})


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_is_recorded_and_raised(main, reducer, bench, stop) -> None:
    """Ctrl-C in a tool leaves a result that says so, not a call in flight; the run can go on."""
    with Run(main, reducer, bench.tools) as run:
        bench.stop = stop
        with pytest.raises(type(stop)):
            run.tool("ask", {"what": 1})
        assert log(main)[1][2] == {
            "ok": False,
            "error": "KeyboardInterrupt" if isinstance(stop, KeyboardInterrupt) else "SystemExit: 3",
            "interrupted": True,
        }
        assert run.tool("ask", {"what": 2}).ok
    assert main.in_flight() == []


def test_an_output_that_cannot_be_kept_is_a_failure(main, reducer) -> None:
    """The effect took place, so something is recorded: that its output is no JSON value."""
    with Run(main, reducer) as run:
        result = run.tool("odd", function=lambda: {1, 2})
        assert not result.ok
        assert "set" in result.error
        with pytest.raises(castlog.Invalid):
            run.tool("odd", {"x": float("nan")}, function=lambda x: x)
        with pytest.raises(castlog.Invalid):
            run.note(object())
    assert len(log(main)) == 2


def test_an_unknown_tool_is_a_failed_call(main, reducer) -> None:
    """A model may ask for what is not there; nothing was done, so the call may fail when it is in flight."""
    with Run(main, reducer) as run:
        result = run.tool("nowhere", {"x": 1})
        assert result.error == "LookupError: there is no tool 'nowhere'"
    assert main.read(1).payload["in_flight"] == "fail"


def test_arguments_come_as_they_were_recorded(main, reducer) -> None:
    """By name from a mapping, as one otherwise, not at all from None; as JSON gives them back."""
    got = []
    tools = {"any": lambda *args, **named: got.append((args, named))}
    with Run(main, reducer, tools) as run:
        run.tool("any", {"a": [1, 2]})
        run.tool("any", [1, 2])
        run.tool("any", "x")
        run.tool("any")
    assert got == [((), {"a": [1, 2]}), (([1, 2],), {}), (("x",), {}), ((), {})]


def test_a_tool_may_ask_for_its_call(main, reducer) -> None:
    """A parameter `call` gets id, key and attempt, unless the arguments have one of that name."""

    def tool(call):
        return call if isinstance(call, str) else [call.id, call.key, call.attempt]

    with Run(main, reducer, [tool]) as run:
        assert run.tool("tool", call_id="mine").output == ["mine", main.read(1).id, 1]
        assert run.tool("tool", {"call": "theirs"}).output == "theirs"
        assert run.tool("tool").output[0] == "c5"


def test_tools_are_given_as_a_mapping_or_a_list(main, reducer) -> None:
    """A list goes by the functions' names; what is no function, or has no name, is refused."""

    @castlog.tool
    def bare():
        return 1

    with Run(main, reducer, [bare, len]) as run:
        assert run.tool("bare").output == 1
        assert run.tool("len", "abc").output == 3
    for tools in ([7], {"x": 7}):
        with pytest.raises(castlog.Invalid):
            Run(main, reducer, tools)
    with pytest.raises(castlog.Invalid, match="policy"):
        castlog.tool(in_flight="maybe")
    with Run(main, reducer) as run, pytest.raises(castlog.Invalid, match="policy"):
        run.tool("x", function=len, in_flight="maybe")


def test_a_run_of_threads_takes_no_coroutines(main, reducer) -> None:
    """An asynchronous tool is a failed call that says where it belongs."""

    async def tool():
        return 1

    with Run(main, reducer, [tool]) as run:
        assert "castlog.aio.Run" in run.tool("tool").error


def test_a_model_streams(main, reducer) -> None:
    """Deltas are passed on as they come; the response is what the generator returns, or else their text."""
    got = []

    def ask(request):
        for delta in ("Hel", "lo"):
            yield delta
            assert got[-1] == delta
            assert main.head.seq % 2 == 1

    def ask_whole(request):
        yield {"delta": 1}
        return {"content": "whole", "usage": {"input": 1}}

    with Run(main, reducer) as run:
        assert run.model({}, ask, on_delta=got.append).output == {"content": "Hello"}
        assert run.model({}, ask_whole, on_delta=got.append).output["content"] == "whole"
        assert run.model({}, ask, on_delta=got.append, join=lambda deltas: deltas[::-1]).output == {
            "content": ["lo", "Hel"]
        }
    assert got == ["Hel", "lo", {"delta": 1}, "Hel", "lo"]


@pytest.mark.parametrize("stop", [ConnectionError("cut"), KeyboardInterrupt()])
def test_a_stream_that_is_cut_short_leaves_what_arrived(main, reducer, stop) -> None:
    """Whether it fails or is interrupted, the part that came is recorded and said to be partial."""

    def ask(request):
        yield "half a "
        yield "word"
        raise stop

    with Run(main, reducer) as run:
        if isinstance(stop, Exception):
            result = run.model({}, ask)
            assert (result.ok, result.output["content"], result.error) == (False, "half a word", "ConnectionError: cut")
        else:
            with pytest.raises(KeyboardInterrupt):
                run.model({}, ask)
    payload = main.read(2).payload
    assert payload["content"] == "half a word"
    assert payload["partial"] is True
    assert payload.get("interrupted", False) is not isinstance(stop, Exception)


def test_observers_see_each_event_once_when_it_is_durable(main, reducer, bench) -> None:
    """In order, others' events too, and what an observer raises keeps no step from going on."""
    seen, heads = [], []
    with Run(main, reducer, bench.tools) as run:
        run.observe(lambda event: seen.append(event.seq))
        run.observe(lambda event: heads.append(event.seq <= main.head.seq))
        run.user("hi")
        main.append("note", {"other": 1})
        run.tool("ask", {"what": 1})
        run.model({}, lambda request: "x")
    assert seen == list(range(1, 7))
    assert all(heads)


def test_an_observer_that_fails_is_reported(main, reducer, bench, monkeypatch) -> None:
    """Its exception goes where those of threads go."""
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    with Run(main, reducer, bench.tools) as run:
        run.observe(lambda event: 1 / 0)
        assert run.tool("ask", {"what": 1}).ok
    assert reported == [ZeroDivisionError, ZeroDivisionError]


def test_an_observer_may_take_steps(main, reducer) -> None:
    """A note written by an observer is observed in its turn."""
    seen = []
    with Run(main, reducer) as run:

        def watch(event):
            seen.append((event.type, event.seq))
            if event.type == "user_message":
                run.note("noted")

        run.observe(watch)
        run.user("a")
        run.user("b")
    assert seen == [("user_message", 1), ("note", 2), ("user_message", 3), ("note", 4)]


def test_threads_take_steps_at_once(store, reducer) -> None:
    """Forty calls from eight threads: each gets its own result, and the state is the fold of the log."""
    main = store.create_session("x").branch("main")
    with Run(main, reducer, {"square": lambda n: n * n}, castlog.Every(events=7)) as run:
        seen = []
        run.observe(lambda event: seen.append(event.seq))
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda n: run.tool("square", {"n": n}, call_id=f"t{n}"), range(40)))
        assert [result.output for result in results] == [n * n for n in range(40)]
        assert run.state == main.restore(reducer).state
        assert seen == list(range(1, 81))
    assert {event.call_id: event.payload["output"] for event in main.events(types={"tool_result"})} == {
        f"t{n}": n * n for n in range(40)
    }


def test_a_call_id_is_used_by_one_call_at_a_time(main, reducer) -> None:
    """A second call with the id of one in flight is refused before anything is written; later it may use it."""
    with Run(main, reducer) as run:

        def nested():
            with pytest.raises(castlog.Invalid, match="in flight"):
                run.tool("inner", call_id="c", function=lambda: 1)

        assert run.tool("outer", call_id="c", function=nested).ok
        assert run.tool("again", call_id="c", function=lambda: 1).ok
    assert len(log(main)) == 4


def test_snapshots_are_kept_as_the_policy_says(main, reducer, clock) -> None:
    """After so many events, or so many seconds, whichever is first; never with None."""
    with Run(main, reducer, snapshots=castlog.Every(events=5, seconds=None)) as run:
        for number in range(12):
            run.note({"n": number})
    assert [snapshot.seq for snapshot in main.snapshots()] == [10, 5]
    with Run(main, reducer, snapshots=castlog.Every(events=None, seconds=60)) as run:
        run.note("soon")
        clock.now += 61 * 10**9
        run.note("late")
    assert [snapshot.seq for snapshot in main.snapshots()] == [13, 10, 5]
    with Run(main, reducer, snapshots=None) as run:
        assert run.state == main.restore(reducer).state
        clock.now += 10**13
        run.note("x")
    assert len(main.snapshots()) == 3


def test_a_second_run_is_refused_and_names_the_first(store, main, reducer) -> None:
    """Until the first is closed. The same branch may be read, forked, and messages appended."""
    with Run(main, reducer) as run:
        with pytest.raises(castlog.Conflict, match="being run by") as refused:
            Run(main, reducer)
        assert {"holder", "since"} <= refused.value.facts.keys()
        with pytest.raises(castlog.Conflict):
            main.reset(0)
        with Run(main.fork("beside"), reducer) as other:
            other.user("elsewhere")
        run.user("hi")
        assert [running.branch for running in store.running()] == ["main"]
    Run(main, reducer).close()


def test_a_closed_run_takes_no_steps(main, reducer) -> None:
    """It keeps its state, and says that it was closed."""
    run = Run(main, reducer)
    run.user("hi")
    run.close()
    run.close()
    assert len(run.state) == 1
    for step in (lambda: run.user("x"), lambda: run.tool("x"), lambda: run.recover(), lambda: run.refresh()):
        with pytest.raises(castlog.Unavailable, match="closed"):
            step()


def test_a_run_needs_a_branch(store, main, reducer) -> None:
    """What cannot be appended to can only be served."""
    main.append("note", {})
    with pytest.raises(castlog.Invalid, match="cannot be appended to"):
        Run(store.view(f"{main.rev}@1"), reducer)


def test_newer_events_are_refused_by_name(main, reducer) -> None:
    """A log that newer code wrote is not gone on with."""
    main.append("note", {}, schema=3)
    with pytest.raises(castlog.Unavailable, match="a note, was written in schema 3"):
        Run(main, reducer)
    with pytest.raises(castlog.Unavailable):
        Run(main, reducer)


def test_an_interrupted_fold_is_mended(main) -> None:
    """Ctrl-C in the middle of a reducer leaves no event folded by half, or twice."""
    stop = [False]

    @castlog.reducer("pairs", 1, initial=lambda: [[], []])
    def pairs(state, event):
        state[0].append(event.seq)
        if stop[0]:
            stop[0] = False
            raise KeyboardInterrupt
        state[1].append(event.seq)
        return state

    with Run(main, pairs) as run:
        run.note("a")
        stop[0] = True
        with pytest.raises(KeyboardInterrupt):
            run.note("b")
        run.note("c")
        assert run.state == [[1, 2, 3], [1, 2, 3]]


def test_a_failure_that_no_log_can_keep_is_made_one_that_can(main, reducer) -> None:
    """An exception's text with a lone surrogate, as names of files have, is a failed result like any other."""

    def fail() -> None:
        raise ValueError("cannot parse caf\udce9.txt")

    with Run(main, reducer) as run:
        result = run.tool("fail", function=fail)
        assert (result.ok, result.error) == (False, "ValueError: cannot parse caf\\udce9.txt")
    assert main.in_flight() == []


def test_a_tool_may_change_its_arguments(main, reducer) -> None:
    """What it does to them changes neither the state nor what was recorded."""
    with Run(main, castlog.conversation) as run:
        run.tool("rm", {"paths": ["a", "b"]}, call_id="k", function=lambda paths: paths.clear())
        assert run.state == main.restore(castlog.conversation).state
    assert main.read(1).payload["args"] == {"paths": ["a", "b"]}
