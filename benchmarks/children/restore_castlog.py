"""Open a store and restore a small state: from the newest snapshot, or by folding everything where there is none."""

import sys

import castlog

STATE = dict[str, int]


@castlog.reducer("sizes", 1)
def sizes(state: STATE, event: castlog.Event) -> STATE:
    """Count the values in the payloads of each type."""
    state[event.type] = state.get(event.type, 0) + len(event.payload)
    return state


if __name__ == "__main__":
    with castlog.open(sys.argv[1]) as store:
        assert store.sessions()[0].branch("main").restore(sizes).state
