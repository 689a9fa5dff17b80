"""One worker process: composes the services and lives from registration to the last hand-back.

* fetcher: claims for free slots
* attempts: what runs now
* finisher: stores outcomes
* heartbeat: renews the lease, passes wake-ups on, watches the loop
* limits: stops what is over its time
* progress, orders: how far attempts say that they are; what operators tell: cancelled jobs, and to end
* breakers: what calls of resources told, and which are not to be called
* pools: the slots shared between queues, where there is something to share
* due, rescue, prune, bulk, reports, runs: housekeeping, done by any worker
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from jobwell.app import App
from jobwell.core.events import JobStarted, LeaseLost, WorkerStarted, WorkerStopping
from jobwell.core.ids import new_id
from jobwell.core.outcome import Outcome
from jobwell.runtime.loop import Loop
from jobwell.store.database import Database
from jobwell.store.jobs import JobVerbs
from jobwell.store.link import Link
from jobwell.store.statements import Program, arun
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.apart import make_children, what_runs_apart
from jobwell.worker.attempts import Attempts
from jobwell.worker.breakers import Breakers
from jobwell.worker.calls import Calls
from jobwell.worker.checkpoints import Keeping
from jobwell.worker.clock import Clock
from jobwell.worker.ears import Ears, Echo
from jobwell.worker.ending import EXIT_ASKED, EXIT_FAILED, EXIT_LOST, EXIT_OK, EXIT_STUCK, bearable, is_weather
from jobwell.worker.events import OUTCOMES, Hub
from jobwell.worker.executors.threads import Threads
from jobwell.worker.fetcher import Fetcher
from jobwell.worker.finisher import Finisher
from jobwell.worker.heartbeat import GIVE_UP, Heartbeat
from jobwell.worker.housekeeping.bulk import Bulk
from jobwell.worker.housekeeping.due import Due
from jobwell.worker.housekeeping.orders import Orders
from jobwell.worker.housekeeping.prune import Prune
from jobwell.worker.housekeeping.rescue import Rescue
from jobwell.worker.housekeeping.runs import RunsService
from jobwell.worker.housekeeping.sending import reports_of
from jobwell.worker.housekeeping.undo import Undo
from jobwell.worker.housekeeping.unknown import UnknownTasks
from jobwell.worker.limits import Limits
from jobwell.worker.pools import PoolsLoop, pools_of
from jobwell.worker.progress import Board
from jobwell.worker.record import Attempt, Surroundings
from jobwell.worker.start import Start
from jobwell.worker.watch import Watch

log = logging.getLogger("jobwell.worker")

BATCH = 500  # jobs: below it a statement costs more than it carries
STOP_PATIENCE = 2.0  # seconds for what was told to stop to be stored
LOST_PATIENCE = 0.5  # seconds for async tasks to clean up after a lost lease
CLAIM_PATIENCE = 2.0  # seconds for what is under way with the store when the worker stops


class Worker:
    """Works until it is told to stop.

    Args:
        app: with its tasks loaded.
        queues: which to serve (default: the settings', then all that the app declares; with pools they name them).
        slots: jobs at once (default: the settings'; with pools theirs together).
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
        self._clock = Clock()
        self._now = self._clock.now
        pools = self._pools = pools_of(app, queues=queues, slots=slots, now=self._now)
        self.queues = tuple(queues) or settings.queues or app.queues if pools is None else pools.queues
        self.slots = slots or settings.slots if pools is None else pools.peak
        self._batch = max(1, self.slots // 4, min(self.slots // 2, BATCH))
        self._fit = fit
        self._app = app
        self._settings = settings
        self._database: Database = app.database
        self._stop = asyncio.Event()
        self._at_once = False
        self._exit = EXIT_OK
        self._ready = asyncio.Event()

    @property
    def busy(self) -> int:
        """Jobs whose slots are taken."""
        return len(self._attempts)

    @property
    def finished(self) -> int:
        """Attempts whose outcomes are stored."""
        return self._attempts.finished

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
            self._attempts.hurry()
        self._stop.set()

    async def run(self) -> int:
        """Live. Returns the exit code: 0 drained, 3 the lease was lost, 4 too many stuck threads, 6 asked to, 7 a service failed.

        A store that cannot be reached, or has no room, is waited for.

        Raises:
            StoreError: the store cannot be used as it is; nothing was claimed.
        """
        self._compose()
        heartbeat = self._heartbeat
        try:
            begun = await self._start.begin(self._stop)
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
            await self._end()
        return self._exit

    async def _end(self) -> None:
        self._heartbeat.stop()
        for loop in self._loops:
            await loop.stop()
        if self._children is not None:
            self._children.close()
        await self._leave()
        self._end_process()
        await self._hub.close()
        for threads in (self._threads, self._handler_threads):
            threads.close()
        await self._echo.close()
        for link in (self._claims, self._ends):
            await link.close()
        await asyncio.to_thread(self._heartbeat.join, 2.0)

    def _end_process(self) -> None:
        """Under a supervisor, at once: what still runs here was given away, and must not run beside itself."""
        if os.environ.get("JOBWELL_CHILD"):
            logging.shutdown()
            os._exit(self._exit)

    def _compose(self) -> None:
        settings, database = self._settings, self._database
        self._jobs = JobVerbs(database.statements)
        self._workers = WorkerVerbs(database.statements)
        self._claims = Link(database, "claims")
        self._ends = Link(database, "finish")
        self._threads = Threads(asyncio.get_running_loop())
        self._children = make_children(self._app, self._threads, self._now)
        self._handler_threads = Threads(asyncio.get_running_loop())  # a slow handler is no stuck job
        hub = self._hub = Hub(self._app.handlers, self._handler_threads, self.id, self._now)
        calls = self._calls = Calls(self._app.guards, self._now)
        if self._children is not None:
            self._children.calls = calls
        board = self._board = Board(database.statements, self._claims)
        around = Surroundings(
            self._app.catalog, self._threads, self._app.middleware, settings.result_limit, self._now, self._children, calls,
            self._app.client.connections, self._app.queues, Keeping(self._app.client, board, settings.result_limit),
        )  # fmt: skip
        attempts = self._attempts = Attempts(
            around, ended=self._ended, free=self._wake_fetcher,
            began=hub.started if hub.wants(JobStarted) else None, taken=self._pools,
        )  # fmt: skip
        self._finisher = Finisher(
            self._jobs, self._ends, largest=self._batch, stored=attempts.stored, soon=self._wake_due,
            told=hub.ended if hub.wants(*OUTCOMES) else None, begun=self._wake_fetcher, board=board,
        )  # fmt: skip
        if self._pools is not None:
            self._pools.finisher = self._finisher
        self._heartbeat = self._make_heartbeat()
        self._start = Start(
            database, self.id, app=self._app, queues=self.queues, slots=self.slots,
            children=self._children.size if self._children else 0, links=(self._claims, self._ends), heartbeat=self._heartbeat,
            fit=self._fit, alive=self._watch.alive,
        )  # fmt: skip
        self._compose_services()

    def _compose_services(self) -> None:
        settings, database, attempts = self._settings, self._database, self._attempts
        self._fetcher = Fetcher(
            worker=self.id, queues=self.queues, catalog=self._app.catalog, jobs=self._jobs, workers=self._workers,
            link=self._claims, longest_rest=settings.poll, free=self._free, begin=attempts.begin, held=attempts.pairs,
            clock=time.monotonic, reconcile_every=settings.lease, batch=self._batch, strict=settings.strict_priority,
            apart=what_runs_apart(self._app.catalog, self._children, lambda: attempts.apart, self._pools), pools=self._pools,
        )  # fmt: skip
        rescue = self._rescue = Rescue(
            self._workers, self._claims, self.id, every=min(settings.lease / 4, 2.0), lease=settings.lease, clock=time.monotonic,
            rescued=self._wake_fetcher,
        )  # fmt: skip
        upkeep, failed = UpkeepVerbs(database.statements), settings.quarantine_keep
        prune = Prune(upkeep, self._workers, self._claims, settings.retention, failed=failed)
        bulk, undo = Bulk(database.statements, self._claims), Undo(database.statements, self._claims)
        runs = RunsService(database.statements, self._claims, keep=settings.runs_keep)
        unknown = UnknownTasks(database.statements, self._claims, settings.unknown_after)
        orders = Orders(database.statements, self._claims, self.id, stop=attempts.cancel, end=self._asked)
        make = self._loop
        self._fetch_loop = make("fetcher", self._fetcher.tick, self._fetcher.failed)
        self._finish_loop = make("finisher", self._finisher.tick)
        self._due_loop = make("due", Due(self._jobs, self._claims, settings.poll, self._wake_fetcher).tick)
        self._finisher.wake = self._finish_loop.wake
        self._loops = [
            self._fetch_loop, self._finish_loop, self._due_loop, make("rescue", rescue.tick, rescue.failed),
            make("prune", prune.tick, vital=False), make("lease", self._watch_lease), make("threads", self._watch_threads),
            make("bulk", bulk.tick, vital=False), make("unknown", unknown.tick, vital=False), make("orders", orders.tick),
            make("undo", undo.tick, vital=False), make("limits", Limits(lambda: attempts, time.monotonic).tick),
            board := make("progress", self._board.tick, vital=False), make("runs", runs.tick, vital=False),
        ]  # fmt: skip
        self._board.wake = lambda: self._watch.on_loop(board.wake)
        if any(self._app.guards.values()):
            kept = Breakers(database.statements, self._claims, self._calls, opened=self._wake_fetcher, tell=self._hub.tell)
            self._loops.append(breakers := make("breakers", kept.tick, vital=False))
            self._calls.urgent = lambda: self._watch.on_loop(breakers.wake)
        if self._pools is not None:
            shared = PoolsLoop(self._pools, self._claims, self._workers, self.id, self._wake_fetcher)
            self._loops.append(make("pools", shared.tick, vital=False))
        if (reports := reports_of(self._app, self._claims, self._handler_threads, self.id)) is not None:
            self._loops.append(make("reports", reports.tick, vital=False))

    def _loop(
        self,
        name: str,
        tick: Callable[[], Awaitable[float]],
        failed: Callable[[BaseException], None] | None = None,
        *,
        vital: bool = True,
    ) -> Loop:
        return Loop(name, tick, expected=is_weather, on_fatal=self._fatal if vital else bearable, on_error=failed)

    def _make_heartbeat(self) -> Heartbeat:
        watch = self._watch = Watch(
            self._database, self.id, running=self._attempts, ended=self._finisher.gathered, now=self._now, told=self._told,
            kill=lambda: self._children.close() if self._children is not None else None,
        )  # fmt: skip
        self._echo = Echo(self._claims, self._workers, self.id, watch.on_loop)
        return Heartbeat(
            self._database, self._workers, self.id, busy=self._busy,
            wake=lambda: watch.on_loop(self._wake_fetcher), lost=lambda why: watch.tell(self._lease_lost, why),
            watch=watch.of_loop, ears=Ears(self._echo.ask, self._settings.poll), clock=self._clock,
        )  # fmt: skip

    async def _watch_lease(self) -> float:
        """The heartbeat's thread may hang in a connection that nobody answers; then it is seen from here."""
        if self._heartbeat.silent > self._settings.lease * GIVE_UP:
            self._lease_lost(f"the lease could not be renewed for {self._heartbeat.silent:.0f} s")
        return self._settings.lease / 10

    async def _watch_threads(self) -> float:
        """Stuck threads are replaced, up to as many as there are slots; then the whole process is."""
        stuck = self._threads.stuck
        if stuck >= self.slots and not self._stop.is_set():
            self._exit = EXIT_STUCK
            self._stop.set()
            log.error("%d threads are stuck in functions that are over their time limit; this process drains and ends", stuck)
        return 1.0

    def _busy(self) -> int:
        return len(self._attempts) if self._pools is None else self._pools.busy + self._attempts.apart

    def _free(self, taken: int) -> int:
        free = self.slots - taken - len(self._attempts) + self._attempts.apart + self._finisher.ending
        # In a flood, whole batches: one is claimed while another runs and a third is stored. Without it they fall apart into
        # ever smaller ones. Slots that wait for nothing but their outcome's commit are free in a moment.
        if free < self._batch and self._finisher.quick:
            return 0
        return free

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        self._finisher.add(attempt, outcome)

    def _asked(self, what: str) -> None:
        if not self._stop.is_set():
            self._exit = EXIT_ASKED
            self.stop()
            log.warning("an operator asks this worker to %s", what)
        if what == "stop" and not self._at_once:
            self.stop()

    def _wake_fetcher(self) -> None:
        self._fetch_loop.wake()

    def _wake_due(self) -> None:
        self._due_loop.wake()

    async def _drain(self) -> None:
        """Wait the grace, then stop what is left, and see every outcome stored."""
        until = time.monotonic() + self._settings.grace
        self._fetcher.paused = True
        self._attempts.leave()
        if self._exit == EXIT_LOST:
            await self._abandon(until)
            return
        if self._exit == EXIT_OK:
            self._hub.tell(WorkerStopping, running=len(self._attempts))
        await self._fetch_loop.finish(min(CLAIM_PATIENCE, self._settings.grace))
        if self._exit in (EXIT_OK, EXIT_STUCK, EXIT_ASKED):
            await self._briefly(self._fetcher.reconcile())
            await self._quietly(self._workers.drain(self.id))
            log.info("draining: %d job(s) have %g s to end", len(self._attempts), self._settings.grace)
            await self._attempts.until_empty(until - time.monotonic(), unless=lambda: self._at_once)
        attempts = self._attempts
        attempts.stop("shutdown", threads=False)
        await attempts.until_empty(STOP_PATIENCE, unless=lambda: not attempts.stoppable)
        await self._hub.close()
        # Last what cannot be stopped: it ends with this process, a moment after it was given away.
        attempts.stop("shutdown")
        await attempts.until_empty(CLAIM_PATIENCE)
        if self._attempts:
            log.warning("%d job(s) did not end; they are taken back when the lease ends", len(self._attempts))

    async def _abandon(self, until: float) -> None:
        """Others may have the jobs in a moment, or have them already: stop, write nothing, be gone."""
        attempts = self._attempts
        await attempts.until_empty(until - time.monotonic(), unless=lambda: self._at_once or attempts.all_stopped)
        await attempts.until_empty(LOST_PATIENCE, unless=lambda: not attempts.stoppable)
        self._end_process()

    async def _leave(self) -> None:
        program = self._workers.expire(self.id) if self._attempts else self._workers.leave(self.id)
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

    def _told(self) -> dict[str, Any]:
        """What the supervisor may know of this process."""
        return {
            "worker": str(self.id), "busy": len(self._attempts), "slots": self.slots, "stuck": self._threads.stuck,
            "draining": self._stop.is_set(), "renewed": round(self._heartbeat.silent, 1),
            "late": {loop.name: round(loop.late, 1) for loop in self._loops if loop.late > 1},
        }  # fmt: skip

    def _lease_lost(self, why: str) -> None:
        if self._exit == EXIT_LOST:
            return
        self._exit = EXIT_LOST  # before anything that could fail, as loggers of others do
        self._rescue.paused = True  # one that is declared dead would take back its own jobs under their feet
        running = len(self._attempts)
        self._attempts.stop("lost")
        self._stop.set()
        log.error("the lease is lost: %s", why)
        self._hub.tell(LeaseLost, why=why, running=running)

    def _fatal(self, name: str, error: BaseException) -> None:
        self._exit = EXIT_FAILED
        self._stop.set()
        log.critical("%s fails again and again; this worker ends: %s", name, error)
