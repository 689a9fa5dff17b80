"""Many jobs become due evenly over a time, and not all at once.

Where it is known how many there are, job i of n is due at i/n of the time, in input order. Of a stream whose length nobody knows,
each next job goes into the middle of one of the widest gaps that are left (the van der Corput sequence: 0, 1/2, 1/4, 3/4, 1/8 …):
wherever the stream ends, what it gave is spread evenly, with no gap more than twice as wide as another. Their order is not that
of the input then.
"""

from collections.abc import Sized
from dataclasses import fields
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from jobwell.core.duration import Duration, seconds, text
from jobwell.core.errors import DeclarationError, EnqueueError
from jobwell.core.job import FARTHEST, NewJob

_COLUMNS = attrgetter(*(column.name for column in fields(NewJob)))


class Spread:
    """The places in time of the jobs of one call, one after the other.

    Args:
        over: seconds.
        total: how many jobs there will be; None where nobody knows.
    """

    def __init__(self, over: float, total: int | None) -> None:
        self.over = over
        self._total = total
        self._count = 0

    def place(self, job: NewJob, now: datetime) -> NewJob:
        """The next job, due at its own time (at `now`, if that is over) and its share of the spread later."""
        own = job.run_at or (now + timedelta(seconds=job.delay) if job.delay else now)
        placed = NewJob(*_COLUMNS(job))  # the caller may give the same job to another call, should this one fail
        placed.run_at, placed.delay = max(own, now) + timedelta(seconds=self.over * self._next()), None
        return placed

    def _next(self) -> float:
        at = self._count
        self._count += 1
        return halved(at) if self._total is None else at % self._total / self._total


def halved(number: int) -> float:
    """The number's bits mirrored at the point: 1, 2, 3, 4 become 1/2, 1/4, 3/4, 1/8."""
    return int(f"{number:b}"[::-1], 2) / (1 << number.bit_length())


def spread_of(wanted: Duration | None, jobs: Any) -> Spread | None:
    """The spread of one call, or None.

    Raises:
        EnqueueError: it is no duration, or absurdly long.
    """
    if wanted is None:
        return None
    try:
        over = seconds(wanted, "spread")
    except DeclarationError as error:
        raise EnqueueError(f"{error.message}; nothing was enqueued") from None
    if over > FARTHEST.total_seconds():
        raise EnqueueError(f"spread={text(over)!r} is more than ten years; nothing was enqueued")
    total = len(jobs) if isinstance(jobs, Sized) else None
    return Spread(over, total or None) if over else None
