"""Stores outcomes: a lone one at once, a flood in large batches. A slot is free only when its outcome is stored.

While the database is away the outcomes wait here and are tried again; they are good as long as the lease lives.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg

from jobwell.core.outcome import Cancelled, Crashed, Expiring, Failed, Failure, Outcome, Released, Retrying, Snoozed, Succeeded
from jobwell.store.jobs import JobVerbs
from jobwell.store.link import Link
from jobwell.worker.housekeeping.rescue import CRASHES_BOUND
from jobwell.worker.progress import Board
from jobwell.worker.record import Attempt

log = logging.getLogger("jobwell.worker")

GROUP = 8  # outcomes; what came in such a group comes so again
GATHER = 0.001  # seconds
SLOW = 0.01  # seconds of an attempt, beside which a commit is short
LARGEST = 500  # outcomes in one statement
Ended = tuple[Attempt, Outcome]
EMERGENCY = Failure("Unstorable", "what the job left could not be stored; see the worker's log")


class Finisher:
    """Gathers outcomes and writes them, fenced.

    Args:
        verbs: the store.
        link: its connection.
        largest: outcomes in one statement at the most.
        stored: told of attempts whose slots are free now.
        soon: told when a job will be due within seconds.
        begun: told when the storing of a batch begins whose slots may be claimed for meanwhile.
        board: of progress, whose last words are written first.
        told: told of what was stored, and of the jobs that were no longer ours; None where nobody listens.
    """

    def __init__(
        self,
        verbs: JobVerbs,
        link: Link,
        *,
        largest: int,
        stored: Callable[[list[Attempt]], None],
        soon: Callable[[], None],
        told: "Callable[[list[Ended], set[UUID]], None] | None" = None,
        begun: Callable[[], None] = lambda: None,
        board: Board | None = None,
    ) -> None:
        self._verbs = verbs
        self._link = link
        self._largest = max(1, min(largest, LARGEST))
        self._stored = stored
        self._soon = soon
        self._told = told
        self._begun = begun
        self._board = board
        self._waiting: list[Ended] = []
        self._last = 0
        self._slow = 0
        self._again = False
        self.wake: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> int:
        """Outcomes that are not stored yet."""
        return len(self._waiting)

    @property
    def quick(self) -> int:
        """Those of jobs that take no longer than to store them."""
        return len(self._waiting) - self._slow

    @property
    def ending(self) -> int:
        """Outcomes of jobs that take longer than to store them: their code is over, so others may be claimed meanwhile.

        No more than one batch, and none where the store did not take the last one: what is over and cannot be stored piles up.
        """
        return 0 if self._again else min(self._slow, self._largest)

    @property
    def leaving(self) -> list[Attempt]:
        """These attempts."""
        return [] if self._again or not self._slow else [a for a, _ in self._waiting if a.slow][: self._largest]

    def gathered(self) -> list[Ended]:
        """What waits to be stored."""
        return list(self._waiting)

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take an outcome in."""
        self._waiting.append((attempt, outcome))
        if len(self._waiting) == 1:
            self.wake()
        if time.monotonic() - attempt.began > SLOW and not attempt.apart:  # what ran in a child has taken no slot
            attempt.slow = True
            self._slow += 1
            self._begun()

    async def tick(self) -> float:
        """Write what has gathered. What is not written stays for the next round."""
        if not self._waiting:
            return 3600.0
        if self._last >= GROUP and len(self._waiting) * 2 < self._last:
            await asyncio.sleep(GATHER)  # what began with these ends with these
        batch = self._waiting[: self._largest]
        self._last = len(batch)
        try:
            lost = await self._write(batch)
        except BaseException:
            self._again = True
            raise
        self._again = False
        del self._waiting[: len(batch)]
        self._slow -= sum(attempt.slow for attempt, _ in batch)
        self._stored([attempt for attempt, _ in batch])
        if self._told is not None:
            self._told(batch, lost)
        return 0.0 if self._waiting else 3600.0

    async def _write(self, batch: list[Ended]) -> set[UUID]:
        try:
            try:
                lost = await self._store(batch)
            except psycopg.errors.CheckViolation:  # meant for the default partition, while that of the day was attached
                self._again = True
                lost = await self._store(batch)
        except (psycopg.errors.DataError, ValueError, TypeError) as error:  # refused by the server, or not even encoded
            if len(batch) == 1:
                return await self._write_bare(batch[0], error)
            # Something in it cannot be stored: each on its own, so that the others are.
            lost = set()
            for ended in batch:
                lost |= await self._write([ended])
            return lost
        if lost:
            doubt = " (or it was stored before, and the answer was lost)" if self._again else ""
            names = ", ".join(str(job) for job in sorted(lost)[:5])
            log.warning("ownership lost: the outcome of %d job(s) changed nothing%s: %s", len(lost), doubt, names)
        return lost

    async def _write_bare(self, ended: Ended, error: Exception) -> set[UUID]:
        attempt, outcome = ended
        log.error("the outcome of job %s could not be stored as it is: %s", attempt.job.id, error)
        bare: Outcome
        match outcome:
            case Succeeded():
                bare = Succeeded(None, "its result could not be stored")
            case Failed():
                bare = Failed(outcome.reason, EMERGENCY, counts=outcome.counts)
            case Retrying():
                bare = replace(outcome, failure=EMERGENCY, note=None)
            case Snoozed():
                bare = Snoozed(outcome.delay)
            case Released():
                bare = Released("handed back", outcome.delay, outcome.begun)
            case Cancelled():
                bare = Cancelled()
            case Crashed():
                bare = Crashed("its process died")
        return await self._store([(attempt, bare)])

    async def _store(self, batch: list[Ended]) -> set[UUID]:
        async with self._link.use() as conn:
            if self._board is not None:
                await self._board.last(conn, (attempt for attempt, _ in batch))
            return await self._settle(conn, batch)

    async def _settle(self, conn: "psycopg.AsyncConnection[Any]", batch: list[Ended]) -> set[UUID]:
        done = [(a, o) for a, o in batch if type(o) is Succeeded]
        lost: set[UUID] = set()
        if done:
            ids = [attempt.job.id for attempt, _ in done]
            claims = [attempt.claim_id for attempt, _ in done]
            lost |= await self._verbs.finish(conn, ids, claims, [end for _, end in done])
            if len(done) == len(batch):
                return lost
        brief = [(a, o) for a, o in batch if isinstance(o, Expiring)]
        if brief:
            lost |= await self._verbs.finish_expiring(
                conn, [a.job.id for a, _ in brief], [a.claim_id for a, _ in brief], [end for _, end in brief]
            )
        failed = [(a.job.id, a.claim_id, a.job.task, o) for a, o in batch if isinstance(o, Failed)]
        if failed:
            lost |= await self._verbs.fail(conn, failed)
        lost |= await self._later(conn, batch)
        over = [(a.job.id, a.claim_id, o) for a, o in batch if isinstance(o, Cancelled)]
        if over:
            lost |= await self._verbs.cancelled(conn, over)
        died = [(a.job.id, a.claim_id, o) for a, o in batch if isinstance(o, Crashed)]
        if died:
            lost |= await self._verbs.crash(conn, died, bound=CRASHES_BOUND)
            self._soon()
        return lost

    async def _later(self, conn: "psycopg.AsyncConnection[Any]", batch: list[Ended]) -> set[UUID]:
        """What has not come to its end."""
        lost: set[UUID] = set()
        again = [(a.job.id, a.claim_id, o) for a, o in batch if isinstance(o, Retrying)]
        if again:
            lost |= await self._verbs.retry(conn, again)
        unbegun = [(a.job.id, a.claim_id, o) for a, o in batch if isinstance(o, Released) and not o.begun]
        if unbegun:
            lost |= await self._verbs.unstarted(conn, unbegun)
        back = [(a.job.id, a.claim_id, o) for a, o in batch if isinstance(o, Snoozed) or (isinstance(o, Released) and o.begun)]
        if back:
            lost |= await self._verbs.postpone(conn, back)
        if again or unbegun or back:
            self._soon()
        return lost
