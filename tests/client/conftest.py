"""What the tests of the producer's side share: a task to enqueue, and a caller with rows and transactions of its own."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, Connection, sql
from psycopg.conninfo import conninfo_to_dict

from jobwell import App
from jobwell.client.task import Task


@pytest_asyncio.fixture
async def aapp(app: App) -> AsyncIterator[App]:
    """The app, for a test with a loop."""
    yield app
    await app.aclose()


@pytest.fixture
def note(app: App) -> Task[[int, str], None]:
    """The one task of most tests."""

    @app.task(name="note")
    def note(n: int, text: str = "") -> None: ...

    return note


@pytest.fixture
def orders(conn: "Connection[Any]") -> Iterator[str]:
    """A table of the caller, in the store's database."""
    conn.execute("create table orders (id int primary key)")
    yield "orders"
    conn.execute("drop table orders")


@pytest.fixture
def caller(database_url: str, schema: str, orders: str) -> Iterator["Connection[Any]"]:
    """The caller's connection, in psycopg's usual mode: the first statement opens a transaction."""
    with psycopg.connect(database_url, options=f"-c search_path={schema}") as caller:
        yield caller
        caller.rollback()


@pytest_asyncio.fixture
async def acaller(database_url: str, schema: str, orders: str) -> AsyncIterator["AsyncConnection[Any]"]:
    """The same for async code."""
    async with await AsyncConnection.connect(database_url, options=f"-c search_path={schema}") as caller:
        yield caller
        await caller.rollback()


@pytest.fixture
def elsewhere(database_url: str, conn: "Connection[Any]") -> Iterator[str]:
    """The URL of another database on the same server."""
    name = f"jwtest_other_{conn.info.backend_pid}"
    try:
        conn.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("this role may not create a database")
    yield psycopg.conninfo.make_conninfo(**{**conninfo_to_dict(database_url), "dbname": name})  # type: ignore[arg-type]
    conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
