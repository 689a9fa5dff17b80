"""Tasks that run in children, at the top of a module, where a child finds them. The app's store is set by each test."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from jobwell import App, Context, Fixed, Reject, Retry, Snooze, SyncContext
from tests.waiting import apause, pause

async def around(ctx: Any, call: Any) -> Any:
    """Middleware works in children too."""
    found = await call()
    return ["around", found] if ctx.task == "acpu" and isinstance(found, dict) else found


app = App(middleware=[around])
QUICK = Fixed("10ms", attempts=3, jitter=0)
log = logging.getLogger("shop")


def deep(n: int = 0) -> int:
    """Without an end."""
    return deep(n + 1) + 1


def leave_a_process(path: str) -> None:
    """Start something that would outlive us, and say its id."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # noqa: S603
    with open(path, "w") as file:
        file.write(str(started.pid))


@app.task(name="cpu", executor="process", retry=QUICK, timeout="30s")
def cpu(ctx: SyncContext, word: str, n: int = 0, path: str = "") -> Any:
    """Do what the word says, in a child's main thread."""
    match word:
        case "pid":
            assert threading.current_thread() is threading.main_thread()
            return os.getpid()
        case "add":
            return sum(range(n))
        case "exit":
            os._exit(n)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "null":
            ctypes.string_at(0)
        case "recursion":
            return deep()
        case "memory":
            held = bytearray(n)
            for at in range(0, n, 4096):
                held[at] = 1
            pause(30)
        case "reject":
            raise Reject("no_such_thing", f"{n} is gone")
        case "retry":
            raise Retry("again", after="10ms")
        case "snooze":
            raise Snooze("10ms")
        case "value":
            raise ValueError("it did not work")
        case "log":
            log.warning("half way", extra={"step": n})
            ctx.logger.info("from the context")
        case "spin":
            while True:
                pass
        case "deaf":
            while True:
                with contextlib.suppress(BaseException):
                    pause(30)
        case "family":
            leave_a_process(path)
            while True:
                pass
        case "family then die":
            leave_a_process(path)
            os._exit(7)
        case "unstorable":
            return object()
        case "loop":
            return asyncio.run(apause(0.001))
        case "attempt":
            return ctx.attempt
    return None


@app.task(name="acpu", executor="process", retry=QUICK, timeout="30s")
async def acpu(ctx: Context, word: str) -> Any:
    """The same on a loop of the child's own."""
    if word == "wait":
        await apause(600)
    if word == "children":
        return [str(job) for job in await app.aenqueue_many(cpu.job("add", n) for n in range(3))]
    return {"pid": os.getpid(), "attempt": ctx.attempt}


@app.task(name="small", executor="process", memory="200MB", retry=QUICK)
def small(n: int) -> None:
    """Hold so many bytes."""
    held = bytearray(n)
    for at in range(0, n, 4096):
        held[at] = 1
    pause(30 if n > 100_000_000 else 0)


@app.task(name="neighbour", retry=QUICK, timeout="30s")
async def neighbour(seconds: float) -> int:
    """On the loop of the worker, unless it is suspect."""
    await apause(seconds)
    return os.getpid()


@app.task(name="poison", retry=QUICK, timeout="30s")
async def poison(seconds: float) -> None:
    """Kills the process it runs in."""
    await apause(seconds)
    os._exit(9)
