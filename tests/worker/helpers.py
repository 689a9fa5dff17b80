"""A worker in the test's own process, one task with an action word, and what became of its jobs."""

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg import Connection

from jobwell import App, Context, Fixed, Reject, Retry, Snooze, SyncContext
from jobwell.client.task import AsyncTask, Task
from jobwell.core.states import TERMINAL
from jobwell.store import reads
from jobwell.store.statements import run
from jobwell.worker.worker import Worker
from tests.waiting import PATIENCE, apause, auntil, pause

QUICK = Fixed("10ms", attempts=5, jitter=0)


def deep(n: int = 0) -> int:
    """Without an end."""
    return deep(n + 1) + 1


RAISED: dict[str, Callable[[], BaseException]] = {
    "unknown": lambda: ValueError("it did not work"),
    "temporary": lambda: TimeoutError("nobody answered"),
    "logical": lambda: FileNotFoundError("no such file"),
    "reject": lambda: Reject("no_such_employee", "employee 7 is gone"),
    "retry": lambda: Retry("again, please"),
    "exit": lambda: SystemExit(3),
    "exit with words": lambda: SystemExit("bye"),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "cancelled future": concurrent.futures.CancelledError,
    "generator exit": GeneratorExit,
    "stop iteration": lambda: StopIteration("over"),
    "stop async iteration": lambda: StopAsyncIteration("over"),
    "group": lambda: ExceptionGroup("several", [ValueError("a"), TimeoutError("b")]),
    "base group": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit()]),
    "out of memory": lambda: MemoryError("no room"),
    "assertion": AssertionError,
    "base": lambda: BaseException("the root"),
}


async def wait(door: threading.Event) -> None:
    """Until the door is open."""
    while not door.is_set():
        await apause(0.002)


async def swallow(door: threading.Event) -> None:
    """The same, deaf to every cancellation."""
    while not door.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await apause(0.002)


async def swallow_once(door: threading.Event) -> None:
    """Until it is cancelled, and go on as if nothing had happened."""
    with contextlib.suppress(asyncio.CancelledError):
        await wait(door)


async def break_down(door: threading.Event) -> None:
    """Until it is cancelled, and break in cleaning up."""
    try:
        await wait(door)
    except asyncio.CancelledError:
        raise OSError("the clean-up broke") from None


async def block(door: threading.Event) -> None:
    """As bad code does: the whole loop stands."""
    door.wait(PATIENCE)


ON_LOOP = {"wait": wait, "swallow": swallow, "swallow once": swallow_once, "break down": break_down, "block": block}


@dataclass
class Ran:
    """One attempt as the task saw it."""

    word: str
    n: int
    attempt: int
    job: UUID
    thread: int
    context: Context | SyncContext


@dataclass
class Acts:
    """`act(word, n)` on the loop and `act_plain(word, n)` on a thread; both do what the word says, and keep a list.

    Attributes:
        ran: what has begun.
        over: how many have come to their end.
        most: how many were under way at once at the most.
        doors: "wait" waits for the door of its number.
    """

    app: App
    options: dict[str, Any]
    ran: list[Ran] = field(default_factory=list)
    over: int = 0
    most: int = 0
    doors: dict[int, threading.Event] = field(default_factory=dict)
    words: dict[str, Callable[[Any, int], Any]] = field(default_factory=dict)
    act: AsyncTask[..., Any] = field(init=False)
    act_plain: Task[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        options = {"retry": QUICK} | self.options

        @self.app.task(name="act", **options)
        async def act(ctx: Context, word: str, n: int = 0) -> Any:
            with self._begun(ctx, word, n):
                if word in ON_LOOP:
                    await ON_LOOP[word](self.door(n))
                return self._do(ctx, word, n)

        @self.app.task(name="act_plain", **options)
        def act_plain(ctx: SyncContext, word: str, n: int = 0) -> Any:
            with self._begun(ctx, word, n):
                if word == "wait":
                    assert self.door(n).wait(PATIENCE)
                elif word == "obey":
                    while not ctx.cancelled and not self.door(n).is_set():
                        pause(0.002)
                return self._do(ctx, word, n)

        self.act, self.act_plain = act, act_plain

    @contextlib.contextmanager
    def _begun(self, ctx: Context | SyncContext, word: str, n: int) -> Any:
        self.ran.append(Ran(word, n, ctx.attempt, ctx.id, threading.get_ident(), ctx))
        self.most = max(self.most, self.under_way)
        try:
            yield
        finally:
            self.over += 1

    def _do(self, ctx: Context | SyncContext, word: str, n: int) -> Any:
        if word in self.words:
            return self.words[word](ctx, n)
        if word == "recursion":
            return deep()
        if word == "snooze":
            raise Snooze(n or 0.01, "not yet")
        if word == "snooze once" and len(self.of(ctx.id)) == 1:
            raise Snooze(0.01)
        if word == "fail twice" and ctx.attempt < 3:
            raise ConnectionResetError("gone")
        if word in RAISED:
            raise RAISED[word]()  # noqa: RSE102  a function that makes the error
        return {"n": n}

    @property
    def under_way(self) -> int:
        """How many have begun and not ended."""
        return len(self.ran) - self.over

    def door(self, n: int = 0) -> threading.Event:
        """What "wait" waits for."""
        return self.doors.setdefault(n, threading.Event())

    def open_all(self) -> None:
        """Let everybody through, now and later."""
        for n in range(2000):
            self.door(n).set()

    def of(self, job: UUID) -> list[Ran]:
        """The attempts of one job."""
        return [ran for ran in self.ran if ran.job == job]


@dataclass
class Desk:
    """What the store says."""

    app: App
    conn: "Connection[Any]"

    def job(self, handle: Any) -> dict[str, Any]:
        """Everything about a job."""
        return run(self.conn, reads.one(self.app.database.statements, getattr(handle, "id", handle)))

    def state(self, handle: Any) -> str:
        """Of one job."""
        return str(self.job(handle)["state"])

    def states(self) -> dict[str, int]:
        """Jobs by state, wherever they are."""
        found = dict(
            self.conn.execute(
                "select state, count(*) from jobs group by 1 union all select state, count(*) from finished group by 1"
            ).fetchall()
        )
        (failed,) = self.conn.execute("select count(*) from quarantine").fetchone() or (0,)
        return found | ({"failed": failed} if failed else {})

    async def end(self, handle: Any, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait for the end of a job, and tell everything about it."""
        await auntil(lambda: self.state(handle) in TERMINAL, timeout, f"the end of {handle}")
        return self.job(handle)

    async def settled(self, timeout: float = PATIENCE) -> dict[str, int]:
        """Wait until no job lives."""
        await auntil(lambda: self.one("select count(*) from jobs") == 0, timeout, "an empty table")
        return self.states()

    def one(self, query: str, *parameters: Any) -> Any:
        """The only row, or its only value."""
        (row,) = self.conn.execute(query, parameters).fetchall()
        return row[0] if len(row) == 1 else row

    def all(self, query: str, *parameters: Any) -> list[Any]:
        """Rows, or their only values."""
        rows = self.conn.execute(query, parameters).fetchall()
        return [row[0] if len(row) == 1 else row for row in rows]

    def outcomes(self, handle: Any) -> list[str]:
        """How the logged attempts of a job ended, in order."""
        return [row["outcome"] for row in self.job(handle)["attempts"]]


@contextlib.asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """A worker that lives for the block; it must end by itself after two calls of `stop`."""
    async with starting(app, **options) as (worker, _):
        yield worker


@contextlib.asynccontextmanager
async def starting(app: App, **options: Any) -> "AsyncIterator[tuple[Worker, asyncio.Task[int]]]":
    """As `working`, with the task that it runs in."""
    worker = Worker(app, **options)
    task = asyncio.create_task(worker.run())
    try:
        await asyncio.wait([task, asyncio.create_task(worker.ready())], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield worker, task
    finally:
        worker.stop()
        worker.stop()
        _, late = await asyncio.wait([task], timeout=PATIENCE)
        if late:
            task.print_stack(file=sys.stderr)
            raise AssertionError("the worker does not end")
