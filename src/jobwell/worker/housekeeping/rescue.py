"""Takes back the jobs of workers that are gone. Any live worker does it, row by row, blind to task types and limits."""

import logging
from collections.abc import Callable
from uuid import UUID

from jobwell.store.link import Link
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs

log = logging.getLogger("jobwell.worker")

PIECE = 200
CRASHES_BOUND = 3  # deaths of its process: by then it is the job
LOSSES_BOUND = 10  # a vanished host is rarely the job's fault; a job that keeps vanishing is looked at by a human


class Rescue:
    """The rescue service.

    Args:
        worker: who looks.
        every: seconds between two looks.
        lease: after an outage nobody is declared dead before a full lease has passed: the others could not renew either.
        clock: monotonic.
        rescued: told when jobs became ready.
    """

    def __init__(
        self,
        verbs: WorkerVerbs,
        link: Link,
        worker: UUID,
        *,
        every: float,
        lease: float,
        clock: Callable[[], float],
        rescued: Callable[[], None],
    ) -> None:
        self._verbs = verbs
        self._link = link
        self._every = every
        self._lease = lease
        self._clock = clock
        self._rescued = rescued
        self._worker = worker
        self.paused = False
        self._quiet_until: float | None = None  # unknown until the store is there, at the start and after each outage

    def failed(self, _error: BaseException) -> None:
        """A round failed: the store was away, for the others too."""
        self._quiet_until = None

    async def tick(self) -> float:
        """Declare the silent ones dead, and take back one piece."""
        if self.paused:
            return self._every
        async with self._link.use() as conn:
            if self._quiet_until is None:
                self._quiet_until = self._clock() + self._lease  # who has just come cannot know who is only slow to come back
            if self._clock() >= self._quiet_until:
                for worker in await arun(conn, self._verbs.bury(self._worker)):
                    log.warning("worker %s is silent since its lease ended; its jobs are taken back", worker)
            count = await arun(conn, self._verbs.rescue(limit=PIECE, bound=LOSSES_BOUND))
        if count:
            log.warning("%d job(s) of vanished workers taken back", count)
            self._rescued()
        return 0.0 if count >= PIECE else self._every
