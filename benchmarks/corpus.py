"""size_corpus, import_corpus: real transcripts of Claude Code and Codex, from a folder given with `--corpus`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import zstandard

import castlog
from benchmarks import figures
from benchmarks.figures import MEGABYTES, Figure
from benchmarks.peers.base import bytes_of
from benchmarks.run import Run
from benchmarks.size import COMPACTED, SEALED

FORMATS = ("claude_code", "codex")
ALONE = "zstd -3, file by file"
NONE = "the folder given with --corpus holds none of Claude Code or Codex"


def size_corpus(run: Run) -> Iterator[Figure]:
    """What the transcripts take, beside the sum of each file compressed whole."""
    if run.corpus is None:
        yield figures.left_out("size_corpus", "transcripts", "give a folder of them with --corpus DIR")
        return
    chosen = _chosen(run, run.corpus)
    files = [path.read_bytes() for path in chosen.rglob("*") if path.is_file()]
    if not files:
        yield figures.left_out("size_corpus", "transcripts", NONE)
        return
    compressor = zstandard.ZstdCompressor(level=3)
    sizes: dict[str, list[float]] = {"the files": [sum(map(len, files))]}
    sizes[ALONE] = [sum(len(compressor.compress(file)) for file in files)]
    with castlog.open(run.folder / "store") as store:
        run.tell("import")
        store.import_from(chosen)
        sizes[SEALED] = [bytes_of(run.folder / "store")]
        run.tell("compact")
        store.compact()
        sizes[COMPACTED] = [bytes_of(run.folder / "store")]
    case = f"{len(files)} files"
    yield from figures.values("size_corpus", case, sizes, MEGABYTES)
    for name, key in ((SEALED, "corpus_sealed"), (COMPACTED, "corpus_compacted")):
        bar = run.bar(key)
        yield figures.ratio("size_corpus", case, (name, ALONE), sizes, MEGABYTES, bar=bar, sense="size")


def import_corpus(run: Run) -> Iterator[Figure]:
    """How fast the transcripts come in, the first time and again."""
    if run.corpus is None:
        yield figures.left_out("import_corpus", "transcripts", "give a folder of them with --corpus DIR")
        return
    chosen = _chosen(run, run.corpus)
    size = bytes_of(chosen)
    if not size:
        yield figures.left_out("import_corpus", "transcripts", NONE)
        return
    times: figures.Times = {"castlog, first": [], "castlog, again": []}
    added = 0
    for number in range(run.times(1, 5)):
        with castlog.open(run.folder / f"store-{number}") as store:
            for name, found in times.items():
                run.tell(f"round {number + 1}, {name}")
                reports: list[castlog.ImportReport] = []
                found.append(figures.seconds(lambda into=reports, to=store: into.append(to.import_from(chosen))))  # type: ignore[misc]
                added = max(added, reports[0].added)
    case = f"{added:,} events, {size / 1e6:.1f} MB"
    yield from figures.values("import_corpus", case, times, figures.SECONDS)
    yield from figures.values("import_corpus", case, times, figures.Unit("MB/s", lambda seconds: size / 1e6 / seconds))


def _chosen(run: Run, corpus: Path) -> Path:
    """Copy what is recognised as a transcript of the two into a folder of its own, and return that."""
    run.tell("look through the folder")
    chosen = run.place("transcripts")
    with castlog.open("memory:") as scout:
        for file in scout.import_from(corpus).files:
            if file.format in FORMATS:
                source = Path(file.path)
                target = chosen / source.relative_to(corpus)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    return chosen
