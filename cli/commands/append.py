"""`castlog append`: add events to a branch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import IO

import click

import castlog

from .. import lines
from ..command import App, command
from ..revision import REV
from ..signals import held
from ..text import plural


@command(
    "append",
    examples=(
        'castlog append --text "please fix the login bug"',
        """castlog append --type tool_call --call-id c1 --data '{"name":"Bash"}'""",
        "castlog cat idea-b --from 41 | castlog append main -",
    ),
)
@click.argument("words", metavar="[REV] [-]", nargs=-1, type=REV)
@click.option("--type", "kind", help="The event's type. Default: user_message for --text, note for --data.")
@click.option("--call-id", help="The call this event opens or closes. A call without one is given c and its seq.")
@click.option("--key", help="Your idempotency key: the same key on the same history writes nothing again.")
@click.option("--text", help='A payload of the form {"text": TEXT}.')
@click.option("--data", metavar="JSON", help="A payload, stored byte for byte.")
def append(
    app: App,
    words: tuple[str, ...],
    kind: str | None,
    call_id: str | None,
    key: str | None,
    text: str | None,
    data: str | None,
) -> None:
    """Add events to a branch; each is durable before its seq is printed.

    With - the events are read from stdin, one JSON object a line, in the form castlog cat prints: type and payload, and
    call_id, key, ts, schema where wanted. What arrived together is committed together; a line that is refused ends the
    command, and all lines before it are in the log.
    """
    revs = [word for word in words if word != "-"]
    if len(revs) > 1 or len(words) - len(revs) > 1:
        raise click.UsageError("Give at most one REV and one -.")
    if (text is not None) + (data is not None) + ("-" in words) != 1:
        raise click.UsageError("Say what to append: one of --text TEXT, --data JSON, or - to read stdin.")
    if "-" in words and (call_id is not None or key is not None):
        raise click.UsageError("With - each line carries its own call_id and key.")
    if data is not None and not data.strip():
        raise click.UsageError('--data is empty: write JSON such as \'{"text":"hi"}\', or use --text TEXT.')
    writer = _Writer(app, app.branch(app.store(), revs[0] if revs else None))
    if "-" in words:
        _append_lines(writer, sys.stdin.buffer, kind)
    elif text is not None:
        draft = castlog.Draft(_given(kind, "user_message"), {"text": text}, call_id=call_id, key=key)
        writer.write([draft], announce=True)
    else:
        payload = castlog.Raw((data or "").encode("utf-8", "surrogateescape"))
        draft = castlog.Draft(_given(kind, "note"), payload, call_id=call_id, key=key)
        try:
            writer.write([draft], announce=True)
        except castlog.Invalid as error:
            if _is_json(data):
                raise
            raise castlog.Invalid(str(error), **{"hint": _JSON, **error.facts}) from error


_JSON = """--data takes JSON, in single quotes for the shell: --data '{"text":"hi"}'. --text TEXT takes plain text."""


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    return True


def _given(kind: str | None, default: str) -> str:
    return default if kind is None else kind


class _Writer:
    """Appends to one branch, says what was written, and counts it."""

    def __init__(self, app: App, branch: castlog.Branch) -> None:
        self.written = 0
        self._out = app.out
        self._branch = branch

    def write(self, drafts: Sequence[castlog.Draft], *, announce: bool = False) -> None:
        """Commit drafts together, then print their seqs; with `announce` also what became of their calls."""
        with held():
            events = self._branch.extend(drafts)
            self.written += len(events)
            for event in events:
                if self._out.json:
                    rev = f"{event.session_id}/{event.branch}@{event.seq}"
                    self._out.record(rev=rev, seq=event.seq, id=event.id, type=event.type, call_id=event.call_id)
                else:
                    self._out.line(str(event.seq))
            self._out.flush()
        for event, draft in zip(events, drafts, strict=True):
            if not announce or draft.call_id is not None:
                continue
            if event.call_ids:
                self._out.say(f"call id {event.call_ids[0]}")
            elif event.type == "tool_result":
                self._out.say("It closes no call; --call-id ID says which one it answers.")


def _append_lines(writer: _Writer, stream: IO[bytes], kind: str | None) -> None:
    try:
        for batch in lines.batches(stream):
            _append_batch(writer, batch, kind)
    except castlog.Error as error:
        facts = {**error.facts, "written": writer.written}
        before = f"{plural(writer.written, 'event')} before it {'is' if writer.written == 1 else 'are'} in the log"
        raise type(error)(f"{error}; {before}", **facts) from error


def _append_batch(writer: _Writer, batch: Sequence[lines.Line], kind: str | None) -> None:
    drafts: list[castlog.Draft] = []
    refusal = None
    for line in batch:
        try:
            drafts.append(lines.draft(line, kind))
        except castlog.Invalid as error:
            refusal = error
            break
    try:
        if drafts:
            writer.write(drafts)
    except (castlog.Invalid, castlog.Conflict):
        _append_singly(writer, batch, drafts)  # all or nothing was refused: find the line
    if refusal is not None:
        raise refusal


def _append_singly(writer: _Writer, batch: Sequence[lines.Line], drafts: Sequence[castlog.Draft]) -> None:
    for line, draft in zip(batch, drafts, strict=False):
        try:
            writer.write([draft])
        except castlog.Error as error:
            raise type(error)(f"line {line.number}: {error}", **{**error.facts, "line": line.number}) from error
