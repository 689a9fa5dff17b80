"""A child process: runs one job at a time, each a whole attempt, and sends the outcome back as plain data.

The main thread belongs to the jobs: a plain function runs there with nothing around it, so that signals reach it; an async one
gets a loop of its own there.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any
from uuid import UUID

import orjson

from jobwell.core.outcome import Outcome, dumped
from jobwell.store.jobs import Claimed
from jobwell.worker.attempt import Attempt, Surroundings, begin, run
from jobwell.worker.loading import load_app
from jobwell.worker.logs import JobFields

PR_SET_PDEATHSIG = 1
FATAL = 70  # the child itself cannot go on
LOG_FIELDS = ("name", "levelno", "levelname", "pathname", "lineno", "funcName", "created", "processName", "process")


class Interrupted(BaseException):
    """The parent asked to stop: raised in the middle of the function. No `except Exception` catches it."""


class Main:
    """Runs plain functions on the main thread, while the attempt around them runs on another."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self.running = False

    def submit(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """From the attempt's thread."""
        future: Future[Any] = Future()
        self._work.put((partial(contextvars.copy_context().run, call), future))
        return asyncio.wrap_future(future)

    def serve(self) -> None:
        """On the main thread, until `end`."""
        while (work := self._work.get()) is not None:
            call, future = work
            try:
                self.running = True
                result = call()
                self.running = False
            except BaseException as error:  # noqa: BLE001  whatever it raises is judged in the attempt
                self.running = False
                future.set_exception(error)
            else:
                future.set_result(result)

    def end(self) -> None:
        """The attempt is over."""
        self._work.put(None)


class Child:
    """The process.

    Args:
        pipe: to the parent.
        target: the app, as `load_app` takes it.
    """

    def __init__(self, pipe: "Connection[Any, Any]", target: str) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._app = load_app(target)
        self._app.load()
        self._main = Main()
        self._attempt: Attempt | None = None
        self._plain = False
        self._skew = 0.0

    def serve(self) -> None:
        """Jobs until the pipe closes."""
        self.send({"ready": True})
        while True:
            try:
                order = orjson.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                return
            self._skew = order["now"] - datetime.now(UTC).timestamp()
            row = Claimed(**{**order["row"], "id": UUID(order["row"]["id"])})
            outcome = self._work(begin(row, UUID(order["claim_id"]), self._app.catalog))
            self.send({"outcome": None if outcome is None else dumped(outcome)})

    def _work(self, attempt: Attempt) -> Outcome | None:
        app = self._app
        around = Surroundings(app.catalog, self._main, app.middleware, app.settings.result_limit, self._now)
        spec = attempt.spec
        self._attempt = attempt
        self._plain = spec is not None and not spec.coroutine
        try:
            if not self._plain:
                return asyncio.run(self._on_loop(attempt, around))
            found: list[Outcome | None] = []
            thread = threading.Thread(target=self._aside, args=(attempt, around, found), name="jobwell-attempt")
            thread.start()
            self._main.serve()
            thread.join()
            return found[0]
        finally:
            self._attempt = None
            signal.signal(signal.SIGTERM, self.stop)  # a loop that ends takes its handler with it

    async def _on_loop(self, attempt: Attempt, around: Surroundings) -> Outcome | None:
        attempt.running = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, attempt.stop, "cancelled")
        return await run(attempt, around)

    def _aside(self, attempt: Attempt, around: Surroundings, found: list[Outcome | None]) -> None:
        try:
            found.append(asyncio.run(run(attempt, around)))
        finally:
            self._main.end()

    def stop(self, *_: object) -> None:
        """SIGTERM while a plain function runs, or nothing."""
        attempt = self._attempt
        if attempt is None:
            return
        attempt.stop("cancelled")
        if self._main.running:
            raise Interrupted("told to stop")

    def _now(self) -> datetime:
        return datetime.fromtimestamp(datetime.now(UTC).timestamp() + self._skew, UTC)

    def send(self, message: dict[str, Any]) -> None:
        """One message to the parent."""
        data = orjson.dumps(message, default=str, option=orjson.OPT_NON_STR_KEYS)
        with self._sending, contextlib.suppress(OSError):
            self._pipe.send_bytes(data)


class ToParent(logging.Handler):
    """Sends log records to the parent, which has the handlers."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        """One record, as plain data; what cannot be plain becomes text."""
        try:
            known = logging.makeLogRecord({}).__dict__
            extra = {name: value for name, value in record.__dict__.items() if name not in known and name != "message"}
            fields = {name: getattr(record, name) for name in LOG_FIELDS}
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
            self._child.send({"log": {**extra, **fields, "msg": record.getMessage(), "exc_text": trace}})
        except Exception:  # noqa: BLE001  as every handler: a log line costs nobody the job
            self.handleError(record)


def main(pipe: "Connection[Any, Any]", target: str, folder: str, level: int) -> None:
    """The child's life."""
    os.setsid()  # a group of its own, so that whatever it starts is killed with it
    _die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        child = Child(pipe, target)
    except BaseException as error:  # noqa: BLE001
        with contextlib.suppress(OSError):
            pipe.send_bytes(orjson.dumps({"failed": f"{type(error).__name__}: {error}"}))
        os._exit(FATAL)
    handler = ToParent(child)
    handler.addFilter(JobFields())  # here, where the job is known
    logging.basicConfig(level=level, handlers=[handler], force=True)
    signal.signal(signal.SIGTERM, child.stop)
    child.serve()
    os._exit(0)  # threads that a job has left behind do not keep it


def _die_with_parent() -> None:
    """However the worker goes, nothing of it goes on: what it ran is run again, and must not run beside itself.

    The kernel kills us with the fork server, whose child we are; and that ends with the worker only where none of its children
    holds the worker's end of its pipe, which each was given. So we let go of it. Where there is no such kernel, or it is not in
    time, a thread sees the worker's own pipe close.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    server = vars(forkserver._forkserver)  # noqa: SLF001  there is no public way
    held, server["_forkserver_alive_fd"] = server.get("_forkserver_alive_fd"), None
    if held is not None:
        os.close(held)
    threading.Thread(target=_watch_parent, name="jobwell-parent", daemon=True).start()


def _watch_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)
