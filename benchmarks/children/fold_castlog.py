"""Open a store and fold a branch into a small state."""

import sys

import castlog

state: dict[str, int] = {}
with castlog.open(sys.argv[1]) as store:
    for event in store.sessions()[0].branch("main").events():
        state[event.type] = state.get(event.type, 0) + len(event.payload)
assert state
