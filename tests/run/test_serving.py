"""Serving: recorded steps handed out again, nothing entered and nothing written, until the harness differs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import castlog
from castlog import Run


def harness(run, bench):
    """An agent loop of three turns; returns all that it saw."""
    seen = [run.user("begin"), run.now(), run.uuid()]
    for turn in range(3):
        said = run.model({"turn": turn}, lambda request: {"content": f"answer {request['turn']}"})
        seen.append(said.output)
        result = run.tool("ask", {"what": turn}, call_id=f"t{turn}")
        seen.append((result.ok, result.output))
        seen.append(run.hook("post", turn, lambda given: "fine").output)
        run.note(f"turn {turn}")
    return seen


@pytest.fixture
def recorded(main, reducer, bench):
    """What the harness saw when it was recorded on main."""
    with Run(main, reducer, bench.tools) as run:
        return harness(run, bench)


def test_a_recording_is_served_and_nothing_is_written(main, reducer, bench, recorded) -> None:
    """The harness sees what it saw; no function is entered; the state goes along; nobody is told."""
    done, head = list(bench.done), main.head
    with Run(main, reducer, {}, live=False) as run:
        run.observe(lambda event: pytest.fail("observed"))
        assert run.replaying
        assert run.state == []
        assert harness(run, None) == recorded
        assert run.state == main.restore(reducer).state
    assert bench.done == done
    assert main.head == head


def test_the_state_is_that_after_each_step(main, reducer, bench, recorded) -> None:
    """After a call it is folded to its result, as it was when the call came back."""
    with Run(main, reducer, live=False) as run:
        run.user("begin")
        assert run.seq == 1
        run.now()
        run.uuid()
        assert run.model({"turn": 0}, None).ok
        assert run.state == main.restore(reducer, at=5).state
        assert run.tool("ask", {"what": 0}).ok
        assert run.state == main.restore(reducer, at=7).state


def test_it_goes_live_at_the_head(main, reducer, bench, recorded) -> None:
    """From the state at a seq: what was recorded is served, what comes after is done."""
    with Run(main, reducer, bench.tools, replay_from=3) as run:
        assert run.state == main.restore(reducer, at=3).state
        for turn in range(3):
            run.model({"turn": turn}, None)
            run.tool("ask", {"what": turn})
            run.hook("post", turn, None)
            assert run.replaying
            run.note(f"turn {turn}")
        assert not run.replaying
        assert run.tool("ask", {"what": "new"}).ok
        assert run.state == main.restore(reducer).state
    assert bench.done == [0, 1, 2, "new"]
    assert main.head.seq == 26


@pytest.mark.parametrize(
    ("step", "due"),
    [
        (lambda run: run.tool("ask", {"what": 9}), 4),
        (lambda run: run.tool("retry", {"what": 0}), 4),
        (lambda run: run.model({"turn": 1}, None), 4),
        (lambda run: run.hook("post", 0, None), 4),
        (lambda run: run.note("turn 0"), 4),
        (lambda run: run.user("another"), 4),
        (lambda run: run.random(), 4),
        (lambda run: run.tool("ask", {"what": 0}), 4),
    ],
)
def test_a_step_that_differs_is_named_with_the_recorded_one(main, reducer, bench, recorded, step, due) -> None:
    """At the first step that is not the next recorded one, also where it is recorded later."""
    with Run(main, reducer, live=False) as run:
        run.user("begin")
        run.now()
        run.uuid()
        with pytest.raises(castlog.Diverged) as raised:
            step(run)
        assert raised.value.recorded.seq == due
        assert f"seq {due}, model_request {{'turn': 0}}" in str(raised.value)
        assert raised.value.step["type"] in str(raised.value)
        assert run.model({"turn": 0}, None).ok


def test_another_message_at_the_start(main, reducer, recorded) -> None:
    """A message differs like any other step."""
    with Run(main, reducer, live=False) as run, pytest.raises(castlog.Diverged, match="begins"):
        run.user("begins")


def test_a_step_after_the_end_of_the_log(main, reducer, bench, recorded) -> None:
    """A run that never writes has nothing more to say."""
    with Run(main, reducer, live=False) as run:
        harness(run, None)
        with pytest.raises(castlog.Diverged, match="nothing more is recorded") as raised:
            run.tool("ask", {"what": 1})
        assert raised.value.recorded is None


def test_messages_of_others_are_passed_over(main, reducer, bench) -> None:
    """What somebody else wrote in between is folded where it was, and the harness need not write it."""
    with Run(main, reducer, bench.tools) as run:
        run.user("begin")
        run.tool("ask", {"what": 1})
        run.flush()
        main.append("user_message", {"text": "hurry"})
        main.append("checkpoint", {})
        run.refresh()
        run.tool("ask", {"what": 2})
        state = run.state
    with Run(main, reducer, live=False) as run:
        run.user("begin")
        run.tool("ask", {"what": 1})
        assert run.seq == 3
        run.refresh()
        assert run.seq == 5
        run.tool("ask", {"what": 2})
        assert run.state == state


def test_failures_are_served_too(main, reducer, bench) -> None:
    """A failed call fails again in the same words; an interrupted one is a failed result."""
    with Run(main, reducer, bench.tools) as run:
        bench.stop = ValueError("no")
        run.tool("ask", {"what": 1})
        bench.stop = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            run.tool("ask", {"what": 2})
    with Run(main, reducer, live=False) as run:
        assert run.tool("ask", {"what": 1}).error == "ValueError: no"
        assert run.tool("ask", {"what": 2}).error == "KeyboardInterrupt"


def test_parallel_calls_are_matched_whatever_their_order(main, reducer) -> None:
    """By call id where one is given, else the n-th equal call gets what the n-th got."""
    main.extend(
        [castlog.Draft("tool_call", {"name": "f", "args": n}, call_id=c) for c, n in (("a", 1), ("b", 1), ("x", 2))]
    )
    for call_id in ("x", "b", "a"):
        main.append("tool_result", {"ok": True, "output": call_id}, call_id=call_id)
    with Run(main, reducer, live=False) as run:
        assert run.tool("f", 2).output == "x"
        assert run.tool("f", 1).output == "a"
        assert run.tool("f", 1).output == "b"
        assert run.seq == 6
    with Run(main, reducer, live=False) as run:
        assert run.tool("f", 1, call_id="b").output == "b"
        assert run.tool("f", 1, call_id="a").output == "a"
        assert run.tool("f", 2).output == "x"


def test_threads_may_come_in_any_order_within_a_turn(main, reducer) -> None:
    """A harness of several threads is served whichever call comes first, but no call of a later turn."""
    with Run(main, reducer, {"f": lambda n: n}) as run:
        for turn in range(2):
            run.model({"turn": turn}, lambda request: "x")
            for n in range(5):
                assert run.tool("f", {"n": 10 * turn + n}).ok
    with Run(main, reducer, live=False) as run, ThreadPoolExecutor(5) as pool:
        for turn in range(2):
            run.model({"turn": turn}, None)
            if turn == 0:
                with pytest.raises(castlog.Diverged):
                    pool.submit(run.tool, "f", {"n": 13}).result()
            order = [10 * turn + n for n in (3, 1, 4, 0, 2)]
            assert [result.output for result in pool.map(lambda n: run.tool("f", {"n": n}), order)] == order
        assert run.state == main.restore(reducer).state


def test_serving_threads_at_once(main, reducer) -> None:
    """Recorded by eight threads, served to eight threads, again and again."""
    with Run(main, reducer, {"f": lambda n: n}) as run, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: run.tool("f", {"n": n}).ok, range(40)))
    for _ in range(5):
        with Run(main, reducer, live=False) as run, ThreadPoolExecutor(8) as pool:
            assert [r.output for r in pool.map(lambda n: run.tool("f", {"n": n}), range(40))] == list(range(40))
            assert run.state == main.restore(reducer).state


def test_a_call_in_flight_at_the_head_is_recovered_when_it_is_reached(main, reducer, bench) -> None:
    """Served as far as the log goes, then recovered by its policy; one that only serves says so."""
    main.append("tool_call", {"name": "ask", "args": {"what": 1}, "in_flight": "ask"}, call_id="a")
    main.append("tool_result", {"ok": True, "output": 1}, call_id="a")
    main.append("tool_call", {"name": "retry", "args": {"what": 2}, "in_flight": "retry"}, call_id="b")
    with Run(main, reducer, live=False) as run:
        assert run.tool("ask", {"what": 1}).output == 1
        with pytest.raises(castlog.InFlight) as raised:
            run.tool("retry", {"what": 2})
        assert [call.seq for call in raised.value.calls] == [3]
    with Run(main, reducer, bench.tools, replay_from=0) as run:
        assert run.tool("ask", {"what": 1}).output == 1
        assert run.tool("retry", {"what": 2}).output == [{"did": 2}, 2]
        assert not run.replaying
        assert run.tool("retry", {"what": 3}).output == [{"did": 3}, 1]
    assert bench.done == [2, 3]


def test_parallel_calls_of_which_one_is_in_flight(main, reducer, bench) -> None:
    """Whichever is reached first, the one with a result is not run again."""
    for order in ("ab", "ba"):
        fork = main.fork(order)
        for call_id in "ba":
            payload = {"name": "retry", "args": {"what": call_id}, "in_flight": "retry"}
            fork.append("tool_call", payload, call_id=call_id)
        fork.append("tool_result", {"ok": True, "output": "first"}, call_id="a")
        bench.done.clear()
        with Run(fork, reducer, bench.tools, replay_from=0) as run:
            results = {call_id: run.tool("retry", {"what": call_id}, call_id=call_id).output for call_id in order}
            assert run.state == fork.restore(reducer).state
        assert results == {"a": "first", "b": [{"did": "b"}, 2]}
        assert bench.done == ["b"]


def test_a_request_in_flight_at_the_head_is_issued_again(main, reducer) -> None:
    """The same call is answered."""
    main.append("model_request", {"q": 1}, call_id="r")
    with Run(main, reducer, replay_from=0) as run:
        assert run.model({"q": 1}, lambda request: "late").output == {"content": "late"}
    assert [(event.type, event.call_id) for event in main.events(2)] == [("recovery", None), ("model_response", "r")]


def test_a_read_only_store_serves(open_disk_store, reducer, bench) -> None:
    """While another run has the branch, and from a tag as well."""
    store = open_disk_store()
    session = store.create_session("x")
    main = session.branch("main")
    with Run(main, reducer, bench.tools) as run:
        seen = harness(run, bench)
        session.tag("golden")
        with castlog.open(store.target, read_only=True) as reader:
            for view in (reader.branch(main.rev), reader.view(f"{session.id}/golden")):
                with Run(view, reducer, live=False) as served:
                    assert harness(served, None) == seen


def test_a_bundle_serves_as_a_regression_test(main, store, reducer, bench, recorded, tmp_path) -> None:
    """Exported whole, imported into memory, served."""
    with open(tmp_path / "run.bundle", "wb") as file:
        store.export(main, file, "bundle")
    with castlog.open("memory:") as other:
        other.import_from(tmp_path / "run.bundle")
        with Run(other.branch(main.rev), reducer, live=False) as run:
            assert harness(run, None) == recorded


def test_serving_keeps_to_one_thread_where_the_harness_does(main, reducer) -> None:
    """A thread other than the one that made the run makes it a harness of several."""
    with Run(main, reducer, {"f": lambda n: n}) as run:
        assert run.tool("f", {"n": 1}).ok
        assert run.tool("f", {"n": 2}).ok
    with Run(main, reducer, live=False) as run:
        with pytest.raises(castlog.Diverged):
            run.tool("f", {"n": 2})
        thread = threading.Thread(target=lambda: run.tool("f", {"n": 2}))
        thread.start()
        thread.join()
        assert run.tool("f", {"n": 1}).output == 1
