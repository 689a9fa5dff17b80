"""A worker that runs beside the test, and short questions to the tables."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from jobwell import App, Fixed
from jobwell.worker.worker import Worker
from tests.waiting import PATIENCE, auntil

Start = Callable[..., Awaitable["Working"]]
Make = Callable[..., App]
Kind = Literal["async", "plain"]
Row = dict[str, Any]
BOTH: tuple[Kind, Kind] = ("async", "plain")
SOON = Fixed("10ms", attempts=5)


class Working:
    """A worker in a task of the running loop.

    Attributes:
        worker: the worker itself.
        task: its `run`.
    """

    def __init__(self, app: App, **options: Any) -> None:
        self.worker = Worker(app, **options)
        self.task = asyncio.create_task(self.worker.run())

    async def ready(self) -> None:
        """It is registered, or its start has failed."""
        ready = asyncio.create_task(self.worker.ready())
        await asyncio.wait([ready, self.task], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            ready.cancel()
            self.task.result()
        await ready

    async def stop(self, *, at_once: bool = False) -> int:
        """Drain; gives the exit code."""
        self.worker.stop()
        if at_once:
            self.worker.stop()
        return await self.over()

    async def over(self) -> int:
        """Wait for its end; gives the exit code."""
        return await asyncio.wait_for(asyncio.shield(self.task), PATIENCE)


class Books:
    """What the tables say.

    Args:
        conn: a connection that sees what is committed.
    """

    def __init__(self, conn: "Connection[Any]") -> None:
        self.conn = conn

    def rows(self, query: str, *parameters: Any) -> list[Row]:
        """Rows by the names of their columns."""
        return self.conn.cursor(row_factory=dict_row).execute(query, parameters).fetchall()

    def count(self, table: str, where: str = "true") -> int:
        """How many rows there are."""
        return int(self.rows(f"select count(*) as n from {table} where {where}")[0]["n"])

    def live(self, job: Any) -> Row | None:
        """A job that has not ended."""
        return next(iter(self.rows("select * from jobs where id = %s", _id(job))), None)

    def end(self, job: Any) -> Row | None:
        """A job that has ended, with its state."""
        for table, columns in (("finished", "*"), ("quarantine", "*, 'failed' as state")):
            for row in self.rows(f"select {columns} from {table} where id = %s", _id(job)):
                return row
        return None

    def history(self, job: Any, *columns: str) -> list[Any]:
        """The log of its attempts: outcomes, or these columns as tuples."""
        rows = self.rows("select * from attempts where job_id = %s order by ended_at", _id(job))
        return [tuple(row[name] for name in columns) if columns else row["outcome"] for row in rows]

    async def ended(self, job: Any, timeout: float = PATIENCE) -> Row:
        """Wait for the end of a job."""
        end = await auntil(lambda: self.end(job), timeout, f"the end of {job}")
        assert end is not None
        assert self.live(job) is None
        return end

    async def in_state(self, job: Any, state: str, timeout: float = PATIENCE) -> Row:
        """Wait for a state of a live job."""

        def found() -> Row | None:
            row = self.live(job)
            return row if row is not None and row["state"] == state else None

        row = await auntil(found, timeout, f"{job} {state}")
        assert row is not None
        return row

    async def empty(self, timeout: float = PATIENCE) -> None:
        """Wait until no job is live."""
        await auntil(lambda: self.count("jobs") == 0, timeout, "no live jobs")


def _id(job: Any) -> UUID:
    return job if isinstance(job, UUID) else UUID(str(job.id))


def declare(app: App, kind: Kind, body: Callable[[], Any], **options: Any) -> Any:
    """A task without parameters that does this, on the loop or on a thread."""
    if kind == "async":

        async def on_loop() -> Any:
            return body()

        return app.task(name="job", **options)(on_loop)

    def on_thread() -> Any:
        return body()

    return app.task(name="job", **options)(on_thread)


def raising(error: Callable[[], BaseException] | BaseException) -> Callable[[], Any]:
    """A body that raises; a callable makes the error anew each time."""

    def body() -> Any:
        raise error if isinstance(error, BaseException) else error()

    return body
