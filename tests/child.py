"""A second process with handles of its own, driven over its pipes: one JSON request a line, one JSON answer a line.

Run as a program. `limits` sets bounds, `open` and `close` a store; all else is a verb of a branch named by its rev.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import castlog
import castlog.limits


def answer(store: castlog.Store | None, request: dict[str, Any]) -> tuple[castlog.Store | None, object]:
    """Do what a request asks; return the store that is open afterwards, and what to say."""
    verb = request["do"]
    if verb == "limits":
        for name, value in request["values"].items():
            setattr(castlog.limits, name, value)
        return store, None
    if verb == "open":
        return castlog.open(request["path"]), None
    assert store is not None
    if verb == "close":
        store.close()
        return None, None
    branch = store.branch(request["rev"])
    if verb == "extend":
        drafts = [castlog.Draft(**draft) for draft in request["drafts"]]
        return store, [[event.seq, event.id] for event in branch.extend(drafts, expect=request.get("expect"))]
    if verb == "fork":
        return store, branch.fork(request["name"], at=request["at"]).rev
    if verb == "read":
        return store, [[event.id, event.type, event.payload] for event in branch.events()]
    raise ValueError(verb)


def main() -> None:
    """Answer until there are no more requests."""
    store: castlog.Store | None = None
    for line in sys.stdin:
        try:
            store, said = answer(store, json.loads(line))
            reply: dict[str, object] = {"said": said}
        except castlog.Error as error:
            reply = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(reply), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
