"""Keeps the tables in shape: partitions for the days ahead, and out with what is older than the retention."""

import logging
import uuid
from typing import Any

import psycopg

from jobwell.store.link import Link
from jobwell.store.statements import Program, arun
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.store.workers import WorkerVerbs

log = logging.getLogger("jobwell.worker")

EVERY = 600.0
DEAD_WORKERS_KEPT = 86400.0
PIECES = 50  # of 1,000 results in one round, which has the statement timeout as its deadline
FIRST = uuid.UUID(int=0)
# Somebody reads or writes there, another worker does the same, or a row came into the default partition meanwhile.
PUT_OFF = (
    psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.DuplicateTable,
    psycopg.errors.CheckViolation,
)  # fmt: skip


class Prune:
    """The upkeep service: small commits, a lock timeout on everything that alters a table.

    Args:
        retention: seconds for which finished jobs are kept.
    """

    def __init__(self, upkeep: UpkeepVerbs, workers: WorkerVerbs, link: Link, retention: float) -> None:
        self._upkeep = upkeep
        self._workers = workers
        self._link = link
        self._retention = retention
        self._walk = FIRST

    async def tick(self) -> float:
        """One round; while payloads are left to look at, the next comes soon."""
        for program in (
            self._upkeep.make_partitions(),
            self._upkeep.drop_old("finished", seconds=self._retention),
            self._upkeep.drop_old("attempts", seconds=self._retention),
        ):
            await self._alter(program)
        async with self._link.use() as conn:
            while await arun(conn, self._upkeep.delete_old(seconds=self._retention)):
                pass
            await arun(conn, self._workers.forget(seconds=DEAD_WORKERS_KEPT))
            expiring = await self._expire(conn)
            looked, last = await arun(conn, self._upkeep.delete_payloads(after=self._walk, seconds=self._retention))
        self._walk = last or FIRST
        await self._link.close()  # a round is short and rare: the connection is not kept for it
        return 1.0 if looked or expiring else EVERY

    async def _expire(self, conn: "psycopg.AsyncConnection[Any]") -> bool:
        """Results whose time is over, in small commits; True: some are left for the next round, which comes soon."""
        for _ in range(PIECES):
            if not await arun(conn, self._upkeep.expire_results()):
                return False
        return True

    async def _alter(self, program: Program[Any]) -> None:
        try:
            async with self._link.use() as conn:
                await arun(conn, program)
        except PUT_OFF as error:
            log.debug("upkeep of a table was put off: %s", error)
        finally:
            program.close()
