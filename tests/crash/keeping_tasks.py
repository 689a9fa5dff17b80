"""Tasks of the application under test that keep something on their way, and die at a named moment in their first attempt."""

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg

from jobwell import App, Context, Fixed, SyncContext, Tasks
from jobwell.worker import points
from tests.waiting import apause, until

tasks = Tasks()
DURING = "transaction: during commit"  # the server has it, and nobody hears its answer
RETRY = Fixed("10ms", attempts=3, jitter=0)


def die() -> None:
    """At once."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(app: App, ctx: Context | SyncContext, job: str, point: str, times: int = 1, during: Callable[[], None] = die) -> None:
    """In the first attempt, leave a mark and die when this point is reached for so many times."""
    points.disarm()
    left = times

    def reached() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            with psycopg.connect(app.settings.url, autocommit=True) as other:
                other.execute(f"insert into {app.settings.schema}.marks (job, what) values (%s, 'dies')", [job])
            (during if point == DURING else die)()

    if point and ctx.attempt == 1:
        points.arm("transaction: before commit" if point == DURING else point, reached)


def ledger(app: App) -> str:
    """Of the test."""
    return f"{app.settings.schema}.ledger"


def answer_lost(app: App, own: Any, job: str) -> Callable[[], None]:
    """Send the COMMIT, see it take effect over another connection, and die before its answer is read."""

    def during() -> None:
        own.pgconn.send_query(b"commit")
        while own.pgconn.flush():
            pass
        with psycopg.connect(app.settings.url, autocommit=True) as other:
            until(lambda: other.execute(f"select count(*) from {ledger(app)} where job = %s", [job]).fetchone() == (1,))
        die()

    return during


@tasks.task(name="pay_on_loop", retry=RETRY)
async def pay_on_loop(ctx: Context, job: str, point: str) -> None:
    """One row with the end of the job."""
    from tests.crash.app_under_test import app

    async with ctx.transaction() as own:
        arm(app, ctx, job, point, 1, answer_lost(app, own, job))
        points.reached("transaction: begun")
        await own.execute(f"insert into {ledger(app)} values (%s, 0, %s)", [job, ctx.attempt])


@tasks.task(name="pay_apart", retry=RETRY, executor="process")
def pay_apart(ctx: SyncContext, job: str, point: str) -> None:
    """The same in a child."""
    from tests.crash.app_under_test import app

    with ctx.transaction() as own:
        arm(app, ctx, job, point, 1, answer_lost(app, own, job))
        points.reached("transaction: begun")
        own.execute(f"insert into {ledger(app)} values (%s, 0, %s)", [job, ctx.attempt])


@tasks.task(name="steps", retry=RETRY, timeout="10m")
async def steps(ctx: Context, job: str, point: str, count: int, every: int) -> None:
    """A row for each step, and a cursor after every so many."""
    from tests.crash.app_under_test import app

    arm(app, ctx, job, point, 2)
    with psycopg.connect(app.settings.url, autocommit=True, options="-c synchronous_commit=off") as own:
        async for n in ctx.resume(range(count), every=every):
            own.execute(f"insert into {ledger(app)} values (%s, %s, %s)", [job, n, ctx.attempt])
            ctx.progress(n + 1, count)
            await apause(0)


@tasks.task(name="steps_apart", retry=RETRY, executor="process")
def steps_apart(ctx: SyncContext, job: str, point: str, count: int, every: int) -> None:
    """The same in a child."""
    from tests.crash.app_under_test import app

    arm(app, ctx, job, point, 2)
    with psycopg.connect(app.settings.url, autocommit=True) as own:
        for n in ctx.resume(range(count), every=every):
            own.execute(f"insert into {ledger(app)} values (%s, %s, %s)", [job, n, ctx.attempt])


@tasks.task(name="batches", retry=RETRY)
async def batches(ctx: Context, job: str, point: str, count: int, every: int) -> None:
    """Rows and the cursor behind them in one transaction of the task's own."""
    from tests.crash.app_under_test import app

    arm(app, ctx, job, point, 2)
    begin = await ctx.checkpoint.load(int, 0)
    async with await psycopg.AsyncConnection.connect(app.settings.url, autocommit=True) as own:
        for at in range(begin, count, every):
            async with own.transaction():
                for n in range(at, min(at + every, count)):
                    await own.execute(f"insert into {ledger(app)} values (%s, %s, %s)", [job, n, ctx.attempt])
                await ctx.checkpoint.save(min(at + every, count), conn=own)
