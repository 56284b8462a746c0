"""`castlog verify`: integrity."""

from __future__ import annotations

from textwrap import wrap

import click

import castlog

from .. import reducers
from ..command import App, command
from ..errors import SOMETHING_FOUND
from ..output import Styled
from ..revision import REV
from ..text import cells, plural

_ORDER = {"error": 0, "warning": 1, "note": 2}
_COLOURS = {"error": "red bold", "warning": "yellow", "note": "dim"}


@command(
    "verify",
    examples=(
        "castlog verify",
        "castlog verify --deep",
        "castlog verify 4f2a91cc/main --json",
        "castlog verify --snapshots --reducer my_agent:plan --drop",
    ),
)
@click.argument("rev", required=False, type=REV)
@click.option("--deep", is_flag=True, help="Read and hash large payloads too.")
@click.option("--snapshots", is_flag=True, help="Fold all events, and compare snapshots with the states they give.")
@click.option(
    "--reducer",
    "named",
    metavar="MODULE:NAME",
    multiple=True,
    help="Whose snapshots; may be repeated, and its module may lie in this folder. Default: castlog.conversation.",
)
@click.option("--drop", is_flag=True, help="With --snapshots: forget those that are wrong.")
def verify(app: App, rev: str | None, deep: bool, snapshots: bool, named: tuple[str, ...], drop: bool) -> int:
    """Check the store's integrity.

    Of the whole store, or of REV's session. Findings are listed by severity: an error is damage, a warning is something
    that should not be, a note is only remarkable. Exits 1 when there is an error or a warning. Changes nothing.

    A snapshot that is wrong, as after a change to a reducer that kept its version, is a warning: states are restored
    from it until it is forgotten. --drop does that, and is all that writes here; states are then folded from events.
    """
    if (named or drop) and not snapshots:
        raise click.UsageError("--reducer and --drop go with --snapshots.")
    chosen = [reducers.load(name).reducer for name in named or (reducers.DEFAULT,)] if snapshots else []
    store = app.store(read_only=not drop)
    with app.out.progress("checking") as progress:
        report = store.verify(
            None if rev is None else app.view(store, rev), deep=deep, snapshots=chosen, drop=drop, progress=progress
        )
    for finding in sorted(report.findings, key=lambda item: _ORDER[item.severity]):
        _show(app, finding)
    if app.out.json:
        app.out.record(ok=report.ok, deep=deep, findings=len(report.findings), checked=dict(report.checked))
    else:
        counts = ", ".join(plural(count, name.removesuffix("s"), name) for name, count in report.checked.items())
        verdict = Styled("ok", "green bold") if report.ok else Styled(_verdict(report.findings), "red bold")
        room = app.out.width - cells(verdict.text)
        first, *more = wrap(f": checked {counts or 'nothing, it is empty'}", room, subsequent_indent="  ")
        app.out.line(verdict, first)
        for line in more:
            app.out.line(line)
        wrong = sum(finding.name == "wrong_snapshot" for finding in report.findings)
        if wrong:
            what = "Forgot" if drop else "verify --snapshots --drop forgets"
            app.out.say(f"{what} {'it' if wrong == 1 else 'them'}: states are folded from events instead.")
        if not deep:
            app.out.say("Large payloads were not re-hashed; --deep does that.")
    return 0 if report.ok else SOMETHING_FOUND


def _show(app: App, finding: castlog.Finding) -> None:
    if app.out.json:
        app.out.record(finding=finding.name, severity=finding.severity, message=finding.message, rev=finding.rev)
        return
    where = f"  {finding.rev}" if finding.rev else ""
    app.out.line(
        Styled(f"{finding.severity:<7}", _COLOURS[finding.severity]), f"  {finding.name}{where}  {finding.message}"
    )


def _verdict(findings: list[castlog.Finding]) -> str:
    counts = {severity: sum(item.severity == severity for item in findings) for severity in _ORDER}
    return ", ".join(plural(count, severity) for severity, count in counts.items() if count)
