"""What a reset or a promote left behind is reached through the reflog."""

from __future__ import annotations

import pytest

import castlog


def test_an_old_head_is_named_by_its_id(store: castlog.Store) -> None:
    """BRANCH@b3:PREFIX finds a head the branch was moved away from; it can be read and forked."""
    session = store.create_session("moved")
    main = session.branch("main")
    main.extend([("note", number) for number in range(5)])
    old = main.head
    main.reset(2)
    main.append("note", "another way")
    view = store.view(f"{session.id}/main@{old.id[:20]}")
    assert [event.payload for event in view.events()] == [0, 1, 2, 3, 4]
    assert view.fork("rescue").head.id == old.id
    assert store.resolve(view.rev).id == old.id
    assert main.reflog()[-1].old_seq == 5


def test_an_event_below_an_old_head_is_reached_from_it(store: castlog.Store) -> None:
    """~N counts back from an old head along the history it had."""
    session = store.create_session("moved")
    main = session.branch("main")
    main.extend([("note", number) for number in range(5)])
    old = main.read(5).id
    main.reset(1)
    assert store.view(f"{session.id}/main@{old}~1").read(4).payload == 3
    with pytest.raises(castlog.NotFound):
        store.view(f"{session.id}/main@b3:{'0' * 64}")
