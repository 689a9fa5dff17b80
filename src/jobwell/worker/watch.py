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
from jobwell.worker.attempt import Attempt
from jobwell.worker.escape import settle
from jobwell.worker.heartbeat import LoopWatch
from jobwell.worker.pulse import Pulse

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
    ) -> None:
        self._database = database
        self._worker = worker
        self._running = running
        self._ended = ended
        self._now = now
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        pulse = Pulse.of_process()
        over = self._escape if os.environ.get("JOBWELL_CHILD") else lambda _: None
        self.of_loop = LoopWatch(self.on_loop, self._blocked, self._stack, alive=lambda: pulse.beat(told()), over=over)

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
            task = asyncio.current_task(self._loop)
            culprit = next((a for a in self._running if a.running is task), None) if task else None
            if culprit is None or time.monotonic() < culprit.limit_at + ESCAPE_AFTER:
                return
            log.error(
                "job %s (%s) has blocked the event loop for %.0f s, over its time limit; it is recorded as timed out, its"
                " neighbours go back, and this process is replaced", culprit.job.id, culprit.job.task, seconds,
            )  # fmt: skip
            try:
                settle(self._database, self._worker, culprit=culprit, running=self._running, ended=self._ended(), now=self._now)
            finally:
                logging.shutdown()
                os._exit(EXIT_BLOCKED)
