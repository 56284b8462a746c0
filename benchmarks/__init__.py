"""Benchmarks: verbs that measure castlog beside a raw LMDB commit in the same run. Run `python -m benchmarks`."""
