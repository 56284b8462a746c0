"""Open a database and fold its rows into a small state."""

import sqlite3
import sys

import msgspec

state: dict[str, int] = {}
connection = sqlite3.connect(sys.argv[1])
for kind, payload in connection.execute("SELECT type, payload FROM events ORDER BY seq"):
    state[kind] = state.get(kind, 0) + len(msgspec.json.decode(payload))
connection.close()
assert state
