"""Looking at jobs: what was enqueued, what became of it, and what a test says about that."""

from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection

from jobwell.client.handle import Handle
from jobwell.client.task import Task
from jobwell.core.catalog import Catalog
from jobwell.core.duration import Duration
from jobwell.core.errors import NotFound
from jobwell.store import reads
from jobwell.store.statements import Statements, run
from jobwell.store.testing import TestingVerbs
from jobwell.testing import expect
from jobwell.testing.errors import TestbedError
from jobwell.testing.expect import Args, Expected
from jobwell.testing.views import JobView, view

__tracebackhide__ = True  # pytest shows the test and the task, not what is between

AnyTask = Task[Any, Any] | str
Job = Handle[Any] | JobView | UUID


def id_of(job: Job) -> UUID:
    """The id of what was given."""
    return job if isinstance(job, UUID) else job.id


def name_of(task: AnyTask) -> str:
    """The name of the task given.

    Raises:
        TestbedError: it is none.
    """
    if isinstance(task, str):
        return task
    if isinstance(task, Task):
        return task.name
    raise TestbedError(f"{task!r} is no task; give what `@app.task` made, or its name")


class Looking:
    """The half of a testbed that looks. Its methods block, also in async tests, for a millisecond."""

    def _look_at(self, catalog: Catalog, conn: "Connection[Any]", statements: Statements) -> None:
        self._catalog = catalog
        self._conn = conn
        self._statements = statements
        self._verbs = TestingVerbs(statements)

    def jobs(self, task: AnyTask | None = None, *, state: str | None = None) -> list[JobView]:
        """All jobs of this test whatever has become of them, oldest first; of one task, or in one state."""
        rows = run(self._conn, self._verbs.all(task=None if task is None else name_of(task)))
        return [found for found in (view(row, self._catalog) for row in rows) if state in (None, found.state)]

    def job(self, job: Job) -> JobView:
        """One job, given by its handle, a view or its id.

        Raises:
            NotFound: there is none (or its transaction has not committed).
        """
        rows = run(self._conn, self._verbs.all(id=id_of(job)))
        if not rows:
            raise NotFound(f"there is no job {id_of(job)}, or its transaction has not committed")
        return view(rows[0], self._catalog)

    def result(self, job: Job) -> Any:
        """What a job that succeeded returned, decoded.

        Raises:
            TestbedError: it has not succeeded; the message says what it is.
        """
        found = self.job(job)
        if found.state != "succeeded":
            tried = self.attempts(job)
            why = f"; its last attempt: {tried[-1]['error_type']}: {tried[-1]['message']}" if tried else ""
            raise TestbedError(f"there is no result: {found}{why}")
        return found.result

    def attempts(self, job: Job) -> list[dict[str, Any]]:
        """The attempts of a job that are logged, oldest first: every one that did not simply succeed the first time.

        Each with attempt, outcome, kind, error_type, message, traceback, started_at, ended_at, next_at, note.
        """
        found = run(self._conn, reads.one(self._statements, id_of(job)))
        attempts: list[dict[str, Any]] = found["attempts"]
        return attempts

    def quarantined(self, task: AnyTask | None = None, *, reason: str | None = None) -> list[JobView]:
        """Jobs that failed for good, oldest first."""
        return [job for job in self.jobs(task, state="failed") if reason in (None, job.reason)]

    def enqueued(
        self,
        task: AnyTask | None = None,
        args: Args | None = None,
        *,
        queue: str | None = None,
        run_after: Duration | datetime | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        state: str | None = None,
    ) -> list[JobView]:
        """The jobs of this test that fit, oldest first, whatever has become of them; none is no error.

        Args:
            task: itself or its name; None: any.
            args: as for `assert_enqueued`.
            queue: in this one.
            run_after: due so long after the enqueue, or at this moment, within a second.
            tenant: of this one.
            priority: with this one.
            state: only those that are in it now.
        """
        expected = self._expected(task, args, queue=queue, run_after=run_after, tenant=tenant, priority=priority, state=state)
        return expect.matching(expected, self.jobs(), self._known)

    def assert_enqueued(
        self,
        task: AnyTask | None = None,
        args: Args | None = None,
        *,
        count: int | None = None,
        queue: str | None = None,
        run_after: Duration | datetime | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        state: str | None = None,
    ) -> list[JobView]:
        """There are such jobs, also if they have run since.

        Args:
            task: itself or its name; None: any.
            args: some of the arguments, as they arrive at the function; a value may be anything that compares, such as
                `ANY` or `pytest.approx(…)`. Or a function of all of them.
            count: exactly so many (default: at least one).
            queue: in this one.
            run_after: due so long after the enqueue, or at this moment, within a second.
            tenant: of this one.
            priority: with this one.
            state: only those that are in it now.

        Returns:
            The jobs, oldest first.

        Raises:
            AssertionError: it shows what was enqueued instead, nearest first.
            TestbedError: the app has no such task.
        """
        expected = self._expected(task, args, queue=queue, run_after=run_after, tenant=tenant, priority=priority, state=state)
        return expect.check(expected, count, self.jobs(), self._known)

    def refute_enqueued(
        self,
        task: AnyTask | None = None,
        args: Args | None = None,
        *,
        queue: str | None = None,
        run_after: Duration | datetime | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        state: str | None = None,
    ) -> None:
        """There are no such jobs, nor were there in this test.

        Args:
            task: itself or its name; None: any.
            args: as for `assert_enqueued`.
            queue: in this one.
            run_after: due so long after the enqueue, or at this moment, within a second.
            tenant: of this one.
            priority: with this one.
            state: only those that are in it now.

        Raises:
            AssertionError: with those that are there.
        """
        expected = self._expected(task, args, queue=queue, run_after=run_after, tenant=tenant, priority=priority, state=state)
        expect.refute(expected, self.jobs(), self._known)

    @staticmethod
    def _expected(task: AnyTask | None, args: Args | None, **options: Any) -> Expected:
        return Expected(task=None if task is None else name_of(task), args=args, **options)

    @property
    def _known(self) -> list[str]:
        return [spec.name for spec in self._catalog]
