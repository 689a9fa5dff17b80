"""The application that crash tests run: every start of a job leaves a mark on a connection of its own."""

import os

import psycopg

from jobwell import App
from tests.waiting import apause

app = App()


async def mark(job: str, attempt: int, what: str) -> None:
    """Write a mark, committed at once."""
    async with await psycopg.AsyncConnection.connect(app.database.url, autocommit=True) as conn:
        await conn.execute(
            f"insert into {app.settings.schema}.marks (job, attempt, pid, what) values (%s, %s, %s, %s)",
            [job, attempt, os.getpid(), what],
        )


@app.task(name="nap")
async def nap(seconds: float, job: str) -> str:
    """Take so long."""
    await mark(job, 0, "start")
    await apause(seconds)
    await mark(job, 0, "end")
    return job
