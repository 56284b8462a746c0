"""A state machine: stores driven at random beside a plain model, and compared with it after every step.

The model is a dict of session -> dict of branch name -> list of items. The default form is short and the same in every
run; CASTLOG_LONG=1 runs hundreds of long and new ones. Chunks are small, so that seals happen all the time.
"""

from __future__ import annotations

import io
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import castlog
from castlog import Conflict, Draft, Invalid, NotFound, Raw
from castlog.format import identity

LONG = bool(os.environ.get("CASTLOG_LONG"))
FORM = settings(
    max_examples=400 if LONG else 30,
    stateful_step_count=80 if LONG else 40,
    derandomize=not LONG,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
SMALL = {
    "SEAL_EVENTS": 5,
    "SEAL_BYTES": 2000,
    "TAIL_BATCH_EVENTS": 3,
    "PIECE_PAYLOAD_BYTES_MIN": 1000,
    "RECORD_BYTES_MAX": 800,
    "PACK_BYTES": 5000,
    "AHEAD_BYTES": 20_000,
    "FRAME_BYTES": 4_000,
    "DICTIONARY_RAW_BYTES_MIN": 2_000,
    "DICTIONARY_BYTES": 1_000,
    "SAMPLE_BYTES": 200,
}
OPENING = {"tool_call", "model_request", "hook_call"}
CLOSING = {"tool_result", "model_response", "hook_decision"}
TYPES = [*sorted(OPENING), *sorted(CLOSING), "user_message", "note"]
BLOCKS = ["".join(chr(97 + (n * n * seed + n) % 26) for n in range(2_500)) for seed in range(3)]


class Item(NamedTuple):
    """An event as the model keeps it."""

    id: str
    type: str
    payload: Any
    call_ids: tuple[str, ...]
    key: str | None

    @classmethod
    def of(cls, event: castlog.Event) -> Item:
        """Return what the model keeps of an event."""
        return cls(event.id, event.type, event.payload, event.call_ids, event.key)


History = list[Item]


class Session:
    """A session as the model keeps it."""

    def __init__(self, handle: castlog.Session) -> None:
        self.handle = handle
        self.branches: dict[str, History] = {"main": []}
        self.tags: dict[str, History] = {}
        self.trash: list[tuple[str, History]] = []

    def free(self) -> str:
        """Return a name that was never used."""
        self.names = getattr(self, "names", 0) + 1
        return f"n{self.names}"


def in_flight(history: History) -> list[int]:
    """Return the seqs whose calls are open after a history."""
    opened: dict[str, int] = {}
    for seq, item in enumerate(history, 1):
        for call_id in item.call_ids:
            if item.type in OPENING:
                opened[call_id] = seq
            elif item.type in CLOSING:
                opened.pop(call_id, None)
    return sorted(set(opened.values()))


def ids(history: History) -> list[str]:
    """Return the ids of a history."""
    return [item.id for item in history]


def shared_length(left: History, right: History) -> int:
    """Return how many events two histories begin with in common."""
    pairs = itertools.takewhile(lambda pair: pair[0].id == pair[1].id, zip(left, right, strict=False))
    return sum(1 for _ in pairs)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Draw a draft: often a call or its end, sometimes large, sometimes bytes with white space."""
    kind = draw(st.sampled_from(TYPES))
    payload: Any = {"n": draw(st.integers(0, 5))}
    match draw(st.integers(0, 9)):
        case 0:
            payload["text"] = "".join(draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=12)))
        case 1:
            payload = Raw(draw(st.sampled_from([b' {"a" : 1} ', b'{"a":\n1}', b"\t[1.50]", b'"\\u0041"'])))
        case 2:
            payload["text"] = "x" * draw(st.integers(0, 900))
    count = 0 if kind in ("user_message", "note") else draw(st.sampled_from([0, 1, 1, 1, 2]))
    calls = draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count, unique=True))
    return Draft(kind, payload, call_ids=tuple(calls))


PICK = st.integers(0, 1 << 16)


class Machine(RuleBasedStateMachine):
    """The rules, for any engine."""

    on_disk = False

    def __init__(self, child: Any) -> None:
        super().__init__()
        self.child = child
        self.folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self.folder.name) / "store")
        self.store = castlog.open(self.path if self.on_disk else "memory:", harness_version="h")
        self.mirror = castlog.open("memory:")
        self.living: list[Session] = []
        self.thrown: list[Session] = []
        self.child_open = False

    # --- choosing -------------------------------------------------------------------------------

    def session(self, pick: int) -> Session:
        """Return a living session."""
        return self.living[pick % len(self.living)]

    def branch(self, pick: int) -> tuple[Session, str, History, castlog.Branch]:
        """Return a branch of a living session: where it is, its name, its history, a handle."""
        session = self.session(pick)
        names = sorted(session.branches)
        name = names[(pick // 7) % len(names)]
        return session, name, session.branches[name], session.handle.branch(name)

    # --- rules ----------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Start with one session."""
        self.new_session()

    @precondition(lambda self: len(self.living) + len(self.thrown) < 3)
    @rule()
    def new_session(self) -> None:
        """Make a session."""
        self.living.append(Session(self.store.create_session("s", labels={"a": "b"})))

    @rule(pick=PICK, draft=drafts())
    def append(self, pick: int, draft: Draft) -> None:
        """Append one event, saying what the head is."""
        _, _, history, branch = self.branch(pick)
        expect = [None, len(history), branch.head.id][pick % 3]
        (event,) = branch.extend([draft], expect=expect)
        assert event.seq == len(history) + 1
        history.append(Item.of(event))

    @rule(pick=PICK, batch=st.lists(drafts(), max_size=14))
    def extend(self, pick: int, batch: list[Draft]) -> None:
        """Append a batch."""
        _, _, history, branch = self.branch(pick)
        events = branch.extend(batch)
        assert [e.seq for e in events] == list(range(len(history) + 1, len(history) + 1 + len(batch)))
        history += map(Item.of, events)

    @rule()
    def compact(self) -> None:
        """Lay the store out afresh; all the rest goes on with the handles it has."""
        self.store.compact()

    @rule(pick=PICK, batch=st.lists(drafts(), max_size=6), place=PICK)
    def refused(self, pick: int, batch: list[Draft], place: int) -> None:
        """A batch with one bad value, or a wrong expectation, changes nothing."""
        _, _, history, branch = self.branch(pick)
        bad = [*batch, Draft("note", {"bad": float("nan")})]
        bad.insert(place % len(bad), bad.pop())
        with pytest.raises(Invalid):
            branch.extend(bad)
        with pytest.raises(Conflict):
            branch.append("note", {}, expect=len(history) + 1 + place % 3)

    @rule(pick=PICK, key=st.sampled_from(["k1", "k2", "k3"]), n=st.integers(0, 1))
    def repeat(self, pick: int, key: str, n: int) -> None:
        """Append with one of few keys: the first event, a conflict, or a new event, as the history says."""
        _, _, history, branch = self.branch(pick)
        known = next((seq for seq, item in enumerate(history, 1) if item.key == key), None)
        if known is None:
            event = branch.append("note", {"k": n}, key=key, expect=len(history))
            assert event.seq == len(history) + 1
            history.append(Item.of(event))
        elif history[known - 1].payload == {"k": n}:
            assert branch.append("note", {"k": n}, key=key, expect=99_999).seq == known
        else:
            with pytest.raises(Conflict):
                branch.append("note", {"k": n}, key=key)

    @rule(pick=PICK, at=PICK, count=st.integers(1, 3))
    def fork(self, pick: int, at: int, count: int) -> None:
        """Fork once or several times, anywhere."""
        session, _, history, branch = self.branch(pick)
        if len(session.branches) > 8:
            return
        seq = at % (len(history) + 1)
        if count == 1:
            name = session.free()
            branch.fork(name, at=seq)
            session.branches[name] = history[:seq]
        else:
            prefix = session.free() + "-"
            for fork in branch.fork_many(count, at=seq, prefix=prefix):
                session.branches[fork.name] = history[:seq]

    @rule(pick=PICK, at=PICK)
    def reset(self, pick: int, at: int) -> None:
        """Move a head back."""
        _, _, history, branch = self.branch(pick)
        seq = at % (len(history) + 1)
        branch.reset(seq)
        del history[seq:]

    @rule(pick=PICK, other=PICK)
    def promote(self, pick: int, other: int) -> None:
        """Point one branch where another is."""
        session, name, history, _ = self.branch(pick)
        onto = sorted(session.branches)[other % len(session.branches)]
        session.handle.promote(name, onto=onto, expect=len(session.branches[onto]))
        session.branches[onto] = list(history)

    @rule(pick=PICK, other=PICK)
    def cherry_pick(self, pick: int, other: int) -> None:
        """Copy what one branch did since it parted from another."""
        session, _, history, branch = self.branch(pick)
        name = sorted(session.branches)[other % len(session.branches)]
        theirs = session.branches[name]
        shared = shared_length(history, theirs)
        diff = self.store.diff(session.handle.branch(name), branch)
        assert diff.base is not None
        assert (diff.base.seq, diff.left_count) == (shared, len(theirs) - shared)
        if len(history) + diff.left_count > 60:
            return
        events = branch.extend(diff.left)
        assert [e.payload for e in events] == [item.payload for item in theirs[shared:]]
        history += map(Item.of, events)

    @rule(pick=PICK)
    def rename(self, pick: int) -> None:
        """Give a branch a new name."""
        session, name, history, branch = self.branch(pick)
        new = session.free()
        branch.rename(new)
        del session.branches[name]
        session.branches[new] = history

    @rule(pick=PICK, at=PICK)
    def tag(self, pick: int, at: int) -> None:
        """Tag any place."""
        session, name, history, _ = self.branch(pick)
        if len(session.tags) > 3:
            session.handle.delete_tag(gone := sorted(session.tags)[at % len(session.tags)])
            del session.tags[gone]
        seq, new = at % (len(history) + 1), session.free()
        point = session.handle.tag(new, seq, branch=name)
        assert (point.seq, point.id) == (seq, history[seq - 1].id if seq else point.id)
        session.tags[new] = history[:seq]

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        """Delete a branch, unless it is the only one."""
        session, name, _, branch = self.branch(pick)
        if len(session.branches) == 1:
            with pytest.raises(Invalid):
                branch.delete()
            return
        branch.delete()
        session.trash.append((name, session.branches.pop(name)))
        with pytest.raises(NotFound):
            branch.append("note", {})

    @rule(pick=PICK, other=PICK)
    def undelete(self, pick: int, other: int) -> None:
        """Bring back a branch, under another name when its own is taken."""
        session = self.session(pick)
        if not session.trash:
            return
        name = session.trash[other % len(session.trash)][0]
        index = max(n for n, (deleted, _) in enumerate(session.trash) if deleted == name)
        rev = f"{session.handle.id}/{name}"
        if name in session.branches or name in session.tags:
            with pytest.raises(Conflict):
                self.store.undelete(rev)
            new = session.free()
            self.store.undelete(rev, name=new)
        else:
            new = name
            self.store.undelete(rev)
        session.branches[new] = session.trash.pop(index)[1]

    @precondition(lambda self: len(self.living) > 1)
    @rule(pick=PICK)
    def delete_session(self, pick: int) -> None:
        """Throw a session away."""
        session = self.session(pick)
        session.handle.delete()
        self.living.remove(session)
        self.thrown.append(session)

    @precondition(lambda self: self.thrown)
    @rule(pick=PICK)
    def undelete_session(self, pick: int) -> None:
        """Bring a session back."""
        session = self.thrown.pop(pick % len(self.thrown))
        back = self.store.undelete(session.handle.id)
        assert isinstance(back, castlog.Session)
        session.handle = back
        self.living.append(session)

    @rule(pick=PICK)
    def seal(self, pick: int) -> None:
        """Seal what is open."""
        self.branch(pick)[3].seal()

    @rule(pick=PICK, bundle=st.booleans())
    def export(self, pick: int, bundle: bool) -> None:
        """Export; import into this store, which adds nothing, and into another, which gets equal ids."""
        session, _, history, branch = self.branch(pick)
        file = io.BytesIO()
        self.store.export(branch, file, "bundle" if bundle else "jsonl")
        path = Path(self.folder.name) / "export"
        path.write_bytes(file.getvalue())
        report = self.store.import_castlog(path)
        assert (report.added, report.status) == (0, "unchanged")
        self.mirror.import_castlog(path)
        there = self.mirror.session(session.handle.id)
        held = [ids([Item.of(e) for e in b.events()]) for b in there.branches()]
        for theirs in list(session.branches.values()) if bundle else [history]:
            assert any(got[: len(theirs)] == ids(theirs) for got in held)
        if bundle:
            known = {point.id for point in there.tags().values()}
            assert {h[-1].id for h in session.tags.values() if h} <= known
        assert self.mirror.import_castlog(path).added == 0

    @precondition(lambda self: self.on_disk)
    @rule()
    def reopen(self) -> None:
        """Close the store and open it again."""
        self.store.close()
        self.store = castlog.open(self.path, harness_version="h")
        for session in self.living:
            session.handle = self.store.session(session.handle.id)

    @precondition(lambda self: self.on_disk)
    @rule(pick=PICK, batch=st.lists(st.integers(0, 5), min_size=1, max_size=7))
    def second_process(self, pick: int, batch: list[int]) -> None:
        """Another process appends to a branch."""
        _, _, history, branch = self.branch(pick)
        if not self.child_open:
            self.child.ask("open", path=self.path)
            self.child_open = True
        kinds = [TYPES[n] for n in batch]
        said = self.child.ask(
            "extend",
            rev=branch.rev,
            expect=len(history),
            drafts=[
                {"type": kind, "payload": {"second": n}, "call_id": "a"} for n, kind in zip(batch, kinds, strict=True)
            ],
        )
        assert [seq for seq, _ in said] == list(range(len(history) + 1, len(history) + 1 + len(batch)))
        history += [
            Item(event_id, kind, {"second": n}, ("a",), None)
            for (_, event_id), n, kind in zip(said, batch, kinds, strict=True)
        ]

    # --- what always holds ----------------------------------------------------------------------

    @invariant()
    def every_branch_equals_the_model(self) -> None:
        """Names, histories, heads and calls in flight of all living sessions are the model's."""
        assert {s.id for s in self.store.sessions()} == {s.handle.id for s in self.living}
        for session in self.living:
            assert {b.name for b in session.handle.branches()} == set(session.branches)
            assert {n: p.seq for n, p in session.handle.tags().items()} == {n: len(h) for n, h in session.tags.items()}
            for name, history in session.branches.items():
                branch = session.handle.branch(name)
                assert [Item.of(e) for e in branch.events()] == history
                assert branch.head.seq == len(history)
                assert [e.seq for e in branch.in_flight()] == in_flight(history)

    def teardown(self) -> None:
        """Look at everything once more, from all sides, and have it verified."""
        try:
            for session in self.living:
                views = {name: session.handle.branch(name) for name in session.branches}
                views |= {name: self.store.view(f"{session.handle.id}/{name}") for name in session.tags}
                for name, history in {**session.branches, **session.tags}.items():
                    self.look_closely(views[name], history)
                    for other, theirs in session.branches.items():
                        shared = shared_length(history, theirs)
                        base = self.store.merge_base(views[name], views[other])
                        assert base is not None
                        assert base.seq == shared
            for store in (self.store, self.mirror):
                bad = [f for f in store.verify(deep=True).findings if f.severity != "note"]
                assert bad == []
        finally:
            if self.child_open:
                self.child.ask("close")
            self.store.close()
            self.mirror.close()
            self.folder.cleanup()

    def look_closely(self, view: castlog.View, history: History) -> None:
        """Read a history in every way, and chain its ids anew from the genesis."""
        assert [Item.of(e) for e in view.events(reverse=True)] == history[::-1]
        parent, salt = view._row.genesis, view._row.salt
        for seq, item in enumerate(history, 1):
            event = view.read(seq)
            assert Item.of(event) == item
            header = identity.Header(
                seq, event.ts, event.type, event.schema, event.harness_version, event.call_ids, event.key
            )
            parent = identity.event_id(parent, header, identity.commitment(salt, event.raw))
            assert event.id == f"b3:{parent.hex()}"
        for at in range(len(history) + 1):
            assert [e.seq for e in view.in_flight(at)] == in_flight(history[:at])


class DiskMachine(Machine):
    """The rules on disk, with reopening and a second process."""

    on_disk = True


@pytest.mark.parametrize("machine", [Machine, DiskMachine])
def test_the_store_is_the_model(machine: type[Machine], child: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done to a store, and in whatever order, it reads as the plain lists do."""
    for name, value in SMALL.items():
        monkeypatch.setattr(f"castlog.limits.{name}", value)
    child.ask("limits", values=SMALL)
    run_state_machine_as_test(lambda: machine(child), settings=FORM)
