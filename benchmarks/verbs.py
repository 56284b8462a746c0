"""The verbs, in the order in which they run. Those in `BY_NAME` run only when they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import append, corpus, crowd, fork, memory, read, scale, size, start
from benchmarks.figures import Figure
from benchmarks.run import Run

Verb = Callable[[Run], Iterator[Figure]]

VERBS: dict[str, Verb] = {
    "append_sync": append.sync,
    "append_threads": crowd.threads,
    "append_procs": crowd.procs,
    "append_batch": append.batch,
    "append_large": append.large,
    "fork": fork.fork,
    "fork_many": size.fork_many,
    "read_random": read.read_random,
    "replay": read.replay,
    "restore_cold": start.restore_cold,
    "open": start.open_,
    "list_sessions": read.list_sessions,
    "size_plain": size.size_plain,
    "size_quadratic": size.size_quadratic,
    "size_corpus": corpus.size_corpus,
    "import_corpus": corpus.import_corpus,
    "memory": memory.memory,
    "import_time": start.import_time,
}

BY_NAME: dict[str, Verb] = {
    "scale_events": scale.events,
    "scale_forks": scale.forks,
    "scale_depth": scale.depth,
}


def summary(verb: Verb) -> str:
    """Return what a verb measures, in a line."""
    return (verb.__doc__ or "").splitlines()[0]
