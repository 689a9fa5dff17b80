"""Runs jobs one by one: the claim, the attempt and the finish are the worker's own; only the order is a test's."""

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, Connection

import jobwell
from jobwell.app import App
from jobwell.core.ids import new_id
from jobwell.core.outcome import Cancelled, Committed, Expiring, Failed, Outcome, Released, Retrying, Snoozed, Succeeded
from jobwell.store import limits, runs, steps
from jobwell.store.jobs import Claimed, ClaimRequest, JobVerbs
from jobwell.store.link import Link
from jobwell.store.statements import aask, arun, run
from jobwell.store.testing import Ready, TestingVerbs
from jobwell.store.workers import WorkerVerbs
from jobwell.testing.driver import Beside, Here
from jobwell.testing.errors import AttemptFailed, TestbedError
from jobwell.testing.faults import Faults, Spy, Vanished, saboteur
from jobwell.testing.views import Ran
from jobwell.worker import attempt as attempts
from jobwell.worker import failures
from jobwell.worker.checkpoints import Keeping
from jobwell.worker.finisher import Finisher
from jobwell.worker.housekeeping.rescue import LOSSES_BOUND, PIECE
from jobwell.worker.limits import EVERY, Limits
from jobwell.worker.progress import Board
from jobwell.worker.record import Attempt, Surroundings, begin

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

LEASE = 3600.0
NAMES: dict[type, str] = {
    Succeeded: "succeeded", Expiring: "succeeded", Committed: "succeeded", Failed: "failed", Retrying: "retrying",
    Snoozed: "snoozed", Released: "released", Cancelled: "cancelled",
}  # fmt: skip
FIRST_LOOK, WHOLE_LOOK = 1, 1000


class Runner:
    """A worker's steps, one after the other, by a worker that is registered for the length of `at_work`.

    Args:
        app: with its tasks loaded.
        plain: a connection of the kit.
        link: the connection that claims and finishes.
        threads: where plain functions run.
        faults: what attempts run into.
        now: the store's time.
    """

    def __init__(
        self,
        app: App,
        *,
        plain: "Connection[Any]",
        link: Link,
        threads: Here | Beside,
        faults: Faults,
        now: Callable[[], datetime],
    ) -> None:
        self._app = app
        self._plain = plain
        self._link = link
        self._threads = threads
        self._faults = faults
        self._now = now
        statements = app.database.statements
        self._jobs = JobVerbs(statements)
        self._workers = WorkerVerbs(statements)
        self._testing = TestingVerbs(statements)
        self._board = Board(statements)
        self._finisher = Finisher(self._jobs, link, largest=1, stored=lambda _: None, soon=lambda: None, board=self._board)
        self._tasks = [spec.name for spec in app.catalog]
        self._followed = any(spec.on_failed for spec in app.catalog)
        self._runs = any("bulk_run" in spec.signature.parameters for spec in app.catalog)
        self._worker = new_id()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Registered as a worker."""
        await self._register()
        try:
            yield
        finally:
            async with self._link.use() as conn:
                await arun(conn, self._workers.leave(self._worker))

    async def _register(self) -> None:
        self._worker = new_id()
        async with self._link.use() as conn:
            await arun(
                conn,
                self._workers.register(
                    self._worker, lease=LEASE, pid=0, host="test", name="jobwell.testing", version=jobwell.__version__, slots=1,
                    queues=self._app.queues,
                ),
            )  # fmt: skip
            if self._followed:
                await aask(conn, limits.declare_gates(self._app.database.statements, self._app.catalog))

    async def keep_house(self) -> None:
        """What any worker does between jobs: due jobs become ready, and those of dead workers come back."""
        async with self._link.use() as conn:
            await arun(conn, self._workers.renew(self._worker, lease=LEASE, busy=0))
            while (await self._jobs.flip_due(conn, PIECE))[0] >= PIECE:
                pass
            await arun(conn, self._workers.bury(self._worker))
            await self._rescue(conn)
            if self._runs:
                await self._move_runs(conn)

    async def go_on_undoing(self) -> bool:
        """Where a step is undone the one before it follows. True: there was such a step."""
        async with self._link.use() as conn:
            return await arun(conn, steps.go_on_undoing(self._app.database.statements)) > 0

    async def _rescue(self, conn: "AsyncConnection[Any]") -> None:
        while await arun(conn, self._workers.rescue(limit=PIECE, bound=LOSSES_BOUND)) >= PIECE:
            pass

    async def _move_runs(self, conn: "AsyncConnection[Any]") -> None:
        statements = self._app.database.statements
        for found, _ in await arun(conn, runs.to_look_at(statements, every=0, still=LEASE)):
            await arun(conn, runs.turn(statements, found))

    def ready(self, queues: Sequence[str], ids: Sequence[UUID] | None, limit: int = WHOLE_LOOK) -> list[Ready]:
        """What could run now, in order."""
        return run(self._plain, self._testing.ready(queues=queues, tasks=self._tasks, ids=ids, limit=limit))

    def next_due(self, queues: Sequence[str], states: Sequence[str]) -> datetime | None:
        """When the next one is due that waits in one of these states."""
        return run(self._plain, self._testing.next_due(queues=queues, tasks=self._tasks, states=states))

    async def run_next(self, queues: Sequence[str], ids: Sequence[UUID] | None = None) -> Ran | None:
        """Claim the first that can be claimed and run its attempt to its stored end. None: there is none."""
        claimed = await self._claim_first(queues, ids)
        return None if claimed is None else await self._attempt(*claimed)

    async def lose(self, job: UUID) -> bool:
        """Claim a job by a worker that vanishes. False: it is not ready."""
        claimed = await self._claim_first(self._app.queues, [job])
        if claimed is not None:
            await self._vanish()
        return claimed is not None

    async def _vanish(self) -> None:
        async with self._link.use() as conn:
            await arun(conn, self._workers.expire(self._worker))
            await self._rescue(conn)
        await self._register()

    async def _claim_first(self, queues: Sequence[str], ids: Sequence[UUID] | None) -> tuple[Claimed, UUID] | None:
        for limit in (FIRST_LOOK, WHOLE_LOOK):
            candidates = self.ready(queues, ids, limit)
            for candidate in candidates:
                claimed = await self._claim(candidate)
                if claimed is not None:
                    return claimed
            if len(candidates) < limit:
                break
        return None

    async def _claim(self, job: Ready) -> tuple[Claimed, UUID] | None:
        """By the claim of the workers, so that a held lock or a paused queue holds here too."""
        if not job.lock_key:
            # A mark just before the job makes it the first of its lane.
            lane = (job.queue, job.rank, job.gate, job.tenant)
            return await self._ask(job, 1, lanes=[(lane, (job.ready_us, UUID(int=job.id.int - 1)))])
        with self._plain.transaction():  # no mark counts for lock keys; but what another one holds is passed over
            run(self._plain, self._testing.hold_others(job))
            return await self._ask(job, WHOLE_LOOK, lanes=None)

    async def _ask(self, job: Ready, want: int, lanes: Any) -> tuple[Claimed, UUID] | None:
        claim_id = new_id()
        request = ClaimRequest(self._worker, claim_id, [job.queue], [job.gate], want, from_rank=job.rank, lanes=lanes)
        async with self._link.use() as conn:
            rows = await self._jobs.claim(conn, request)
            mine = next((row for row in rows if row.id == job.id), None)
            strays = [(row.id, claim_id, Released("not its turn in this test")) for row in rows if row.id != job.id]
            if strays:  # enqueued by another thread between look and claim
                await self._jobs.postpone(conn, strays)
            if mine is not None and mine.args is None:
                mine = mine._replace(args=(await self._jobs.payloads(conn, [mine.id])).get(mine.id))
        return None if mine is None else (mine, claim_id)

    async def _attempt(self, row: Claimed, claim_id: UUID) -> Ran:
        attempt, outcome, spy = await self._run(row, claim_id)
        if isinstance(spy.error, Vanished):
            await self._vanish()
            return Ran(row.id, row.task, row.attempt, "lost")
        if outcome is not None:
            self._finisher.add(attempt, outcome)
            await self._finisher.tick()
        if spy.error is not None and _is_for_the_test(spy.error):
            raise bare(spy.error)
        name = "lost" if outcome is None else NAMES[type(outcome)]
        return Ran(row.id, row.task, row.attempt, name, _error(outcome, spy))

    async def _run(self, row: Claimed, claim_id: UUID, *, stored: bool = True) -> tuple[Attempt, Outcome | None, Spy]:
        attempt = begin(row, claim_id, self._app.catalog)
        spy, fault = Spy(), self._faults.of(row.task)
        inner = () if fault is None else (saboteur(fault),)
        around = Surroundings(
            self._app.catalog, self._threads, (spy, *self._app.middleware, *inner), self._app.settings.result_limit, self._now,
            connections=self._app.client.connections if stored else None, queues=self._app.queues,
            keeping=Keeping(self._app.client, self._board, self._app.settings.result_limit) if stored else None,
        )  # fmt: skip
        limits = Limits(lambda: [attempt], time.monotonic)

        def look_at_the_clock() -> None:
            if attempt.limit_at <= time.monotonic():
                attempt.stop("timeout")

        self._threads.ended = look_at_the_clock

        async def live() -> Outcome | None:
            attempt.running = asyncio.current_task()
            return await attempts.run(attempt, around)

        living = asyncio.get_running_loop().create_task(live(), context=contextvars.Context())
        try:
            while not living.done():
                await asyncio.wait({living}, timeout=EVERY)
                if not living.done():
                    await limits.tick()
        except asyncio.CancelledError:  # the test itself is stopped
            attempt.stop("shutdown")
            await asyncio.wait({living}, timeout=2.0)
            raise
        return attempt, living.result(), spy

    async def perform(self, row: Claimed) -> Any:
        """One attempt of a job that is stored nowhere. Gives its result, or raises what it raised."""
        _, outcome, spy = await self._run(row, new_id(), stored=False)
        if isinstance(outcome, Succeeded) and outcome.note is None:
            spec = self._app.catalog[row.task]
            return None if outcome.result is None else spec.signature.decode_result(outcome.result)
        if spy.error is not None and not isinstance(spy.error, asyncio.CancelledError):
            raise bare(spy.error)
        if isinstance(outcome, Succeeded):
            raise TestbedError(f"{row.task}: {outcome.note}")
        raise _error(outcome, spy) or TestbedError(f"{row.task}: the attempt ended as {outcome}")


def _error(outcome: Outcome | None, spy: Spy) -> BaseException | None:
    failure = getattr(outcome, "failure", None)
    if failure is not None and (spy.error is None or failure.error_type in ("TimeLimit", "DeadlinePassed")):
        return AttemptFailed(f"{failure.error_type}: {failure.message}")
    return spy.error if isinstance(outcome, Failed | Retrying) else None


def _is_for_the_test(error: BaseException) -> bool:
    """Whether it is no affair of the task: a Ctrl-C, or `pytest.fail` and a time limit of the test runner."""
    outcome_of_pytest = any(kind.__name__ == "OutcomeException" for kind in type(error).__mro__)
    return isinstance(error, KeyboardInterrupt) or outcome_of_pytest


def bare(error: BaseException) -> BaseException:
    """The error with the traceback that begins in user code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(failures.OURS):
        trace = trace.tb_next
    return error.with_traceback(trace)
