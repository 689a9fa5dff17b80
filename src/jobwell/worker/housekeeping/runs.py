"""Moves runs on where nobody else does: retries that are due, jobs that failed for good, processes that died behind a commit.

And forgets those that ended long ago, in small pieces.
"""

import logging
import time
from collections.abc import Callable

from jobwell.store import runs
from jobwell.store.link import Link
from jobwell.store.statements import Statements, arun

log = logging.getLogger("jobwell.worker")

EVERY = 1.0
STILL = 30.0
PRUNES_EVERY = 600.0


class RunsService:
    """The service.

    Args:
        link: whose connection it borrows, for one statement at a time.
        keep: seconds for which runs are kept after their end.
        every: seconds between two looks at a run, whoever looks.
        still: without an item's end, after which it is looked whether jobs were lost.
        clock: monotonic.
    """

    def __init__(
        self, statements: Statements, link: Link, *, keep: float, every: float = EVERY, still: float = STILL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._statements = statements
        self._link = link
        self._every = every
        self._still = still
        self._keep = keep
        self._clock = clock
        self._prunes_at = clock() + PRUNES_EVERY

    async def tick(self) -> float:
        """One look."""
        async with self._link.use() as conn:
            found = await arun(conn, runs.to_look_at(self._statements, every=self._every, still=self._still))
        more = False
        for run, still in found:
            async with self._link.use() as conn:
                if still and (count := await arun(conn, runs.rescue(self._statements, run))):
                    log.warning("run %s: %d item(s) had no job any more and wait again", run, count)
                more |= await arun(conn, runs.turn(self._statements, run))
        if self._clock() >= self._prunes_at:
            self._prunes_at = self._clock() + (0.0 if await self._forget() else PRUNES_EVERY)
        return 0.05 if more else self._every

    async def _forget(self) -> bool:
        async with self._link.use() as conn:
            return await arun(conn, runs.forget(self._statements, seconds=self._keep))
