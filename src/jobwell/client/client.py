"""The verbs of a producer. Each is a program of statements; the sync and the async form only drive it."""

import asyncio
from collections.abc import Generator, Iterable
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, Connection

from jobwell.client import correlation, transactions
from jobwell.client.connections import Connections
from jobwell.client.handle import Enqueued, Handle
from jobwell.client.transactions import Guard, Within
from jobwell.core.catalog import Catalog
from jobwell.core.errors import EnqueueError, NotFound
from jobwell.core.job import NewJob
from jobwell.store import bulk
from jobwell.store.database import Database
from jobwell.store.jobs import insert
from jobwell.store.statements import Program, Statements, arun, run


class Client:
    """Stores jobs.

    Args:
        database: where.
        catalog: the tasks that are known here, for the types of their results.
    """

    def __init__(self, database: Database, catalog: Catalog) -> None:
        self.database = database
        self.catalog = catalog
        self._statements = database.statements
        self._connections = Connections(database)
        self._guard = Guard(database)

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
        program = insert(self._statements, [job], correlation.current())
        if borrowed is not None:
            self._vouch(borrowed)
            run(borrowed, program)
        else:
            with self._connections.plain() as own:
                run(own, program)
        return Handle(job.id, job.task, created=True, _client=self)

    async def aput(self, job: NewJob, conn: Any | None) -> "Handle[Any]":
        """As `put`, for async code."""
        borrowed = conn if conn is not None else transactions.current()
        program = insert(self._statements, [job], correlation.current())
        if borrowed is not None:
            await self._avouch(borrowed)
            await arun(borrowed, program)
        else:
            async with self._connections.of_loop() as own:
                await arun(own, program)
        return Handle(job.id, job.task, created=True, _client=self)

    def put_many(self, jobs: Iterable[NewJob], conn: Any | None) -> Enqueued:
        """Store many jobs, all or nothing, in bounded memory."""
        borrowed = conn if conn is not None else transactions.current()
        feed = bulk.Feed(_checked(jobs), correlation.current(), eager=borrowed is not None)
        if borrowed is not None:
            self._vouch(borrowed)
            bulk.put(borrowed, self._statements, feed)
        else:
            with self._connections.plain() as own:
                bulk.put(own, self._statements, feed)
        return Enqueued(feed.ids)

    async def aput_many(self, jobs: Iterable[NewJob], conn: Any | None) -> Enqueued:
        """As `put_many`, for async code."""
        borrowed = conn if conn is not None else transactions.current()
        feed = bulk.Feed(_checked(jobs), correlation.current(), eager=borrowed is not None)
        if borrowed is not None:
            await self._avouch(borrowed)
            await bulk.aput(borrowed, self._statements, feed)
        else:
            async with self._connections.of_loop() as own:
                await bulk.aput(own, self._statements, feed)
        return Enqueued(feed.ids)

    def status(self, job: UUID) -> str:
        """The state of a job."""
        with self._connections.plain() as own:
            return run(own, self._status(job))

    async def astatus(self, job: UUID) -> str:
        """As `status`, for async code."""
        async with self._connections.of_loop() as own:
            return await arun(own, self._status(job))

    def _status(self, job: UUID) -> Program[str]:
        rows = yield self._statements("reads.one", id=job)
        if not rows:
            raise NotFound(f"there is no job {job}: its retention is over, or its transaction has not committed")
        return str(rows[0][2])

    def _vouch(self, conn: Any) -> None:
        self._guard.colour(conn, Connection, "await task.aenqueue(…)")
        if not self._guard.known(conn):
            self._guard.compare(conn, run(conn, self._identity()))

    async def _avouch(self, conn: Any) -> None:
        self._guard.colour(conn, AsyncConnection, "task.enqueue(…)")
        if not self._guard.known(conn):
            found = await arun(conn, self._identity())
            await asyncio.to_thread(self._guard.ours)  # over a connection of its own, which must not hold up the loop
            self._guard.compare(conn, found)

    def _identity(self) -> "Generator[Any, list[tuple[Any, ...]], UUID | None]":
        # First ask whether the table is there: an error would break the caller's transaction.
        there = yield self._statements("server.identity")
        if there[0][0] is None:
            return None
        rows = yield self._statements("server.store_id")
        return rows[0][0] if rows else None

    def close(self) -> None:
        """Give the connections of this process back."""
        self._connections.close()

    async def aclose(self) -> None:
        """Give the connections of this process and the running loop back."""
        await self._connections.aclose()


def _checked(jobs: Iterable[NewJob]) -> Iterable[NewJob]:
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
        yield job
        at += 1
