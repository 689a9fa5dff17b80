"""Queues that hold no more than they should."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from jobwell.core.errors import DeclarationError

LARGEST = 10_000_000  # a count stops at the limit, and takes longer the higher it is


@dataclass(frozen=True, init=False)
class Queue:
    """A queue with a limit to what waits in it: `App(queues=(Queue("bulk", soft=50_000, hard=200_000), "mail"))`.

    Args:
        name: of a new queue or a standard one.
        soft: so many ready jobs are a warning: in the log, and at `app.pressure(name)`.
        hard: so many ready jobs are all: an enqueue is refused by `QueueFull`.

    Guarantee: what is counted is at most about a second old, and includes what this process has enqueued since. One producer
    alone never goes above `hard`; several together may, by what they enqueue within that second. What is in the store already is
    never refused: retries, rescued jobs, jobs that become due, and retries from the quarantine.
    """

    name: str
    soft: int | None
    hard: int | None

    def __init__(self, name: str, *, soft: int | None = None, hard: int | None = None) -> None:
        for which, limit in (("soft", soft), ("hard", hard)):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LARGEST):
                raise DeclarationError(f"queue {name}: {which}={limit!r} must be a whole number from 1 to {LARGEST:,}")
        if soft is not None and hard is not None and soft > hard:
            raise DeclarationError(f"queue {name}: soft={soft:,} is above hard={hard:,}, so nobody would be warned in time")
        for field, value in (("name", name), ("soft", soft), ("hard", hard)):
            object.__setattr__(self, field, value)

    @property
    def cap(self) -> int:
        """Where a count may stop; 0: it has no limit."""
        return max(self.soft or 0, self.hard or 0)


@dataclass(frozen=True, slots=True)
class Pressure:
    """How full a queue is.

    Attributes:
        queue: its name.
        length: ready jobs; counted no further than its limit.
        soft, hard: its limits, or None.
    """

    queue: str
    length: int
    soft: int | None
    hard: int | None

    @property
    def ratio(self) -> float:
        """The length beside the hard limit (beside the soft one, where there is no other): 1.0 is full."""
        return self.length / (self.hard or self.soft or 1)

    @property
    def soft_full(self) -> bool:
        """Whether it has reached its soft limit: slow down."""
        return self.soft is not None and self.length >= self.soft

    @property
    def full(self) -> bool:
        """Whether it has reached its hard limit: an enqueue is refused."""
        return self.hard is not None and self.length >= self.hard


_LIMITS = re.compile(r"\s*(?P<name>[^=\s]+)\s*=\s*(?:(?P<none>none)|(?P<soft>[\d_]*)\s*/\s*(?P<hard>[\d_]*))\s*")


def read(text: str) -> Queue:
    """A queue with its limits, as an operator writes it: `bulk=50000/200000`, `bulk=50000/`, `bulk=/200000`, `bulk=none`.

    Raises:
        DeclarationError: it is not of that form.
    """
    found = _LIMITS.fullmatch(text)
    if found is None:
        raise DeclarationError(
            f"queue_lengths: {text!r} is not like 'bulk=50000/200000' (soft/hard), 'bulk=/200000' or 'bulk=none'"
        )
    return Queue(found["name"], **{each: int(found[each]) for each in ("soft", "hard") if found[each]})


def bounded(declared: Iterable[str | Queue], overrides: Iterable[str] = ()) -> dict[str, Queue]:
    """The queues that have a limit: as the code declares them, and before it what operators have set.

    Raises:
        DeclarationError: one is declared twice with different limits, or an override cannot be read.
    """
    found: dict[str, Queue] = {}
    for queue in declared:
        if isinstance(queue, Queue) and found.setdefault(queue.name, queue) != queue:
            raise DeclarationError(f"queue {queue.name} is declared twice, with different limits")
    found |= {queue.name: queue for queue in map(read, overrides)}
    return {name: queue for name, queue in found.items() if queue.cap}
