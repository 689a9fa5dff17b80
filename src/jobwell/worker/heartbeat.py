"""The heartbeat: its own thread and its own connection, so that neither a blocked loop nor a busy finisher loses the lease.

The same connection listens for wake-ups between two beats.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from uuid import UUID

from jobwell.core.errors import StoreError
from jobwell.store.database import Database
from jobwell.store.statements import run
from jobwell.store.wire import PlainConnection, Silence
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.clock import Clock
from jobwell.worker.ears import Ears

log = logging.getLogger("jobwell.worker")

DIRECT_PATIENCE = 2.0  # seconds for the direct URL, when there is another way
AGAIN = 5.0  # seconds until the direct URL is tried again
AGAIN_POOLED = 60.0  # seconds until a path that leads through a pooler is looked at again
GIVE_UP = 0.8  # of the lease without a renewal: what runs is stopped before others may have it
BLOCKED_AFTER = 1.0  # seconds for which the loop may not answer before it is said


class Heartbeat:
    """Renews the lease and passes wake-ups on.

    Args:
        busy: how many jobs run.
        wake: called on a wake-up, from this thread.
        lost: called once when the lease is gone, with the reason, from this thread.
        watch: asks the loop for a sign of life.
        ears: judges whether wake-ups arrive.
        clock: told the database's time at each renewal.
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
        ears: Ears,
        clock: Clock,
    ) -> None:
        self._database = database
        self._workers = workers
        self._worker = worker
        self._busy = busy
        self._wake = wake
        self._lost = lost
        self._watch = watch
        self._ears = ears
        self.clock = clock
        self._ready: PlainConnection | None = None
        self._suspect = ""  # how the direct URL fell silent: to ask it again first would cost the lease
        self._again_at = 0.0  # when a connection that cannot listen is exchanged for another try
        self._stopping = threading.Event()
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="jobwell-heartbeat", daemon=True)

    @property
    def silent(self) -> float:
        """Seconds since the last renewal."""
        return time.monotonic() - self._renewed

    def prepare(self) -> None:
        """Have its connection, before a lease is asked for that could not be renewed. Blocks.

        Raises:
            StoreUnavailable: there is none to be had.
        """
        if self._ready is None:
            self._ready = self._connection()

    def drop(self) -> None:
        """Give that back."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()

    def start(self) -> None:
        """Begin. The lease was given at registration, just now."""
        self._renewed = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End; the thread is gone within one beat."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait for its end."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        settings, told = self._database.settings, False
        while not self._stopping.is_set():
            try:
                conn, self._ready = self._ready or self._connection(), None
                with conn:
                    if told:
                        log.info("heartbeat works again")
                        told = False
                    self._serve(conn)
            except Exception as error:  # noqa: BLE001  whatever it is: a heartbeat that stops in silence loses every job
                self._ears.end()
                if isinstance(error, Silence) and not self._again_at and settings.direct_url:
                    self._suspect = str(error)
                if self._stopping.is_set():
                    return
                if not told:
                    log.warning("heartbeat waits: %s", error)
                    told = True
                if self.silent > settings.lease * GIVE_UP:
                    self._lost(f"the lease could not be renewed for {self.silent:.0f} s ({error})")
                    return
                self._watch.look()
                self._stopping.wait(min(0.5, settings.beat / 2) * random.uniform(0.5, 1.5))  # noqa: S311

    def _connection(self) -> PlainConnection:
        """Past the pooler, if there is a way; the lease is worth more than wake-ups, so any way is good."""
        database, lease = self._database, self._database.settings.lease
        self._again_at, why, self._suspect = 0.0, self._suspect, ""
        if database.settings.direct_url and not why:
            try:
                conn = database.connect("heartbeat", direct=True, patience=min(DIRECT_PATIENCE, lease / 3))
            except StoreError as error:
                why = error.message
            else:
                conn.silence, conn.cancelling = lease / 3, 0.0
                return conn
        conn = database.connect("heartbeat", patience=lease / 3)
        conn.cancelling = 0.0  # a renewal that comes late does no harm; the second that a cancel takes may cost the lease
        if why:
            self._again_at = time.monotonic() + AGAIN
            self._ears.deaf(f"direct_url does not work ({why})")
        return conn

    def _listen(self, conn: PlainConnection) -> None:
        database = self._database
        if self._again_at:
            return
        direct = database.settings.direct_url
        if (database.pooled and not direct) or (database.settings.pooler != "none" and database.is_pooled(conn)):
            self._again_at = time.monotonic() + AGAIN_POOLED
            self._ears.deaf(
                f"{'direct_url' if direct else 'database_url'} leads through a pooler, which brings no notifications;"
                " set direct_url (JOBWELL_DIRECT_URL) to the server past it"
            )
            return
        conn.execute(database.statements.listen)
        conn.execute(database.statements.listen_to(self._worker))
        self._ears.begin()

    def _serve(self, conn: PlainConnection) -> None:
        settings, statements = self._database.settings, self._database.statements
        self._listen(conn)
        listens = not self._again_at
        self._wake()  # what was enqueued while nobody listened
        while not self._stopping.is_set() and not (conn.way and conn.way.left):
            if listens and statements.channel not in run(conn, self._workers.listens()):
                raise StoreError("the subscription to wake-ups is gone; subscribing again")
            began, mode = time.monotonic(), self._ears.mode
            told = run(conn, self._workers.renew(
                self._worker, lease=settings.lease, busy=self._busy(), wakeups=mode, skew=self.clock.skew,
                lag=self._watch.worst()))  # fmt: skip
            if told is None:
                if self._stopping.is_set():  # it has left by itself meanwhile
                    return
                self._lost("this worker was declared dead; another one has its jobs")
                self._stopping.set()
                return
            self._renewed = began  # the lease counts from before the answer
            self.clock.said(*told, began)
            until = began + settings.beat
            while (rest := until - time.monotonic()) > 0 and not self._stopping.is_set() and self._ears.mode == mode:
                self._hear(conn, min(rest, BLOCKED_AFTER / 2))
                self._watch.look()
            if self._again_at and time.monotonic() > self._again_at:
                return

    def _hear(self, conn: PlainConnection, seconds: float) -> None:
        for note in conn.notifies(timeout=seconds, stop_after=1):
            if note.channel == self._database.statements.channel:
                self._wake()
            else:
                self._ears.heard(note.payload)
        self._ears.look()


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
        self._worst = 0.0

    def worst(self) -> float:
        """The longest time that the loop took to answer since the last call, or has been taking until now."""
        asked, worst = self._asked, self._worst
        self._worst = 0.0
        return max(worst, time.monotonic() - asked if asked is not None else 0.0)

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
            self._worst = max(self._worst, time.monotonic() - self._asked)
            self._asked = None
