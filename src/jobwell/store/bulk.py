"""Thousands of jobs at once: by COPY, or by arrays where a driver has no COPY for us. All in one transaction, bounded memory."""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.abc import PQGen
from psycopg.generators import copy_end
from psycopg.pq import TransactionStatus

from jobwell.core.errors import Duplicate
from jobwell.core.job import NewJob
from jobwell.store import dedup, follow
from jobwell.store.copying import Rows, blocks, encoding_of, payload
from jobwell.store.feed import Chunk, Feed
from jobwell.store.jobs import columns_of, insert
from jobwell.store.statements import OwnAsyncCursor, OwnCursor, Program, Query, Statements, aask, arun, ask, run

VIOLATED = "jobs_dedup"  # the index of keys


def few(statements: Statements, feed: Feed) -> Program[None]:
    """All of a small feed, in one statement."""
    if feed.head:
        placed = yield from feed.placed(statements, feed.head)
        yield from insert(statements, placed, feed.meta)


def _few_linked(statements: Statements, feed: Feed) -> Program[None]:
    """A small feed with keys, or with what follows."""
    if feed.has_keys:
        placed = yield from feed.placed(statements, feed.head)
        yield from feed.mixed(statements, placed)
    else:
        yield from few(statements, feed)
    yield from behind(statements, feed)


def behind(statements: Statements, feed: Feed) -> Program[None]:
    """The job that follows all of them, in their transaction."""
    then = feed.then
    if then is None:
        return
    members = list(dict.fromkeys(UUID(bytes=bytes(feed.ids[at : at + 16])) for at in range(0, len(feed.ids), 16)))
    if not members:
        yield from insert(statements, [then], feed.meta)
        return
    mine = not feed.suppressed  # otherwise other jobs stand for some of them, which may end at any moment
    yield from follow.check(statements, [then])
    yield from follow.link(statements, then.id, members, mine=mine)
    yield from follow.insert(statements, [then], columns_of([then]), feed.meta, members=len(members), fresh=not mine)


def put(conn: "Connection[Any]", statements: Statements, feed: Feed) -> None:
    """Insert all or nothing. Inside the caller's transaction this is a savepoint of it."""
    if feed.simple:
        run(conn, few(statements, feed))
        return
    try:
        _put(conn, statements, feed)
    except Duplicate as error:
        run(conn, dedup.count_refused(statements, error))
        raise


def _put(conn: "Connection[Any]", statements: Statements, feed: Feed) -> None:
    with conn.transaction():
        if feed.small:
            run(conn, _few_linked(statements, feed))
            return
        try:
            _copy(conn, statements, feed)
        except BaseException:
            if (left := _left_open(conn)) is not None:
                with contextlib.suppress(psycopg.Error):
                    conn.wait(left)
            raise
        run(conn, behind(statements, feed))
        if feed.queues:
            ask(conn, statements("jobs.wake", queues=sorted(feed.queues)))


def _copy(conn: "Connection[Any]", statements: Statements, feed: Feed) -> None:
    run(conn, feed.begin(statements))
    [(now,)] = ask(conn, statements("jobs.now"))
    encoding = encoding_of(conn)
    while not feed.ended:
        if feed.keyed is not None:
            _copy_keyed(conn, statements, feed, now)
            continue
        filled = blocks(feed.rows(now, encoding))
        ahead = next(filled, None)  # an eager feed reads its piece here, before the connection is in COPY
        if ahead is None and feed.keyed is not None:
            continue
        run(conn, feed.same(statements))
        with OwnCursor(conn) as cursor:
            with cursor.copy(statements["jobs.copy_jobs"]) as copy:
                for block in chain([ahead] if ahead else [], filled):
                    copy.write(block)
            if feed.large:
                with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                    for block in blocks(payload(job, encoding) for job in feed.large):
                        copy.write(block)
        if feed.followers:
            run(conn, insert(statements, feed.followers, feed.meta))
        feed.stored = len(feed.ids) // 16


def _copy_keyed(conn: "Connection[Any]", statements: Statements, feed: Feed, now: datetime) -> None:
    """Some jobs, of which some have keys: by COPY, in a savepoint; what that cannot do goes by functions."""
    ahead: list[NewJob] | None = None
    run(conn, feed.turn(statements, [feed.keyed] if feed.keyed is not None else []))
    if feed.eager or feed.wary:
        ahead = list(feed.chunk(now))
        run(conn, feed.same(statements))
    chunk = Chunk(run(conn, dedup.held(statements, ahead)) if ahead and feed.wary else ())
    rows = Rows(now, feed.meta, feed.queues, encoding := encoding_of(conn), keyed=True)
    filled = blocks(chunk.rows(feed.chunk(now) if ahead is None else ahead, rows.keyed_row))
    first = next(filled, None)
    try:
        if first is not None:
            with conn.transaction(), OwnCursor(conn) as cursor:
                with cursor.copy(statements["dedup.copy_jobs"]) as copy:
                    for block in chain([first], filled):
                        copy.write(block)
                if chunk.large:
                    with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                        for block in blocks(payload(job, encoding) for job in chunk.large):
                            copy.write(block)
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != VIOLATED:
            raise
        feed.wary = True
        run(conn, chunk.all_aside(statements, feed))
    else:
        run(conn, chunk.put_aside(statements, feed))


async def aput(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed) -> None:
    """As `put`, on an async connection."""
    if feed.simple:
        await arun(conn, few(statements, feed))
        return
    try:
        await _aput(conn, statements, feed)
    except Duplicate as error:
        await arun(conn, dedup.count_refused(statements, error))
        raise


async def _aput(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed) -> None:
    async with conn.transaction():
        if feed.small:
            await arun(conn, _few_linked(statements, feed))
            return
        try:
            await _acopy(conn, statements, feed)
        except BaseException:
            if (left := _left_open(conn)) is not None:
                with contextlib.suppress(psycopg.Error):
                    await conn.wait(left)
            raise
        await arun(conn, behind(statements, feed))
        if feed.queues:
            await aask(conn, statements("jobs.wake", queues=sorted(feed.queues)))


async def _acopy(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed) -> None:
    await arun(conn, feed.begin(statements))
    [(now,)] = await aask(conn, statements("jobs.now"))
    encoding = encoding_of(conn)
    while not feed.ended:
        if feed.keyed is not None:
            await _acopy_keyed(conn, statements, feed, now)
            continue
        filled = blocks(feed.rows(now, encoding))
        ahead = next(filled, None)
        if ahead is None and feed.keyed is not None:
            continue
        await arun(conn, feed.same(statements))
        async with OwnAsyncCursor(conn) as cursor:
            async with cursor.copy(statements["jobs.copy_jobs"]) as copy:
                for block in chain([ahead] if ahead else [], filled):
                    await copy.write(block)
            if feed.large:
                async with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                    for block in blocks(payload(job, encoding) for job in feed.large):
                        await copy.write(block)
        if feed.followers:
            await arun(conn, insert(statements, feed.followers, feed.meta))
        feed.stored = len(feed.ids) // 16


async def _acopy_keyed(conn: "AsyncConnection[Any]", statements: Statements, feed: Feed, now: datetime) -> None:
    ahead: list[NewJob] | None = None
    await arun(conn, feed.turn(statements, [feed.keyed] if feed.keyed is not None else []))
    if feed.eager or feed.wary:
        ahead = list(feed.chunk(now))
        await arun(conn, feed.same(statements))
    chunk = Chunk(await arun(conn, dedup.held(statements, ahead)) if ahead and feed.wary else ())
    rows = Rows(now, feed.meta, feed.queues, encoding := encoding_of(conn), keyed=True)
    filled = blocks(chunk.rows(feed.chunk(now) if ahead is None else ahead, rows.keyed_row))
    first = next(filled, None)
    try:
        if first is not None:
            async with conn.transaction(), OwnAsyncCursor(conn) as cursor:
                async with cursor.copy(statements["dedup.copy_jobs"]) as copy:
                    for block in chain([first], filled):
                        await copy.write(block)
                if chunk.large:
                    async with cursor.copy(statements["jobs.copy_payloads"]) as copy:
                        for block in blocks(payload(job, encoding) for job in chunk.large):
                            await copy.write(block)
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != VIOLATED:
            raise
        feed.wary = True
        await arun(conn, chunk.all_aside(statements, feed))
    else:
        await arun(conn, chunk.put_aside(statements, feed))


def _left_open(conn: "Connection[Any] | AsyncConnection[Any]") -> PQGen[Any] | None:
    """What ends a COPY that nobody will end: a cancellation came when the server had begun it and the driver had not said so.

    Otherwise the rollback would be refused, as "another command is already in progress".
    """
    active = conn.pgconn.transaction_status == TransactionStatus.ACTIVE
    return copy_end(conn.pgconn, b"given up") if active else None


def by_arrays(statements: Statements, feed: Feed) -> Program[None]:
    """The same inside a caller's transaction, for any driver. An error undoes this call only, as with `put`."""
    if feed.simple:
        yield from few(statements, feed)
        return
    yield statements("jobs.savepoint")
    try:
        yield from _by_pieces(statements, feed)
    except GeneratorExit:
        raise
    except BaseException as error:
        if feed.lost:
            raise
        with contextlib.suppress(Exception):  # where the connection is gone, the first error tells more
            yield from _undo(statements)
        if isinstance(error, Duplicate):
            yield from dedup.count_refused(statements, error)
        raise
    yield statements("jobs.release")


def _by_pieces(statements: Statements, feed: Feed) -> Program[None]:
    if feed.small:
        yield from _few_linked(statements, feed)
        return
    yield from feed.begin(statements)
    for piece in feed.pieces():
        yield from feed.same(statements)
        placed = yield from feed.placed(statements, piece)
        if any(job.dedup is not None for job in piece):
            yield from feed.mixed(statements, placed)
        else:
            yield from insert(statements, placed, feed.meta)
            feed.stored += len(piece)
    yield from feed.same(statements)
    yield from behind(statements, feed)


def _undo(statements: Statements) -> Iterator[Query]:
    yield statements("jobs.rollback_to_savepoint")
    yield statements("jobs.release")
