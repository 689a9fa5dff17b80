"""The ways into the store within a caller's transaction, each with the few verbs that a test needs of a caller."""

import contextlib
import importlib.util
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from jobwell import App, NewJob


class Way:
    """A caller with something to lend, whose transaction begins with its first statement, or with `start`.

    Args:
        url: of the server, as libpq reads it.
        autocommit: a caller without transactions.
    """

    name = ""
    asynchronous = False
    library = "psycopg"

    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        self.at: dict[str, Any] = conninfo_to_dict(url)
        self.autocommit = autocommit
        self.lent: Any = None

    async def open(self) -> None:
        """Connect."""

    async def start(self) -> None:
        """Begin a transaction, where a first statement does not."""

    async def execute(self, statement: str) -> list[Any]:
        """The caller's own work."""
        raise NotImplementedError

    async def commit(self) -> None:
        self.lent.commit()

    async def rollback(self) -> None:
        self.lent.rollback()

    async def close(self) -> None:
        self.lent.close()

    async def end(self) -> None:
        """After a test."""
        await self.close()

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        """A savepoint that is rolled back."""
        raise NotImplementedError
        yield

    async def enqueue(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """By the verb of the colour."""
        return await task.aenqueue(*args, **kwargs) if self.asynchronous else task.enqueue(*args, **kwargs)

    async def many(self, app: App, jobs: Iterable[NewJob], conn: Any = None) -> Any:
        """By the verb of the colour."""
        return await app.aenqueue_many(jobs, conn=conn) if self.asynchronous else app.enqueue_many(jobs, conn=conn)


class Psycopg(Way):
    name = "psycopg"

    async def open(self) -> None:
        self.lent = psycopg.connect(**self.at, autocommit=self.autocommit)

    async def execute(self, statement: str) -> list[Any]:
        cursor = self.lent.execute(statement)
        return cursor.fetchall() if cursor.description else []

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        with self.lent.transaction(force_rollback=True):
            yield


class Asynchronous(Way):
    asynchronous = True

    async def commit(self) -> None:
        await self.lent.commit()

    async def rollback(self) -> None:
        await self.lent.rollback()

    async def close(self) -> None:
        await self.lent.close()


class AsyncPsycopg(Asynchronous):
    name = "async psycopg"

    async def open(self) -> None:
        self.lent = await AsyncConnection.connect(**self.at, autocommit=self.autocommit)

    async def execute(self, statement: str) -> list[Any]:
        cursor = await self.lent.execute(statement)
        return await cursor.fetchall() if cursor.description else []

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        async with self.lent.transaction(force_rollback=True):
            yield


class Asyncpg(Asynchronous):
    name = "asyncpg"
    library = "asyncpg"

    def parameters(self) -> dict[str, Any]:
        at = self.at
        return {"host": at.get("host"), "port": at.get("port"), "user": at.get("user"), "password": at.get("password"),
                "database": at.get("dbname")}  # fmt: skip

    async def open(self) -> None:
        self.lent = await asyncpg.connect(**self.parameters())

    async def start(self) -> None:
        if not self.autocommit and not self.lent.is_in_transaction():
            self._transaction = self.lent.transaction()
            await self._transaction.start()

    async def execute(self, statement: str) -> list[Any]:
        await self.start()
        return [tuple(row) for row in await self.lent.fetch(statement)]

    async def commit(self) -> None:
        if self.lent.is_in_transaction():
            await self._transaction.commit()

    async def rollback(self) -> None:
        if self.lent.is_in_transaction():
            await self._transaction.rollback()

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        inner = self.lent.transaction()
        await inner.start()
        yield
        await inner.rollback()


class AsyncpgByHand(Asyncpg):
    name = "asyncpg, BEGIN by hand, no statement cache"

    async def open(self) -> None:
        self.lent = await asyncpg.connect(**self.parameters(), statement_cache_size=0)

    async def start(self) -> None:
        if not self.autocommit and not self.lent.is_in_transaction():
            await self.lent.execute("begin")

    async def commit(self) -> None:
        await self.lent.execute("commit")

    async def rollback(self) -> None:
        if self.lent.is_in_transaction():
            await self.lent.execute("rollback")

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        await self.lent.execute("savepoint mine")
        yield
        await self.lent.execute("rollback to savepoint mine")


class AsyncpgPool(Asyncpg):
    name = "asyncpg pool"

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(**self.parameters(), min_size=1, max_size=1)
        self.lent = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.lent)

    async def rollback(self) -> None:
        with contextlib.suppress(asyncpg.InterfaceError):
            await super().rollback()

    async def end(self) -> None:
        await self.close()
        await self._pool.close()


class _Alchemy(Way):
    driver = "psycopg"

    def url(self) -> sqlalchemy.URL:
        at, host = self.at, self.at.get("host")
        local = {"host": host} if host and host.startswith("/") else {}
        return sqlalchemy.URL.create(
            f"postgresql+{self.driver}", username=at.get("user"), password=at.get("password"),
            host=None if local else host, port=int(at["port"]) if at.get("port") else None, database=at.get("dbname"), query=local,
        )  # fmt: skip

    def options(self) -> dict[str, Any]:
        return {"poolclass": NullPool, **({"isolation_level": "AUTOCOMMIT"} if self.autocommit else {})}


class AlchemyConnection(_Alchemy):
    name = "SQLAlchemy Connection"
    library = "sqlalchemy"

    async def open(self) -> None:
        self.engine = sqlalchemy.create_engine(self.url(), **self.options())
        self.lent = self.lend()

    def lend(self) -> Any:
        return self.engine.connect()

    async def execute(self, statement: str) -> list[Any]:
        result = self.lent.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        inner = self.lent.begin_nested()
        yield
        inner.rollback()

    async def end(self) -> None:
        await self.close()
        self.engine.dispose()


class AlchemySession(AlchemyConnection):
    name = "SQLAlchemy Session"

    def lend(self) -> Any:
        return Session(self.engine, close_resets_only=False)


class AlchemyScoped(AlchemyConnection):
    name = "SQLAlchemy scoped_session"

    def lend(self) -> Any:
        return scoped_session(sessionmaker(self.engine, close_resets_only=False))


class AlchemyPsycopg2(AlchemySession):
    name = "SQLAlchemy Session, psycopg2"
    driver = "psycopg2"


class AsyncAlchemyConnection(_Alchemy, Asynchronous):
    name = "SQLAlchemy AsyncConnection, psycopg"
    library = "sqlalchemy"

    async def open(self) -> None:
        self.engine = create_async_engine(self.url(), **self.options())
        self.lent = await self.engine.connect()

    async def execute(self, statement: str) -> list[Any]:
        result = await self.lent.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []

    @contextlib.asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        inner = await self.lent.begin_nested()
        yield
        await inner.rollback()

    async def end(self) -> None:
        await self.close()
        await self.engine.dispose()


class AsyncAlchemyConnectionAsyncpg(AsyncAlchemyConnection):
    name = "SQLAlchemy AsyncConnection, asyncpg"
    driver = "asyncpg"


class AsyncAlchemySession(AsyncAlchemyConnection):
    name = "SQLAlchemy AsyncSession, psycopg"

    async def open(self) -> None:
        self.engine = create_async_engine(self.url(), **self.options())
        self.lent = AsyncSession(self.engine, close_resets_only=False)


class AsyncAlchemySessionAsyncpg(AsyncAlchemySession):
    name = "SQLAlchemy AsyncSession, asyncpg"
    driver = "asyncpg"


class AsyncAlchemyScoped(AsyncAlchemyConnection):
    name = "SQLAlchemy async_scoped_session, asyncpg"
    driver = "asyncpg"

    async def open(self) -> None:
        self.engine = create_async_engine(self.url(), **self.options())
        made = async_sessionmaker(self.engine, close_resets_only=False)
        self.lent = async_scoped_session(made, scopefunc=lambda: 1)


WAYS: list[type[Way]] = [
    Psycopg, AsyncPsycopg, Asyncpg, AsyncpgByHand, AsyncpgPool, AlchemyConnection, AlchemySession, AlchemyScoped,
    AsyncAlchemyConnection, AsyncAlchemyConnectionAsyncpg, AsyncAlchemySession, AsyncAlchemySessionAsyncpg, AsyncAlchemyScoped,
]  # fmt: skip
if importlib.util.find_spec("psycopg2"):
    WAYS.append(AlchemyPsycopg2)
