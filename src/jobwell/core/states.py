"""The states of a job, and which may follow which. docs/states.md is drawn from this table.

waiting ──the others have ended──► ready, or scheduled

scheduled ──due──► ready ──claim──► running ──► succeeded
    ▲                ▲                 │ ├────► cancelled
    │                └──── release ────┤ ├────► failed (quarantine, with a reason)
    └── snooze ◄───────────────────────┘ └────► retrying ──due──► ready
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job is."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    RETRYING = "retrying"
    WAITING = "waiting"  # for other jobs to end
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a job failed for good."""

    REJECTED = "rejected"  # a logical error: retrying cannot help
    EXHAUSTED = "exhausted"  # attempts used up
    DEADLINE = "deadline"  # out of time
    CRASHED = "crashed"  # killed its process again and again
    LOST = "lost"  # its hosts vanished again and again
    HELD = "held"  # a step's outcome is unknown, a human must say
    UNSUPPORTED = "unsupported"  # no worker knows this task or version
    INVALID = "invalid"  # the payload does not fit the task


LIVE: Final = frozenset({State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING, State.WAITING})
TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.WAITING: frozenset({State.READY, State.SCHEDULED, State.CANCELLED}),
    State.SCHEDULED: frozenset({State.READY, State.CANCELLED}),
    State.READY: frozenset({State.RUNNING, State.CANCELLED}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.RETRYING, State.SCHEDULED, State.READY}),
    State.RETRYING: frozenset({State.READY, State.CANCELLED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),  # a retry from the quarantine is a recorded action, not a transition
    State.CANCELLED: frozenset(),
}


def may_follow(now: State, then: State) -> bool:
    """Whether a job in state `now` may go to `then`."""
    return then in TRANSITIONS[now]
