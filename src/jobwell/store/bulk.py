"""Thousands of jobs at once: by COPY, or by arrays where a driver has no COPY for us. All in one transaction, bounded memory."""

import contextlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.abc import PQGen
from psycopg.generators import copy_end
from psycopg.pq import TransactionStatus

from jobwell.core.errors import EnqueueError, TransactionMisuse
from jobwell.core.job import NewJob
from jobwell.core.spread import Spread
from jobwell.store.copying import Rows, blocks, encoding_of, payload
from jobwell.store.jobs import INLINE, insert
from jobwell.store.statements import OwnAsyncCursor, OwnCursor, Program, Query, Statements, aask, arun, ask, run

SMALL = 200  # below it one INSERT by arrays is faster than a COPY
PIECE = 2000
LARGE_BYTES = 8 * 1024 * 1024  # of large payloads held back until the COPY of their jobs ends
ARRAY_PIECE = 500
ARRAY_BYTES = 1024 * 1024  # of one INSERT by arrays: its text is held several times


class Feed:
    """The jobs of one call on their way into the store.

    Keeps the ids in input order (16 bytes each), the queues to wake, the large payloads of the running COPY, and the error that
    the caller's stream has ended with.

    Args:
        jobs: the stream.
        eager: read a piece into memory before its COPY begins, because the stream itself may need the connection
            (a cursor of the caller's transaction); otherwise jobs are made while the server stores the earlier ones.
        spread: over which time they become due; None: each at its own.
    """

    def __init__(self, jobs: Iterable[NewJob], meta: str | None, *, eager: bool, spread: Spread | None = None) -> None:
        self._spread = spread
        self._begun: datetime | None = None  # the database's time, from which a spread counts
        self.error: Exception | None = None
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
        self.transaction: str | None = None  # the caller's
        self.stored = 0
        self.lost = False  # the stream has ended that transaction
        if self.small:
            self._take(self.head)

    def _take(self, piece: list[NewJob]) -> list[NewJob]:
        if len({job.id.int for job in piece}) < len(piece):
            self._refuse_twice(piece)
        self.ids += b"".join([job.id.bytes for job in piece])
        return piece

    def _refuse_twice(self, piece: list[NewJob]) -> None:
        seen: set[UUID] = set()
        for at, job in enumerate(piece, start=len(self.ids) // 16):
            if job.id in seen:
                raise EnqueueError(
                    f"job {at} of this call was given before, as the same job {job.id}; make each with task.job(…) of its own;"
                    " nothing was enqueued"
                )
            seen.add(job.id)

    def placed(self, statements: Statements, piece: list[NewJob]) -> Program[list[NewJob]]:
        """The jobs with their places in the spread, where there is one."""
        spread = self._spread
        if spread is None:
            return piece
        if self._begun is None:
            [(microseconds,)] = yield statements("jobs.now_as_text")
            self._begun = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(microseconds))
        begun = self._begun
        return [spread.place(job, begun) for job in piece]

    def begin(self, statements: Statements) -> Program[None]:
        """Note which transaction of the caller's this is."""
        if self._eager:  # otherwise it is our own, and no stream can reach it
            [(self.transaction,)] = yield statements("jobs.transaction")

    def same(self, statements: Statements) -> Program[None]:
        """Look whether the caller's transaction is still the one of the beginning: a stream may have ended it.

        Raises:
            TransactionMisuse: it is another one; what was stored shares the fate of the first.
        """
        if not self._eager:
            return
        try:
            [(found,)] = yield statements("jobs.transaction_now")
        except Exception as error:
            if isinstance(error, TransactionMisuse | OSError) or hasattr(error, "sqlstate") or hasattr(error, "orig"):
                raise
            raise self._ended("over") from error  # the library has given up the connection together with its transaction
        if found != self.transaction:
            self.lost = True
            [(fate,)] = yield statements("jobs.transaction_status", id=self.transaction)
            raise self._ended(str(fate))

    def _ended(self, fate: str) -> TransactionMisuse:
        self.lost = True
        return TransactionMisuse(
            f"the stream of jobs has ended the transaction that they belong to: {self.stored} jobs of this call were stored in it"
            f" before, and it is {fate}; nothing more was enqueued. A stream may read and write through the connection, but"
            " neither commit nor roll back"
        )

    def pieces(self) -> Iterator[list[NewJob]]:
        """All jobs, in pieces for an INSERT by arrays."""
        self.head = []
        piece: list[NewJob] = []
        size = 0
        for job in self._jobs:
            piece.append(job)
            size += job.size
            if len(piece) == ARRAY_PIECE or size > ARRAY_BYTES:
                yield self._take(piece)
                piece, size = [], 0
        if piece:
            yield self._take(piece)

    def rows(self, now: datetime, encoding: str) -> Iterator[bytes]:
        """The rows of one COPY: to the end of the stream, of the piece, or of the room for large payloads."""
        row = Rows(now, self.meta, self.queues, encoding).row
        self.head, self.large = [], []
        spread, piece = self._spread, self._piece()
        if spread is not None:
            piece = (spread.place(job, now) for job in piece)
        if self._eager:
            for job in self._take(list(piece)):
                yield row(job)
            return
        for job in piece:
            self.ids += job.id.bytes
            yield row(job)

    def _piece(self) -> Iterator[NewJob]:
        size = 0
        try:
            for count, job in enumerate(self._jobs, start=1):
                if job.size > INLINE:
                    self.large.append(job)
                    size += job.size
                yield job
                if size > LARGE_BYTES or (self._eager and count == PIECE):
                    return
        except Exception as error:
            self.error = error
            raise
        self.ended = True


def few(statements: Statements, feed: Feed) -> Program[None]:
    """All of a small feed, in one statement."""
    placed = yield from feed.placed(statements, feed.head)
    yield from insert(statements, placed, feed.meta)


def put(conn: "Connection[Any]", statements: Statements, feed: Feed) -> None:
    """Insert all or nothing. Inside the caller's transaction this is a savepoint of it."""
    if feed.small:
        if feed.head:
            run(conn, few(statements, feed))
        return
    with conn.transaction():
        try:
            _copy(conn, statements, feed)
        except BaseException:
            if (left := _left_open(conn)) is not None:
                with contextlib.suppress(psycopg.Error):
                    conn.wait(left)
            raise
        if feed.queues:
            ask(conn, statements("jobs.wake", queues=sorted(feed.queues)))


def _copy(conn: "Connection[Any]", statements: Statements, feed: Feed) -> None:
    run(conn, feed.begin(statements))
    [(now,)] = ask(conn, statements("jobs.now"))
    encoding = encoding_of(conn)
    while not feed.ended:
        filled = blocks(feed.rows(now, encoding))
        ahead = next(filled, None)  # an eager feed reads its piece here, before the connection is in COPY
        run(conn, feed.same(statements))
        with OwnCursor(conn) as cursor:
            with cursor.copy(statements["jobs.copy_jobs"]) as copy:
                for block in chain([ahead] if ahead else [], filled):
                    copy.write(block)
            if feed.large:
                with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                    for block in blocks(payload(job, encoding) for job in feed.large):
                        copy.write(block)
        feed.stored = len(feed.ids) // 16


async def aput(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed) -> None:
    """As `put`, on an async connection."""
    if feed.small:
        if feed.head:
            await arun(conn, few(statements, feed))
        return
    async with conn.transaction():
        try:
            await _acopy(conn, statements, feed)
        except BaseException:
            if (left := _left_open(conn)) is not None:
                with contextlib.suppress(psycopg.Error):
                    await conn.wait(left)
            raise
        if feed.queues:
            await aask(conn, statements("jobs.wake", queues=sorted(feed.queues)))


async def _acopy(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed) -> None:
    await arun(conn, feed.begin(statements))
    [(now,)] = await aask(conn, statements("jobs.now"))
    encoding = encoding_of(conn)
    while not feed.ended:
        filled = blocks(feed.rows(now, encoding))
        ahead = next(filled, None)
        await arun(conn, feed.same(statements))
        async with OwnAsyncCursor(conn) as cursor:
            async with cursor.copy(statements["jobs.copy_jobs"]) as copy:
                for block in chain([ahead] if ahead else [], filled):
                    await copy.write(block)
            if feed.large:
                async with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                    for block in blocks(payload(job, encoding) for job in feed.large):
                        await copy.write(block)
        feed.stored = len(feed.ids) // 16


def _left_open(conn: "Connection[Any] | AsyncConnection[Any]") -> PQGen[Any] | None:
    """What ends a COPY that nobody will end: a cancellation came when the server had begun it and the driver had not said so.

    Otherwise the rollback would be refused, as "another command is already in progress".
    """
    active = conn.pgconn.transaction_status == TransactionStatus.ACTIVE
    return copy_end(conn.pgconn, b"given up") if active else None


def by_arrays(statements: Statements, feed: Feed) -> Program[None]:
    """The same inside a caller's transaction, for any driver. An error undoes this call only, as with `put`."""
    if feed.small:
        if feed.head:
            yield from few(statements, feed)
        return
    yield statements("jobs.savepoint")
    try:
        yield from feed.begin(statements)
        for piece in feed.pieces():
            yield from feed.same(statements)
            placed = yield from feed.placed(statements, piece)
            yield from insert(statements, placed, feed.meta)
            feed.stored += len(piece)
        yield from feed.same(statements)
    except GeneratorExit:
        raise
    except BaseException:
        if feed.lost:
            raise
        with contextlib.suppress(Exception):  # where the connection is gone, the first error tells more
            yield from _undo(statements)
        raise
    yield statements("jobs.release")


def _undo(statements: Statements) -> Iterator[Query]:
    yield statements("jobs.rollback_to_savepoint")
    yield statements("jobs.release")
