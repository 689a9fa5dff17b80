"""One worker process: composes the services and lives from registration to the last hand-back.

* fetcher: claims for free slots
* finisher: stores outcomes
* heartbeat: renews the lease, passes wake-ups on
* limits: stops what is over its time
* orders: what operators tell: cancelled jobs, and to end
* due, rescue, prune, bulk: housekeeping, done by any worker
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

import jobwell
from jobwell.app import App
from jobwell.core.errors import SettingsError, StoreError, StoreUnavailable
from jobwell.core.events import JobStarted, LeaseLost, WorkerStarted, WorkerStopping
from jobwell.core.ids import alone, new_id
from jobwell.core.outcome import Outcome, Released, Succeeded
from jobwell.core.published import publish
from jobwell.runtime.loop import Loop
from jobwell.store import catalog
from jobwell.store.database import Database, is_lost
from jobwell.store.jobs import Claimed, JobVerbs
from jobwell.store.link import Link
from jobwell.store.pool import pauses
from jobwell.store.statements import Program, arun
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.store.workers import WorkerVerbs
from jobwell.worker import logs
from jobwell.worker.attempt import Attempt, Surroundings, begin, run
from jobwell.worker.ears import Ears, Echo
from jobwell.worker.escape import settle
from jobwell.worker.events import OUTCOMES, Hub
from jobwell.worker.executors.children import Children
from jobwell.worker.executors.threads import Threads
from jobwell.worker.fetcher import Apart, Fetcher
from jobwell.worker.finisher import Finisher
from jobwell.worker.heartbeat import Heartbeat, LoopWatch
from jobwell.worker.housekeeping.bulk import Bulk
from jobwell.worker.housekeeping.due import Due
from jobwell.worker.housekeeping.orders import Orders
from jobwell.worker.housekeeping.prune import Prune
from jobwell.worker.housekeeping.rescue import Rescue
from jobwell.worker.limits import Limits
from jobwell.worker.loading import name_of
from jobwell.worker.pulse import Pulse

log = logging.getLogger("jobwell.worker")

EXIT_OK, EXIT_FAILED, EXIT_LOST, EXIT_STUCK, EXIT_BLOCKED, EXIT_ASKED = 0, 1, 3, 4, 5, 6
FAULT_DELAY = 30.0  # seconds: what breaks the worker must not do so in a circle
BATCH = 500  # jobs: below it a statement costs more than it carries
LONGEST_PAUSE = 2.0  # seconds between two attempts to begin
ESCAPE_AFTER = 1.0  # seconds beyond a time limit after which a blocked loop is left behind
CLAIM_PATIENCE = 2.0  # seconds for what is under way with the store when the worker stops


class Worker:
    """Works until it is told to stop.

    Args:
        app: with its tasks loaded.
        queues: which to serve (default: the settings', then all that the app declares).
        slots: jobs at once.
        id: fresh for every start (the supervisor gives it, so that it can speak for a dead child).
        fit: checks tables and server before anything is promised; its errors end the start, but for StoreUnavailable.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = (),
        slots: int | None = None,
        id: UUID | None = None,
        fit: Callable[[], None] = lambda: None,
    ) -> None:
        settings = app.settings
        self.id = id or new_id()
        self.queues = tuple(queues) or settings.queues or app.queues
        self.slots = slots or settings.slots
        self._batch = max(1, self.slots // 4, min(self.slots // 2, BATCH))
        self._fit = fit
        self._app = app
        self._settings = settings
        self._database: Database = app.database
        self._running: dict[tuple[UUID, UUID], Attempt] = {}
        self._stop = asyncio.Event()
        self._at_once = False
        self._exit = EXIT_OK
        self._ready = asyncio.Event()
        self._apart = 0  # of these, in children: they take no slot
        self.finished = 0

    @property
    def busy(self) -> int:
        """Jobs whose slots are taken."""
        return len(self._running)

    @property
    def stuck(self) -> int:
        """Threads left behind by time limits."""
        return self._threads.stuck

    async def ready(self) -> None:
        """Wait until it is registered and claims."""
        await self._ready.wait()

    def stop(self) -> None:
        """Begin to drain: no more claims; what runs has the grace to end. The second call ends the grace."""
        if self._stop.is_set():
            self._at_once = True
            self._wake_drain()
        self._stop.set()

    async def run(self) -> int:
        """Live. Returns the exit code: 0 drained, 1 a service failed for good, 3 the lease was lost, 4 too many stuck threads.

        A store that cannot be reached, or has no room, is waited for.

        Raises:
            StoreError: the store cannot be used as it is; nothing was claimed.
        """
        self._compose()
        heartbeat = self._pulse
        try:
            begun = await self._begin_life()
        except BaseException:
            self._threads.close()
            raise
        if not begun:
            self._threads.close()
            return self._exit
        heartbeat.start()
        for loop in self._loops:
            loop.start()
        self._ready.set()
        self._hub.tell(WorkerStarted, queues=tuple(self.queues), slots=self.slots)
        try:
            await self._stop.wait()
            await self._drain()
        finally:
            heartbeat.stop()
            for loop in self._loops:
                await loop.stop()
            await self._leave()
            await self._hub.close()
            if self._children is not None:
                self._children.close()
            self._threads.close()
            await self._echo.close()
            for link in (self._claims, self._ends):
                await link.close()
            await asyncio.to_thread(heartbeat.join, 2.0)
        return self._exit

    def _compose(self) -> None:
        settings, database = self._settings, self._database
        self._jobs = JobVerbs(database.statements)
        self._workers = WorkerVerbs(database.statements)
        self._claims = Link(database, "claims")
        self._ends = Link(database, "finish")
        self._pulse = self._heartbeat()
        self._threads = Threads(asyncio.get_running_loop())
        self._children = self._make_children()
        self._around = Surroundings(
            self._app.catalog, self._threads, self._app.middleware, settings.result_limit, self._now, self._children
        )
        self._drained = asyncio.Event()
        self._fetcher = Fetcher(
            worker=self.id, queues=self.queues, catalog=self._app.catalog, jobs=self._jobs, workers=self._workers,
            link=self._claims, longest_rest=settings.poll, free=self._free, begin=self._begin, held=self._held,
            clock=time.monotonic, reconcile_every=settings.lease, batch=self._batch, apart=self._what_runs_apart(),
        )  # fmt: skip
        due = Due(self._jobs, self._claims, settings.poll, self._wake_fetcher)
        hub = self._hub = Hub(self._app.handlers, self._threads, self.id, self._now)
        self._starts = hub.wants(JobStarted)
        self._finisher = Finisher(
            self._jobs, self._ends, largest=self._batch, stored=self._stored, soon=self._wake_due,
            told=hub.ended if hub.wants(*OUTCOMES) else None,
        )  # fmt: skip
        rescue = Rescue(
            self._workers, self._claims, self.id, every=min(settings.lease / 4, 2.0), lease=settings.lease, clock=time.monotonic,
            rescued=self._wake_fetcher,
        )  # fmt: skip
        prune = Prune(UpkeepVerbs(database.statements), self._workers, self._claims, settings.retention)
        bulk = Bulk(database.statements, self._claims)
        orders = Orders(database.statements, self._claims, self.id, stop=self._cancel, end=self._asked)
        limits = Limits(lambda: list(self._running.values()), time.monotonic)
        make = self._loop
        self._fetch_loop = make("fetcher", self._fetcher.tick, self._fetcher.failed)
        self._finish_loop = make("finisher", self._finisher.tick)
        self._due_loop = make("due", due.tick)
        self._finisher.wake = self._finish_loop.wake
        self._loops = [
            self._fetch_loop, self._finish_loop, self._due_loop, make("rescue", rescue.tick, rescue.failed),
            make("prune", prune.tick), make("limits", limits.tick), make("lease", self._watch_lease),
            make("bulk", bulk.tick), make("orders", orders.tick), make("threads", self._watch_threads),
        ]  # fmt: skip

    def _make_children(self) -> Children | None:
        """Where jobs run alone. They must find the app by its name; without one, suspects run here, like everything."""
        target, declared = name_of(self._app), [spec.name for spec in self._app.catalog if spec.executor == "process"]
        if declared and target is None:
            raise SettingsError(
                f"the task {declared[0]} runs in a child process, and the app is in no module where a child finds it"
            )
        if target is None or sys.platform == "win32":
            return None
        return Children(self._settings.children, target, self._threads, self._now)

    def _what_runs_apart(self) -> Apart | None:
        children = self._children
        if children is None:
            return None
        specs = list(self._app.catalog)
        declared = [gate for spec in specs if spec.executor == "process" for gate in spec.gates]
        return Apart(declared, [alone(gate) for spec in specs for gate in spec.gates], lambda: children.size - self._apart)

    def _loop(
        self, name: str, tick: Callable[[], Awaitable[float]], failed: Callable[[BaseException], None] | None = None
    ) -> Loop:
        return Loop(name, tick, expected=_is_weather, on_fatal=self._fatal, on_error=failed)

    def _heartbeat(self) -> Heartbeat:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def on_loop(call: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended; so has the worker
                loop.call_soon_threadsafe(call)

        def stack() -> str:
            frame = sys._current_frames().get(thread)  # noqa: SLF001  there is no other way to see where a thread stands
            return "".join(traceback.format_stack(frame)) if frame else ""

        pulse = Pulse.of_process()
        over = partial(self._escape, loop) if os.environ.get("JOBWELL_CHILD") else lambda _: None
        watch = LoopWatch(on_loop, self._blocked, stack, alive=lambda: pulse.beat(self._told()), over=over)
        self._echo = Echo(self._claims, self._workers, self.id, on_loop)
        return Heartbeat(
            self._database, self._workers, self.id, busy=lambda: len(self._running),
            wake=lambda: on_loop(self._fetch_loop.wake), lost=lambda why: on_loop(partial(self._lease_lost, why)), watch=watch,
            ears=Ears(self._echo.ask, self._settings.poll),
        )  # fmt: skip

    async def _watch_lease(self) -> float:
        """The heartbeat's thread may hang in a connection that nobody answers; then it is seen from here."""
        if self._pulse.silent > self._settings.lease:
            self._lease_lost(f"the lease could not be renewed for {self._pulse.silent:.0f} s")
        return self._settings.lease / 10

    async def _begin_life(self) -> bool:
        """Have all three connections, then register; with growing pauses until there is room. False: told to stop meanwhile."""
        told = False
        for pause in pauses(LONGEST_PAUSE):
            if self._stop.is_set():
                break
            try:
                await asyncio.to_thread(self._fit)
                await asyncio.to_thread(self._pulse.prepare)
                async with self._ends.use():
                    pass
                await self._register()
            except (StoreUnavailable, psycopg.OperationalError) as error:
                if not told:
                    log.warning("the start waits for the store: %s", error)
                    told = True
                await self._let_go()  # a part of them would only keep others from having theirs
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)
            except BaseException:
                await self._let_go()
                raise
            else:
                path = "through a pooler in transaction mode, nothing is prepared" if self._database.pooled else "direct"
                log.info("connections: %s", path)
                return True
        return False

    async def _let_go(self) -> None:
        for link in (self._claims, self._ends):
            await link.close()
        self._pulse.drop()

    async def _watch_threads(self) -> float:
        """Stuck threads are replaced, up to as many as there are slots; then the whole process is."""
        stuck = self._threads.stuck
        if stuck >= self.slots and not self._stop.is_set():
            log.error("%d threads are stuck in functions that are over their time limit; this process drains and ends", stuck)
            self._exit = EXIT_STUCK
            self._stop.set()
        return 1.0

    async def _register(self) -> None:
        host, database = socket.gethostname(), self._database
        specs = {spec.name: publish(spec) for spec in self._app.catalog}  # before the lease begins: it may take a moment
        async with self._claims.use() as conn:
            await arun(conn, self._workers.register(
                self.id, lease=self._settings.lease, pid=os.getpid(), host=host, name=f"{host}/{os.getpid()}",
                version=jobwell.__version__, slots=self.slots, queues=self.queues))  # fmt: skip
            await arun(conn, catalog.publish(database.statements, self.id, specs, release=jobwell.__version__))
            if self._children is not None:
                await arun(conn, self._workers.keeps_children(self.id, children=self._children.size))

    def _now(self) -> datetime:
        """The database's time, as far as the last heartbeat told."""
        return datetime.now(UTC) + self._pulse.skew

    def _free(self) -> int:
        free = self.slots - len(self._running) + self._apart
        # In a flood, whole batches: one is claimed while another runs and a third is stored. Without it they fall apart into
        # ever smaller ones. Slots that wait for nothing but their outcome's commit are free in a moment.
        if free < self._batch and self._finisher.waiting:
            return 0
        return free

    def _held(self) -> set[tuple[UUID, UUID]]:
        return set(self._running)

    def _begin(self, rows: Sequence[Claimed], claim_id: UUID) -> None:
        create = asyncio.get_running_loop().create_task
        for row in rows:
            attempt = begin(row, claim_id, self._app.catalog)
            attempt.apart = self._runs_apart(row, attempt)
            self._apart += attempt.apart
            self._running[row.id, claim_id] = attempt
            create(self._attempt(attempt))  # the loop holds it until its first step, and the attempt from then on

        if self._starts:
            self._hub.started([self._running[row.id, claim_id] for row in rows])

    def _runs_apart(self, row: Claimed, attempt: Attempt) -> bool:
        if self._children is None or attempt.spec is None:
            return False
        return attempt.spec.executor == "process" or row.gate in map(alone, attempt.spec.gates)

    async def _attempt(self, attempt: Attempt) -> None:
        outcome: Outcome | None
        attempt.running = asyncio.current_task()  # not before: cancelled unbegun, it would never run, and its slot be lost
        try:
            outcome = await run(attempt, self._around)
        except BaseException as error:  # a fault of ours
            fault = Released(f"a fault of the worker: {type(error).__name__}", FAULT_DELAY)
            outcome = None if attempt.stopped == "lost" else fault
            log.exception("the attempt of job %s broke", attempt.job.id)
        if type(outcome) is not Succeeded and outcome is not None:
            logs.tell(outcome)
        attempt.running = None
        if outcome is None:
            self._stored([attempt])
        else:
            self._finisher.add(attempt, outcome)

    def _stored(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            if self._running.pop((attempt.job.id, attempt.claim_id), None) is not None:
                self.finished += 1
                self._apart -= attempt.apart
        self._wake_fetcher()
        if self._stop.is_set():
            self._wake_drain()

    def _cancel(self, job: UUID, claim_id: UUID) -> None:
        attempt = self._running.get((job, claim_id))
        if attempt is not None:
            if attempt.stopped is None:
                log.info("job %s (%s) is cancelled by an operator", job, attempt.job.task)
            attempt.stop("cancelled")

    def _asked(self, what: str) -> None:
        if not self._stop.is_set():
            log.warning("an operator asks this worker to %s", what)
            self._exit = EXIT_ASKED
            self.stop()
        if what == "stop" and not self._at_once:
            self.stop()

    def _wake_fetcher(self) -> None:
        self._fetch_loop.wake()

    def _wake_due(self) -> None:
        self._due_loop.wake()

    def _wake_drain(self) -> None:
        self._drained.set()

    async def _drain(self) -> None:
        """Wait the grace, then stop what is left, and see every outcome stored."""
        until = time.monotonic() + self._settings.grace
        self._fetcher.paused = True
        if self._exit == EXIT_OK:
            self._hub.tell(WorkerStopping, running=len(self._running))
        await self._fetch_loop.finish(min(CLAIM_PATIENCE, self._settings.grace))
        if self._exit in (EXIT_OK, EXIT_STUCK, EXIT_ASKED):
            await self._briefly(self._fetcher.reconcile())
            await self._quietly(self._workers.drain(self.id))
            log.info("draining: %d job(s) have %g s to end", len(self._running), self._settings.grace)
            await self._until_empty(0.0 if self._at_once else until - time.monotonic())
        for attempt in list(self._running.values()):
            attempt.stop("shutdown")
        await self._until_empty(2.0, ignore_haste=True)
        if self._running:
            log.warning("%d job(s) did not end; they are taken back when the lease ends", len(self._running))

    async def _until_empty(self, seconds: float, *, ignore_haste: bool = False) -> None:
        until = time.monotonic() + seconds
        while self._running and (rest := until - time.monotonic()) > 0 and (ignore_haste or not self._at_once):
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), rest)
            except TimeoutError:
                return

    async def _leave(self) -> None:
        program = self._workers.expire(self.id) if self._running else self._workers.leave(self.id)
        await self._quietly(program)

    async def _quietly(self, program: Program[None]) -> None:
        async def tell() -> None:
            async with self._claims.use() as conn:
                await arun(conn, program)

        await self._briefly(tell())

    async def _briefly(self, call: Coroutine[Any, Any, None]) -> None:
        """On the way out a store that does not answer must not cost the jobs their grace; what is not told, the lease tells."""
        try:
            await asyncio.wait_for(call, CLAIM_PATIENCE)
        except Exception as error:  # noqa: BLE001
            log.warning("the store could not be told: %s", str(error) or type(error).__name__)

    def _blocked(self, seconds: float, stack: str) -> None:
        names = ", ".join(sorted({a.job.task for a in list(self._running.values()) if a.spec and a.spec.executor == "async"}))
        log.warning("the event loop has been blocked for %.1f s by one of: %s\n%s", seconds, names or "no job", stack)

    def _escape(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """In the heartbeat's thread: the loop has stood still for so long. Where a job over its limit is the reason, end."""
        with contextlib.suppress(Exception):  # it asks another thread's loop: whatever is wrong there, the next look asks again
            task = asyncio.current_task(loop)
            culprit = next((a for a in list(self._running.values()) if a.running is task), None) if task else None
            if culprit is None or time.monotonic() < culprit.limit_at + ESCAPE_AFTER:
                return
            log.error(
                "job %s (%s) has blocked the event loop for %.0f s, over its time limit; it is recorded as timed out, its"
                " neighbours go back, and this process is replaced", culprit.job.id, culprit.job.task, seconds,
            )  # fmt: skip
            try:
                settle(
                    self._database, self.id, culprit=culprit, running=list(self._running.values()),
                    ended=self._finisher.gathered(), now=self._now,
                )  # fmt: skip
            finally:
                logging.shutdown()
                os._exit(EXIT_BLOCKED)

    def _told(self) -> dict[str, Any]:
        """What the supervisor may know of this process."""
        return {
            "worker": str(self.id), "busy": len(self._running), "slots": self.slots, "stuck": self._threads.stuck,
            "draining": self._stop.is_set(), "renewed": round(self._pulse.silent, 1),
            "late": {loop.name: round(loop.late, 1) for loop in self._loops if loop.late > 1},
        }  # fmt: skip

    def _lease_lost(self, why: str) -> None:
        if self._exit == EXIT_LOST:
            return
        log.error("the lease is lost: %s", why)
        self._exit = EXIT_LOST
        self._hub.tell(LeaseLost, why=why, running=len(self._running))
        for attempt in list(self._running.values()):
            attempt.stop("lost")
        self._stop.set()

    def _fatal(self, name: str, error: BaseException) -> None:
        log.critical("%s fails again and again; this worker ends: %s", name, error)
        self._exit = EXIT_FAILED
        self._stop.set()


def _is_weather(error: BaseException) -> bool:
    return is_lost(error) or isinstance(error, StoreError)
