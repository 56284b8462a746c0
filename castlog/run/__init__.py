"""Runs: what a harness holds to go on with a branch, recorded step by step, and to be killed at any moment.

`run` and `waiting` are its two faces, for threads and for event loops; `steps` is what both do; `recovery` settles what
a crash left in flight; `serving` hands out what was recorded. Everything is built on the public handles, but for two
doors of `castlog.core`: `submit`, to put a result in line without waiting, and `own`.
"""
