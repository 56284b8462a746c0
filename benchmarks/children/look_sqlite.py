"""Open a database and read one event in the middle."""

import sqlite3
import sys

import msgspec

connection = sqlite3.connect(sys.argv[1])
(last,) = connection.execute("SELECT MAX(seq) FROM events").fetchone()
(payload,) = connection.execute("SELECT payload FROM events WHERE seq = ?", (last // 2,)).fetchone()
assert msgspec.json.decode(payload)
connection.close()
