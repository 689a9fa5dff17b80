"""`ctx.transaction()`: what a task writes and the end of its job in one commit."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import Connection
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool

from jobwell import App, Context, Fixed, SyncContext, TransactionMisuse
from jobwell.events import JobSucceeded
from jobwell.testing import Testbed
from jobwell.worker import completing
from tests.waiting import auntil
from tests.worker.helpers import QUICK, Desk, swallow, wait, working
from tests.worker.keeping.helpers import take_away
from tests.worker.keeping.lines import CutLine

PATIENT = Fixed("20ms", attempts=500, jitter=0)
BOTH = pytest.mark.parametrize("plain", [False, True], ids=["loop", "thread"])


class Base(DeclarativeBase):
    """Of the mapped class."""


class Row(Base):
    """What sessions write."""

    __tablename__ = "ledger"
    n: Mapped[int] = mapped_column(primary_key=True)


class Book:
    """A business table, and a task of each colour that writes into it.

    Attributes:
        then: called behind the block, on whatever runs the task.
        inside: called in the block.
    """

    def __init__(self, app: App, conn: "Connection[Any]", schema: str) -> None:
        self.conn = conn
        self.table = f"{schema}.ledger"
        self.errors: list[BaseException] = []
        self.inside: Any = lambda _: None
        self.then: Any = lambda: None
        self.attempts = 0

        @app.task(name="on_loop", retry=PATIENT, timeout="30s")
        async def on_loop(ctx: Context, n: int) -> int:
            self.attempts += 1
            async with (tx := ctx.transaction()) as own:
                await own.execute(f"insert into {self.table} values (%s)", [n])
                found = self.inside(own)
                if asyncio.iscoroutine(found):
                    await found
                tx.result = n * 2
            self.then()
            return tx.result

        @app.task(name="on_thread", retry=QUICK, timeout="30s")
        def on_thread(ctx: SyncContext, n: int) -> int:
            self.attempts += 1
            with (tx := ctx.transaction()) as own:
                own.execute(f"insert into {self.table} values (%s)", [n])
                self.inside(own)
                tx.result = n * 2
            self.then()
            return tx.result

        self.on_loop, self.on_thread = on_loop, on_thread

    def task(self, *, plain: bool) -> Any:
        """Of a colour."""
        return self.on_thread if plain else self.on_loop

    def rows(self) -> list[int]:
        """What stands there."""
        return [n for (n,) in self.conn.execute(f"select n from {self.table} order by n")]


@pytest_asyncio.fixture
async def book(app: App, conn: "Connection[Any]", schema: str) -> AsyncIterator[Book]:
    """An empty one."""
    conn.execute(f"drop table if exists {schema}.ledger")
    conn.execute(f"create table {schema}.ledger (n integer)")
    yield Book(app, conn, schema)
    await app.aclose()  # here, where its loop still runs
    conn.execute(f"drop table if exists {schema}.ledger")


@BOTH
async def test_both_are_there_at_once_with_the_result_and_the_event(app: App, desk: Desk, book: Book, plain: bool) -> None:
    told: list[JobSucceeded] = []
    app.on(JobSucceeded)(told.append)
    async with working(app):
        job = await book.task(plain=plain).aenqueue(7)
        assert await job.aresult() == 14
        await auntil(lambda: len(told) == 1)
    assert book.rows() == [7]
    assert desk.outcomes(job) == []
    assert told[0].job_id == job.id


@BOTH
async def test_an_error_in_the_block_rolls_both_back(app: App, desk: Desk, book: Book, plain: bool) -> None:
    def once(_: Any) -> None:
        if book.attempts == 1:
            raise ConnectionResetError("in the middle")

    book.inside = once
    async with working(app):
        job = await book.task(plain=plain).aenqueue(1)
        await desk.end(job)
    assert book.rows() == [1]
    assert desk.outcomes(job) == ["retrying", "succeeded"]


@BOTH
async def test_what_is_raised_behind_the_block_changes_nothing(
    app: App, desk: Desk, book: Book, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def then() -> None:
        raise ValueError("too late")

    book.then = then
    async with working(app) as worker:
        job = await book.task(plain=plain).aenqueue(1)
        await desk.end(job)
        await auntil(lambda: worker.finished == 1)
    assert (desk.state(job), desk.outcomes(job), book.rows()) == ("succeeded", [], [1])
    assert "has succeeded with its transaction" in caplog.text


@BOTH
async def test_a_job_that_was_taken_away_rolls_everything_back(
    app: App, desk: Desk, book: Book, conn: "Connection[Any]", plain: bool
) -> None:
    book.inside = lambda _: take_away(conn, job)
    async with working(app) as worker:
        job = await book.task(plain=plain).aenqueue(1)
        await auntil(lambda: worker.finished == 1)
        assert (desk.state(job), book.rows(), desk.outcomes(job)) == ("running", [], [])
        conn.execute("delete from jobs")


@BOTH
@pytest.mark.parametrize("at", ["before", "after"])
async def test_an_answer_to_the_commit_that_is_lost_is_looked_for(
    database_url: str, schema: str, conn: "Connection[Any]", plain: bool, at: str
) -> None:
    """Committed or not, the work is done once, and the attempt knows which it was."""
    line = CutLine(database_url)
    app = App(line.url, schema=schema)
    conn.execute(f"create table if not exists {schema}.ledger (n integer)")
    book, desk = Book(app, conn, schema), Desk(app, conn)

    def arm(_: Any) -> None:
        if book.attempts == 1:
            line.cut_at = at

    book.inside = arm
    try:
        async with working(app) as worker:
            job = await book.task(plain=plain).aenqueue(1)
            await desk.end(job)
            await auntil(lambda: worker.busy == 0)
        assert (line.cuts, book.rows()) == (1, [1])
        assert desk.outcomes(job) == (["retrying", "succeeded"] if at == "before" else [])
        assert book.attempts == (2 if at == "before" else 1)
    finally:
        await app.aclose()
        line.close()
        conn.execute(f"drop table {schema}.ledger")


async def test_a_time_limit_in_the_block_rolls_back(app: App, desk: Desk, book: Book, conn: "Connection[Any]") -> None:
    door = threading.Event()

    @app.task(timeout="200ms", retry=QUICK)
    async def slow(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute(f"insert into {book.table} values (1)")
            if ctx.attempt == 1:
                await wait(door)

    async with working(app):
        job = await slow.aenqueue()
        await desk.end(job)
    assert book.rows() == [1]
    assert desk.outcomes(job) == ["retrying", "succeeded"]


async def test_a_shutdown_in_the_block_rolls_back_and_the_job_runs_again(app: App, desk: Desk, book: Book) -> None:
    door = threading.Event()
    book.inside = lambda _: wait(door)
    async with working(app):  # stopped twice: the grace is over at once
        job = await book.on_loop.aenqueue(1)
        await auntil(lambda: book.attempts == 1)
    assert (book.rows(), desk.outcomes(job), desk.job(job)["attempt"]) == ([], ["released"], 0)
    door.set()
    async with working(app):
        await desk.end(job)
    assert (book.rows(), book.attempts) == ([1], 2)


async def test_a_thread_that_was_left_behind_commits_nothing(app: App, desk: Desk, book: Book) -> None:
    door, over = threading.Event(), threading.Event()

    @app.task(timeout="200ms", retry=QUICK)
    def slow(ctx: SyncContext) -> None:
        if ctx.attempt == 2:
            return
        try:
            with ctx.transaction() as own:
                own.execute(f"insert into {book.table} values (1)")
                door.wait(20)
        finally:
            over.set()

    async with working(app):
        job = await slow.aenqueue()
        await desk.end(job)
        door.set()
        await auntil(over.is_set)
    assert (book.rows(), desk.outcomes(job)) == ([], ["retrying", "succeeded"])


async def test_children_commit_with_it(app: App, desk: Desk, book: Book) -> None:
    @app.task(name="child")
    async def child(n: int) -> int:
        return n

    async def enqueue(own: Any) -> None:
        with app.within(own):
            await child.aenqueue(5)
        if book.attempts == 1:
            raise ConnectionResetError("the child goes too")

    book.inside = enqueue
    async with working(app):
        await book.on_loop.aenqueue(1)
        await desk.settled()
    assert sorted(desk.all("select task from finished")) == ["child", "on_loop"]


@BOTH
async def test_a_transaction_that_was_ended_by_hand_is_told(
    app: App, desk: Desk, book: Book, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    book.inside = lambda own: own.execute("commit")
    async with working(app):
        job = await book.task(plain=plain).aenqueue(1)
        found = await desk.end(job)
    assert found["state"] == "failed"
    assert "was ended inside its block" in found["message"]


async def test_an_error_that_was_swallowed_inside_is_told(app: App, desk: Desk, book: Book) -> None:
    def swallow(own: Any) -> None:
        with contextlib.suppress(psycopg.Error):
            own.execute("select 1 / 0")

    book.inside = swallow
    async with working(app):
        found = await desk.end(await book.on_thread.aenqueue(1))
    assert (found["state"], book.rows()) == ("failed", [])
    assert "the error was caught inside its block" in found["message"]


async def test_it_ends_the_job_once(app: App, desk: Desk, book: Book) -> None:
    said: list[str] = []

    @app.task
    async def twice(ctx: Context) -> str:
        async with ctx.transaction():
            pass
        for late in (ctx.transaction().__aenter__(), ctx.checkpoint.save(1)):
            with pytest.raises(TransactionMisuse) as raised:
                await late
            said.append(str(raised.value))
        return "not stored"

    async with working(app):
        assert (await desk.end(await twice.aenqueue()))["result"] is None
        await auntil(lambda: len(said) == 2)
    assert "ends once" in said[0]
    assert "no next attempt" in said[1]


async def test_called_directly_there_is_no_job_to_end() -> None:
    with pytest.raises(TransactionMisuse, match="called directly"):
        Context.local("t").transaction()


async def test_who_finds_no_connection_free_waits(
    store_settings: dict[str, Any], schema: str, desk: Desk, book: Book, conn: "Connection[Any]"
) -> None:
    app = App(**store_settings, schema=schema, transaction_pool=2)
    most, now = 0, 0

    @app.task
    async def one(ctx: Context) -> None:
        nonlocal most, now
        async with ctx.transaction():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now -= 1

    async with working(app):
        await app.aenqueue_many(one.job() for _ in range(20))
        assert await desk.settled() == {"succeeded": 20}
    assert most <= 2
    await app.aclose()


async def test_stricter_isolation_and_its_conflicts(app: App, desk: Desk, book: Book, conn: "Connection[Any]") -> None:
    levels: list[str] = []

    @app.task(retry=QUICK)
    async def careful(ctx: Context) -> None:
        async with ctx.transaction(isolation="serializable") as own:
            levels.append((await (await own.execute("show transaction_isolation")).fetchone())[0])
            await own.execute(f"insert into {book.table} select count(*) from {book.table}")
            if ctx.attempt == 1:
                raise psycopg.errors.SerializationFailure("as the server would say")
        levels.append("over")

    async with working(app):
        job = await careful.aenqueue()
        await desk.end(job)
    assert desk.outcomes(job) == ["retrying", "succeeded"]
    assert levels == ["serializable", "serializable", "over"]


async def test_a_new_day_of_the_finished_jobs_costs_an_attempt_and_not_the_job(
    app: App, desk: Desk, book: Book, conn: "Connection[Any]"
) -> None:
    """The row may meet the check of a partition that is attached in that moment."""
    conn.execute("alter table finished add constraint for_a_moment check (task <> 'on_loop') not valid")
    try:
        async with working(app):
            job = await book.on_loop.aenqueue(1)
            await auntil(lambda: "retrying" in desk.outcomes(job))
            conn.execute("alter table finished drop constraint for_a_moment")
            await desk.end(job)
    finally:
        conn.execute("alter table finished drop constraint if exists for_a_moment")
    assert (desk.state(job), book.rows()) == ("succeeded", [1])


SOURCES = ["engine", "sessionmaker", "async engine", "async sessionmaker"]


@pytest.mark.parametrize("kind", SOURCES)
async def test_sqlalchemy_makes_the_transaction(app: App, desk: Desk, book: Book, schema: str, kind: str) -> None:
    url = app.settings.url.replace("postgresql://", "postgresql+psycopg://", 1)
    options = {"connect_args": {"options": f"-c search_path={schema}"}, "poolclass": NullPool}
    engine, async_engine = create_engine(url, **options), create_async_engine(url, **options)
    session, async_session = sessionmaker(engine), async_sessionmaker(async_engine)
    insert = text("insert into ledger values (:n)")

    @app.task(name="plain", retry=QUICK)
    def plain(ctx: SyncContext) -> None:
        with (tx := ctx.transaction(engine if kind == "engine" else session)) as lent:
            if isinstance(lent, Session):
                lent.add(Row(n=1))
            else:
                lent.execute(insert, {"n": 1})
            if ctx.attempt == 1:
                raise ConnectionResetError("once")
            tx.result = kind

    @app.task(name="on_the_loop", retry=QUICK)
    async def on_the_loop(ctx: Context) -> None:
        source = async_engine if kind == "async engine" else async_session
        async with (tx := ctx.transaction(source, isolation="repeatable read")) as lent:
            if kind == "async sessionmaker":
                lent.add(Row(n=1))  # not flushed: it must not come behind the job's end
            else:
                await lent.execute(insert, {"n": 1})
            if ctx.attempt == 1:
                raise ConnectionResetError("once")
            tx.result = kind

    async with working(app):
        job = await (on_the_loop if kind.startswith("async") else plain).aenqueue()
        assert (await desk.end(job))["result"] == f'"{kind}"'
    assert book.rows() == [1]
    await async_engine.dispose()
    engine.dispose()


async def test_what_makes_no_transaction_here_is_refused(app: App, desk: Desk) -> None:
    engine = create_engine(app.settings.url.replace("postgresql://", "postgresql+psycopg://", 1))
    elsewhere = create_engine("sqlite://")
    said: list[str] = []

    @app.task
    async def wrong_colour(ctx: Context) -> None:
        for source in (engine, object(), elsewhere):
            with pytest.raises(TransactionMisuse) as raised:
                async with ctx.transaction(source):
                    pass
            said.append(str(raised.value))

    @app.task
    def elsewhere_at_all(ctx: SyncContext) -> None:
        with pytest.raises(TransactionMisuse) as raised, ctx.transaction(elsewhere):
            pass
        said.append(str(raised.value))

    async with working(app):
        for task in (wrong_colour, elsewhere_at_all):
            assert (await desk.end(await task.aenqueue()))["state"] == "succeeded"
    assert all("AsyncEngine" in one for one in said[:3])
    assert "sqlite" in said[3]
    elsewhere.dispose()


async def test_in_the_testbed_it_is_the_same(bed: Testbed, book: Book) -> None:
    job = await book.on_loop.aenqueue(3)
    other = await book.on_thread.aenqueue(4)
    done = await bed.adrain()
    assert [ran.outcome for ran in done.ran] == ["succeeded", "succeeded"] if hasattr(done, "ran") else done
    assert (bed.job(job).result, bed.job(other).result, book.rows()) == (6, 8, [3, 4])


async def test_a_loop_that_was_left_before_the_transaction_is_not_warned_of(
    app: App, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="some_of_them")
    async def some(ctx: Context) -> None:
        async for n in ctx.resume(range(10)):
            if n == 5:
                break
        async with ctx.transaction():
            pass
        raise ValueError("too late")

    async with working(app) as worker:
        job = await some.aenqueue()
        await auntil(lambda: worker.finished == 1)
    assert desk.state(job) == "succeeded"
    assert "has succeeded with its transaction" in caplog.text
    assert "the cursor could not be saved" not in caplog.text


@BOTH
async def test_a_connection_that_cannot_write_is_not_used_again(app: App, desk: Desk, book: Book, plain: bool) -> None:
    """As after a failover: the old primary is a replica by now."""
    if plain:
        with app.client.endings.plain() as lent:
            lent.execute("set default_transaction_read_only = on")
    else:
        async with app.client.endings.of_loop() as own:
            await own.execute("set default_transaction_read_only = on")
    async with working(app):
        job = await book.task(plain=plain).aenqueue(1)
        await desk.end(job)
    assert (desk.outcomes(job), book.rows()) == (["retrying", "succeeded"], [1])


@pytest.mark.parametrize("kind", ["own", "engine", "async own", "async engine"])
async def test_a_task_that_is_left_behind_keeps_its_locks_for_a_moment_only(
    app: App, desk: Desk, book: Book, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "MARGIN", 0.3)
    url = app.settings.url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine, async_engine = create_engine(url, poolclass=NullPool), create_async_engine(url, poolclass=NullPool)
    book.conn.execute(f"create unique index on {book.table} (n)")
    insert: Any = f"insert into {book.table} values (1)" if kind.endswith("own") else text(f"insert into {book.table} values (1)")
    door = threading.Event()

    @app.task(name="plain", retry=QUICK, timeout="1s")
    def plain(ctx: SyncContext) -> None:
        with ctx.transaction(engine if kind == "engine" else None) as lent:
            lent.execute(insert)
            if ctx.attempt == 1:
                door.wait(20)

    @app.task(name="on_the_loop", retry=QUICK, timeout="1s")
    async def on_the_loop(ctx: Context) -> None:
        async with ctx.transaction(async_engine if kind == "async engine" else None) as lent:
            await lent.execute(insert)
            if ctx.attempt == 1:
                await swallow(door)

    if kind.startswith("async"):  # deaf to its time limit: nobody else has the job, but others may need the row
        async with working(app):
            await on_the_loop.aenqueue()
            await auntil(lambda: desk.one("select count(*) from pg_stat_activity where state = 'idle in transaction'") > 0)
            book.conn.execute(f"set statement_timeout = '5s'; insert into {book.table} values (1)")
            book.conn.execute("reset statement_timeout")
            door.set()
        await async_engine.dispose()
        return
    async with working(app):
        job = await plain.aenqueue()
        await desk.end(job)
        assert not door.is_set()
        door.set()
    assert (desk.state(job), book.rows()) == ("succeeded", [1])
