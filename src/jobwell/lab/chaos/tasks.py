"""The application under chaos: every kind of job that there is, each telling what it does."""

import asyncio
import os
import time
from uuid import uuid4

from jobwell import App, Context, Lock, Reject, Snooze, SyncContext
from jobwell.core.retry import Fixed
from jobwell.lab.chaos.marks import Writer

app = App()
writer = Writer()
SOON = Fixed(0.2, attempts=4)
PAUSABLE = ("default", "bulk", "reports")


class Stumble(ConnectionError):
    """A temporary error."""


async def _work(ctx: Context, seconds: float, executor: str = "async", fails: int = 0) -> None:
    call = uuid4()
    await asyncio.wrap_future(writer.write(call, ctx.id, ctx.attempt, executor, "begin"))
    await asyncio.sleep(seconds)
    if ctx.attempt <= fails:
        raise Stumble("drawn")
    await asyncio.wrap_future(writer.write(call, ctx.id, ctx.attempt, executor, "effect"))
    await asyncio.wrap_future(writer.write(call, ctx.id, ctx.attempt, executor, "end"))


def _plain(ctx: SyncContext, seconds: float, executor: str) -> None:
    call = uuid4()
    writer.write(call, ctx.id, ctx.attempt, executor, "begin").result()
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        time.sleep(min(rest, 0.1))
        if ctx.cancelled:
            raise Stumble("told to stop")
    writer.write(call, ctx.id, ctx.attempt, executor, "effect").result()
    writer.write(call, ctx.id, ctx.attempt, executor, "end").result()


@app.task(name="quick", retry=SOON)
async def quick(ctx: Context, seconds: float) -> float:
    """On the loop."""
    await _work(ctx, seconds)
    return seconds


@app.task(name="urgent", queue="critical", priority=50, retry=SOON)
async def urgent(ctx: Context, seconds: float) -> None:
    """In a queue that is never held."""
    await _work(ctx, seconds)


@app.task(name="rented", queue="bulk", tenant="tenant", retry=SOON)
async def rented(ctx: Context, seconds: float, tenant: str, ballast: str = "") -> str:
    """For a tenant; with large arguments and results now and then."""
    await _work(ctx, seconds)
    return ballast or tenant


@app.task(name="flaky", queue="bulk", retry=SOON)
async def flaky(ctx: Context, seconds: float, fails: int) -> None:
    """Fails so many times."""
    await _work(ctx, seconds, fails=fails)


@app.task(name="refused", queue="reports")
async def refused(ctx: Context) -> None:
    """Rejected by itself."""
    await asyncio.wrap_future(writer.write(uuid4(), ctx.id, ctx.attempt, "async", "begin"))
    raise Reject("drawn", "as drawn")


@app.task(name="sleepy", queue="reports", retry=SOON)
async def sleepy(ctx: Context, awake_at: float) -> None:
    """Snoozes until a moment, several times."""
    if time.time() < awake_at:
        await asyncio.wrap_future(writer.write(uuid4(), ctx.id, ctx.attempt, "async", "begin"))
        raise Snooze(0.3)
    await _work(ctx, 0.0)


@app.task(name="locked", lock=Lock("key"), retry=SOON)
async def locked(ctx: Context, seconds: float, key: int) -> int:
    """One at a time for each key."""
    await _work(ctx, seconds)
    return key


@app.task(name="threaded", retry=SOON)
def threaded(ctx: SyncContext, seconds: float) -> None:
    """On a thread."""
    _plain(ctx, seconds, "thread")


@app.task(name="apart", queue="reports", executor="process", retry=SOON)
def apart(ctx: SyncContext, seconds: float) -> None:
    """In a child."""
    _plain(ctx, seconds, "process")


@app.task(name="apart_async", queue="reports", executor="process", retry=SOON)
async def apart_async(ctx: Context, seconds: float) -> None:
    """In a child, on a loop."""
    await _work(ctx, seconds, "process")


@app.task(name="poison", queue="bulk")
async def poison(ctx: Context) -> None:
    """Kills the process that it runs in."""
    await asyncio.wrap_future(writer.write(uuid4(), ctx.id, ctx.attempt, "async", "begin"))
    os._exit(9)


@app.task(name="poison_apart", queue="reports", executor="process")
def poison_apart(ctx: SyncContext) -> None:
    """Kills its child."""
    writer.write(uuid4(), ctx.id, ctx.attempt, "process", "begin").result()
    os._exit(9)
