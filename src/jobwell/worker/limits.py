"""Time limits: one look over the running attempts instead of a timer each."""

import logging
from collections.abc import Callable, Iterable

from jobwell.worker.record import Attempt

log = logging.getLogger("jobwell.worker")

EVERY = 0.05  # how late a limit may strike


class Limits:
    """Stops attempts that are over their time limit.

    Args:
        running: the attempts of this worker.
        clock: monotonic.
    """

    def __init__(self, running: Callable[[], Iterable[Attempt]], clock: Callable[[], float]) -> None:
        self._running = running
        self._clock = clock

    async def tick(self) -> float:
        """Look at all of them. One that swallows its cancellation is cancelled again at each look."""
        now = self._clock()
        for attempt in [a for a in self._running() if a.limit_at <= now]:
            if attempt.stopped is None:
                log.warning("job %s (%s) is over its time limit", attempt.job.id, attempt.job.task)
            attempt.stop("timeout")
        return EVERY
