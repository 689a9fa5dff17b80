"""Every way in, and what a transaction can do: the job exists if and only if the caller's row does (cases L1 and L2)."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import Connection

from jobwell import App, InvalidArguments, NewJob, TransactionMisuse
from jobwell.client.task import Task
from tests.client.helpers import count, one
from tests.client.within.ways import Way
from tests.waiting import auntil
from tests.worker.helpers import working

Conn = Connection[Any]
pytestmark = pytest.mark.asyncio


async def work(way: Way, rows: str, number: int) -> None:
    """The caller's own row."""
    await way.execute(f"insert into {rows} values ({number})")


def state_of(error: BaseException) -> Any:
    """The SQLSTATE that the caller's own driver tells."""
    driver = getattr(error, "orig", error)
    return getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)


def library_of(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


# --- commit and rollback -------------------------------------------------------------------------------------------------


async def test_a_job_appears_with_the_commit_and_not_before(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await work(way, rows, 1)
    with aapp.within(way.lent):
        await way.enqueue(note, 1)
        await way.enqueue(note, 2, text="x" * 3000)
        await way.enqueue(note.using(conn=way.lent), 3)
    assert (count(conn), count(conn, rows)) == (0, 0)
    await way.commit()
    assert (count(conn), count(conn, "payloads"), count(conn, rows)) == (3, 1, 1)


async def test_a_job_vanishes_with_the_rollback(aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str) -> None:
    await way.start()
    with aapp.within(way.lent):
        await way.enqueue(note, 1, text="x" * 3000)  # before any statement of the caller
        await work(way, rows, 1)
        await way.many(aapp, (note.job(n) for n in range(300)))
    await way.rollback()
    assert (count(conn), count(conn, "payloads"), count(conn, rows)) == (0, 0, 0)
    await way.start()
    await way.enqueue(note.using(conn=way.lent), 2)
    await way.commit()
    assert one(conn, "select args->>'n' from jobs") == "2"


async def test_a_first_statement_of_ours_begins_the_transaction(aapp: App, note: Task[..., None], conn: Conn, way: Way) -> None:
    await way.start()
    await way.enqueue(note.using(conn=way.lent), 1)
    assert count(conn) == 0
    await way.commit()
    assert count(conn) == 1


async def test_a_rolled_back_savepoint_takes_its_jobs_along_and_no_others(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await way.start()
    with aapp.within(way.lent):
        await way.enqueue(note, 1)
        async with way.undone():
            await way.enqueue(note, 2)
            await work(way, rows, 2)
            await way.many(aapp, [note.job(2) for _ in range(300)])
        await way.enqueue(note, 3)
        await work(way, rows, 3)
    await way.commit()
    assert [n for (n,) in conn.execute("select args->>'n' from jobs order by id")] == ["1", "3"]
    assert one(conn, f"select id from {rows}") == 3


async def test_an_error_inside_leaves_the_decision_to_the_caller(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await work(way, rows, 1)
    with pytest.raises(ZeroDivisionError), aapp.within(way.lent):
        await way.enqueue(note, 1)
        raise ZeroDivisionError
    with aapp.within(way.lent), pytest.raises(InvalidArguments):
        await way.enqueue(note, "x")
    assert (count(conn), count(conn, rows)) == (0, 0)
    await way.commit()
    assert (count(conn), count(conn, rows)) == (1, 1)


async def test_a_worker_sees_a_job_after_the_commit_only_and_is_not_held_up(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await work(way, rows, 1)
    await way.enqueue(note.using(conn=way.lent), 1)
    async with working(aapp):
        for n in range(2, 5):
            await note.aenqueue(n)
        await auntil(lambda: count(conn, "finished") == 3)
        assert count(conn) == 0
        await way.commit()
        await auntil(lambda: count(conn, "finished") == 4, timeout=5)


# --- isolation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_stricter_caller_may_enqueue(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str, level: str
) -> None:
    await way.start()
    await way.execute(f"set transaction isolation level {level}")
    assert await way.execute(f"select count(*) from {rows}") == [(0,)]
    conn.execute(f"insert into {rows} values (9)")
    note.enqueue(9)  # what others store meanwhile is no conflict
    with aapp.within(way.lent):
        await way.enqueue(note, 1)
        await way.many(aapp, (note.job(2) for _ in range(300)))
        assert await way.execute(f"select count(*) from {rows}") == [(0,)]
        assert await way.execute("show transaction_isolation") == [(level,)]
    await way.commit()
    assert count(conn) == 302


async def test_a_serialization_failure_reaches_the_callers_retry_as_its_driver_tells_it(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str, database_url: str
) -> None:
    """The other transaction dooms this one, and the next statement, which is ours, is told so."""
    await way.start()
    await way.execute("set transaction isolation level serializable")
    await way.execute(f"select count(*) from {rows}")
    await way.enqueue(note.using(conn=way.lent), 1)
    await work(way, rows, 1)
    with psycopg.connect(database_url) as other:
        other.execute("set transaction isolation level serializable")
        other.execute(f"select count(*) from {rows}")
        other.execute(f"insert into {rows} values (2)")
    with pytest.raises(Exception, match="could not serialize access") as raised:
        await way.enqueue(note.using(conn=way.lent), 2)
    assert state_of(raised.value) == "40001"
    assert library_of(raised.value) == way.library
    await way.rollback()
    await way.start()
    await way.enqueue(note.using(conn=way.lent), 3)
    await way.commit()
    assert one(conn, "select args->>'n' from jobs") == "3"


# --- many ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0, 1, 199, 200, 1500])
async def test_many_are_stored_in_input_order(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str, amount: int
) -> None:
    await work(way, rows, 1)
    ids = await way.many(aapp, (note.job(n, text="x" * (3000 if n % 50 == 0 else 1)) for n in range(amount)), way.lent)
    assert count(conn) == 0
    await way.commit()
    stored = conn.execute(
        "select id, (coalesce(j.args, p.args)->>'n')::int from jobs j left join payloads p using (id) order by 2"
    )
    assert [(job, n) for n, job in enumerate(ids)] == stored.fetchall()
    assert len(ids) == amount


async def test_many_may_be_made_from_rows_of_the_same_transaction(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await way.execute(f"insert into {rows} select generate_series(1, 700)")
    found = await way.execute(f"select id from {rows} order by id")
    await way.many(aapp, (note.job(number) for (number,) in found), way.lent)
    await way.commit()
    assert one(conn, "select count(distinct args->>'n') from jobs") == 700


@pytest.mark.parametrize("amount", [20, 900])
async def test_many_that_fail_are_undone_alone(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str, amount: int
) -> None:
    await work(way, rows, 1)
    with aapp.within(way.lent):
        await way.many(aapp, (note.job(1) for _ in range(amount)))
        with pytest.raises(InvalidArguments, match=f"job {amount - 1} of this call"):
            await way.many(aapp, (note.job("bad" if n == amount - 1 else 2) for n in range(amount)))
        error = psycopg.OperationalError("the caller's own")

        def stream() -> Iterator[NewJob]:
            yield from (note.job(3) for _ in range(amount))
            raise error

        with pytest.raises(psycopg.OperationalError) as raised:
            await way.many(aapp, stream())
        assert raised.value is error
    await work(way, rows, 2)
    await way.commit()
    assert conn.execute("select args->>'n', count(*) from jobs group by 1").fetchall() == [("1", amount)]
    assert count(conn, rows) == 2


async def test_a_job_of_an_earlier_call_undoes_a_large_bulk_alone(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    first = note.job(-1)
    await work(way, rows, 1)
    await way.many(aapp, [first], way.lent)
    with pytest.raises(Exception, match="jobs_pkey") as raised:
        await way.many(aapp, [*(note.job(n) for n in range(600)), first], way.lent)
    assert (state_of(raised.value), library_of(raised.value)) == ("23505", way.library)
    await work(way, rows, 2)
    await way.commit()
    assert (count(conn), count(conn, rows)) == (1, 2)


# --- where the promise cannot be kept ------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def committing(kind: type[Way], database_url: str) -> AsyncIterator[Way]:
    """A caller without transactions."""
    caller = kind(database_url, autocommit=True)
    await caller.open()
    yield caller
    await caller.end()


async def test_autocommit_is_refused(aapp: App, note: Task[..., None], conn: Conn, committing: Way) -> None:
    reason = r"autocommit mode|has no open transaction|isolation level \"AUTOCOMMIT\""
    with pytest.raises(TransactionMisuse, match=reason), aapp.within(committing.lent):
        await committing.enqueue(note, 1)
    with pytest.raises(TransactionMisuse, match=reason):
        await committing.enqueue(note.using(conn=committing.lent), 1)
    with pytest.raises(TransactionMisuse, match=reason):
        await committing.many(aapp, [note.job(1)], committing.lent)
    assert count(conn) == 0


async def test_a_failed_transaction_is_refused_and_can_be_rolled_back(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await way.start()
    with aapp.within(way.lent):
        await way.enqueue(note, 1)
        with pytest.raises(Exception, match="division by zero"):
            await way.execute("select 1/0")
        for _ in range(2):
            with pytest.raises(TransactionMisuse, match="has failed already and can only be rolled back"):
                await way.enqueue(note, 2)
        with pytest.raises(TransactionMisuse, match="has failed already"):
            await way.many(aapp, (note.job(n) for n in range(300)))
        await way.rollback()
        await way.start()
        await way.enqueue(note, 3)
    await way.commit()
    assert one(conn, "select args->>'n' from jobs") == "3"


async def test_what_is_closed_is_refused(
    aapp: App, note: Task[..., None], conn: Conn, kind: type[Way], database_url: str
) -> None:
    if "scoped" in kind.name:
        pytest.skip("a scoped session is a new one after it was closed")
    way = kind(database_url)
    await way.open()
    await way.close()
    try:
        with pytest.raises(TransactionMisuse, match="closed"):
            await way.enqueue(note.using(conn=way.lent), 1)
    finally:
        await way.end()
    assert count(conn) == 0


async def test_the_other_colour_is_refused_with_the_verb_to_use(
    aapp: App, note: Task[..., None], conn: Conn, way: Way, rows: str
) -> None:
    await work(way, rows, 1)
    with aapp.within(way.lent):
        if way.asynchronous:
            for verb in (lambda: note.enqueue(1), lambda: aapp.enqueue_many([note.job(1)])):
                with pytest.raises(TransactionMisuse, match=r"on the async connection given; call `await task\.aenqueue\(…\)`"):
                    verb()
        else:
            for averb in (lambda: note.aenqueue(1), lambda: aapp.aenqueue_many([note.job(1)])):
                with pytest.raises(TransactionMisuse, match=r"on the plain connection given; call `task\.enqueue\(…\)`"):
                    await averb()
        await way.enqueue(note, 2)
    await way.commit()
    assert one(conn, "select args->>'n' from jobs") == "2"


async def test_another_database_is_refused_and_its_transaction_goes_on(
    aapp: App, note: Task[..., None], conn: Conn, kind: type[Way], elsewhere: str
) -> None:
    there = kind(elsewhere)
    await there.open()
    try:
        await there.execute("create table orders (id int)")
        with aapp.within(there.lent):
            for _ in range(2):
                with pytest.raises(TransactionMisuse, match=r"leads to .*one transaction cannot span two databases"):
                    await there.enqueue(note, 1)
            with pytest.raises(TransactionMisuse, match="cannot span two databases"):
                await there.many(aapp, (note.job(n) for n in range(300)))
        await there.execute("insert into orders values (1)")
        assert await there.execute("select count(*) from orders") == [(1,)]
        await there.commit()
    finally:
        await there.end()
    assert count(conn) == 0
