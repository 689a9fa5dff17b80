"""The application that crash tests run: every start of a job leaves a mark on a connection of its own."""

import asyncio
import ctypes
import os
import signal
import socket
import time
from datetime import datetime
from typing import Any

import psycopg

from jobwell import App, Breaker, Context, DidNotHappen, Fixed, Happened, Lock, Retry, SyncContext
from jobwell.core.steps import Step
from jobwell.worker import steps
from jobwell.worker.record import Attempt
from tests.crash import keeping_tasks
from tests.waiting import apause, pause

app = App()
app.include(keeping_tasks.tasks)


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


@app.task(name="poison")
async def poison(seconds: float, job: str) -> None:
    """Kill the process that it runs in."""
    await mark(job, 0, "poison")
    await apause(seconds)
    os._exit(9)


@app.task(name="shielded", executor="process")
def shielded(seconds: float, job: str) -> str:
    """Take so long, in a child."""
    asyncio.run(mark(job, 0, "start"))
    pause(seconds)
    return job


@app.task(name="spin", timeout="1s", retry=Fixed("10ms", attempts=1))
async def spin(job: str) -> None:
    """Block the loop for ever."""
    await mark(job, 0, "start")
    while True:
        pass


@app.task(name="clutch")
async def clutch(seconds: float, job: str) -> str:
    """Hold the interpreter lock for so long, as a C library does: no thread of the process runs."""
    await mark(job, 0, "start")
    ctypes.PyDLL(None).poll(None, 0, int(seconds * 1000))
    return job


@app.task(name="spin_inside", timeout="1s", retry=Fixed("10ms", attempts=1))
async def spin_inside(job: str) -> None:
    """Block the loop from a task of one's own making."""
    await mark(job, 0, "start")

    async def inside() -> None:
        while True:
            pass

    await asyncio.gather(inside())


@app.task(name="hurried", timeout="6s", retry=Fixed("10ms", attempts=1))
async def hurried(seconds: float, job: str) -> str:
    """Take so long, with a time limit."""
    await mark(job, 0, "start")
    await apause(seconds)
    return job


@app.task(name="patient", retry=Fixed("10ms", attempts=3, jitter=0))
async def patient(ctx: Context, until: str, job: str) -> str:
    """Ask once to be called again at that moment."""
    if ctx.attempt == 1:
        raise Retry("not yet", after=datetime.fromisoformat(until))
    await mark(job, 0, "start")
    return job


@app.task(name="one_at_a_time", lock=Lock("key"))
async def one_at_a_time(seconds: float, job: str, key: str) -> str:
    """Take so long; never two of one key at once."""
    await mark(job, 0, "start")
    await apause(seconds)
    await mark(job, 0, "end")
    return job


@app.task(name="doze")
async def doze(seconds: float, job: str) -> str:
    """Block the loop for so long, as a library does that knows no loop."""
    await mark(job, 0, "start")
    pause(seconds)
    return job


@app.task(name="compute")
def compute(seconds: float, job: str) -> str:
    """Keep the interpreter busy for so long, on a thread."""
    asyncio.run(mark(job, 0, "start"))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return job


@app.task(name="plain")
def plain(seconds: float, job: str) -> str:
    """Take so long, on a thread."""
    asyncio.run(mark(job, 0, "start"))
    pause(seconds)
    return job


@app.task(name="recv", timeout="1s", retry=Fixed("1m", attempts=3))
def recv(port: int, job: str) -> bytes:
    """Wait for a peer that says nothing."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        asyncio.run(mark(job, 0, "start"))
        return peer.recv(1)


@app.task(name="pay", on_lost="fail")
async def pay(seconds: float, job: str) -> str:
    """What must not be repeated blindly."""
    await mark(job, 0, "start")
    await apause(seconds)
    return job


@app.task(name="deadly")
async def deadly(how: str, job: str) -> None:
    """Kill the process in one of three ways."""
    await mark(job, 0, "start")
    if how == "exit":
        os._exit(1)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)


@app.task(name="deadly_apart", executor="process")
def deadly_apart(job: str) -> None:
    """Kill its child."""
    asyncio.run(mark(job, 0, "start"))
    os._exit(9)


@app.task(name="quiet")
async def quiet(seconds: float, job: str) -> str:
    """Take so long, and need no database at the end."""
    await mark(job, 0, "start")
    await apause(seconds)
    return job


@app.task(name="relay", executor="process")
def relay(job: str) -> None:
    """Enqueue another one, over this process's own connection."""
    quiet.enqueue(0.0, job)


@app.task(name="letter")
def letter(job: str) -> str:
    """Send it, half a second after the loop stands still."""
    asyncio.run(mark(job, 0, "start"))
    pause(1.0)
    asyncio.run(mark(job, 0, "sent"))
    return "sent"


app.resource("line", breaker=Breaker(failures=0.5, at_least=1, open="1s", longest="1s"))


@app.task(name="dial", resources=("line",), retry=Fixed("10ms", attempts=1))
async def dial(ctx: Context, how: str, job: str) -> str:
    """Call somebody: it fails, or hangs the first time, or goes well."""
    await mark(job, ctx.attempt, "dial")
    async with ctx.call("line"):
        if how == "fail":
            raise ConnectionResetError("nobody there")
        if how == "hang" and ctx.attempt == 1:
            await asyncio.Event().wait()
    return job


# --- steps: the fake outside system is the table of marks ---------------------------------------------------------------------


def die(point: str, step: Step, attempt: Attempt) -> None:
    """Kill this process where the job's arguments say so: the n-th of `deaths` is for its n-th attempt."""
    deaths = attempt.args.get("deaths", ())
    at = attempt.job.attempt - 1
    if at < len(deaths) and deaths[at] == f"{step.name} {point}":
        os.kill(os.getpid(), signal.SIGKILL)


steps.reached = die


async def effect(job: str, name: str, idempotency_key: str) -> str:
    """Do it."""
    await mark(job, 0, f"effect {name}")
    return idempotency_key.partition(":")[2]


def plain_effect(job: str, name: str, idempotency_key: str) -> str:
    """Do it, on a thread."""
    return asyncio.run(effect(job, name, idempotency_key))


async def ask(job: str, name: str, idempotency_key: str) -> Happened | DidNotHappen:
    """The truth."""
    async with await psycopg.AsyncConnection.connect(app.database.url, autocommit=True) as conn:
        found = await conn.execute(
            f"select 1 from {app.settings.schema}.marks where job = %s and what = %s", [job, f"effect {name}"]
        )
        return Happened(idempotency_key.partition(":")[2]) if await found.fetchone() else DidNotHappen()


def plain_ask(job: str, name: str, idempotency_key: str) -> Happened | DidNotHappen:
    """The truth, on a thread."""
    return asyncio.run(ask(job, name, idempotency_key))


async def three(ctx: Context, job: str, unknown: str) -> list[str]:
    """Three steps."""
    how: Any = ask if unknown == "check" else unknown
    return [await ctx.step(f"s{n}", effect, job, f"s{n}", unknown=how) for n in range(3)]


@app.task(name="stepped", executor="process")
async def stepped(ctx: Context, job: str, unknown: str, deaths: list[str]) -> list[str]:
    """In a child."""
    return await three(ctx, job, unknown)


@app.task(name="stepped_inside")
async def stepped_inside(ctx: Context, job: str, unknown: str, deaths: list[str]) -> list[str]:
    """In the worker."""
    return await three(ctx, job, unknown)


@app.task(name="stepped_plain", executor="process")
def stepped_plain(ctx: SyncContext, job: str, unknown: str, deaths: list[str]) -> list[str]:
    """A plain function, in a child."""
    how: Any = plain_ask if unknown == "check" else unknown
    return [ctx.step(f"s{n}", plain_effect, job, f"s{n}", unknown=how) for n in range(3)]
