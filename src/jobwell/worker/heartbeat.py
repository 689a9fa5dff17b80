"""The heartbeat: its own thread and its own connection, so that neither a blocked loop nor a busy finisher loses the lease.

The same connection listens for wake-ups between two beats.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from jobwell.store.database import Database
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs

log = logging.getLogger("jobwell.worker")

BLOCKED_AFTER = 1.0  # seconds for which the loop may not answer before it is said


class Heartbeat:
    """Renews the lease and passes wake-ups on.

    Args:
        busy: how many jobs run.
        wake: called on a wake-up, from this thread.
        lost: called once when the lease is gone, with the reason, from this thread.
        probe: asks the loop for a sign of life; calls back with it.
    """

    def __init__(
        self,
        database: Database,
        workers: WorkerVerbs,
        worker: UUID,
        *,
        busy: Callable[[], int],
        wake: Callable[[], None],
        lost: Callable[[str], None],
        watch: "LoopWatch",
    ) -> None:
        self._database = database
        self._workers = workers
        self._worker = worker
        self._busy = busy
        self._wake = wake
        self._lost = lost
        self._watch = watch
        self._stopping = threading.Event()
        self.skew = timedelta()  # by how much the database's clock is ahead of this host's
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="jobwell-heartbeat", daemon=True)

    @property
    def silent(self) -> float:
        """Seconds since the last renewal."""
        return time.monotonic() - self._renewed

    def start(self) -> None:
        """Begin. The lease was given at registration, just now."""
        self._renewed = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End; the thread is gone within one beat."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        settings, told = self._database.settings, False
        while not self._stopping.is_set():
            try:
                with self._database.connect("heartbeat", direct=True, patience=settings.lease / 2) as conn:
                    if told:
                        log.info("heartbeat works again")
                        told = False
                    self._serve(conn)
            except Exception as error:  # noqa: BLE001  whatever it is: a heartbeat that stops in silence loses every job
                if self._stopping.is_set():
                    return
                if not told:
                    log.warning("heartbeat waits: %s", error)
                    told = True
                if self.silent > settings.lease:
                    self._lost(f"the lease could not be renewed for {self.silent:.0f} s ({error})")
                    return
                self._watch.look()
                self._stopping.wait(min(0.5, settings.beat / 2))

    def _serve(self, conn: "psycopg.Connection[Any]") -> None:
        settings = self._database.settings
        conn.execute(self._database.statements.listen)
        self._wake()  # what was enqueued while nobody listened
        while not self._stopping.is_set():
            began = time.monotonic()
            told = run(conn, self._workers.renew(self._worker, lease=settings.lease, busy=self._busy()))
            if told is None:
                self._lost("this worker was declared dead; another one has its jobs")
                self._stopping.set()
                return
            self._renewed = began  # the lease counts from before the answer
            self.skew = told - datetime.now(UTC)
            until = began + settings.beat
            while (rest := until - time.monotonic()) > 0 and not self._stopping.is_set():
                for _ in conn.notifies(timeout=min(rest, BLOCKED_AFTER / 2), stop_after=1):
                    self._wake()
                self._watch.look()


class LoopWatch:
    """Notices from outside that the event loop does not answer, and names what blocks it.

    Args:
        ask: schedules a callback on the loop, from any thread.
        report: told of a blockage: for how long, and the stack of the loop's thread.
        stack: reads that stack.
        alive: told at every look that this thread lives.
        over: told at every look for how long the loop has not answered, beyond what is reported.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[], None]], None],
        report: Callable[[float, str], None],
        stack: Callable[[], str],
        *,
        alive: Callable[[], None] = lambda: None,
        over: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._ask = ask
        self._report = report
        self._stack = stack
        self._alive = alive
        self._over = over
        self._asked: float | None = None
        self._reported = False
        self.lag = 0.0

    def look(self) -> None:
        """Ask again, or report that the last question is still open."""
        now = time.monotonic()
        self._alive()
        if self._asked is None:
            self._asked, self._reported = now, False
            self._ask(self._answer)
        elif now - self._asked > BLOCKED_AFTER and not self._reported:
            self._reported = True
            self._report(now - self._asked, self._stack())
        elif self._reported:
            self._over(now - self._asked)

    def _answer(self) -> None:
        if self._asked is not None:
            self.lag = time.monotonic() - self._asked
            self._asked = None
