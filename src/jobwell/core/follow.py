"""Jobs that follow others: what is waited for, and what the one that waited is told about it."""

from dataclasses import dataclass
from typing import Final, Literal, Self, get_args
from uuid import UUID

import orjson

from jobwell.core.errors import EnqueueError

When = Literal["succeeded", "ended"]
WHENS: Final = get_args(When)
KEY: Final = "$followed"  # in what a job carries; no name that `correlate` takes
MOST: Final = 10_000  # jobs that one job may follow, a group apart


@dataclass(frozen=True, slots=True)
class Followed:
    """How the jobs ended that this one followed, as they stood when it was released.

    Attributes:
        ids: of them, where they are at most 50; of more, the first 50 by id.
        succeeded: how many.
        failed: how many wait in the quarantine, or were discarded there.
        cancelled: how many.
    """

    ids: tuple[UUID, ...] = ()
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.succeeded + self.failed + self.cancelled

    @classmethod
    def read(cls, meta: str | None) -> Self:
        """From what a job carries."""
        told = orjson.loads(meta).get(KEY) if meta and KEY in meta else None
        if not told:
            return cls()
        return cls(tuple(map(UUID, told["ids"])), told["succeeded"], told["failed"], told["cancelled"])


def check_when(when: str) -> None:
    """Refuse what is no condition.

    Raises:
        EnqueueError: it is none.
    """
    if when not in WHENS:
        raise EnqueueError(f"when={when!r}: give 'succeeded', or 'ended' to run also if they fail or are cancelled")
