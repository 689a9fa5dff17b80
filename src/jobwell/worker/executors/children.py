"""Children: processes that are the worker's own, one job at a time each, warm, and killed with everything they started.

The standard pool does not do: one death breaks it for all, and it has no way to kill one job.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import orjson
import psutil

from jobwell.core.outcome import Outcome, Succeeded, loaded
from jobwell.store.jobs import Claimed
from jobwell.worker.executors.threads import Threads

log = logging.getLogger("jobwell.worker")

KILL_AFTER = 3.0  # seconds from the soft signal to the hard one
START_PATIENCE = 60.0  # seconds for the user's modules to be imported
MOST_JOBS = 1000  # then a fresh one: what a library leaks is given back
MOST_AGE = 3600.0
LOOK = 0.25  # seconds between two looks at its memory


class Died(Exception):
    """A child died in the middle of a job.

    Args:
        how: the signal or the exit code, and the host.
    """

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class TooMuchMemory(Exception):
    """A child was killed because it held more than its task may."""


class CannotStart(Exception):
    """No child can be started; the message says why."""


@dataclass(eq=False)
class Kept:
    """One child."""

    process: Any
    pipe: "Connection[Any, Any]"
    born: float
    jobs: int = 0
    killed_for: str = ""
    guard: threading.Lock = field(default_factory=threading.Lock)

    def signal(self, number: int) -> None:
        """To the whole group; nothing where it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Children:
    """Runs jobs in children.

    Args:
        size: how many at the most; they are made when they are needed.
        target: the app, as `load_app` takes it.
        threads: where one waits for each of them.
        now: the database's time.
    """

    def __init__(self, size: int, target: str, threads: Threads, now: Callable[[], datetime]) -> None:
        self.size = size
        self.deaths = 0
        self._target = target
        self._threads = threads
        self._now = now
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["jobwell.worker.executors.child"])
        self._idle: list[Kept] = []
        self._working: set[Kept] = set()
        self._closed = False

    async def run(self, row: Claimed, claim_id: Any, memory: int | None) -> Outcome | None:
        """One attempt in a child.

        Cancelled, it sends the child a soft signal, kills its whole group after `KILL_AFTER`, and then raises the cancellation.
        An attempt that has succeeded meanwhile is returned all the same.

        Raises:
            Died: the child died of itself.
            TooMuchMemory: it held more than `memory` bytes.
            CannotStart: there is no child to run it.
        """
        kept = self._idle.pop() if self._idle else await self._threads.submit(self._start)
        self._working.add(kept)
        order = orjson.dumps({"row": row._asdict(), "claim_id": claim_id, "now": self._now().timestamp()})
        exchange = asyncio.ensure_future(self._threads.submit(lambda: self._exchange(kept, order, memory)))
        cancelled: asyncio.CancelledError | None = None
        while not exchange.done():
            try:
                await asyncio.wait([exchange], timeout=None if cancelled is None else KILL_AFTER)
            except asyncio.CancelledError as error:
                first, cancelled = cancelled is None, error
                kept.killed_for = kept.killed_for or "it was told to stop"
                kept.signal(signal.SIGTERM if first else signal.SIGKILL)
            else:
                if cancelled is not None and not exchange.done():
                    kept.signal(signal.SIGKILL)
        self._working.discard(kept)
        try:
            outcome: Outcome | None = exchange.result()
        except Died:
            if cancelled is not None:
                raise cancelled from None
            raise
        if cancelled is not None:
            self._end(kept)  # whatever the signal has left in it
            if not isinstance(outcome, Succeeded):
                raise cancelled
        elif kept.jobs >= MOST_JOBS or time.monotonic() - kept.born > MOST_AGE or self._closed:
            self._end(kept)
        else:
            self._idle.append(kept)
        return outcome

    def _start(self) -> Kept:
        from jobwell.worker.executors import child as child_module  # it imports the attempt, which knows us

        ours, theirs = self._context.Pipe()
        level = logging.getLogger().level
        process = self._context.Process(
            target=child_module.main, args=(theirs, self._target, str(Path.cwd()), level), name="jobwell-child"
        )  # fmt: skip
        process.start()
        theirs.close()
        kept = Kept(process, ours, time.monotonic())
        if not wait([ours, process.sentinel], START_PATIENCE):
            self._end(kept)
            raise CannotStart(f"a child process was not ready within {START_PATIENCE:.0f} s")
        try:
            said = orjson.loads(ours.recv_bytes())
        except (EOFError, OSError):
            process.join(1.0)
            raise CannotStart(f"a child process died at its start: {_how(process.exitcode)}") from None
        if "failed" in said:
            raise CannotStart(f"a child process could not load {self._target}: {said['failed']}")
        return kept

    def _exchange(self, kept: Kept, order: bytes, memory: int | None) -> Outcome | None:
        """On a thread: the order out, log lines and the outcome in."""
        kept.jobs += 1
        with contextlib.suppress(EOFError, OSError):
            kept.pipe.send_bytes(order)
            while True:
                # Its death is seen also where something that it started holds the other end of the pipe open.
                ready = wait([kept.pipe, kept.process.sentinel], LOOK if memory is not None else None)
                if kept.pipe in ready or (ready and kept.pipe.poll()):
                    said = orjson.loads(kept.pipe.recv_bytes())
                    if "outcome" in said:
                        return None if said["outcome"] is None else loaded(said["outcome"])
                    _relay(said["log"])
                elif ready:
                    break
                elif memory is not None and _held(kept.process.pid) > memory:
                    kept.killed_for = "memory"
                    kept.signal(signal.SIGKILL)
                    memory = None
        raise self._death(kept)

    def _death(self, kept: Kept) -> Exception:
        kept.process.join(KILL_AFTER)
        kept.signal(signal.SIGKILL)  # what it has started goes with it
        if kept.killed_for == "memory":
            return TooMuchMemory("its process held more memory than it may")
        self.deaths += 1
        return Died(f"{_how(kept.process.exitcode)} on {socket.gethostname()}")

    def _end(self, kept: Kept) -> None:
        kept.signal(signal.SIGKILL)
        kept.pipe.close()
        threading.Thread(target=kept.process.join, name="jobwell-reaper", daemon=True).start()

    def close(self) -> None:
        """Kill them all; what still ran was handed back before."""
        self._closed = True
        for kept in [*self._idle, *self._working]:
            self._end(kept)
        self._idle.clear()


def _how(code: int | None) -> str:
    if code is None:
        return "its process is gone"
    if code >= 0:
        return f"its process ended with code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    return f"its process was killed by {name}" + (" (out of memory, perhaps)" if -code == signal.SIGKILL else "")


def _held(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += each.memory_info().rss
    return total


def _relay(fields: dict[str, Any]) -> None:
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
