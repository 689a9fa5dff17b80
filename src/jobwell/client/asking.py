"""The part of an App that asks for jobs enqueued earlier, and for what they returned."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

from jobwell.client.handle import Handle
from jobwell.client.task import Task
from jobwell.core.duration import Duration
from jobwell.core.queues import Pressure

P = ParamSpec("P")
R = TypeVar("R")


class Asking(ABC):
    """Handles by id, and waiting for many."""

    @property
    @abstractmethod
    def client(self) -> Any:
        """What asks the store; the App has it."""

    @overload
    def handle(self, job_id: UUID | str, task: Task[P, R]) -> Handle[R]: ...
    @overload
    def handle(self, job_id: UUID | str, task: None = None) -> Handle[Any]: ...
    def handle(self, job_id: UUID | str, task: Task[P, R] | None = None) -> Handle[Any]:
        """The handle of a job that was enqueued earlier, by this process or another one. Nothing is asked of the database.

        Args:
            job_id: its id, also as text, as a web request brings it.
            task: the task that it must be of; a job of any other one is not found (default: any task).

        Raises:
            NotFound: the text is not a job id.
        """
        from jobwell.client import results

        return Handle(results.identify(job_id), task.name if task is not None else "", created=False, _client=self.client)

    def pressure(self, queue: str) -> Pressure:
        """How full a queue with a limit is: `if app.pressure("bulk").soft_full: …`. Asks the store at most once a second.

        Args:
            queue: one that was declared as `Queue(…)`, or has a limit by the setting `queue_lengths`.

        Raises:
            NotFound: it has no limit, so nobody counts it.
        """
        found: Pressure = self.client.pressure(queue)
        return found

    async def apressure(self, queue: str) -> Pressure:
        """As `pressure`, for async code."""
        found: Pressure = await self.client.apressure(queue)
        return found

    @overload
    def results(
        self, jobs: Iterable[Handle[R]], timeout: Duration = "30s", *, return_errors: Literal[False] = False
    ) -> list[R]: ...
    @overload
    def results(
        self, jobs: Iterable[Handle[Any] | UUID], timeout: Duration = "30s", *, return_errors: bool = False
    ) -> list[Any]: ...
    def results(self, jobs: Iterable[Handle[Any] | UUID], timeout: Duration = "30s", *, return_errors: bool = False) -> list[Any]:
        """Wait for many jobs together, with one query for up to 1,000 of them, and give what they returned, in the same order.

        Args:
            jobs: handles, or ids as `enqueue_many` returns them.
            timeout: how long to wait for all of them.
            return_errors: False: the first error that is seen is raised, and the other jobs go on. True: what `Handle.result`
                would raise about a job (`ResultError` or `NotFound`) stands in its place in the list.

        Raises:
            As `Handle.result`.
        """
        from jobwell.client import results

        return results.wait(self.client, jobs, timeout, gather=return_errors)

    @overload
    async def aresults(
        self, jobs: Iterable[Handle[R]], timeout: Duration = "30s", *, return_errors: Literal[False] = False
    ) -> list[R]: ...
    @overload
    async def aresults(
        self, jobs: Iterable[Handle[Any] | UUID], timeout: Duration = "30s", *, return_errors: bool = False
    ) -> list[Any]: ...
    async def aresults(
        self, jobs: Iterable[Handle[Any] | UUID], timeout: Duration = "30s", *, return_errors: bool = False
    ) -> list[Any]:
        """As `results`, for async code."""
        from jobwell.client import results

        return await results.await_all(self.client, jobs, timeout, gather=return_errors)
