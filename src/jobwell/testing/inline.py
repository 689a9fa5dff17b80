"""Inline mode: a job runs as soon as it is stored, through the same doors as any other."""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from psycopg.pq import TransactionStatus

from jobwell.client import transactions
from jobwell.client.client import Client
from jobwell.client.handle import Enqueued, Handle
from jobwell.core.duration import Duration
from jobwell.core.job import NewJob
from jobwell.store.database import Database
from jobwell.testing.driver import running
from jobwell.testing.errors import TestbedError

if TYPE_CHECKING:
    from jobwell.testing.testbed import Testbed

__tracebackhide__ = True  # pytest shows the test and the task, not what is between


class InlineClient(Client):
    """The producer's client that tells its testbed of each job.

    Args:
        database: where.
        bed: told of what was stored.
    """

    def __init__(self, database: Database, bed: "Testbed") -> None:
        super().__init__(database, bed.app.catalog, bed.app.bounded_queues)
        self.bed = bed

    def put(self, job: NewJob, conn: Any | None) -> "Handle[Any]":
        """As any client, and then what inline mode does."""
        borrowed = conn if conn is not None else transactions.current()
        handle = super().put(job, conn)
        if handle.created:  # one that stands for it runs, or waits, by itself
            self.bed.stored([handle.id], borrowed)
        return handle

    async def aput(self, job: NewJob, conn: Any | None) -> "Handle[Any]":
        """As any client, and then what inline mode does."""
        borrowed = conn if conn is not None else transactions.current()
        handle = await super().aput(job, conn)
        if handle.created:
            await self.bed.astored([handle.id], borrowed)
        return handle

    def put_many(
        self, jobs: Iterable[NewJob], conn: Any | None, spread: Duration | None = None, *, then: NewJob | None = None
    ) -> Enqueued:
        """As any client, and then what inline mode does."""
        borrowed = conn if conn is not None else transactions.current()
        ids = super().put_many(jobs, conn, spread, then=then)
        self.bed.stored(_with(ids.made(), then), borrowed)
        return ids

    async def aput_many(
        self, jobs: Iterable[NewJob], conn: Any | None, spread: Duration | None = None, *, then: NewJob | None = None
    ) -> Enqueued:
        """As any client, and then what inline mode does."""
        borrowed = conn if conn is not None else transactions.current()
        ids = await super().aput_many(jobs, conn, spread, then=then)
        await self.bed.astored(_with(ids.made(), then), borrowed)
        return ids


def _with(ids: Iterable[UUID], then: NewJob | None) -> list[UUID]:
    return [*ids] if then is None else [*ids, then.id]


class Inline:
    """`with testbed.inline(): …` or `async with testbed.inline(): …`.

    Args:
        bed: that runs the jobs.
        raising: an enqueue raises what its job raised.
    """

    def __init__(self, bed: "Testbed", *, raising: bool) -> None:
        self._bed = bed
        self.raising = raising
        self.waiting: list[UUID] = []  # not run yet: in a transaction, or in async code without an await
        self.borrowed: dict[UUID, Any] = {}
        self._outer: Inline | None = None

    def __enter__(self) -> Self:
        self._outer, self._bed.inlining = self._bed.inlining, self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self.waiting:
                if running():
                    raise TestbedError(
                        f"{len(self.waiting)} job(s) enqueued by plain calls in async code wait for their turn;"
                        " write `async with testbed.inline():`"
                    )
                self._bed.run_inline()
                self._must_be_over()
        finally:
            self._bed.inlining = self._outer

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self.waiting:
                await self._bed.arun_inline()
                await asyncio.sleep(0)
                self._must_be_over()
        finally:
            self._bed.inlining = self._outer

    def _must_be_over(self) -> None:
        there = self._bed.there(self.waiting)
        busy = (TransactionStatus.INTRANS, TransactionStatus.ACTIVE, TransactionStatus.INERROR)
        open_still = [
            job
            for job in self.waiting
            if job not in there and job in self.borrowed and self.borrowed[job].info.transaction_status in busy
        ]
        if open_still:
            raise TestbedError(
                f"{len(open_still)} job(s) were enqueued in a transaction that is still open at the end of `inline()`, so they do"
                " not exist yet and cannot run; put the transaction inside the block, or call `drain()` after its commit"
            )
