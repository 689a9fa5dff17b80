"""Short questions to the tables."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from psycopg import Connection

from jobwell import App, NewJob


def count(conn: "Connection[Any]", table: str = "jobs") -> int:
    """How many rows there are, seen from outside."""
    return int(one(conn, f"select count(*) from {table}"))


def one(conn: "Connection[Any]", query: str, *parameters: Any) -> Any:
    """The only value of the only row."""
    (row,) = conn.execute(query, parameters).fetchall()
    return row[0] if len(row) == 1 else row


def stored_args(conn: "Connection[Any]", job: Any) -> str:
    """The arguments as the worker gets them, in the row or apart."""
    return str(one(conn, "select coalesce(j.args, p.args)::text from jobs j left join payloads p using (id) where id = %s", job))


def many_sync(app: App, jobs: Iterable[NewJob]) -> Any:
    """Through `enqueue_many`."""
    return app.enqueue_many(jobs)


def many_async(app: App, jobs: Iterable[NewJob]) -> Any:
    """Through `aenqueue_many`, in a loop of its own."""

    async def run() -> Any:
        try:
            return await app.aenqueue_many(jobs)
        finally:
            await app.aclose()

    return asyncio.run(run())


BOTH: list[Callable[[App, Iterable[NewJob]], Any]] = [many_sync, many_async]
