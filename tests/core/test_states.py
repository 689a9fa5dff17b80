"""The table of states."""

import pytest

from jobwell.core.states import LIVE, TERMINAL, TRANSITIONS, State, may_follow


def test_every_state_is_live_or_terminal_and_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State) == LIVE | TERMINAL
    assert not LIVE & TERMINAL


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_terminal_state_is_final(state: State) -> None:
    assert not any(may_follow(state, then) for then in State)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_from_every_live_state_an_end_can_be_reached(state: State) -> None:
    assert _reached_from({state}) & TERMINAL
    assert may_follow(state, State.CANCELLED)


def test_every_state_is_reached_by_a_job_that_was_enqueued() -> None:
    assert _reached_from({State.SCHEDULED, State.READY, State.WAITING}) == set(State)


@pytest.mark.parametrize(
    ("now", "then"), [(State.READY, State.SUCCEEDED), (State.SCHEDULED, State.RUNNING), (State.RETRYING, State.RUNNING),
                      (State.FAILED, State.READY)],
)  # fmt: skip
def test_no_step_is_skipped(now: State, then: State) -> None:
    assert not may_follow(now, then)


def _reached_from(states: set[State]) -> set[State]:
    while True:
        more = states.union(*(TRANSITIONS[state] for state in states))
        if more == states:
            return states
        states = more
