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
from collections.abc import Callable
from pathlib import Path
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
    started = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    Path(path).write_text(str(started.pid))


def fill(n: int) -> None:
    """Hold so many bytes, each page of them."""
    held = bytearray(n)
    for at in range(0, n, 4096):
        held[at] = 1
    pause(30 if n > 100_000_000 else 0)


def spin() -> None:
    """For ever, without a pause."""
    while True:
        pass


def deaf() -> None:
    """For ever, whatever is raised in it."""
    while True:
        with contextlib.suppress(BaseException):
            pause(30)


def family(path: str, *, die: bool) -> None:
    """Leave a process behind, and die or spin."""
    leave_a_process(path)
    if die:
        os._exit(7)
    spin()


def pid() -> int:
    """Of the child, in whose main thread this runs."""
    assert threading.current_thread() is threading.main_thread()
    return os.getpid()


def throw(error: BaseException) -> None:
    """Raise it."""
    raise error


def speak(ctx: SyncContext, n: int) -> None:
    """Log in two ways."""
    log.warning("half way", extra={"step": n})
    ctx.logger.info("from the context")


WORDS: dict[str, Callable[[SyncContext, int, str], Any]] = {
    "pid": lambda _ctx, _n, _path: pid(),
    "add": lambda _ctx, n, _path: sum(range(n)),
    "exit": lambda _ctx, n, _path: os._exit(n),
    "kill": lambda _ctx, _n, _path: os.kill(os.getpid(), signal.SIGKILL),
    "null": lambda _ctx, _n, _path: ctypes.string_at(0),
    "recursion": lambda _ctx, _n, _path: deep(),
    "reject": lambda _ctx, n, _path: throw(Reject("no_such_thing", f"{n} is gone")),
    "retry": lambda _ctx, _n, _path: throw(Retry("again", after="10ms")),
    "snooze": lambda _ctx, _n, _path: throw(Snooze("10ms")),
    "value": lambda _ctx, _n, _path: throw(ValueError("it did not work")),
    "log": lambda ctx, n, _path: speak(ctx, n),
    "spin": lambda _ctx, _n, _path: spin(),
    "deaf": lambda _ctx, _n, _path: deaf(),
    "family": lambda _ctx, _n, path: family(path, die=False),
    "family then die": lambda _ctx, _n, path: family(path, die=True),
    "unstorable": lambda _ctx, _n, _path: object(),
    "loop": lambda _ctx, _n, _path: asyncio.run(apause(0.001)),
}


@app.task(name="cpu", executor="process", retry=QUICK, timeout="30s")
def cpu(ctx: SyncContext, word: str, n: int = 0, path: str = "") -> Any:
    """Do what the word says, in a child's main thread."""
    return WORDS[word](ctx, n, path)


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
    fill(n)
