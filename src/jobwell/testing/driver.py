"""Where attempts run in a test: in its own thread, on a private loop or on the loop of the test; never beside it."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from jobwell.store.database import Database
from jobwell.testing.errors import TestbedError
from jobwell.testing.link import BlockingLink
from jobwell.worker.executors.threads import Threads, deliver

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

T = TypeVar("T")
Call = tuple[Callable[[], Any], "asyncio.Future[Any]", contextvars.Context]


class Here(Threads):
    """Plain functions run on the thread of the test while its private loop stands.

    So they see the same thread-local things as the test (a framework's database connection, for one), and, as on a worker's
    thread, no loop runs there: `asyncio.run` works.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._calls: list[Call] = []
        self.ended: Callable[[], None] = lambda: None  # called before a result is delivered: it may be too late

    def submit(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Stop the loop, so that the driver runs it."""
        future = self._loop.create_future()
        self._calls.append((call, future, contextvars.copy_context()))
        self._loop.stop()
        return future

    def serve(self) -> None:
        """Run what has been submitted."""
        calls, self._calls = self._calls, []
        for call, future, context in calls:
            result, error = None, None
            try:
                result = context.run(call)
            except BaseException as raised:  # noqa: BLE001  as on a worker's thread; the runner lets a Ctrl-C go on
                error = raised
            self.ended()
            deliver(future, result, error)
            del result, error


class Beside(Threads):
    """Plain functions run on threads, as on a worker, because the loop of the test goes on; the threads end with the drain."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._threads: list[tuple[threading.Thread, asyncio.Future[Any]]] = []
        self.ended: Callable[[], None] = lambda: None

    def submit(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Begin now."""
        future = self._loop.create_future()
        context = contextvars.copy_context()
        thread = threading.Thread(target=self._run, args=(call, future, context), name="jobwell-testing", daemon=True)
        self._threads.append((thread, future))
        thread.start()
        return future

    def _run(self, call: Callable[[], Any], future: "asyncio.Future[Any]", context: contextvars.Context) -> None:
        result, error = None, None
        try:
            result = context.run(call)
        except BaseException as raised:  # noqa: BLE001  as on a worker's thread
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(deliver, future, result, error)

    def close(self) -> None:
        """Join them; one that was left behind by its time limit cannot be stopped."""
        for thread, future in self._threads:
            if not future.cancelled():
                thread.join(5.0)
        self._threads.clear()


class Driver:
    """Runs coroutines to their end in the calling thread, on a loop that is kept from test to test with the connection.

    Args:
        database: where the connection leads.
    """

    def __init__(self, database: Database) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.link = BlockingLink(database)
        self.threads: Here | None = None

    def run(self, make: Callable[[Here], Coroutine[Any, Any, T]], instead: str) -> T:
        """Run it.

        Args:
            make: makes the coroutine, given where plain functions run.
            instead: what to call where a loop runs already.

        Raises:
            TestbedError: a loop runs in this thread.
        """
        if running():
            raise TestbedError(f"an event loop runs here; call {instead} instead")
        loop, threads = self._ready()
        task = loop.create_task(make(threads), context=contextvars.Context())
        task.add_done_callback(lambda _: loop.stop())
        try:
            while not task.done():
                loop.run_forever()
                threads.serve()
        except BaseException:  # a Ctrl-C, or a signal handler's error: what is under way is given up
            self._calm(loop)
            raise
        return task.result()

    def calm(self) -> None:
        """Cancel what tasks have left on the loop: in production it would go on, here it would reach into the next test."""
        loop = self._loop
        if loop is not None and asyncio.all_tasks(loop):
            _aside(lambda: self._calm(loop))

    def close(self) -> None:
        """Close connection and loop."""
        self.link.shut()
        loop, self._loop = self._loop, None
        if loop is not None:
            _aside(lambda: self._end(loop))

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._calm(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _ready(self) -> tuple[asyncio.AbstractEventLoop, Here]:
        if self._loop is None or self.threads is None:
            self._loop = asyncio.new_event_loop()
            self.threads = Here(self._loop)
        return self._loop, self.threads

    @staticmethod
    def _calm(loop: asyncio.AbstractEventLoop) -> None:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=2.0))


def running() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _aside(call: Callable[[], None]) -> None:
    """Run a loop for a moment, also where another one runs in this thread."""
    if not running():
        call()
        return
    thread = threading.Thread(target=call, name="jobwell-testing")
    thread.start()
    thread.join()
