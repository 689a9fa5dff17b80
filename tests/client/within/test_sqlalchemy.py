"""What is particular to SQLAlchemy: sessions, engines, binds, and what they do by themselves."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy
from psycopg import Connection
from sqlalchemy import Column, Engine, Integer, NullPool, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker

from jobwell import App, NewJob, TransactionMisuse
from jobwell.client.task import Task
from tests.client.helpers import count, one
from tests.client.within.ways import AlchemySession, AsyncAlchemySessionAsyncpg


class Base(DeclarativeBase):
    """Of the caller's models."""


class Order(Base):
    """A row of the caller."""

    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)


@pytest.fixture
def engine(database_url: str, schema: str, rows: str) -> Iterator[Engine]:
    """With a pool, as in applications."""
    made = sqlalchemy.create_engine(AlchemySession(database_url).url(), connect_args={"options": f"-c search_path={schema}"})
    yield made
    made.dispose()


@pytest_asyncio.fixture
async def aengine(database_url: str, schema: str, rows: str) -> AsyncIterator[AsyncEngine]:
    """The same over asyncpg."""
    url = AsyncAlchemySessionAsyncpg(database_url).url()
    made = create_async_engine(url, connect_args={"server_settings": {"search_path": schema}})
    yield made
    await made.dispose()


# --- as it is used -------------------------------------------------------------------------------------------------------


def test_a_session_as_applications_use_it(app: App, note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    made = sessionmaker(engine)
    with made.begin() as session, app.within(session):
        session.add(Order(id=1))
        note.enqueue(1)
    with pytest.raises(ZeroDivisionError), made.begin() as session, app.within(session):
        session.add(Order(id=2))
        note.enqueue(2)
        raise ZeroDivisionError
    with Session(engine) as session:
        note.using(conn=session).enqueue(3)  # and no commit
    with engine.begin() as connection, app.within(connection):
        connection.execute(text("insert into orders values (4)"))
        note.enqueue(4)
    assert [n for (n,) in conn.execute("select args->>'n' from jobs order by id")] == ["1", "4"]
    assert [n for (n,) in conn.execute("select id from orders order by id")] == [1, 4]


@pytest.mark.asyncio
async def test_an_async_session_as_applications_use_it(
    aapp: App, note: Task[..., None], conn: Connection[Any], aengine: AsyncEngine
) -> None:
    async with async_sessionmaker(aengine)() as session:
        async with session.begin():
            with aapp.within(session):
                session.add(Order(id=1))
                await note.aenqueue(1)
        with pytest.raises(ZeroDivisionError):
            async with session.begin():
                session.add(Order(id=2))
                await note.using(conn=session).aenqueue(2)
                raise ZeroDivisionError
    async with aengine.begin() as connection:
        await note.using(conn=connection).aenqueue(3)
    assert [n for (n,) in conn.execute("select args->>'n' from jobs order by id")] == ["1", "3"]
    assert one(conn, "select id from orders") == 1


def test_a_savepoint_of_the_orm(app: App, note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    with Session(engine) as session, app.within(session):
        session.add(Order(id=1))
        with session.begin_nested():
            note.enqueue(1)
            app.enqueue_many(note.job(1) for _ in range(300))
        with pytest.raises(IntegrityError), session.begin_nested():
            note.enqueue(2)
            session.add(Order(id=1))
            session.flush()
        note.enqueue(3)
        session.commit()
    assert conn.execute("select args->>'n', count(*) from jobs group by 1 order by 1").fetchall() == [("1", 301), ("3", 1)]


def test_a_session_inside_an_outer_transaction(app: App, note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    """As test suites have it: what the session commits is a savepoint of a transaction that is rolled back."""
    for end in ("rollback", "commit"):
        with engine.connect() as connection:
            outer = connection.begin()
            with Session(connection, join_transaction_mode="create_savepoint") as session, app.within(session):
                note.enqueue(1)
                session.commit()
                note.enqueue(2)
                session.rollback()
                app.enqueue_many(note.job(3) for _ in range(300))
                session.commit()
            getattr(outer, end)()
        assert count(conn) == (301 if end == "commit" else 0)


def test_nothing_is_flushed_and_no_hook_of_the_session_is_called(
    app: App, note: Task[..., None], conn: Connection[Any], engine: Engine
) -> None:
    with Session(engine) as session:
        called: list[Any] = []
        for name in ("do_orm_execute", "before_flush", "before_commit", "after_soft_rollback"):
            event.listen(session, name, lambda *arguments: called.append(arguments))
        order = Order(id=1)
        session.add(order)
        note.using(conn=session).enqueue(1)
        app.enqueue_many((note.job(n) for n in range(300)), conn=session)
        with pytest.raises(ZeroDivisionError):
            app.enqueue_many((note.job(n // (299 - n)) for n in range(300)), conn=session)
        assert order in session.new
        assert called == []
        session.commit()
    assert (count(conn), count(conn, "orders")) == (301, 1)


@pytest.mark.asyncio
async def test_plain_code_under_run_sync(aapp: App, note: Task[..., None], conn: Connection[Any], aengine: AsyncEngine) -> None:
    def work(session: Session) -> None:
        session.add(Order(id=1))
        with aapp.within(session):
            note.enqueue(1)
            aapp.enqueue_many(note.job(n) for n in range(300))

    async with AsyncSession(aengine) as session:
        await session.run_sync(work)
        assert count(conn) == 0
        await session.commit()
        with pytest.raises(TransactionMisuse, match="the engine is async: give the AsyncSession, and call `await task.aenqueue"):
            note.using(conn=session.sync_session).enqueue(2)
    assert (count(conn), count(conn, "orders")) == (301, 1)


def test_threads_with_a_session_each(app: App, note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    made = scoped_session(sessionmaker(engine))

    def work(thread: int) -> None:
        for n in range(10):
            with app.within(made):
                made.add(Order(id=thread * 100 + n))
                note.enqueue(thread * 100 + n)
            made.commit() if n % 2 else made.rollback()
        made.remove()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert (
        conn.execute("select id from orders order by id").fetchall()
        == conn.execute("select (args->>'n')::int from jobs order by 1").fetchall()
    )
    assert count(conn) == 40


@pytest.mark.asyncio
@pytest.mark.parametrize("option", [{"stream_results": True}, {"yield_per": 10}, {"compiled_cache": None}])
async def test_options_of_the_callers_engine(
    aapp: App, note: Task[..., None], conn: Connection[Any], engine: Engine, aengine: AsyncEngine, option: dict[str, Any]
) -> None:
    with Session(engine.execution_options(**option)) as session:
        note.using(conn=session).enqueue(1)
        aapp.enqueue_many((note.job(n) for n in range(300)), conn=session)
        session.commit()
    async with AsyncSession(aengine.execution_options(**option)) as asession:
        await note.using(conn=asession).aenqueue(1)
        await aapp.aenqueue_many((note.job(n) for n in range(300)), conn=asession)
        await asession.commit()
    assert count(conn) == 602


# --- what is refused -----------------------------------------------------------------------------------------------------


def refused(note: Task[..., None], lent: Any, reason: str) -> None:
    with pytest.raises(TransactionMisuse, match=reason):
        note.using(conn=lent).enqueue(1)


def test_another_kind_of_database_is_refused(app: App, note: Task[..., None]) -> None:
    lite = sqlalchemy.create_engine("sqlite://")
    with Session(lite) as session, lite.connect() as connection:
        for lent in (session, connection):
            reason = "on a sqlite database, but jobs live in PostgreSQL; .*write to an outbox table, or enqueue after commit"
            refused(note, lent, reason)
            with pytest.raises(TransactionMisuse, match=reason), app.within(lent):
                pass
        assert not session.in_transaction()
    lite.dispose()


def test_autocommit_by_option_is_refused(note: Task[..., None], engine: Engine, conn: Connection[Any]) -> None:
    committing = engine.execution_options(isolation_level="AUTOCOMMIT")
    with Session(committing) as session, committing.connect() as connection:
        refused(note, session, "isolation level")
        refused(note, connection, "isolation level")
    with engine.connect() as connection:
        refused(note, connection.execution_options(isolation_level="AUTOCOMMIT"), "isolation level")
    with Session(engine) as session:
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        refused(note, session, "isolation level")
    with engine.connect() as connection:  # given back, it is as before
        note.using(conn=connection).enqueue(2)
        connection.commit()
    assert one(conn, "select args->>'n' from jobs") == "2"


def test_autocommit_by_a_hook_is_refused(note: Task[..., None], database_url: str) -> None:
    engine = sqlalchemy.create_engine(AlchemySession(database_url).url(), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def commit(connection: Any, _: Any) -> None:
        connection.autocommit = True

    with Session(engine) as session:
        refused(note, session, "isolation level")


def test_a_two_phase_transaction_is_refused(note: Task[..., None], engine: Engine) -> None:
    with Session(engine, twophase=True) as session:
        refused(note, session, "two-phase transaction cannot carry jobs")
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        refused(note, connection, "two-phase transaction cannot carry jobs")
        transaction.rollback()


def test_a_session_after_a_failed_flush_is_refused(note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        session.flush()
        session.begin_nested()
        session.add(Order(id=1))
        session.expunge_all()
        session.add(Order(id=1))
        with pytest.raises(IntegrityError):
            session.flush()
        refused(note, session, "has failed already and can only be rolled back")
        session.rollback()
        note.using(conn=session).enqueue(2)
        session.commit()
    assert one(conn, "select args->>'n' from jobs") == "2"


def test_a_session_that_does_not_begin_by_itself(note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    with Session(engine, autobegin=False) as session:
        refused(note, session, "no transaction for a job: Autobegin is disabled")
        with session.begin():
            note.using(conn=session).enqueue(2)
    assert count(conn) == 1


def test_a_session_with_a_bind_for_each_class(note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    with Session(binds={Order: engine}) as session:
        session.add(Order(id=1))
        refused(note, session, r"give the connection that holds your rows: `conn=session\.connection\(bind_arguments=")
        note.using(conn=session.connection(bind_arguments={"mapper": Order})).enqueue(2)
        session.commit()
    assert (count(conn), count(conn, "orders")) == (1, 1)


def test_a_session_with_a_default_bind_and_another_for_a_class(
    note: Task[..., None], conn: Connection[Any], engine: Engine
) -> None:
    """The rows of that class have a transaction of their own, and may be in another database."""
    another = sqlalchemy.create_engine(engine.url)
    with Session(engine, binds={Order: another}) as session:
        refused(note, session, "has more than one transaction; give the connection that holds your rows")
    with Session(engine, binds={Order: engine}) as session:
        note.using(conn=session).enqueue(2)
        session.commit()
    another.dispose()
    assert count(conn) == 1


@pytest.mark.parametrize("at", [300, 1200, 1499])
@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_stream_that_commits_is_told_how_much_was_stored(
    app: App, note: Task[..., None], conn: Connection[Any], engine: Engine, kind: str, at: int
) -> None:
    with Session(engine) if kind == "session" else engine.connect() as lent:

        def stream() -> Iterator[NewJob]:
            for n in range(1500):
                if n == at:
                    lent.execute(text("select 1"))
                    lent.commit()
                yield note.job(n)

        stored = at // 500 * 500
        with pytest.raises(TransactionMisuse, match=f"has ended the transaction that they belong to: {stored} jobs"):
            app.enqueue_many(stream(), conn=lent)
        lent.rollback()
    assert count(conn) == stored


def test_a_lost_connection_is_refused(note: Task[..., None], conn: Connection[Any], engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(text("select 1"))
        connection.invalidate()
        refused(note, connection, "is closed")
    assert count(conn) == 0


@pytest.mark.asyncio
async def test_an_async_connection_that_is_not_open_is_refused(note: Task[..., None], aengine: AsyncEngine) -> None:
    with pytest.raises(TransactionMisuse, match="not open yet"):
        await note.using(conn=aengine.connect()).aenqueue(1)


@pytest.mark.parametrize("what", ["engine", "sessionmaker"])
def test_what_makes_connections_is_none(note: Task[..., None], engine: Engine, what: str) -> None:
    lent = engine if what == "engine" else sessionmaker(engine)
    refused(note, lent, "is not a connection that can be used here; give a psycopg Connection.*SQLAlchemy Session")


# --- light ---------------------------------------------------------------------------------------------------------------

LIGHT = """
import sys, psycopg
from jobwell import App
app = App(sys.argv[1], schema=sys.argv[2])
@app.task(name="note")
def note(n: int) -> None: ...
with psycopg.connect(sys.argv[1]) as conn, app.within(conn):
    note.enqueue(1)
app.close()
assert not {"sqlalchemy", "asyncpg"} & set(sys.modules)
"""


def test_psycopg_alone_imports_no_other_library(database_url: str, schema: str, conn: Connection[Any]) -> None:
    subprocess.run([sys.executable, "-c", LIGHT, database_url, schema], check=True, timeout=60)
    assert count(conn) == 1
