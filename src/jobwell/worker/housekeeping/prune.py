"""Keeps the tables in shape: partitions for the days ahead, and out with what is older than the retention."""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

import psycopg

from jobwell.core.ids import new_id
from jobwell.store.link import Link
from jobwell.store.statements import Program, T, arun
from jobwell.store.upkeep import PIECE, PIECE_OF_HITS, PIECE_OF_USES, Pruner, UpkeepVerbs
from jobwell.store.workers import WorkerVerbs

log = logging.getLogger("jobwell.worker")

EVERY = 600.0
BUSY = 15.0
ROUND = 10.0  # seconds of deleting row by row, after which the loop takes a breath
DEAD_WORKERS_KEPT = 86400.0
PIECES = 50  # of 1,000 results in one round, which has the statement timeout as its deadline
FIRST = uuid.UUID(int=0)
# Somebody reads or writes there, another worker does the same, or a row came into the default partition meanwhile.
PUT_OFF = (
    psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.DuplicateTable,
    psycopg.errors.CheckViolation,
)  # fmt: skip


def _nothing() -> Program[bool]:
    return True
    yield  # a program without a statement


class Prune:
    """The upkeep service: small commits, a lock timeout on everything that alters a table.

    Args:
        retention: seconds for which finished jobs are kept.
        failed: seconds for which failed jobs wait for a person; 0: for ever.
    """

    def __init__(
        self,
        upkeep: UpkeepVerbs,
        workers: WorkerVerbs,
        link: Link,
        retention: float,
        *,
        failed: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._me = Pruner(new_id(), f"a worker on {socket.gethostname()} (process {os.getpid()})")
        self._clock = clock
        self._upkeep = upkeep
        self._workers = workers
        self._link = link
        self._retention = retention
        self._failed = failed
        self._walk = FIRST
        self._steps = (FIRST, "")
        self._walks = {"checkpoints": FIRST, "progress": FIRST}

    async def tick(self) -> float:
        """One round. The next comes soon while there is more than fits into its time, or another one prunes."""
        await self._alter(self._upkeep.make_partitions())
        async with self._link.use() as conn:
            await arun(conn, self._workers.forget(seconds=DEAD_WORKERS_KEPT))
            await arun(conn, self._upkeep.forget_set())
        if await self._piece(_nothing()) is None:
            return BUSY  # another one is at it, and does all there is, or has died of it
        return 1.0 if await self._prune() else EVERY

    async def _prune(self) -> bool:
        """True: there is more to do."""
        for table in ("finished", "attempts"):
            await self._alter(self._upkeep.drop_old(table, seconds=self._retention))
        until = self._clock() + ROUND
        while PIECE in (await self._piece(self._upkeep.delete_old(seconds=self._retention)) or ()):
            if self._clock() > until:
                return True
        expiring = await self._expire() or await self._give_up()
        await self._forget_uses()
        expiring = await self._forget_keys() or expiring
        looked, _, last = await self._piece(self._upkeep.delete_payloads(after=self._walk, seconds=self._retention)) or (
            0,
            0,
            None,
        )
        self._walk = last or FIRST
        stepped, _, step = await self._piece(self._upkeep.delete_steps(after=self._steps, seconds=self._retention)) or (
            0,
            0,
            None,
        )
        self._steps = step or (FIRST, "")
        kept = await self._delete_kept()
        async with self._link.use() as conn:
            await arun(conn, self._upkeep.give_back(self._me))
        return bool(looked or stepped) or expiring or kept

    async def _piece(self, program: Program[T]) -> T | None:
        """A small commit, under the lease. None: somebody else has it."""
        try:
            async with self._link.use() as conn, conn.transaction():
                if not await arun(conn, self._upkeep.lease(self._me)):
                    return None
                return await arun(conn, program)
        except PUT_OFF as error:
            log.debug("pruning was put off: %s", error)
            return None
        finally:
            program.close()

    async def _delete_kept(self) -> bool:
        """What ended jobs have kept for an attempt that will not come; True: the walk over one of the tables goes on."""
        for table, after in self._walks.items():
            looked = await self._piece(self._upkeep.delete_kept(table, after=after))
            self._walks[table] = (looked[2] if looked is not None and looked[0] == PIECE else None) or FIRST
        return any(after != FIRST for after in self._walks.values())

    async def _expire(self) -> bool:
        """Results whose time is over, in small commits; True: some are left for the next round, which comes soon."""
        for _ in range(PIECES):
            if not await self._piece(self._upkeep.expire_results()):
                return False
        return True

    async def _give_up(self) -> bool:
        """Failed jobs that nobody has decided on, in small commits; True: some are left for the next round."""
        for _ in range(PIECES if self._failed else 0):
            if (await self._piece(self._upkeep.discard_old(seconds=self._failed)) or 0) < PIECE:
                return False
        return bool(self._failed)

    async def _forget_uses(self) -> None:
        """What was in use of limits, and is not any more: of keys and processes above all."""
        for _ in range(PIECES):
            gone = await self._piece(self._upkeep.forget_uses())
            if gone is None or gone < PIECE_OF_USES:
                return

    async def _forget_keys(self) -> bool:
        """Windows that are over or void, and suppressed enqueues that are listed no more. True: some are left."""
        after: str | None = ""
        for _ in range(PIECES):
            if after is None:
                break
            after = await self._piece(self._upkeep.expire_void(after))
        for _ in range(PIECES):
            windows = await self._piece(self._upkeep.expire_keys()) or 0
            hits = await self._piece(self._upkeep.fold_hits(seconds=self._retention)) or 0
            if windows < PIECE and hits < PIECE_OF_HITS:
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
