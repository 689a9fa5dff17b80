"""Threads for plain functions. Python cannot stop a thread: one that outlives its time limit is left behind and replaced.

The standard pool does not do: it cannot replace a stuck thread, and it joins stuck ones when the process wants to end.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, Protocol

Work = tuple[Callable[[], Any], "asyncio.Future[Any]", contextvars.Context]


class Plain(Protocol):
    """Where plain functions run: on threads, or in a child on its main one."""

    def submit(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Run it; its result or its error."""


class Threads:
    """Runs callables, each on a thread of its own while it runs; threads are kept for the next one.

    Args:
        loop: where results are delivered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._idle = 0
        self._made = 0
        self._guard = threading.Lock()
        self._under_way: set[asyncio.Future[Any]] = set()

    def submit(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Begin now, with a copy of the caller's context variables.

        Cancelling the future does not stop the function: its late result is dropped.
        """
        future = self._loop.create_future()
        self._under_way.add(future)
        with self._guard:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._made += 1
                threading.Thread(target=self._serve, name=f"jobwell-{self._made}", daemon=True).start()
        self._work.put((call, future, contextvars.copy_context()))
        return future

    @property
    def stuck(self) -> int:
        """Functions that were left behind and have not come back: their attempts are over, their threads are not."""
        return sum(future.cancelled() for future in self._under_way)

    def close(self) -> None:
        """Let idle threads end."""
        with self._guard:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._work.put(None)

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            call, future, context = work
            result, error = None, None
            try:
                result = context.run(call)
            except BaseException as raised:  # noqa: BLE001  SystemExit included: it ends the attempt, not the process
                error = raised
            del call, context, work
            with self._guard:
                self._idle += 1
            try:
                self._loop.call_soon_threadsafe(self._deliver, future, result, error)
            except RuntimeError:  # the loop is closed: the worker has ended meanwhile
                return
            del result, error, future

    def _deliver(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._under_way.discard(future)
        deliver(future, result, error)


def deliver(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Give a future what a function has returned or raised; on the loop's thread."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | GeneratorExit):  # a future refuses the one, a coroutine takes the other for its end
        stand_in = RuntimeError(f"the task raised {type(error).__name__}")
        stand_in.__cause__ = error
        future.set_exception(stand_in)
    else:
        future.set_exception(error)
