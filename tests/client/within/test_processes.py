"""Loops, tasks, threads and forks around a caller's transaction (cases C9 and L1)."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from sqlalchemy.exc import PendingRollbackError

from jobwell import App, NewJob, TransactionMisuse
from jobwell.client.task import Task
from tests.client.helpers import count, one
from tests.client.test_processes import HEAD
from tests.client.within.ways import AsyncAlchemySession, AsyncAlchemySessionAsyncpg, Asyncpg, AsyncPsycopg, Psycopg, Way
from tests.waiting import auntil

ASYNC_WAYS = [Asyncpg, AsyncAlchemySession, AsyncAlchemySessionAsyncpg]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ASYNC_WAYS, ids=lambda kind: kind.name)
async def test_two_tasks_in_one_transaction_are_the_callers_fault_and_break_nothing_of_ours(
    aapp: App, note: Task[..., None], conn: Connection[Any], way: Way, kind: type[Way], database_url: str
) -> None:
    await way.start()
    await way.execute("select 1")
    task = note.using(conn=way.lent)
    await asyncio.gather(*(task.aenqueue(n) for n in range(20)), return_exceptions=True)
    await way.rollback()
    assert count(conn) == 0
    other = kind(database_url)
    await other.open()
    await other.start()
    await note.using(conn=other.lent).aenqueue(1)
    await other.commit()
    await other.end()
    await note.aenqueue(2)
    assert count(conn) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ASYNC_WAYS, ids=lambda kind: kind.name)
async def test_many_transactions_of_one_loop_at_once(
    aapp: App, note: Task[..., None], conn: Connection[Any], kind: type[Way], database_url: str
) -> None:
    async def one_of(n: int) -> None:
        way = kind(database_url)
        await way.open()
        await way.start()
        with aapp.within(way.lent):
            await note.aenqueue(n)
        await (way.commit() if n % 2 else way.rollback())
        await way.end()

    await asyncio.gather(*(one_of(n) for n in range(16)))
    assert {int(n) for (n,) in conn.execute("select args->>'n' from jobs")} == set(range(1, 16, 2))


@pytest.mark.parametrize("kind", ASYNC_WAYS, ids=lambda kind: kind.name)
def test_two_loops_in_two_threads(
    app: App, note: Task[..., None], conn: Connection[Any], kind: type[Way], database_url: str
) -> None:
    async def run(first: int) -> None:
        way = kind(database_url)
        await way.open()
        for n in range(10):
            await way.start()
            await note.using(conn=way.lent).aenqueue(first + n)
            await way.commit()
        await way.end()
        await app.aclose()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda first: asyncio.run(run(first)), (0, 100)))
    assert count(conn) == 20


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [AsyncPsycopg, *ASYNC_WAYS], ids=lambda kind: kind.name)
async def test_a_bulk_that_is_cancelled_leaves_nothing_of_itself(
    aapp: App, note: Task[..., None], conn: Connection[Any], way: Way, rows: str, database_url: str
) -> None:
    """The cancel comes while the server holds a statement back: another transaction has the same id."""
    twin = note.job(-1)
    await way.start()
    await way.execute(f"insert into {rows} values (1)")
    with psycopg.connect(database_url) as blocker:
        aapp.enqueue_many([twin], conn=blocker)
        jobs = [*(note.job(n) for n in range(600)), twin]
        bulk = asyncio.create_task(aapp.aenqueue_many(jobs, conn=way.lent))
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~* '(unnest|copy).*jobs'"
        await auntil(lambda: one(conn, waiting) == 1)
        bulk.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bulk
        blocker.rollback()
    if way.library == "sqlalchemy":  # it gives up a connection on which it was cancelled, and with it the whole transaction
        with pytest.raises(PendingRollbackError):
            await way.execute("select 1")
        with pytest.raises(TransactionMisuse, match="has failed already|is closed|no transaction for a job"):
            await note.using(conn=way.lent).aenqueue(6)
        await way.rollback()
        expected = 1
    else:
        expected = 2
    await way.execute(f"insert into {rows} values (2)")
    await note.using(conn=way.lent).aenqueue(7)
    await way.commit()
    assert (one(conn, "select args->>'n' from jobs"), count(conn, rows)) == ("7", expected)


@pytest.mark.parametrize("kind", [Psycopg], ids=["psycopg"])
@pytest.mark.asyncio
async def test_plain_code_in_a_running_loop(aapp: App, note: Task[..., None], conn: Connection[Any], way: Way) -> None:
    with aapp.within(way.lent):
        note.enqueue(1)
        await asyncio.to_thread(note.enqueue, 2)  # the context goes along
    await way.commit()
    assert count(conn) == 2


# --- forks ---------------------------------------------------------------------------------------------------------------

FORKS = {
    "a child forked inside `within` is refused, and its parent goes on": (
        """
import psycopg
from jobwell import TransactionMisuse
conn = psycopg.connect(sys.argv[1])
def child():
    try:
        note.enqueue(1000)
    except TransactionMisuse as error:
        assert "was forked inside" in str(error), error
    else:
        raise AssertionError("the parent's connection was used")
    with psycopg.connect(sys.argv[1]) as own, app.within(own):
        note.enqueue(2000)
with app.within(conn):
    note.enqueue(1)
    wait(forked(child))
    note.enqueue(2)
conn.commit()
conn.close()
""",
        ["0", "1", "2", "2000"],
    ),
    "web workers forked after the parent has used its engine and our pool": (
        """
import sqlalchemy
from sqlalchemy.orm import Session
engine = sqlalchemy.create_engine(sys.argv[1].replace("postgresql://", "postgresql+psycopg://"))
def request(n):
    with Session(engine) as session, app.within(session):
        note.enqueue(n)
        session.commit()
    note.enqueue(-n)
def child(n):
    engine.dispose(close=False)
    request(n)
request(1)
pids = [forked(lambda n=n: child(n)) for n in (2, 3)]
request(4)
wait(*pids)
request(5)
engine.dispose()
""",
        ["-1", "-2", "-3", "-4", "-5", "0", "1", "2", "3", "4", "5"],
    ),
}


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="there is no fork here")
@pytest.mark.parametrize(("script", "expected"), FORKS.values(), ids=FORKS.keys())
def test_a_fork(database_url: str, schema: str, conn: Connection[Any], script: str, expected: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", f"{HEAD}{script}\napp.close()", database_url, schema],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(n for (n,) in conn.execute("select args->>'n' from jobs")) == expected


KILLED = """
import signal, sqlalchemy
from sqlalchemy.orm import Session
engine = sqlalchemy.create_engine(sys.argv[1].replace("postgresql://", "postgresql+psycopg://"))
with Session(engine) as session, app.within(session):
    session.execute(sqlalchemy.text(f"insert into {sys.argv[2]}.orders values (1)"))
    note.enqueue(1)
    BEFORE
    session.commit()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("before", [True, False])
def test_a_caller_that_is_killed(database_url: str, schema: str, conn: Connection[Any], rows: str, before: bool) -> None:
    kill = "os.kill(os.getpid(), signal.SIGKILL)" if before else ""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + KILLED.replace("BEFORE", kill), database_url, schema], check=False, timeout=60
    )
    assert done.returncode == -9
    assert count(conn, rows) == count(conn, "jobs where args->>'n' = '1'") == (0 if before else 1)


# --- size ----------------------------------------------------------------------------------------------------------------


def jobs_of_two_kilobytes(note: Task[..., None], amount: int) -> Iterator[NewJob]:
    return (note.job(n, text="x" * 1500) for n in range(amount))


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [Asyncpg, AsyncAlchemySession, AsyncAlchemySessionAsyncpg], ids=lambda kind: kind.name)
@pytest.mark.parametrize("amount", [6000, pytest.param(250_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
async def test_memory_does_not_grow_with_the_number_of_jobs(
    aapp: App, note: Task[..., None], conn: Connection[Any], way: Way, rows: str, amount: int
) -> None:
    import tracemalloc

    await way.start()
    await way.execute(f"insert into {rows} values (1)")
    await way.many(aapp, jobs_of_two_kilobytes(note, 600), way.lent)  # what is made once is made
    tracemalloc.start()
    try:
        ids = await way.many(aapp, jobs_of_two_kilobytes(note, amount), way.lent)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * 1024 * 1024 + 32 * amount
    await way.commit()
    assert count(conn) == amount + 600
    for at in (0, amount // 2, amount - 1):
        assert one(conn, "select args->>'n' from jobs where id = %s", ids[at]) == str(at)
