"""The verbs of a producer. Each is a program of statements; the sync and the async form only drive it."""

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sized
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from psycopg.errors import UniqueViolation

from jobwell.client import correlation, transactions
from jobwell.client.connections import Connections
from jobwell.client.guard import Guard, Way
from jobwell.client.handle import Enqueued, Group, Handle
from jobwell.client.pressure import Gauge, Tally
from jobwell.client.transactions import Within
from jobwell.core.catalog import Catalog
from jobwell.core.duration import Duration
from jobwell.core.errors import BatchTooLarge, EnqueueError, NotFound, StoreError
from jobwell.core.job import NewJob
from jobwell.core.progress import Progress
from jobwell.core.queues import Pressure, Queue
from jobwell.core.spread import spread_of
from jobwell.core.why import Because
from jobwell.store import bulk, checkpoints, control, dedup
from jobwell.store.borrowed import AsyncDoor, PlainDoor
from jobwell.store.database import Database
from jobwell.store.feed import Feed
from jobwell.store.jobs import insert
from jobwell.store.statements import Program, Statements, arun, run


class Client:
    """Stores jobs.

    Args:
        database: where.
        catalog: the tasks that are known here, for the types of their results.
        limits: the queues that have a limit.
    """

    def __init__(self, database: Database, catalog: Catalog, limits: Mapping[str, Queue] = MappingProxyType({})) -> None:
        self.database = database
        self.catalog = catalog
        self._statements = database.statements
        self._connections = Connections(database)
        self.endings = Connections(database, "transaction", database.settings.transaction_pool)
        self._guard = Guard(database)
        self.gauge = Gauge(database, self._connections, limits)

    @property
    def connections(self) -> Connections:
        """What it borrows from."""
        return self._connections

    @property
    def statements(self) -> Statements:
        """Of its store."""
        return self._statements

    def within(self, connection: Any) -> Within:
        """Every enqueue inside goes through the caller's connection."""
        return Within(self._guard, connection)

    def put(self, job: NewJob, conn: Any | None) -> "Handle[Any]":
        """Store one job; `conn` is the caller's connection, or None for the innermost `within`, or our own."""
        borrowed = conn if conn is not None else transactions.current()
        if job.queue not in self.gauge.limits:
            return self._put(job, borrowed)
        self.gauge.look(beside=borrowed is not None)
        with self.gauge.tally() as tally:
            tally.admit(job)
            return self._put(job, borrowed, tally)

    def _put(self, job: NewJob, borrowed: Any | None, tally: Tally | None = None) -> "Handle[Any]":
        if job.dedup is not None:
            return self._put_once(job, borrowed, tally)
        program = insert(self._statements, [job], correlation.current())
        if borrowed is not None:
            self.vouch(borrowed).run(program)
        else:
            with self._connections.plain() as own:
                run(own, program)
        return Handle(job.id, job.task, created=True, _client=self)

    async def aput(self, job: NewJob, conn: Any | None) -> "Handle[Any]":
        """As `put`, for async code."""
        borrowed = conn if conn is not None else transactions.current()
        if job.queue not in self.gauge.limits:
            return await self._aput(job, borrowed)
        await self.gauge.alook(beside=borrowed is not None)
        with self.gauge.tally() as tally:
            tally.admit(job)
            return await self._aput(job, borrowed, tally)

    async def _aput(self, job: NewJob, borrowed: Any | None, tally: Tally | None = None) -> "Handle[Any]":
        if job.dedup is not None:
            return await self._aput_once(job, borrowed, tally)
        program = insert(self._statements, [job], correlation.current())
        if borrowed is not None:
            await (await self.avouch(borrowed)).run(program)
        else:
            async with self._connections.of_loop() as own:
                await arun(own, program)
        return Handle(job.id, job.task, created=True, _client=self)

    def _put_once(self, job: NewJob, borrowed: Any | None, tally: Tally | None) -> "Handle[Any]":
        program = dedup.put(self._statements, [job], correlation.current())
        if borrowed is not None:
            found = self.vouch(borrowed).run(program)
        else:
            with self._connections.plain() as own:
                found = run(own, program)
        return self._handle(job, found[0], tally)

    async def _aput_once(self, job: NewJob, borrowed: Any | None, tally: Tally | None) -> "Handle[Any]":
        program = dedup.put(self._statements, [job], correlation.current())
        if borrowed is not None:
            found = await (await self.avouch(borrowed)).run(program)
        else:
            async with self._connections.of_loop() as own:
                found = await arun(own, program)
        return self._handle(job, found[0], tally)

    def _handle(self, job: NewJob, found: dedup.Stands, tally: Tally | None) -> "Handle[Any]":
        if tally is not None and not found.created and not job.delay and job.run_at is None:
            tally.forgive(job.queue, 1)
        return Handle(found.id, found.task, created=found.created, _client=self)

    def put_many(
        self, jobs: Iterable[NewJob], conn: Any | None, spread: Duration | None = None, *, then: NewJob | None = None
    ) -> Enqueued:
        """Store many jobs, all or nothing, in bounded memory; `then` is stored with them and follows all of them."""
        borrowed = conn if conn is not None else transactions.current()
        if not self.gauge.limits:
            return self._put_many(jobs, borrowed, spread, then)
        self.gauge.look(beside=borrowed is not None)
        with self.gauge.tally(at_once=spread is None) as tally:
            return self._put_many(jobs, borrowed, spread, then, tally)

    def _put_many(
        self,
        jobs: Iterable[NewJob],
        borrowed: Any | None,
        spread: Duration | None,
        then: NewJob | None,
        tally: Tally | None = None,
    ) -> Enqueued:
        feed = self._feed(jobs, spread, tally, eager=borrowed is not None, then=then)
        if borrowed is not None:
            self.vouch(borrowed).put(self._statements, feed)
            return _enqueued(feed, tally)
        try:
            with self._connections.plain() as own:
                bulk.put(own, self._statements, feed)
        except (StoreError, UniqueViolation) as error:
            told = _told(feed, error)
        else:
            return _enqueued(feed, tally)
        raise told

    async def aput_many(
        self, jobs: Iterable[NewJob], conn: Any | None, spread: Duration | None = None, *, then: NewJob | None = None
    ) -> Enqueued:
        """As `put_many`, for async code."""
        borrowed = conn if conn is not None else transactions.current()
        if not self.gauge.limits:
            return await self._aput_many(jobs, borrowed, spread, then)
        await self.gauge.alook(beside=borrowed is not None)
        with self.gauge.tally(at_once=spread is None) as tally:
            return await self._aput_many(jobs, borrowed, spread, then, tally)

    async def _aput_many(
        self,
        jobs: Iterable[NewJob],
        borrowed: Any | None,
        spread: Duration | None,
        then: NewJob | None,
        tally: Tally | None = None,
    ) -> Enqueued:
        feed = self._feed(jobs, spread, tally, eager=borrowed is not None, then=then)
        if borrowed is not None:
            await (await self.avouch(borrowed)).put(self._statements, feed)
            return _enqueued(feed, tally)
        try:
            async with self._connections.of_loop() as own:
                await bulk.aput(own, self._statements, feed)
        except (StoreError, UniqueViolation) as error:
            told = _told(feed, error)
        else:
            return _enqueued(feed, tally)
        raise told

    def put_group(self, jobs: Iterable[NewJob], then: NewJob, conn: Any | None, *, ended: bool) -> Group:
        """Store many jobs and the one that follows all of them."""
        then = _behind(then, ended=ended)
        stored = self.put_many(jobs, conn, then=then)
        return Group(stored, Handle(then.id, then.task, created=True, _client=self))

    async def aput_group(self, jobs: Iterable[NewJob], then: NewJob, conn: Any | None, *, ended: bool) -> Group:
        """As `put_group`, for async code."""
        then = _behind(then, ended=ended)
        stored = await self.aput_many(jobs, conn, then=then)
        return Group(stored, Handle(then.id, then.task, created=True, _client=self))

    def _feed(
        self, jobs: Iterable[NewJob], spread: Duration | None, tally: Tally | None, *, eager: bool, then: NewJob | None
    ) -> Feed:
        limit = self.database.settings.batch_limit
        if isinstance(jobs, Sized) and len(jobs) > limit:
            raise _too_many(limit)
        checked = _checked(jobs, limit)
        admitted = checked if tally is None else tally.each(checked)
        return Feed(admitted, correlation.current(), eager=eager, spread=spread_of(spread, jobs), then=then)

    def pressure(self, queue: str) -> Pressure:
        """How full a queue is."""
        self.gauge.look(beside=transactions.is_inside())
        return self.gauge.pressure(queue)

    async def apressure(self, queue: str) -> Pressure:
        """As `pressure`, for async code."""
        await self.gauge.alook(beside=transactions.is_inside())
        return self.gauge.pressure(queue)

    def status(self, job: UUID) -> str:
        """The state of a job."""
        with self._connections.plain() as own:
            return run(own, self._status(job))

    async def astatus(self, job: UUID) -> str:
        """As `status`, for async code."""
        async with self._connections.of_loop() as own:
            return await arun(own, self._status(job))

    def progress(self, job: UUID) -> Progress | None:
        """How far a job has said that it is."""
        with self._connections.plain() as own:
            return run(own, checkpoints.progress(self._statements, [job])).get(job)

    async def aprogress(self, job: UUID) -> Progress | None:
        """As `progress`, for async code."""
        async with self._connections.of_loop() as own:
            return (await arun(own, checkpoints.progress(self._statements, [job]))).get(job)

    def why(self, job: UUID) -> list[Because]:
        """Why a job does not run."""
        from jobwell.store import why

        with self._connections.plain() as own:
            return run(own, why.reasons(self._statements, job))

    async def awhy(self, job: UUID) -> list[Because]:
        """As `why`, for async code."""
        from jobwell.store import why

        async with self._connections.of_loop() as own:
            return await arun(own, why.reasons(self._statements, job))

    def cancel(self, job: UUID, by: str, why: str | None) -> str:
        """Cancel a job; tells its state."""
        with self._connections.plain() as own, own.transaction():
            return run(own, control.cancel_one(self._statements, job, actor=by, why=why))

    async def acancel(self, job: UUID, by: str, why: str | None) -> str:
        """As `cancel`, for async code."""
        async with self._connections.of_loop() as own, own.transaction():
            return await arun(own, control.cancel_one(self._statements, job, actor=by, why=why))

    def reprioritize(self, job: UUID, priority: int, by: str, why: str | None) -> bool:
        """Give a job that waits another priority; tells whether it did."""
        with self._connections.plain() as own, own.transaction():
            return run(own, control.reprioritize_one(self._statements, job, priority, actor=by, why=why))

    async def areprioritize(self, job: UUID, priority: int, by: str, why: str | None) -> bool:
        """As `reprioritize`, for async code."""
        async with self._connections.of_loop() as own, own.transaction():
            return await arun(own, control.reprioritize_one(self._statements, job, priority, actor=by, why=why))

    def _status(self, job: UUID) -> Program[str]:
        rows = yield self._statements("reads.one", id=job)
        if not rows:
            raise NotFound(f"there is no job {job}: its retention is over, or its transaction has not committed")
        return str(rows[0][2])

    def vouch(self, conn: Any) -> PlainDoor:
        """The open door to a connection of the caller's, which leads to this store.

        Raises:
            TransactionMisuse: it does not, or cannot be used.
        """
        lent = self._guard.plain(conn)
        lent.open()
        if not self._guard.known(lent):
            self._guard.prepare()  # before the caller's transaction holds anything, if it does not yet
            self._guard.compare(lent.run(self._identity()), Way.of(lent))
        return lent

    async def avouch(self, conn: Any) -> AsyncDoor:
        """As `vouch`, for async code."""
        lent = self._guard.asynchronous(conn)
        await lent.open()
        if not self._guard.known(lent):
            await asyncio.to_thread(self._guard.prepare)  # over a connection of its own, which must not hold up the loop
            found = await lent.run(self._identity())
            await asyncio.to_thread(self._guard.compare, found, Way.of(lent))
        return lent

    def _identity(self) -> "Generator[Any, list[tuple[Any, ...]], UUID | None]":
        # First ask whether the table is there: an error would break the caller's transaction.
        there = yield self._statements("server.identity")
        if there[0][0] is None:
            return None
        rows = yield self._statements("server.store_id")
        return UUID(rows[0][0]) if rows else None

    def close(self) -> None:
        """Give the connections of this process back."""
        self._connections.close()
        self.endings.close()

    async def aclose(self) -> None:
        """Give the connections of this process and the running loop back."""
        await self._connections.aclose()
        await self.endings.aclose()


def _enqueued(feed: Feed, tally: Tally | None) -> Enqueued:
    if tally is not None:
        for queue, count in feed.spared.items():
            tally.forgive(queue, count)
    return Enqueued(feed.ids, feed.suppressed)


def _told(feed: Feed, error: StoreError | UniqueViolation) -> Exception:
    if feed.error is not None:
        return feed.error  # it came out of the caller's stream, and is not about our store
    if isinstance(error, UniqueViolation):
        found = error.diag.message_detail or ""
        told = EnqueueError(
            f"one of these jobs was enqueued before, in this call or an earlier one ({found}); make each with task.job(…) of its"
            " own; nothing was enqueued"
        )
        told.__cause__ = error
        return told
    return error


def _behind(then: NewJob, *, ended: bool) -> NewJob:
    if not isinstance(then, NewJob):
        raise EnqueueError(f"then={then!r:.200}: give task.job(…), with its arguments; nothing was enqueued")
    return replace(then, ended=ended)


def _too_many(limit: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"this call has more than {limit:,} jobs (the setting batch_limit); nothing was enqueued. Split it into several calls,"
        " or raise the setting"
    )


def _checked(jobs: Iterable[NewJob], limit: int) -> Iterable[NewJob]:
    at = 0
    stream = iter(jobs)
    while True:
        try:
            job = next(stream)
        except StopIteration:
            return
        except EnqueueError as error:
            error.message = f"job {at} of this call: {error.message}"
            raise
        if not isinstance(job, NewJob):
            found = type(job).__name__
            raise EnqueueError(f"job {at} of this call is a {found}; give task.job(…) for each; nothing was enqueued")
        if at >= limit:
            raise _too_many(limit)
        yield job
        at += 1
