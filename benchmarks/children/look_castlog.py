"""Open a store, list its sessions, read one event in the middle."""

import sys

import castlog

with castlog.open(sys.argv[1]) as store:
    branch = store.sessions()[0].branch("main")
    assert branch.read(branch.head.seq // 2).payload
