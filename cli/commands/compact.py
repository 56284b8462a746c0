"""`castlog compact`: the store laid out afresh, compressed hard."""

from __future__ import annotations

from ..command import App, command
from ..values import size


@command("compact", examples=("castlog compact", "castlog compact --json"))
def compact(app: App) -> None:
    """Compress the whole store and give space back.

    Everything stays readable, with equal ids: the trash and the reflog too. A new file is built beside the old one and
    takes its place once it is whole: there must be room for both, and for the new one's compressed frames once more,
    which are kept until then. Other processes go on; if one writes meanwhile, the file is built again while writers
    wait, about half a second for 40 MB of raw events. A damaged store is left as it is.
    """
    store = app.store()
    with app.out.progress("compacting") as progress:
        report = store.compact(progress=progress)
    saved = report.before - report.after
    if app.out.json:
        app.out.record(
            before=report.before,
            after=report.after,
            saved=saved,
            raw=report.raw,
            chunks=report.chunks,
            pieces=report.pieces,
            objects=report.objects,
            dictionary=report.dictionary,
        )
        return
    returned = f"{size(saved)} returned" if saved > 0 else "nothing to return"
    app.out.line(f"{size(report.before)} -> {size(report.after)}, {returned}")
