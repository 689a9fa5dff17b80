"""The examples of docs/transactions.md run, word for word: each stores its rows and its jobs together."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Column, Integer
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

from jobwell import App
from tests.client.within.ways import AlchemySession, AsyncAlchemySessionAsyncpg, Asyncpg

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"


class Base(DeclarativeBase):
    """Of the caller's models."""


class Order(Base):
    """The row of the examples."""

    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)


@pytest.mark.asyncio
async def test_the_examples_run(app: App, conn: "psycopg.Connection[Any]", database_url: str, schema: str) -> None:
    conn.execute("create table orders (id int primary key)")

    @app.task(name="notify")
    def notify(order: int) -> None: ...

    engine = sqlalchemy.create_engine(AlchemySession(database_url).url(), connect_args={"options": f"-c search_path={schema}"})
    async_engine = create_async_engine(
        AsyncAlchemySessionAsyncpg(database_url).url(), connect_args={"server_settings": {"search_path": schema}}
    )
    names: dict[str, Any] = {
        "app": app, "notify": notify, "Order": Order, "Session": Session, "AsyncSession": AsyncSession, "engine": engine,
        "async_engine": async_engine, "psycopg": psycopg,
        "url": psycopg.conninfo.make_conninfo(database_url, options=f"-c search_path={schema}"),
    }  # fmt: skip
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    try:
        with psycopg.connect(database_url, options=f"-c search_path={schema}") as caller:
            async with asyncpg.create_pool(
                **Asyncpg(database_url).parameters(), min_size=1, max_size=1, server_settings={"search_path": schema}
            ) as pool:
                for example in examples:
                    code = compile(example, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                    running = eval(code, {**names, "conn": caller, "pool": pool})
                    if inspect.isawaitable(running):
                        await running
        jobs = conn.execute("select args->>'order', count(*) from jobs group by 1 order by 1").fetchall()
        assert jobs == [("1", 1), ("2", 1), ("3", 1), ("4", 1001), ("5", 2)]
        assert conn.execute("select id from orders order by id").fetchall() == [(1,), (2,), (3,), (4,), (5,)]
    finally:
        engine.dispose()
        await async_engine.dispose()
        await app.aclose()
        conn.execute("drop table orders")
