"""The way out of a blocked event loop: told from another thread, for nothing else of the process can be told any more.

The job that blocks it is over its time limit and cannot be cancelled. Its attempt is recorded as timed out, what has ended is
stored, the neighbours go back uncounted, and the process ends; its supervisor starts another one.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

from jobwell.core.outcome import Outcome, Released
from jobwell.store.database import Database
from jobwell.store.jobs import JobVerbs
from jobwell.store.link import Link
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.attempt import concluded, timed_out
from jobwell.worker.finisher import Finisher
from jobwell.worker.record import Attempt

LARGEST = 500
CAUSE = "a neighbour blocked the event loop of its process"


def settle(
    database: Database,
    worker: UUID,
    *,
    culprits: Iterable[Attempt],
    running: Iterable[Attempt],
    ended: Iterable[tuple[Attempt, Outcome]],
    now: Callable[[], datetime],
) -> None:
    """Store what becomes of all jobs of this worker. Blocks; for a thread that is not the loop's.

    Raises:
        StoreUnavailable: the store cannot be told; then the lease tells.
    """
    known = dict(ended)
    ends = list(known.items())
    left = [attempt for attempt in running if attempt not in known]
    blamed = set(culprits)
    for attempt in left:
        outcome = concluded(attempt, now, database.settings.result_limit)
        if outcome is None:
            outcome = timed_out(attempt, now) if attempt in blamed else Released(CAUSE)
        ends.append((attempt, outcome))
    asyncio.run(_store(database, worker, ends))


async def _store(database: Database, worker: UUID, ends: list[tuple[Attempt, Outcome]]) -> None:
    link = Link(database, "escape")
    finisher = Finisher(JobVerbs(database.statements), link, largest=LARGEST, stored=lambda _: None, soon=lambda: None)
    for attempt, outcome in ends:
        finisher.add(attempt, outcome)
    while finisher.waiting:
        await finisher.tick()
    async with link.use() as conn:
        await arun(conn, WorkerVerbs(database.statements).expire(worker))
    await link.close()
