"""`castlog resume`: what a restart would do about calls in flight."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from .. import events
from ..command import App, command
from ..errors import SOMETHING_FOUND as UNDECIDED
from ..output import Styled
from ..preview import preview
from ..revision import REV, SHELL_SAFE, typed
from ..signals import held
from ..text import flat, plural

if TYPE_CHECKING:
    from castlog.run.recovery import Plan, PlannedCall

_DOES = {
    "ask": "waits for a person to decide",
    "retry": "is run again",
    "fail": "counts as failed",
    "result": "gets the result given",
    "from": "gets the result of another branch",
}


class Decision(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """`CALL=ACTION`, as given to `--decide`; what an action may be is for castlog to say."""

    name = "CALL=ACTION"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Offer the calls in flight, with the actions that need no more words; an unusable store offers nothing."""
        try:
            app = App.of(ctx)
            rev = ctx.params.get("rev") or next(iter(ctx.args), None)  # click reads no words before half an option
            branch = app.branch(app.store(read_only=True, quiet=True), rev)
            calls = [call for event in branch.in_flight() for call in event.call_ids]
        except Exception:  # a shell in mid-line must not be disturbed, whatever is wrong
            return []
        words = [f"{call}={action}" for call in calls for action in ("retry", "fail") if SHELL_SAFE.fullmatch(call)]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the last `=` before the action."""
        if isinstance(value, tuple):
            return value
        parts = ((*str(value).rpartition(f"={word}"), word) for word in ("result:", "from:", ""))
        found = next(((call, word + rest) for call, equals, rest, word in parts if call and equals), None)
        if found is None:
            self.fail(f"{value!r} is not CALL=ACTION, such as c1=retry.", param, ctx)
        return found


@command(
    "resume",
    examples=(
        "castlog resume",
        "castlog resume main --decide c1=retry --decide c2=fail --reason 'disk full'",
        "castlog resume main --decide c1=result:answer.json",
        "castlog resume idea-b --decide c1=from:main",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("--decide", "decisions", type=Decision(), multiple=True, help="Record a decision; may be repeated.")
@click.option("--reason", help="Why, for the record.")
def resume(app: App, rev: str | None, decisions: tuple[tuple[str, str], ...], reason: str | None) -> int:
    """Show what a restart would do about calls in flight, and record decisions.

    A call is in flight when the log has no result of it: its run ended in the middle, or is still at it. Each has a
    policy, stored with the call. A person decides about those that ask: retry (run it again), fail (record that it
    failed), result:FILE (record what it gave: JSON, or text), from:BRANCH (take the result another branch has).

    Runs nothing: the next run of the branch acts on what was decided. Exits 1 while a call waits for a decision.
    """
    from castlog.run.recovery import recovery_plan

    if reason is not None and not decisions:
        raise click.UsageError("--reason goes with --decide.")
    if decisions:
        return _decide(app, rev, dict(decisions), reason)
    store = app.store(read_only=True)
    branch = app.branch(store, rev)
    running = next((run for run in store.running() if run.rev == branch.rev), None)
    if running is not None:
        app.out.say(f"{branch.name} is being run by process {running.pid}; what is in flight may well be at work.")
    return _show(app, recovery_plan(branch), branch.rev)


def _decide(app: App, rev: str | None, decisions: Mapping[str, str], reason: str | None) -> int:
    from castlog.run.recovery import decide

    branch = app.branch(app.store(), rev)
    with held():
        return _show(app, decide(branch, decisions, reason), branch.rev)


def _show(app: App, plan: Plan, rev: str) -> int:
    for call in plan.calls:
        _show_call(app, call)
    if not plan.calls:
        app.out.say("Nothing is in flight.")
    waiting = plan.undecided
    if waiting:
        words = " ".join(f"--decide {shlex.quote(call.call_id)}=retry" for call in waiting[:3])
        app.out.say(
            f"{plural(len(waiting), 'call')} to decide about: castlog resume {typed(events.short_rev(rev))} {words}"
        )
    return UNDECIDED if waiting else 0


def _show_call(app: App, call: PlannedCall) -> None:
    if app.out.json:
        app.out.record(
            call_id=call.call_id,
            seq=call.seq,
            type=call.type,
            name=call.name,
            policy=call.policy,
            action=call.action,
            by=call.by,
            reason=call.reason,
            attempt=call.attempt,
            elsewhere=call.elsewhere,
        )
        return
    start = f"{'@' + str(call.seq):>8}  "
    calls = f"{flat(call.call_id)}  {flat(call.type)}  "
    text = preview(call.event, max(app.out.width - len(start) - len(calls), 24))
    app.out.line(Styled(start, "yellow"), Styled(calls, "cyan"), text)
    why = f"by {'its policy' if call.by == 'policy' else 'decision'}: {call.action}"
    reason = f", {flat(call.reason)}" if call.reason else ""
    again = f"; begun {call.attempt} times" if call.attempt > 1 else ""
    app.out.line(f"{'':>10}{_DOES[call.action]} ({why}{reason}){again}")
    if call.elsewhere is not None:
        app.out.line(f"{'':>10}{events.short_rev(call.elsewhere)} has a result of it")
