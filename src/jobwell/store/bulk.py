"""Thousands of jobs at once: COPY, all in one transaction, in bounded memory."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any

from psycopg import AsyncConnection, Connection

from jobwell.core.job import NewJob
from jobwell.store.jobs import INLINE, insert
from jobwell.store.statements import Statements, arun, run

SMALL = 200  # below it one INSERT by arrays is faster than a COPY
PIECE = 2000
LARGE_BYTES = 8 * 1024 * 1024  # of large payloads held back until the COPY of their jobs ends

_TYPES = ("uuid", "text", "text", "int2", "int8", "text", "text", "int4", "text", "text", "text",
          "timestamptz", "timestamptz", "timestamptz", "timestamptz")  # fmt: skip
_PAYLOAD_TYPES = ("uuid", "text")  # JSON travels as text: the driver's json type would encode the text once more


class Feed:
    """The jobs of one call on their way into COPY.

    Keeps the ids in input order (16 bytes each), the queues to wake, and the large payloads of the running COPY.

    Args:
        jobs: the stream.
        eager: read a piece into memory before its COPY begins, because the stream itself may need the connection
            (a cursor of the caller's transaction); otherwise jobs are made while the server stores the earlier ones.
    """

    def __init__(self, jobs: Iterable[NewJob], meta: str | None, *, eager: bool) -> None:
        stream = iter(jobs)
        self._eager = eager
        self.meta = meta
        self.ids = bytearray()
        self.queues: set[str] = set()
        self.large: list[NewJob] = []
        self.head = list(islice(stream, SMALL))
        self.small = len(self.head) < SMALL
        self._jobs = chain(() if self.small else self.head, stream)
        self.ended = self.small
        if self.small:
            for job in self.head:
                self.ids += job.id.bytes

    def rows(self, now: datetime) -> Iterator[tuple[Any, ...]]:
        """The rows of one COPY: to the end of the stream, of the piece, or of the room for large payloads."""
        self.head, self.large = [], []
        for job in list(self._piece()) if self._eager else self._piece():
            self.ids += job.id.bytes
            yield _row(job, now, self.meta, self.queues)

    def _piece(self) -> Iterator[NewJob]:
        size = 0
        for count, job in enumerate(self._jobs, start=1):
            if job.size > INLINE:
                self.large.append(job)
                size += job.size
            yield job
            if size > LARGE_BYTES or (self._eager and count == PIECE):
                return
        self.ended = True


def put(conn: "Connection[Any]", statements: Statements, feed: Feed) -> None:
    """Insert all or nothing. Inside the caller's transaction this is a savepoint of it."""
    if feed.small:
        if feed.head:
            run(conn, insert(statements, feed.head, feed.meta))
        return
    with conn.transaction():
        [(now,)] = conn.execute(statements["jobs.now"], binary=True).fetchall()
        while not feed.ended:
            rows = feed.rows(now)
            ahead = next(rows, None)  # an eager feed reads its piece here, before the connection is in COPY
            with conn.cursor() as cursor:
                with cursor.copy(statements["jobs.copy_jobs"]) as copy:
                    copy.set_types(_TYPES)
                    for row in chain([ahead] if ahead else [], rows):
                        copy.write_row(row)
                if feed.large:
                    with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                        copy.set_types(_PAYLOAD_TYPES)
                        for job in feed.large:
                            copy.write_row((job.id, job.args))
        if feed.queues:
            conn.execute(statements["jobs.wake"], {"queues": sorted(feed.queues)})


async def aput(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed) -> None:
    """As `put`, on an async connection."""
    if feed.small:
        if feed.head:
            await arun(conn, insert(statements, feed.head, feed.meta))
        return
    async with conn.transaction():
        [(now,)] = await (await conn.execute(statements["jobs.now"], binary=True)).fetchall()
        while not feed.ended:
            rows = feed.rows(now)
            ahead = next(rows, None)
            async with conn.cursor() as cursor:
                async with cursor.copy(statements["jobs.copy_jobs"]) as copy:
                    copy.set_types(_TYPES)
                    for row in chain([ahead] if ahead else [], rows):
                        await copy.write_row(row)
                if feed.large:
                    async with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                        copy.set_types(_PAYLOAD_TYPES)
                        for job in feed.large:
                            await copy.write_row((job.id, job.args))
        if feed.queues:
            await conn.execute(statements["jobs.wake"], {"queues": sorted(feed.queues)})


def _row(job: NewJob, now: datetime, meta: str | None, due_queues: set[str]) -> tuple[Any, ...]:
    due = now
    if job.run_at or job.delay:
        due = job.run_at or now + timedelta(seconds=job.delay or 0)
    ready = due <= now
    if ready:
        due_queues.add(job.queue)
    return (
        job.id, job.queue, job.task, job.rank, job.gate, job.tenant, job.lock_key, job.size,
        job.args if job.size <= INLINE else None, meta, "ready" if ready else "scheduled", now, due, now if ready else None,
        max(now, due) + timedelta(seconds=job.deadline),
    )  # fmt: skip
