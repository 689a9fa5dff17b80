"""Tasks that run in children, at the top of a module, where a child finds them. The app's store is set by each test."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

from jobwell import App, Context, Fixed, Reject, Retry, Snooze, SyncContext
from tests.waiting import apause, pause


async def around(ctx: Any, call: Any) -> Any:
    """Middleware works in children too."""
    if ctx.task == "hurried":
        return await asyncio.wait_for(call(), 0.2)
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


def deaf(path: str = "") -> None:
    """For ever, whatever is raised in it; say our id first."""
    while True:
        with contextlib.suppress(BaseException):
            nap(30, path or os.devnull)


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


def nap(seconds: float, path: str) -> int:
    """Say our id, and take so long."""
    Path(path).write_text(str(os.getpid()))
    pause(seconds)
    return os.getpid()


def tidy(path: str) -> None:
    """For ever; and take a second for the clean-up when that is interrupted."""
    try:
        Path(path).write_text("begun")
        spin()
    finally:
        pause(1.0)
        Path(path).write_text("tidied")


def come_back() -> str:
    """Fork a copy that fails where it should have become something else: its error goes up into our own code."""
    copy = os.fork()
    if copy == 0:
        os.execvp("/no/such/program", ["x"])
    os.waitpid(copy, 0)
    return "right"


def interrupt_a_program() -> list[int]:
    """Start programs, and send them what ends a program."""
    ends = []
    for number in (signal.SIGINT, signal.SIGTERM):
        started = subprocess.Popen(["sleep", "20"])
        started.send_signal(number)
        ends.append(started.wait())
    return ends


def forge() -> None:
    """Answer as only the child itself may, for another job."""
    said = orjson.dumps({"of": "another", "pid": os.getpid(), "busy": False, "outcome": {"kind": "succeeded"}})
    for each in gc.get_objects():
        if isinstance(each, Connection):
            each.send_bytes(said)
    pause(30)


def chatter(n: int) -> None:
    """Hold more and more, up to so many bytes, and log without a pause."""
    held = []
    for _ in range(100):
        held.append(b"x" * (n // 100))
        log.warning("line")
        pause(0.03)


def read_shared(_n: int) -> int:
    """In a copy: hold what it has from its parent for a while."""
    pause(1.5)
    return len(SHARED[0])


def share(n: int) -> int:
    """Hold so many bytes, and start four copies that hold the same ones."""
    SHARED.append(b"x" * n)
    try:
        with multiprocessing.get_context("fork").Pool(4) as pool:
            return sum(pool.map(read_shared, range(4)))
    finally:
        SHARED.clear()


SHARED: list[bytes] = []
WORDS: dict[str, Callable[[SyncContext, int, str], Any]] = {
    "pid": lambda _ctx, _n, _path: pid(),
    "add": lambda _ctx, n, _path: sum(range(n)),
    "exit": lambda _ctx, n, _path: os._exit(n),
    "kill": lambda _ctx, _n, _path: os.kill(os.getpid(), signal.SIGKILL),
    "null": lambda _ctx, _n, _path: ctypes.string_at(0),
    "recursion": lambda _ctx, _n, _path: deep(),
    "reject": lambda _ctx, n, _path: throw(Reject("no_such_thing", f"{n} is gone")),
    "retry": lambda _ctx, _n, _path: throw(Retry("again", after="10ms")),
    "move": lambda ctx, n, _path: throw(Retry("elsewhere", after=0, queue="bulk", priority=n)) if ctx.attempt == 1 else ctx.queue,
    "snooze": lambda _ctx, _n, _path: throw(Snooze("10ms")),
    "value": lambda _ctx, _n, _path: throw(ValueError("it did not work")),
    "log": lambda ctx, n, _path: speak(ctx, n),
    "spin": lambda _ctx, _n, _path: spin(),
    "deaf": lambda _ctx, _n, path: deaf(path),
    "family": lambda _ctx, _n, path: family(path, die=False),
    "family then die": lambda _ctx, _n, path: family(path, die=True),
    "unstorable": lambda _ctx, _n, _path: object(),
    "nap": lambda _ctx, n, path: nap(n / 10, path),
    "tidy": lambda _ctx, _n, path: tidy(path),
    "stop iteration": lambda _ctx, _n, _path: next(iter(())),
    "come back": lambda _ctx, _n, _path: come_back(),
    "interrupt a program": lambda _ctx, _n, _path: interrupt_a_program(),
    "forge": lambda _ctx, _n, _path: forge(),
    "where": lambda _ctx, _n, _path: [app.settings.schema, app.settings.lease],
    "loop": lambda _ctx, _n, _path: asyncio.run(apause(0.001)),
}


@app.task(name="cpu", executor="process", retry=QUICK, timeout="30s")
def cpu(ctx: SyncContext, word: str, n: int = 0, path: str = "") -> Any:
    """Do what the word says, in a child's main thread."""
    return WORDS[word](ctx, n, path)


@app.task(name="acpu", executor="process", retry=QUICK, timeout="30s")
async def acpu(ctx: Context, word: str, path: str = "") -> Any:
    """The same on a loop of the child's own."""
    if word == "nap":
        nap(0, path)
        await apause(1)
    if word == "leave a thread":
        asyncio.get_running_loop().run_in_executor(None, pause, 60)
    if word == "come back":
        return come_back()
    if word == "terminate a copy":
        copy = multiprocessing.get_context("fork").Process(target=pause, args=(60,))
        copy.start()
        await apause(0.1)
        copy.terminate()
        copy.join(10)
        await apause(0.3)
        return copy.exitcode
    if word == "wait":
        await apause(600)
    if word == "children":
        return [str(job) for job in await app.aenqueue_many(cpu.job("add", n) for n in range(3))]
    return {"pid": os.getpid(), "attempt": ctx.attempt}


@app.task(name="brief", executor="process", retry=Fixed("10ms", attempts=1, jitter=0), timeout="1s")
def brief(ctx: SyncContext, word: str, path: str = "") -> Any:
    """As `cpu`, with little time."""
    return WORDS[word](ctx, 0, path)


@app.task(name="hurried", executor="process", retry=Fixed("10ms", attempts=1, jitter=0))
def hurried() -> None:
    """Longer than the middleware waits for it."""
    pause(60)


@app.task(name="bounded", executor="process", memory="300MB", retry=Fixed("10ms", attempts=1, jitter=0))
def bounded(word: str, n: int) -> Any:
    """Hold so many bytes, in one way or another."""
    return {"chatter": chatter, "share": share}[word](n)


@app.task(name="small", executor="process", memory="200MB", retry=QUICK)
def small(n: int) -> None:
    """Hold so many bytes."""
    fill(n)


app.resource("gateway", retry_budget=1)


@app.task(name="calling", executor="process", resources=("gateway",), retry=QUICK)
def calling(ctx: SyncContext, calls: int) -> float:
    """Call a resource so often, the last time in vain."""
    for _ in range(calls - 1):
        with ctx.call("gateway", timeout=2) as call:
            given = call.timeout
    with ctx.call("gateway"):
        raise Reject("answered", str(given)) if calls == 2 else ConnectionError("away")


@app.task(name="walking", executor="process", retry=QUICK)
def walking(ctx: SyncContext, marks: str, count: int) -> int:
    """A line in a file for each step, with progress; the fifth waits until the file `go` is there."""
    done = 0
    for n in ctx.resume(range(count), every=100):
        with Path(marks).open("a", encoding="utf-8") as file:
            file.write(f"{n}\n")
        ctx.progress(n + 1, count, "steps")
        done += 1
        while n == 4 and not Path(f"{marks}.go").exists():
            pause(0.01)
    return done


@app.task(name="awalking", executor="process", retry=QUICK)
async def awalking(ctx: Context, marks: str, count: int) -> int:
    """The same on a loop."""
    done = 0
    async for n in ctx.resume(range(count), every=100):
        with Path(marks).open("a", encoding="utf-8") as file:  # noqa: ASYNC230  a line
            file.write(f"{n}\n")
        ctx.progress(n + 1, count, "steps")
        done += 1
        while n == 4 and not Path(f"{marks}.go").exists():  # noqa: ASYNC240  as above
            await apause(0.01)
    return done


@app.task(name="committing", executor="process", retry=QUICK)
def committing(ctx: SyncContext) -> int:
    """The end of the job with a row of its own."""
    with (tx := ctx.transaction()) as own:
        tx.result = own.execute("select pg_backend_pid()").fetchone()[0]
    return 0


@app.task(name="committing_late", executor="process", retry=QUICK, timeout="1s")
def committing_late(ctx: SyncContext) -> None:
    """The end of the job, and then no end of the function."""
    with ctx.transaction():
        pass
    spin()
