"""What is seen of a worker from outside its loop: blockages are named, and where one is over its limit, the process is left."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from jobwell.core.outcome import Outcome
from jobwell.store.database import Database
from jobwell.worker.escape import settle
from jobwell.worker.heartbeat import LoopWatch
from jobwell.worker.pulse import Pulse
from jobwell.worker.record import Attempt

log = logging.getLogger("jobwell.worker")

EXIT_BLOCKED = 5
ESCAPE_AFTER = 1.0  # seconds beyond a time limit after which a blocked loop is left behind


class Watch:
    """Looks at the loop of a worker; made on it, and used by the heartbeat's thread.

    Args:
        running: the attempts.
        ended: outcomes that wait to be stored.
        now: the database's time.
        told: what the supervisor may know.
        kill: kills the children.
    """

    def __init__(
        self,
        database: Database,
        worker: UUID,
        *,
        running: Iterable[Attempt],
        ended: Callable[[], list[tuple[Attempt, Outcome]]],
        now: Callable[[], datetime],
        told: Callable[[], dict[str, Any]],
        kill: Callable[[], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._running = running
        self._ended = ended
        self._now = now
        self._told = told
        self._kill = kill
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._pulse = Pulse.of_process()
        over = self._escape if os.environ.get("JOBWELL_CHILD") else lambda _: None
        self.of_loop = LoopWatch(self.on_loop, self._blocked, self._stack, alive=self.beat, over=over)

    def beat(self) -> None:
        """A sign of life to the supervisor, with what it may know."""
        self._pulse.beat(self._told())

    def alive(self) -> None:
        """A sign of life of a worker that has not begun."""
        self._pulse.beat()

    def on_loop(self, call: Callable[[], None]) -> None:
        """Schedule a call on the loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended; so has the worker
            self._loop.call_soon_threadsafe(call)

    def tell(self, call: Callable[..., None], *given: Any) -> None:
        """The same with arguments."""
        self.on_loop(partial(call, *given))

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  there is no other way to see where a thread stands
        return "".join(traceback.format_stack(frame)) if frame else ""

    def _blocked(self, seconds: float, stack: str) -> None:
        names = ", ".join(sorted({a.job.task for a in self._running if a.spec and a.spec.executor == "async"}))
        log.warning("the event loop has been blocked for %.1f s by one of: %s\n%s", seconds, names or "no job", stack)

    def _escape(self, seconds: float) -> None:
        """The loop has stood still for so long. Where a job over its limit is the reason, end."""
        with contextlib.suppress(Exception):  # it asks another thread's loop: whatever is wrong there, the next look asks again
            culprits = self._culprits(seconds)
            if culprits is None:
                return
            names = ", ".join(f"{each.job.id} ({each.job.task})" for each in culprits) or "none that is known"
            log.error(
                "the event loop has stood still for %.0f s, and is left; over their time limit, and recorded so: %s; the others"
                " go back, and this process is replaced", seconds, names,
            )  # fmt: skip
            try:
                self._kill()
                settle(self._database, self._worker, culprits=culprits, running=self._running, ended=self._ended(), now=self._now)
            finally:
                logging.shutdown()
                os._exit(EXIT_BLOCKED)

    def _culprits(self, seconds: float) -> list[Attempt] | None:
        """Whom to blame for a loop that stands still; None: nobody yet.

        The attempt that runs there now, or else (a task that it made, a callback, a handler) all async ones over their limit.
        Where there are none, the loop is left when it has stood still for as long as a process may.
        """
        task, now = asyncio.current_task(self._loop), time.monotonic()
        on_loop = [a for a in self._running if not a.apart and a.spec is not None and a.spec.coroutine]
        found = [a for a in on_loop if task is not None and a.running is task] or on_loop
        over = [a for a in found if now > a.limit_at + ESCAPE_AFTER]
        return over if over or seconds > self._database.settings.hang else None
