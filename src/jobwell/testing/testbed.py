"""The testbed: an app on a schema of its own, and everything that a test does with it."""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from uuid import UUID

from jobwell.app import App
from jobwell.client import correlation
from jobwell.client.task import AsyncTask, Task
from jobwell.core.job import NewJob
from jobwell.settings import Settings
from jobwell.store.jobs import Claimed
from jobwell.store.statements import run
from jobwell.testing import draining
from jobwell.testing.clock import Clock
from jobwell.testing.draining import LIMIT, Plan
from jobwell.testing.driver import Beside, Here, running
from jobwell.testing.errors import TestbedError
from jobwell.testing.faults import Error, Fault, Faults, Vanished, maker
from jobwell.testing.inline import Inline, InlineClient
from jobwell.testing.looking import AnyTask, Job, Looking, id_of, name_of
from jobwell.testing.runner import Runner
from jobwell.testing.schema import Schema
from jobwell.testing.views import Drained, JobView

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

P = ParamSpec("P")
R = TypeVar("R")
_loaded: "weakref.WeakSet[App]" = weakref.WeakSet()


class Testbed(Looking):
    """An app whose jobs go to a schema made for tests, empty at entry; `with Testbed(app) as bed:`.

    Inside, the app itself stores its jobs there; no worker takes them, the test runs them. At exit the clock is set right
    and the app is as before.

    Args:
        app: of the application; its settings for the database do not matter.
        url: the test server (default: JOBWELL_TEST_DATABASE_URL, else an embedded one).
        schema: one that is open already, to share it between tests (default: one is made, and dropped at exit).

    Raises:
        TestbedError: there is no server, or another testbed has the app.
        StoreUnavailable: the server cannot be reached.
    """

    __test__ = False  # a class for tests, and not one of tests

    clock: Clock

    def __init__(self, app: App, url: str = "", *, schema: Schema | None = None) -> None:
        self.app = app
        self._schema = schema or Schema(url)
        self._own = schema is None
        self._before: Settings | None = None
        self._faults = Faults()
        self._busy = False
        self.inlining: Inline | None = None

    def __enter__(self) -> Self:
        if isinstance(vars(self.app).get("client"), InlineClient):
            raise TestbedError("this app is in another testbed already; leave that one first")
        if self._own:
            self._schema.__enter__()
        try:
            self._attach()
            self.reset()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._schema.driver.calm()
            self._schema.clock.reset()
        finally:
            self._detach()
            if self._own:
                self._schema.__exit__(kind, error, trace)

    def _attach(self) -> None:
        app, schema = self.app, self._schema
        if app not in _loaded:
            app.load()
            _loaded.add(app)
        app.close()
        self._before = app.settings
        made = schema.settings
        app.settings = replace(app.settings, database_url=made.database_url, direct_url=made.direct_url, schema=made.schema)
        self.clock = schema.clock
        self._look_at(app.catalog, schema.conn, schema.database.statements)
        app.database = schema.database
        app.client = InlineClient(schema.database, self)

    def _detach(self) -> None:
        for name in ("database", "client"):
            vars(self.app).pop(name, None)
        if self._before is not None:
            self.app.settings, self._before = self._before, None

    def reset(self) -> None:
        """Empty tables, the real time, no faults: as at the start of a test."""
        self._schema.driver.calm()
        self._faults = Faults()
        self.inlining = None
        self._schema.empty()

    # --- running jobs ----------------------------------------------------------------------------------------------------

    def drain(
        self,
        queue: str | Iterable[str] = (),
        *,
        limit: int = LIMIT,
        until_empty: bool = True,
        retries: bool = False,
        scheduled: bool = False,
        raising: bool = False,
    ) -> Drained:
        """Run the jobs that are ready, and those that they enqueue, one after the other: by priority, then the oldest.

        Claim, attempt, middleware and outcome are those of a worker; async functions run on a private loop, plain ones in
        this thread. What becomes due while it runs waits for the next drain.

        Args:
            queue: only this queue, or these (default: all of the app).
            limit: attempts after which it gives up.
            until_empty: False: only what is ready at the start, not what that enqueues.
            retries: go on with retries: the clock travels to each, and stays there.
            scheduled: the same with everything that is for later, snoozed and retrying jobs included.
            raising: raise the first error of a task, with its traceback, once its outcome is stored as always.

        Returns:
            What ran, in order, with counts by outcome.

        Raises:
            EndlessDrain: there was still work after `limit` attempts.
            TestbedError: a loop runs in this thread (call `adrain`), or a drain is under way.
        """
        plan = Plan(draining.queues(self.app, queue), limit, until_empty, draining.states(retries, scheduled), raising)
        with self._alone():
            return self._schema.driver.run(
                lambda threads: draining.drain(self._runner(threads), plan, self.clock), "`await testbed.adrain()`"
            )

    async def adrain(
        self,
        queue: str | Iterable[str] = (),
        *,
        limit: int = LIMIT,
        until_empty: bool = True,
        retries: bool = False,
        scheduled: bool = False,
        raising: bool = False,
    ) -> Drained:
        """As `drain`, for async tests: async functions run on the loop of the test, plain ones on a thread."""
        plan = Plan(draining.queues(self.app, queue), limit, until_empty, draining.states(retries, scheduled), raising)
        with self._alone():
            async with draining.beside() as threads:
                return await draining.drain(self._runner(threads), plan, self.clock)

    def perform(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """One attempt of a task alone: arguments and result encoded and decoded, middleware, context and time limit as always.

        No job is stored; what the function enqueues is.

        Args:
            task: itself, or with options: `task.using(tenant="hr")`.
            *args: its arguments.
            **kwargs: its arguments.

        Returns:
            The result, as it would be read from the store.

        Raises:
            InvalidArguments: the arguments do not fit.
            Exception: what the task raised, `Reject`, `Retry` and `Snooze` included.
            AttemptFailed: it was over its time limit.
            TestbedError: the result cannot be stored.
        """
        row = self._claimed(task.job(*args, **kwargs))
        with self._alone():
            found: R = self._schema.driver.run(lambda threads: self._runner(threads).perform(row), "`await testbed.aperform(…)`")
        return found

    async def aperform(self, task: Task[P, R] | AsyncTask[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `perform`, for async tests."""
        row = self._claimed(task.job(*args, **kwargs))
        with self._alone():
            async with draining.beside() as threads:
                found: R = await self._runner(threads).perform(row)
        return found

    def inline(self, *, raising: bool = False) -> Inline:
        """`with testbed.inline():` — each job runs as soon as it is stored, before `enqueue` returns.

        It is stored, claimed, decoded, run and finished as always, once: a retry waits for a drain, and so does what is for
        later. A job's children run after it. In async code write `async with`, and `await task.aenqueue(…)`.

        What is enqueued through the caller's connection (`within`, `using(conn=…)`) does not exist before its commit: it runs
        at the end of the block, or never, where the transaction was rolled back. A transaction still open at the end of the
        block is an error.

        Args:
            raising: `enqueue` raises what its job raised, once the outcome is stored.
        """
        return Inline(self, raising=raising)

    # --- faults ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def failing(self, task: AnyTask, error: Error, *, times: int = 1, after: bool = False) -> Iterator[Fault]:
        """The next attempts of a task raise this error instead of running.

        Args:
            task: itself or its name.
            error: an exception, its class, or a function that makes one.
            times: so many attempts.
            after: the function runs first, and the error comes in place of its result: what it did outside is done.

        Returns:
            The fault; `met` counts the attempts that ran into it.
        """
        with self._faults.arm(Fault(name_of(task), maker(error), times, after)) as fault:
            yield fault

    @contextmanager
    def vanishing(self, task: AnyTask, *, times: int = 1, after: bool = False) -> Iterator[Fault]:
        """In the next attempts of a task the worker vanishes, as by a power cut: nothing is stored, and the job is rescued.

        Args:
            task: itself or its name.
            times: so many attempts.
            after: the function has run; only its outcome is lost. A task that may run twice must bear this.
        """
        with self._faults.arm(Fault(name_of(task), Vanished, times, after)) as fault:
            yield fault

    def lose(self, job: Job) -> JobView:
        """A worker claims this ready job and vanishes before it runs; the job is rescued. Returns it as it stands then.

        Raises:
            TestbedError: it is not ready.
        """
        with self._alone():
            done = self._schema.driver.run(
                lambda threads: draining.lose(self._runner(threads), id_of(job)), "`await testbed.alose(job)`"
            )
        return self._lost(job, done=done)

    async def alose(self, job: Job) -> JobView:
        """As `lose`, for async tests."""
        with self._alone():
            async with draining.beside() as threads:
                done = await draining.lose(self._runner(threads), id_of(job))
        return self._lost(job, done=done)

    def _lost(self, job: Job, *, done: bool) -> JobView:
        found = self.job(job)
        if not done:
            raise TestbedError(f"only a ready job can be claimed and lost; this one is {found.state}: {found}")
        return found

    # --- for the parts of the kit ----------------------------------------------------------------------------------------

    def stored(self, ids: Sequence[UUID], borrowed: Any | None) -> None:
        """Told by the client."""
        if self._note(ids, borrowed) and not running():
            self.run_inline()

    async def astored(self, ids: Sequence[UUID], borrowed: Any | None) -> None:
        """Told by the client."""
        if self._note(ids, borrowed):
            await self.arun_inline()

    def _note(self, ids: Sequence[UUID], borrowed: Any | None) -> bool:
        inline = self.inlining
        if inline is None:
            return False
        inline.waiting.extend(ids)
        if borrowed is not None:
            inline.borrowed.update(dict.fromkeys(ids, borrowed))
        return borrowed is None and not self._busy

    def run_inline(self) -> None:
        """Run what waits in inline mode."""
        inline = self.inlining
        assert inline is not None
        with self._alone():
            self._schema.driver.run(
                lambda threads: draining.inline(self._runner(threads), inline, self.app.queues, self.there),
                "`async with testbed.inline()`",
            )

    async def arun_inline(self) -> None:
        """As `run_inline`, on the running loop."""
        inline = self.inlining
        assert inline is not None
        with self._alone():
            async with draining.beside() as threads:
                await draining.inline(self._runner(threads), inline, self.app.queues, self.there)

    def there(self, ids: Sequence[UUID]) -> set[UUID]:
        """Which of these jobs exist."""
        return run(self._conn, self._verbs.there(ids))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise TestbedError("a drain is under way: a task cannot run jobs itself; enqueue, and the drain goes on with it")
        if self.app.settings.schema != self._schema.name:
            raise TestbedError("the app no longer uses the schema of this testbed; nothing was run")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _runner(self, threads: Here | Beside) -> Runner:
        return Runner(
            self.app,
            plain=self._schema.conn,
            link=self._schema.driver.link,
            threads=threads,
            faults=self._faults,
            now=self.clock.now,
        )

    @staticmethod
    def _claimed(job: NewJob) -> Claimed:
        return Claimed(
            job.id, job.task, job.queue, job.tenant, job.gate, job.rank, 1, 0, 0, job.size, job.deadline, job.args,
            correlation.current(), 0, 0, 0,
        )  # fmt: skip
