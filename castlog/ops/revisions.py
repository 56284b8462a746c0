"""Revisions: the words people use for a place in a history, and what they mean.

The grammar is `[SESSION/][BRANCH|TAG][@SEQ|@b3:PREFIX][~N]`. SESSION is an id, 4 or more hex digits that begin or end
it, or an exact title. A bare word may be branch, tag or session; if two fit it is refused and both are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from castlog.engine.base import ReadTxn
from castlog.errors import Invalid, NotFound
from castlog.format import ids, rows
from castlog.history import reader, refs, sessions, timelines
from castlog.history.objects import Objects
from castlog.history.refs import Place

_SHAPE = re.compile(
    r"(?P<base>[^@~]*)(?:@(?P<seq>[0-9]{1,100})|@(?P<id>b3:[0-9a-f]{4,64}))?(?:~(?P<back>[0-9]{1,100}))?"
)
_HEX = re.compile(r"(?:sess_)?([0-9a-f]{4,32})")
_LISTED_MAX = 6


class Located(msgspec.Struct, frozen=True):
    """What a revision means. `branch` is 0 for a tag; `moves` says whether it names a branch and not a fixed place.

    `stray` says that the place is no longer in the branch's history: its reflog led there.
    """

    session: bytes
    row: rows.Session
    name: str
    branch: int
    place: Place
    moves: bool
    stray: bool = False


def resolve(txn: ReadTxn, objects: Objects, text: str, current: str | None = None) -> Located:
    """Return what a revision means now; `current` stands in for HEAD if given.

    Raises Invalid for a malformed or ambiguous one, NotFound for one that names nothing; both say which part.
    """
    if not isinstance(text, str):
        raise Invalid(f"a revision is text like main@40, not a {type(text).__name__}", value=text)
    if not text:  # an unset variable of a shell must not stand for the current branch
        raise Invalid("the revision is empty; name a branch, or HEAD for the current one", value=text)
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise Invalid(
            f"{text!r} is no revision; write [SESSION/][BRANCH|TAG][@SEQ|@b3:PREFIX][~N], for example main@40~2",
            value=text,
        )
    here = None if current is None else resolve(txn, objects, current)
    found = _named(txn, match["base"], text, here)
    what, place, stray = repr(found.name), found.place, False
    if match["seq"] is not None:
        place = refs.place_at(txn, place, int(match["seq"]), what)
    elif match["id"] is not None:
        place, stray = _by_id(txn, objects, found, match["id"][3:])
    if match["back"] is not None:
        back = int(match["back"])
        if back > place.seq:
            raise NotFound(f"{text!r} goes {back} back from seq {place.seq}", seq=place.seq)
        place = refs.place_at(txn, place, place.seq - back, what)
    fixed = match["seq"] is not None or match["id"] is not None or match["back"] is not None
    return msgspec.structs.replace(found, place=place, moves=found.moves and not fixed, stray=stray)


def current(txn: ReadTxn) -> Located | None:
    """Return the branch that was checked out, or None."""
    head = refs.read_head(txn)
    return None if head is None else _branch(txn, head.session, head.branch)


def candidates(txn: ReadTxn, prefix: str, limit: int, here: Located | None) -> list[str]:
    """Return revisions that begin with what was typed: names, ids' ends and titles, at most `limit`."""
    if "/" in prefix:
        before, _, start = prefix.rpartition("/")
        try:
            session = _session(txn, before) if before else _needed(here).session
        except (Invalid, NotFound):
            return []
        return [f"{before}/{n}" for n, _ in refs.names(txn, session) if n.startswith(start)][:limit]
    found: list[str] = []
    if here is not None:
        found += [name for name, _ in refs.names(txn, here.session) if name.startswith(prefix)]
    for key, row in _newest(txn):
        if len(found) >= limit:
            break
        if row.deleted is None:
            end = key.hex()[-8:]
            shown = ids.show_session(key)
            found += [f"{word}/" for word in (end, shown, row.title) if prefix and _fits(word, prefix)][:1]
            if not prefix:
                found.append(f"{end}/")
    return found[:limit]


def _newest(txn: ReadTxn) -> Iterator[tuple[bytes, rows.Session]]:
    letter = rows.SESSIONS.letter
    for key, value in txn.scan(letter, rows.after(letter), reverse=True):
        yield key[1:], rows.SESSIONS.decode(key, value)


def _fits(word: str, prefix: str) -> bool:
    return word.startswith(prefix) and not set("/@~") & set(word)


def _named(txn: ReadTxn, base: str, text: str, here: Located | None) -> Located:
    """Return what the part before @ and ~ means; `here` is what is current."""
    here = here or current(txn)
    if base in ("", "HEAD"):
        return _needed(here)
    if "/" in base:
        before, _, name = base.partition("/")
        session = _session(txn, before) if before else _needed(here).session
        return _in_session(txn, session, name) if name else _default(txn, session)
    fits: list[tuple[str, Located]] = []
    if here is not None and refs.look_up(txn, here.session, base) is not None:
        found = _in_session(txn, here.session, base)
        fits.append((f"/{base} (a {'branch' if found.branch else 'tag'} of the current session)", found))
    fits += [(f"{ids.show_session(session)}/ (a session)", _default(txn, session)) for session in _sessions(txn, base)]
    if not fits:
        where = "the current session" if here else "a session that is checked out (none is)"
        raise NotFound(
            f"{base!r} names no branch or tag of {where} and no session; `castlog sessions` lists them", rev=text
        )
    return _only(base, fits)


def _only(word: str, fits: list[tuple[str, Located]]) -> Located:
    if len(fits) > 1:
        shown = "; ".join(name for name, _ in fits[:_LISTED_MAX])
        more = f"; and {len(fits) - _LISTED_MAX} more" if len(fits) > _LISTED_MAX else ""
        raise Invalid(f"{word!r} could be {shown}{more}; write the one you mean", candidates=[name for name, _ in fits])
    return fits[0][1]


def _needed(here: Located | None) -> Located:
    if here is None:
        raise NotFound("no branch is checked out; name one, or `castlog checkout` one")
    return here


def _sessions(txn: ReadTxn, word: str) -> list[bytes]:
    """Return the living sessions an id, a part of one, or a title means."""
    found = sessions.by_title(txn, word)
    match = _HEX.fullmatch(word.lower())
    if match is not None:
        whole = word.lower().startswith("sess_")
        for session in sessions.by_hex(txn, match[1]):
            right = not whole or session.hex().startswith(match[1])
            if right and session not in found and sessions.read(txn, session, deleted=True).deleted is None:
                found.append(session)
    return found


def _session(txn: ReadTxn, word: str) -> bytes:
    found = _sessions(txn, word)
    if not found:
        raise NotFound(f"no session has the id or title {word!r}; `castlog sessions` lists them", session=word)
    if len(found) > 1:
        shown = ", ".join(ids.show_session(session) for session in found[:_LISTED_MAX])
        raise Invalid(
            f"{len(found)} sessions fit {word!r}: {shown}; write more of the id",
            candidates=[ids.show_session(session) for session in found],
        )
    return found[0]


def _default(txn: ReadTxn, session: bytes) -> Located:
    """Return the branch a session alone means: main, or its only one."""
    branches = [(name, row) for name, row in refs.names(txn, session) if row.branch]
    chosen = [row for name, row in branches if name == refs.DEFAULT_BRANCH] or [row for _, row in branches]
    if len(chosen) != 1:
        shown = ", ".join(name for name, _ in branches[:_LISTED_MAX])
        raise Invalid(f"{ids.show_session(session)} has no main; name one of its branches: {shown}")
    return _branch(txn, session, chosen[0].branch)


def _in_session(txn: ReadTxn, session: bytes, name: str) -> Located:
    found = refs.look_up(txn, session, name)
    if found is None:
        raise NotFound(
            f"{ids.show_session(session)} has no branch or tag {name!r}; `castlog branch` lists them", name=name
        )
    if found.branch:
        return _branch(txn, session, found.branch)
    row = sessions.read(txn, session)
    return Located(session, row, name, 0, Place(found.timeline, found.seq, found.id), False)


def _branch(txn: ReadTxn, session: bytes, number: int) -> Located:
    row = sessions.read(txn, session)
    ref = refs.branch(txn, number)
    return Located(session, row, ref.name, number, Place(ref.timeline, ref.seq, ref.id), True)


def _by_id(txn: ReadTxn, objects: Objects, found: Located, prefix: str) -> tuple[Place, bool]:
    """Return the place whose id begins with `prefix`, and whether only the reflog leads there."""
    hits = []
    for owner in reversed(timelines.segments(txn, found.place.timeline, 1, found.place.seq)):
        seq = owner.last
        while seq >= owner.first:
            run = reader.run_at(
                txn,
                objects,
                found.row.salt,
                owner.timeline,
                seq,
                wanted=seq - owner.first + 1,
                reverse=True,
            )
            low = max(run.first, owner.first)
            hits += [at for at in range(low, seq + 1) if run.event_id(at - run.first).hex().startswith(prefix)]
            if hits and len(prefix) == 2 * ids.DIGEST_BYTES:
                return refs.place_at(txn, found.place, hits[0], repr(found.name)), False
            seq = low - 1
    if found.row.genesis.hex().startswith(prefix):
        hits.append(0)
    if not hits:
        old = _old_head(txn, objects, found, prefix)
        if old is not None:
            return old, True
        raise NotFound(f"no event of {found.name!r} has an id that begins with b3:{prefix}", prefix=prefix)
    if len(hits) > 1:
        raise Invalid(f"b3:{prefix} fits the seqs {', '.join(map(str, sorted(hits)))}; write more of it", seqs=hits)
    return refs.place_at(txn, found.place, hits[0], repr(found.name)), False


def _old_head(txn: ReadTxn, objects: Objects, found: Located, prefix: str) -> Place | None:
    """Return the newest place a branch was moved away from whose id begins with `prefix`, or None."""
    for move in reversed(refs.reflog(txn, found.branch) if found.branch else []):
        digest = move.old_id or reader.id_at(txn, objects, found.row, move.old_timeline, move.old_seq)
        if digest.hex().startswith(prefix):
            return Place(move.old_timeline, move.old_seq, digest)
    return None
