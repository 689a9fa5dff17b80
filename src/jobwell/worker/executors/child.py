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
import traceback
from collections.abc import Callable, Coroutine, Mapping
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
from jobwell.worker.attempt import run
from jobwell.worker.calls import Calls
from jobwell.worker.checkpoints import Keeping
from jobwell.worker.clock import Clock
from jobwell.worker.executors.threads import deliver
from jobwell.worker.loading import load_app
from jobwell.worker.logs import JobFields
from jobwell.worker.progress import ChildBoard
from jobwell.worker.record import Attempt, Surroundings, begin

PR_SET_PDEATHSIG = 1
FATAL = 70  # the child itself cannot go on
TEARDOWN = 1.0  # seconds for what a job leaves behind on its loop
NUDGE = signal.SIGRTMIN + 9 if sys.platform == "linux" else signal.SIGURG  # wakes the main thread; what it means is in the pipe
LOG_FIELDS = ("name", "levelno", "levelname", "pathname", "lineno", "funcName", "created", "processName", "process")


class Interrupted(BaseException):
    """The parent asked to stop: raised in the middle of the function. No `except Exception` catches it."""


class Main:
    """Runs plain functions on the main thread, while the attempt around them runs on another.

    Attributes:
        busy: whether a function is under way.
        told: whether the function is to be interrupted.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None] = SimpleQueue()
        self._open = False  # an interruption may be raised now
        self._pid = os.getpid()
        self.busy = False
        self.told = False

    def submit(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """From the attempt's thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the attempt did not wait for it, and its loop is closed
                loop.call_soon_threadsafe(lambda: deliver(future, result, error))

        self._work.put((partial(contextvars.copy_context().run, call), done))
        return future

    def serve(self) -> None:
        """On the main thread, until `end`."""
        while (work := self._work.get()) is not None:
            call, done = work
            result, error = None, None
            self.busy = True
            try:
                try:
                    self._open = True
                    if self.told:
                        raise Interrupted("told to stop")
                    result = call()
                finally:
                    self._open = False
            except BaseException as raised:  # noqa: BLE001  whatever it raises is judged in the attempt
                error = raised
            if os.getpid() != self._pid:
                leave_if_copy(self._pid, "".join(traceback.format_exception(error)) if error is not None else "")
            self.busy = False
            done(result, error)

    def end(self) -> None:
        """The attempt is over."""
        self._work.put(None)

    def interrupt(self) -> None:
        """From another thread: stop the function, also where it waits for the system."""
        self.told = True
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, NUDGE)

    def nudged(self, *_: object) -> None:
        """The handler of that signal: raises in the function, once. A stranger's signal does nothing."""
        if self._open and self.told and os.getpid() == self._pid:
            self._open = False
            raise Interrupted("told to stop")


class Child:
    """The process.

    Args:
        pipe: to the parent.
        target: the app, as `load_app` takes it.
        overrides: settings that go before the app's own.
    """

    def __init__(self, pipe: "Connection[Any, Any]", target: str, overrides: Mapping[str, Any]) -> None:
        self.pid = os.getpid()
        self._pipe = pipe
        self._sending = threading.Lock()
        self._app = load_app(target)
        if overrides:
            self._app.override(overrides)
        self._app.load()
        self._main = Main()
        self._orders: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._of = ""
        self._stopped = ""  # the attempt that is to stop; it may be told before it has begun
        self._attempt: Attempt | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered = False
        self._clock = Clock()
        self._board = ChildBoard(self._say)
        self._keeping = Keeping(self._app.client, self._board, self._app.settings.result_limit)

    def serve(self) -> None:
        """Jobs until the pipe closes."""
        os.register_at_fork(after_in_child=self._in_copy)
        threading.Thread(target=self._hear, name="jobwell-orders", daemon=True).start()
        hold_signals(self._main)
        self.send({"ready": True})
        while (order := self._orders.get()) is not None:
            self._clock.goes_by(datetime.fromtimestamp(order["now"], UTC))
            row = Claimed(**{**order["row"], "id": UUID(order["row"]["id"])})
            with self._guard:
                self._of, self._answered, self._main.told = order["of"], False, False
            self._say({"taken": True})
            self._work(begin(row, UUID(order["claim_id"]), self._app.catalog))
            if not self._answered:  # its error was printed; nothing may be said of the job but that its process broke
                os._exit(FATAL)
            hold_signals(self._main)  # whatever the job has made of them

    def _hear(self) -> None:
        """On a thread of its own, so that a job can be told to stop."""
        while True:
            try:
                said = orjson.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                self._orders.put(None)
                return
            if "stop" in said:
                self._stop(said["stop"])
            elif "leave" in said:
                self._keeping.leaving = True
            else:
                self._orders.put(said)

    def _stop(self, of: str) -> None:
        with self._guard:
            self._stopped = of
            if of != self._of or self._attempt is None or self._loop is None:
                return
            self._stop_now(self._attempt, self._loop)

    def _stop_now(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        if _plain(attempt):
            attempt.stop("cancelled")  # first: the interruption is judged by it
            self._main.interrupt()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is over
            loop.call_soon_threadsafe(attempt.stop, "cancelled")

    def _work(self, attempt: Attempt) -> None:
        around = Surroundings(
            self._app.catalog, self._main, self._app.middleware, self._app.settings.result_limit, self._clock.now,
            calls=Calls(self._app.guards, self._clock.now), connections=self._app.client.connections,
            queues=self._app.queues, keeping=self._keeping,
        )  # fmt: skip
        if not _plain(attempt):
            run_loop(self._attend(attempt, around))
            return
        thread = threading.Thread(target=self._aside, args=(attempt, around), name="jobwell-attempt")
        thread.start()
        self._main.serve()
        thread.join()

    def _aside(self, attempt: Attempt, around: Surroundings) -> None:
        try:
            run_loop(self._attend(attempt, around))
        finally:
            self._main.end()

    async def _attend(self, attempt: Attempt, around: Surroundings) -> None:
        """The attempt, and its outcome told at once: what it leaves behind on this loop must not hold that up."""
        with self._guard:
            self._attempt, self._loop = attempt, asyncio.get_running_loop()
            if self._stopped == self._of:
                attempt.stop("cancelled")  # before it runs in anything that could be cancelled
        attempt.running = asyncio.current_task()
        outcome: Outcome | None = None
        try:
            outcome = await run(attempt, around)
        finally:
            failure = getattr(outcome, "failure", None)
            leave_if_copy(self.pid, failure.traceback if failure is not None else "")
            with self._guard:
                self._attempt = self._loop = None
        self._board.flush()
        told = around.calls.dumped() if around.calls is not None else []
        self._say({"outcome": None if outcome is None else dumped(outcome), "busy": self._main.busy, "calls": told})
        self._answered = True

    def _in_copy(self) -> None:
        """In a copy of this process that a job has forked: it is no child of the worker's, and speaks for nobody."""
        self._sending = threading.Lock()  # its holder was not copied
        with contextlib.suppress(OSError):
            self._pipe.close()
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)  # it is shared with the loop of the original, which would take our signals for its own
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _say(self, message: dict[str, Any]) -> None:
        self.send({**message, "of": self._of, "pid": os.getpid()})

    def send(self, message: dict[str, Any]) -> None:
        """One message to the parent."""
        data = orjson.dumps(message, default=str, option=orjson.OPT_NON_STR_KEYS)
        with self._sending, contextlib.suppress(OSError):
            self._pipe.send_bytes(data)


def _plain(attempt: Attempt) -> bool:
    return attempt.spec is not None and not attempt.spec.coroutine


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but for its end: threads are not waited for, and tasks that are deaf to a cancellation only briefly."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with contextlib.suppress(asyncio.CancelledError):  # told to stop, too late: its outcome was told
            loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        try:
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=TEARDOWN))
            with contextlib.suppress(TimeoutError):
                loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), TEARDOWN))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def leave_if_copy(pid: int, trace: str = "") -> None:
    """End this process where it is a copy that a job has forked and that came back to us: it must not answer for the original.

    Args:
        pid: of the original.
        trace: of the error that it came back with.
    """
    if os.getpid() != pid:
        with contextlib.suppress(OSError):
            os.write(2, trace.encode(errors="replace"))
        os._exit(1 if trace else 0)


def hold_signals(main: Main) -> None:
    """A child stops when its parent says so, and at no signal that a terminal or a service manager sends to all processes.

    They are handled by nothing, and not ignored: what a job starts would inherit that.
    """
    signal.signal(signal.SIGINT, _nothing)
    signal.signal(signal.SIGTERM, _nothing)
    signal.signal(NUDGE, main.nudged)


def _nothing(*_: object) -> None:
    pass


class ToParent(logging.Handler):
    """Sends log records to the parent, which has the handlers."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self._child = child
        self._aside = logging.StreamHandler()

    def emit(self, record: logging.LogRecord) -> None:
        """One record, as plain data; what cannot be plain becomes text. A copy that a job has forked writes to stderr."""
        if os.getpid() != self._child.pid:
            self._aside.handle(record)
            return
        try:
            known = logging.makeLogRecord({}).__dict__
            extra = {name: value for name, value in record.__dict__.items() if name not in known and name != "message"}
            fields = {name: getattr(record, name) for name in LOG_FIELDS}
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
            self._child.send({"log": {**extra, **fields, "msg": record.getMessage(), "exc_text": trace}})
        except Exception:  # noqa: BLE001  as every handler: a log line costs nobody the job
            self.handleError(record)


def main(pipe: "Connection[Any, Any]", target: str, folder: str, level: int, overrides: Mapping[str, Any]) -> None:
    """The child's life."""
    os.setsid()  # a group of its own, so that whatever it starts is killed with it
    _die_with_parent()
    os.set_inheritable(pipe.fileno(), False)  # noqa: FBT003  what a job starts has no business with it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _nothing)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        child = Child(pipe, target, overrides)
    except BaseException as error:  # noqa: BLE001  importing the app may raise anything; the parent is told, and this process ends
        with contextlib.suppress(OSError):
            pipe.send_bytes(orjson.dumps({"failed": f"{type(error).__name__}: {error}"}))
        os._exit(FATAL)
    handler = ToParent(child)
    handler.addFilter(JobFields())  # here, where the job is known
    logging.basicConfig(level=level, handlers=[handler], force=True)
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
