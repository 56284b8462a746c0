"""Recovery: what becomes of calls that a crash left in flight, under each policy and each decision."""

from __future__ import annotations

import pytest

import castlog
from castlog import Draft, Result, Run, decide, recovery_plan


def begin(branch, policy="ask", call_id="c", **more):
    """Leave a tool call in flight, as a crash would."""
    payload = {"name": policy, "args": {"what": call_id}, "in_flight": policy}
    return branch.append("tool_call", payload | more, call_id=call_id)


def last(branch):
    """Return the type, call id and payload of a branch's last event."""
    event = branch.read(branch.head.seq)
    return event.type, event.call_id, event.payload


def test_ask_waits_for_a_person(main, reducer, bench) -> None:
    """Neither recover nor a step goes on; nothing is written or done; the failure tells the calls and the plan."""
    call = begin(main)
    with Run(main, reducer, bench.tools) as run:
        for step in (run.recover, lambda: run.user("hi"), lambda: run.tool("ask", {"what": 2}), run.now):
            with pytest.raises(castlog.InFlight, match=r"c \(ask\)") as raised:
                step()
            assert raised.value.calls == [call]
            (planned,) = raised.value.plan.calls
            assert (planned.call_id, planned.policy, planned.action, planned.attempt) == ("c", "ask", "ask", 1)
        assert len(run.state) == 1
    assert main.head.seq == 1
    assert bench.done == []


def test_retry_runs_the_call_again(main, reducer, bench) -> None:
    """After the plan is recorded; the tool is told the attempt, and the same key as at first."""
    call = begin(main, "retry")
    with Run(main, reducer, bench.tools) as run:
        run.user("go on")
    assert bench.done == ["c"]
    assert [(event.type, event.payload) for event in main.events(2)] == [
        ("recovery", {"acting": True, "calls": [{"call_id": "c", "action": "retry", "by": "policy"}]}),
        ("tool_result", {"ok": True, "output": [{"did": "c"}, 2]}),
        ("user_message", {"text": "go on"}),
    ]
    assert main.read(1).id == call.id


def test_attempts_are_counted_over_crashes(main, reducer) -> None:
    """Each recovery that ran the call again counts; the key stays."""
    call = begin(main, "retry")
    calls = []

    def retry(what, call):
        calls.append(call)
        if len(calls) < 3:
            raise SystemExit  # and a crash before that is recorded
        return "done"

    for _ in range(2):
        run = Run(main, reducer, {"retry": castlog.tool(in_flight="retry")(retry)})
        run._steps._record = lambda *args: _nothing()
        with pytest.raises(SystemExit):
            run.recover()
        run.close()
    with Run(main, reducer, {"retry": retry}) as run:
        run.recover()
    assert [call.attempt for call in calls] == [2, 3, 4]
    assert {call.key for call in calls} == {call.id}
    assert last(main)[2] == {"ok": True, "output": "done"}


async def _nothing():
    pass


def test_fail_records_a_failed_result(main, reducer, bench) -> None:
    """The plan and the result are one commit; the tool is not entered."""
    begin(main, "fail")
    with Run(main, reducer, bench.tools) as run:
        plan = run.recover()
        assert [call.action for call in plan.calls] == ["fail"]
    assert [event.type for event in main.events(2)] == ["recovery", "tool_result"]
    assert last(main)[2] == {"ok": False, "error": "the run ended while this was in flight"}
    assert bench.done == []


def test_a_call_without_a_policy_is_asked_about(main, reducer) -> None:
    """Also one with a policy nobody knows."""
    main.append("tool_call", {"name": "x"}, call_id="a")
    main.append("tool_call", {"in_flight": "explode"}, call_id="b")
    main.append("tool_call", ["odd"], call_id="d")
    assert [call.action for call in recovery_plan(main).calls] == ["ask", "ask", "ask"]


def test_hooks_count_as_failed(main, reducer) -> None:
    """Whatever they would have said."""
    main.append("hook_call", {"hook": "pre", "input": 1}, call_id="h")
    with Run(main, reducer) as run:
        assert run.hook("pre", 2, lambda given: "allow").ok
    assert [event.type for event in main.events()] == [
        "hook_call",
        "recovery",
        "hook_decision",
        "hook_call",
        "hook_decision",
    ]
    assert main.read(3).payload["ok"] is False


def test_a_model_is_asked_again(main, reducer) -> None:
    """The harness issues the request again, and it is the same call that is answered."""
    main.append("model_request", {"model": "m", "messages": [1]}, call_id="r")
    with Run(main, reducer) as run:
        assert run.model({"messages": [1], "model": "m"}, lambda request: "again").output == {"content": "again"}
        run.model({"model": "m"}, lambda request: "next")
    assert [(event.type, event.call_id) for event in main.events()] == [
        ("model_request", "r"),
        ("recovery", None),
        ("model_response", "r"),
        ("model_request", "c4"),
        ("model_response", "c4"),
    ]


def test_a_request_that_is_not_issued_again_has_failed(main, reducer) -> None:
    """When the harness asks something else, the old request does not stay open for ever."""
    main.append("model_request", {"model": "m", "messages": [1]}, call_id="r")
    with Run(main, reducer) as run:
        run.model({"model": "m", "messages": [1, 2]}, lambda request: "new")
    assert main.in_flight() == []
    assert [(event.type, event.call_id) for event in main.events(2)] == [
        ("recovery", None),
        ("model_response", "r"),
        ("model_request", "c4"),
        ("model_response", "c4"),
    ]
    assert main.read(3).payload["ok"] is False


@pytest.mark.parametrize(
    ("decision", "result", "done"),
    [
        ("retry", {"ok": True, "output": {"did": "c"}}, ["c"]),
        ("fail", {"ok": False, "error": "the run ended while this was in flight"}, []),
        (Result(True, {"by": "hand"}), {"ok": True, "output": {"by": "hand"}}, []),
        (Result(False, error="it did not"), {"ok": False, "error": "it did not"}, []),
    ],
    ids=["retry", "fail", "result", "failed result"],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_person_decides(main, reducer, bench, decision, result, done, recorded) -> None:
    """Given to recover, or recorded before by `decide`, which runs nothing and needs no run."""
    begin(main)
    if recorded:
        plan = decide(main, {"c": decision}, reason="looked at the disk")
        assert plan.undecided == ()
        assert bench.done == []
        assert main.head.seq == 2
    with Run(main, reducer, bench.tools) as run:
        run.recover({} if recorded else {"c": decision})
    assert last(main) == ("tool_result", "c", result)
    assert bench.done == done
    (item,) = main.read(main.head.seq - 1).payload["calls"]
    assert item["by"] == "person"
    assert item.get("reason") == ("looked at the disk" if recorded else None)


def test_a_result_from_a_file(main, reducer, tmp_path) -> None:
    """JSON counts as JSON, anything else as text."""
    (tmp_path / "a.json").write_text('{"rows": 3}')
    (tmp_path / "b.txt").write_text("three rows")
    begin(main, call_id="a")
    begin(main, call_id="b")
    with Run(main, reducer) as run:
        run.recover({"a": f"result:{tmp_path}/a.json", "b": f"result:{tmp_path}/b.txt"})
    assert [event.payload["output"] for event in main.events(types={"tool_result"})] == [{"rows": 3}, "three rows"]


def test_decisions_that_make_no_sense_are_refused(main, reducer, tmp_path) -> None:
    """Before anything is written: words nobody knows, calls not in flight, files and branches that are not there."""
    begin(main)
    refused = [
        ({"c": "maybe"}, castlog.Invalid),
        ({"c": "retry:x"}, castlog.Invalid),
        ({"c": 7}, castlog.Invalid),
        ({"x": "retry"}, castlog.NotFound),
        ({"c": f"result:{tmp_path}/none"}, castlog.NotFound),
        ({"c": "from:nowhere"}, castlog.NotFound),
    ]
    main.fork("other")
    refused.append(({"c": "from:other"}, castlog.NotFound))
    with Run(main, reducer) as run:
        for decisions, error in refused:
            with pytest.raises(error):
                run.recover(decisions)
    for decisions, error in refused:
        with pytest.raises(error):
            decide(main, decisions)
    assert main.head.seq == 1


def test_a_fork_between_call_and_result_names_the_branch_that_has_it(session, main, reducer, bench) -> None:
    """The plan says where, and the result may be taken from there."""
    begin(main)
    main.append("note", {})
    main.append("tool_result", {"ok": True, "output": "theirs"}, call_id="c")
    idea = main.fork("idea", at=2)
    (planned,) = recovery_plan(idea).calls
    assert planned.elsewhere == f"{main.rev}@3"
    assert planned.action == "ask"
    with Run(idea, reducer, bench.tools) as run:
        run.recover({"c": "from:main"})
    assert last(idea) == ("tool_result", "c", {"ok": True, "output": "theirs"})
    assert bench.done == []


def test_a_recorded_decision_that_means_nothing_any_more(session, main, reducer) -> None:
    """Its branch is gone, or its words are odd: the call is asked about again."""
    begin(main)
    other = main.fork("other")
    other.append("tool_result", {"ok": True, "output": 1}, call_id="c")
    assert decide(main, {"c": "from:other"}).undecided == ()
    other.delete()
    assert [call.action for call in recovery_plan(main).calls] == ["ask"]
    for odd in ("explode", "result", 7, None):
        main.append("recovery", {"calls": [{"call_id": "c", "action": odd}, "odd"]})
        assert [call.action for call in recovery_plan(main).calls] == ["ask"]


def test_a_result_given_for_a_model_or_a_hook(main, reducer) -> None:
    """Is kept as what they return is kept."""
    main.append("model_request", {"q": 1}, call_id="m")
    main.append("hook_call", {"hook": "h", "input": 1}, call_id="h")
    with Run(main, reducer) as run:
        run.recover({"m": Result(True, "by hand"), "h": Result(True, "allow")})
        assert run.hook("h", 1, lambda given: "deny").output == {"decision": "allow"}
    assert main.read(4).payload == {"content": "by hand"}
    assert main.in_flight() == []


def test_parallel_calls_half_answered(main, reducer, bench) -> None:
    """Only those without a result are settled, each by its policy, in one plan."""
    main.extend(
        [
            Draft("tool_call", {"name": p, "args": {"what": p}, "in_flight": p}, call_id=f"{p}{n}")
            for n in range(2)
            for p in ("retry", "fail", "ask")
        ]
    )
    for answered in ("retry0", "fail1", "ask0"):
        main.append("tool_result", {"ok": True, "output": 1}, call_id=answered)
    with Run(main, reducer, bench.tools) as run:
        with pytest.raises(castlog.InFlight):
            run.recover()
        assert main.head.seq == 9
        plan = run.recover({"ask1": "fail"})
        assert [(call.call_id, call.action, call.by) for call in plan.calls] == [
            ("fail0", "fail", "policy"),
            ("retry1", "retry", "policy"),
            ("ask1", "fail", "person"),
        ]
    assert main.in_flight() == []
    assert bench.done == ["retry"]


def test_a_decision_counts_once(main, reducer, bench) -> None:
    """A person's retry that a crash cut off again has to be decided again."""
    begin(main)
    decide(main, {"c": "retry"})
    run = Run(main, reducer, bench.tools)
    run._steps._record = lambda *args: _nothing()
    bench.stop = SystemExit()
    with pytest.raises(SystemExit):
        run.recover()
    run.close()
    with Run(main, reducer, bench.tools) as run, pytest.raises(castlog.InFlight):
        run.recover()
    assert recovery_plan(main).calls[0].attempt == 2
    assert bench.done == ["c"]


def test_a_tool_nobody_knows_is_not_run_again(main, reducer, bench) -> None:
    """The run says which function it lacks; found at run time, or given in tools, it goes on."""
    begin(main, "retry", name="found")
    with Run(main, reducer) as run:
        with pytest.raises(castlog.InFlight, match="no tool 'found' is known"):
            run.user("hi")
        assert main.head.seq == 1
        assert run.tool("found", {"what": "new"}, function=bench.do).ok
    assert bench.done == ["c", "new"]


def test_a_run_that_is_going_on_is_left_alone(main, reducer) -> None:
    """Its calls are no business of a person's: deciding is Conflict, and so is a second run."""
    with Run(main, reducer) as run:

        def meddle():
            with pytest.raises(castlog.Conflict):
                decide(main, {"m": "fail"})
            with pytest.raises(castlog.Conflict):
                Run(main, reducer)
            return [call.call_id for call in recovery_plan(main).calls]

        assert run.tool("meddle", call_id="m", function=meddle).output == ["m"]


def test_recovering_again_does_nothing(main, reducer, bench) -> None:
    """What the run itself has in flight is not taken for a crash's; late decisions are refused."""
    begin(main, "retry")
    with Run(main, reducer, bench.tools) as run:
        assert len(run.recover().calls) == 1
        assert run.tool("nested", function=lambda: len(run.recover().calls)).output == 0
        with pytest.raises(castlog.Invalid):
            run.recover({"c": "fail"})


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_a_step_that_was_recovered_is_not_taken_twice(main, reducer, bench, policy) -> None:
    """A harness that decided by the state before the recovery gets the result of it, by call id or by what it calls."""
    begin(main, policy, "a")
    begin(main, policy, "b")
    main.append("hook_call", {"hook": "h", "input": 1})
    with Run(main, reducer, bench.tools) as run:
        first = run.tool(policy, {"what": "a"}, call_id="a")
        second = run.tool(policy, {"what": "b"})
        assert not run.hook("h", 1, lambda given: "allow").ok
        assert (first.ok, second.ok) == (policy == "retry", policy == "retry")
        assert len(bench.done) == (2 if policy == "retry" else 0)
        assert run.state == main.restore(reducer).state
        assert run.tool(policy, {"what": "b"}).ok
    assert len(main.in_flight()) == 0
    assert [event.call_id for event in main.events(types={"tool_call"})][2:] == [f"c{main.head.seq - 1}"]


def test_looking_at_the_state_settles_what_needs_no_person(main, reducer, bench) -> None:
    """A request made of the state before a recovery would ask for what is done already."""
    begin(main, "retry", "a")
    with Run(main, reducer, bench.tools) as run:
        run.observe(lambda event: run.state)
        assert [row[1] for row in run.state] == ["tool_call", "recovery", "tool_result"]
        assert bench.done == ["a"]
    begin(main, "ask", "b")
    with Run(main, reducer, bench.tools) as run:
        assert len(run.state) == 4
        with pytest.raises(castlog.InFlight):
            run.note("x")
        run.recover({"b": "fail"})
        assert len(run.state) == 6


def test_a_harness_that_saw_the_recovery_may_call_again(main, reducer, bench) -> None:
    """Who looked at the state since means another call."""
    begin(main, "fail", "a")
    with Run(main, reducer, bench.tools) as run:
        run.recover()
        assert run.state
        assert run.tool("fail", {"what": "a"}).ok
    begin(main, "fail", "a")
    with Run(main, reducer, bench.tools) as run:
        run.note("first step")
        assert run.state
        assert run.tool("fail", {"what": "a"}).ok


def test_a_tool_that_is_run_again_may_take_steps(main, reducer) -> None:
    """Steps inside a recovered tool do not wait for the recovery they are part of."""
    begin(main, "retry", name="outer", args=None)
    with Run(main, reducer, {"outer": lambda: run.tool("inner", function=lambda: 1).output}) as run:
        run.recover()
    assert last(main) == ("tool_result", "c", {"ok": True, "output": 1})


def test_a_sub_agent_that_needs_a_person_leaves_its_parent_waiting(store, main, reducer) -> None:
    """A recovered tool that opens another run recovers that one; what is asked there is no result of the tool."""
    call = begin(main, "retry", name="delegate", args=None)
    child = store.create_session("child", parent=call).branch("main")
    begin(child, "ask")

    def delegate() -> object:
        with Run(child, reducer, {"ask": lambda what: what}) as sub:
            return sub.tool("ask", {"what": "more"}).output

    for _ in range(2):
        with Run(main, reducer, {"delegate": delegate}) as run, pytest.raises(castlog.InFlight, match=r"c \(ask\)"):
            run.recover()
    assert [event.id for event in main.in_flight()] == [call.id]
    decide(child, {"c": "fail"})
    with Run(main, reducer, {"delegate": delegate}) as run:
        run.recover()
    assert last(main) == ("tool_result", "c", {"ok": True, "output": "more"})


def test_calls_of_a_foreign_record(main, reducer) -> None:
    """A record that opened several calls is planned for each that has no result."""
    main.append("note", {})
    main.extend([Draft("tool_call", {"odd": 1}, call_ids=("a", "b", "d"))])
    main.append("tool_result", {}, call_id="b")
    assert [call.call_id for call in recovery_plan(main).calls] == ["a", "d"]
    with Run(main, reducer) as run:
        run.recover({"a": "fail", "d": Result(True, 1)})
    assert main.in_flight() == []
