"""What becomes of calls that were begun and never answered: the plan, the decisions it rests on, and how it is kept.

Making a plan reads and changes nothing. A plan is written as a `recovery` event, twice over: by a person who decides,
and, with `acting`, by the run that acts on it next. A decision counts once: the run that acts on it uses it up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from castlog import limits
from castlog.branch import Branch
from castlog.errors import InFlight, Invalid, NotFound
from castlog.event import Draft, Event, Raw
from castlog.run.result import KINDS, TOOL, Result, failure
from castlog.run.tools import ASK, FAIL, POLICIES, RETRY, Tools
from castlog.view import View

RESULT, FROM = "result", "from"
PERSON, POLICY = "person", "policy"
_LOST = "the run ended while this was in flight"


class Decision(msgspec.Struct, frozen=True):
    """What is to become of one call: `retry`, `fail`, a `result` given by hand, or the result `from` a branch."""

    action: str
    by: str = PERSON
    reason: str | None = None
    result: dict[str, Any] | None = None
    branch: str | None = None


class PlannedCall(msgspec.Struct, frozen=True):
    """One call in flight and what becomes of it; `action` is `ask` while a person has to decide.

    `attempt` counts how often it was begun, `elsewhere` is the rev of the place in another branch that has its result.
    """

    call_id: str
    seq: int
    type: str
    name: str | None
    policy: str
    action: str
    by: str
    reason: str | None
    attempt: int
    elsewhere: str | None
    event: Event
    decision: Decision


class Plan(msgspec.Struct, frozen=True):
    """What a restart does about a branch's calls in flight, oldest first."""

    calls: tuple[PlannedCall, ...]

    @property
    def undecided(self) -> tuple[PlannedCall, ...]:
        """The calls a person has to decide about."""
        return tuple(call for call in self.calls if call.action == ASK)

    def require_decided(self) -> None:
        """Raise InFlight when a person has to decide about a call first."""
        asked = self.undecided
        if asked:
            words = ", ".join(f"{call.call_id} ({call.name or call.type})" for call in asked)
            raise InFlight(
                f"calls were in flight when the run ended: {words}; decide with recover or castlog resume",
                calls=[call.event for call in asked],
                plan=self,
            )


def recovery_plan(branch: View, decisions: Mapping[str, str | Result] | None = None) -> Plan:
    """Return what a restart would do about the calls in flight at the head of a branch. Writes and runs nothing.

    `decisions` are a person's, by call id: "retry", "fail", "result:FILE", "from:BRANCH" or a `Result`; they count more
    than those recorded before, and these more than policies. Raises Invalid for a decision there is no sense in,
    NotFound when it is about no call in flight, or when the branch it names has no result.
    """
    given = {call_id: parse_decision(decision) for call_id, decision in (decisions or {}).items()}
    opened = [(event, call_id) for event in branch.in_flight() for call_id in _unanswered(branch, event)]
    unknown = given.keys() - {call_id for _, call_id in opened}
    if unknown:
        raise NotFound(f"{sorted(unknown)[0]!r} is not in flight", call_id=sorted(unknown)[0])
    past = _recoveries(branch, min((event.seq for event, _ in opened), default=0))
    return Plan(tuple(_planned(branch, event, call_id, given.get(call_id), past) for event, call_id in opened))


def decide(branch: Branch, decisions: Mapping[str, str | Result], reason: str | None = None) -> Plan:
    """Record a person's decisions about calls in flight, for the next run to act on; durable on return.

    Runs nothing. Returns the plan as it is then. Raises as `recovery_plan` does, and Conflict(holder, since) while a
    run has the branch.
    """
    hold = branch._core.own(branch._number)
    try:
        plan = recovery_plan(branch, decisions)
        chosen = [call for call in plan.calls if call.call_id in decisions]
        if chosen:
            branch.append("recovery", {"calls": [_kept(call, reason) for call in chosen]})
        return recovery_plan(branch)
    finally:
        hold.release()


def parse_decision(decision: str | Result) -> Decision:
    """Return a decision as it was typed or given; a file's content counts as JSON if it is any, else as text."""
    if isinstance(decision, Result):
        said = {"ok": True, "output": decision.output} if decision.ok else failure(decision.error or "failed")
        return Decision(RESULT, result=said)
    word, colon, rest = decision.partition(":") if isinstance(decision, str) else ("", "", "")
    if word in (RETRY, FAIL) and not colon:
        return Decision(word)
    if word == FROM and rest:
        return Decision(FROM, branch=rest)
    if word == RESULT and rest:
        return Decision(RESULT, result={"ok": True, "output": _file_value(rest)})
    raise Invalid(f"{decision!r} is no decision; use retry, fail, result:FILE or from:BRANCH", value=decision)


def acting(plan: Plan) -> Draft:
    """Return the event that says what a run is about to do."""
    return Draft("recovery", {"acting": True, "calls": [_kept(call, None, brief=True) for call in plan.calls]})


def answers(branch: View, plan: Plan) -> list[Draft]:
    """Return the results of those calls of a plan that are not run again."""
    return [draft for call in plan.calls if (draft := _answer(branch, call)) is not None]


def unsettled(calls: list[Event]) -> InFlight:
    """Return the failure of looking at a state in which calls are in flight that may be settled."""
    words = ", ".join(str(call.call_id) for call in calls)
    return InFlight(f"calls were in flight when the run ended: {words}; await recover first", calls=calls, plan=None)


def require_tools(plan: Plan, tools: Tools) -> None:
    """Raise InFlight when a call is to be run again whose function nobody has."""
    for call in plan.calls:
        if call.action == RETRY and call.type == TOOL.call and (call.name or "") not in tools:
            raise InFlight(
                f"the call {call.call_id} is to be run again, and no tool {call.name!r} is known; give it in tools",
                calls=[call.event],
                plan=plan,
            )


def result_on(other: View, call: Event, call_id: str | None) -> Event | None:
    """Return the result that a history which has this call event has of it, or None."""
    results = other.events(call.seq + 1, types={KINDS[call.type].result})
    return next((event for event in results if call_id in event.call_ids), None)


def _answer(branch: View, call: PlannedCall) -> Draft | None:
    kind = KINDS[call.type]
    if call.action == FAIL:
        return Draft(kind.result, failure(_LOST), call_id=call.call_id)
    if call.action == RESULT:
        given = call.decision.result or {}
        said = kind.keep(given.get("output")) if given.get("ok") is not False else given
        return Draft(kind.result, said, call_id=call.call_id)
    if call.action == FROM:
        assert call.decision.branch is not None
        found = _result_on(branch.session.branch(call.decision.branch), call.event, call.call_id)
        assert found is not None
        return Draft(found.type, Raw(found.raw), schema=found.schema, call_ids=found.call_ids)
    return None


def _planned(
    branch: View, event: Event, call_id: str, given: Decision | None, past: list[tuple[int, bool, Any]]
) -> PlannedCall:
    attempt, recorded = 1, None
    for seq, acted, item in past:
        if seq > event.seq and isinstance(item, dict) and item.get("call_id") == call_id:
            recorded = None if acted else _recorded(item, branch, event)
            attempt += acted and item.get("action") == RETRY
    policy = _policy(event)
    decision = given or recorded or Decision(policy, by=POLICY)
    if given is not None and given.action == FROM:
        _require_result(branch, event, call_id, given.branch or "")
    payload = event.payload if isinstance(event.payload, dict) else {}
    name = payload.get("hook" if event.type == "hook_call" else "name")
    return PlannedCall(
        call_id,
        event.seq,
        event.type,
        name if isinstance(name, str) else None,
        policy,
        decision.action,
        decision.by,
        decision.reason,
        attempt,
        _elsewhere(branch, event, call_id),
        event,
        decision,
    )


def _policy(event: Event) -> str:
    """Return the policy stored with a call; a model is asked again, and a hook counts as failed."""
    if event.type == "tool_call":
        stored = event.payload.get("in_flight") if isinstance(event.payload, dict) else None
        return stored if stored in POLICIES else ASK
    return RETRY if event.type == "model_request" else FAIL


def _recoveries(branch: View, start: int) -> list[tuple[int, bool, Any]]:
    """Return what recovery events from a seq on say of calls: their seq, whether a run acted on it, and the words."""
    found = []
    for event in branch.events(start, types={"recovery"}) if start else ():
        payload = event.payload
        listed = payload.get("calls") if isinstance(payload, dict) else None
        for item in listed if isinstance(listed, list) else ():
            found.append((event.seq, payload.get("acting") is True, item))
    return found


def _kept(call: PlannedCall, reason: str | None, *, brief: bool = False) -> dict[str, Any]:
    """Return what a recovery event says of a call; `brief` leaves out a result that is recorded next to it."""
    said: dict[str, Any] = {"call_id": call.call_id, "action": call.action, "by": call.by}
    if reason or call.reason:
        said["reason"] = reason or call.reason
    if call.decision.branch is not None:
        said["branch"] = call.decision.branch
    if call.decision.result is not None and not brief:
        said["result"] = call.decision.result
    return said


def _recorded(item: dict[str, Any], branch: View, call: Event) -> Decision | None:
    """Return a decision from the log, or None when it says nothing, or when the branch it names has no result now."""
    try:
        decision = msgspec.convert(item, Decision)
        if decision.action == FROM:
            _require_result(branch, call, item["call_id"], decision.branch or "")
    except (msgspec.ValidationError, NotFound):
        return None
    says = decision.action in (RETRY, FAIL, FROM) or (decision.action == RESULT and decision.result is not None)
    return decision if says else None


def _unanswered(branch: View, event: Event) -> Iterable[str]:
    """Return the ids of an event's calls that are in flight; a foreign record may open several at once."""
    if len(event.call_ids) < 2:
        return event.call_ids
    answered: set[str] = set()
    for result in branch.events(event.seq + 1, types={KINDS[event.type].result}):
        answered.update(result.call_ids)
    return [call_id for call_id in event.call_ids if call_id not in answered]


def _elsewhere(branch: View, call: Event, call_id: str) -> str | None:
    """Return the rev of a result that another branch has of the same call, or None; the oldest are asked first."""
    others = sorted(branch.session.branches(), key=lambda other: other._number)
    for other in others[: limits.FORKS_ASKED_MAX]:
        if other != branch:
            found = _result_on(other, call, call_id)
            if found is not None:
                return f"{other.rev}@{found.seq}"
    return None


def _result_on(other: View, call: Event, call_id: str) -> Event | None:
    if other.head.seq <= call.seq or other.read(call.seq).id != call.id:
        return None
    return result_on(other, call, call_id)


def _require_result(branch: View, call: Event, call_id: str, name: str) -> None:
    if _result_on(branch.session.branch(name), call, call_id) is None:
        raise NotFound(f"branch {name!r} has no result of the call {call_id}", branch=name, call_id=call_id)


def _file_value(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not text", path=path) from error
    try:
        return json.loads(text)
    except ValueError:
        return text
