"""Keeps the tables in shape: partitions for the days ahead, and out with what is older than the retention."""

import logging
import uuid
from typing import Any

import psycopg

from jobwell.store.link import Link
from jobwell.store.statements import Program, T, arun
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.store.workers import WorkerVerbs

log = logging.getLogger("jobwell.worker")

EVERY = 600.0
DEAD_WORKERS_KEPT = 86400.0
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
        while await self._run(self._upkeep.delete_old(seconds=self._retention)):
            pass
        await self._run(self._workers.forget(seconds=DEAD_WORKERS_KEPT))
        looked, last = await self._run(self._upkeep.delete_payloads(after=self._walk, seconds=self._retention))
        self._walk = last or FIRST
        return 1.0 if looked else EVERY

    async def _run(self, program: Program[T]) -> T:
        async with self._link.use() as conn:  # for one piece at a time: claims go between them
            return await arun(conn, program)

    async def _alter(self, program: Program[Any]) -> None:
        try:
            await self._run(program)
        except PUT_OFF as error:
            log.debug("upkeep of a table was put off: %s", error)
        finally:
            program.close()
