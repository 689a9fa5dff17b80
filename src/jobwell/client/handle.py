"""What an enqueue returns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

from jobwell.core.duration import Duration
from jobwell.core.errors import EnqueueError
from jobwell.core.follow import MOST
from jobwell.core.job import NewJob

if TYPE_CHECKING:
    from jobwell.client.client import Client
    from jobwell.client.task import Task
    from jobwell.core.progress import Progress
    from jobwell.core.why import Because

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A stored job.

    Attributes:
        id: of the job; sorts by time.
        task: the task's name; empty where only the id is known.
        created: False where an equal job was there already and this is its id, or where the handle was made from an id.
    """

    id: UUID
    task: str
    created: bool
    _client: "Client"

    def status(self) -> str:
        """The job's state now: waiting, scheduled, ready, running, retrying, succeeded, failed or cancelled.

        Raises:
            NotFound: it is gone (its retention is over), or not committed yet.
            StoreUnavailable: the database cannot be reached.
        """
        return self._client.status(self.id)

    async def astatus(self) -> str:
        """As `status`, for async code."""
        return await self._client.astatus(self.id)

    def progress(self) -> "Progress | None":
        """How far it has said that it is (`ctx.progress`), as of a second ago at the most; None: it has said nothing.

        Kept while the job lives or waits in the quarantine, and for an hour at least after that.

        Raises:
            StoreUnavailable: the database cannot be reached.
        """
        return self._client.progress(self.id)

    async def aprogress(self) -> "Progress | None":
        """As `progress`, for async code."""
        return await self._client.aprogress(self.id)

    def why(self) -> "list[Because]":
        """Why it does not run: each reason that holds, the one to look at first in front, as `jobwell jobs why` tells it.

        Returns:
            At least one, each with a `code` for programs (docs/cli.md has them) and a `sentence` that says what to do.

        Raises:
            NotFound: it is gone (its retention is over), or not committed yet.
            StoreUnavailable: the database cannot be reached.
        """
        return self._client.why(self.id)

    async def awhy(self) -> "list[Because]":
        """As `why`, for async code."""
        return await self._client.awhy(self.id)

    def cancel(self, *, by: str = "the application", why: str | None = None) -> str:
        """Cancel it: where it waits it is over at once; where it runs its worker is asked to stop it, within about a second.

        An async task is cancelled where it awaits; a plain function sees `ctx.cancelled`. A task that comes to its end all the
        same has succeeded. A cancelled job is final, and never runs again.

        Args:
            by: who, for the audit.
            why: the reason, for whoever looks at the job.

        Returns:
            "cancelled"; "cancelling" while its worker stops it; or the final state that it had already: too late.

        Raises:
            NotFound: it is gone (its retention is over), or not committed yet.
            StoreUnavailable: the database cannot be reached.
        """
        return self._client.cancel(self.id, by, why)

    async def acancel(self, *, by: str = "the application", why: str | None = None) -> str:
        """As `cancel`, for async code."""
        return await self._client.acancel(self.id, by, why)

    def reprioritize(self, priority: int, *, by: str = "the application", why: str | None = None) -> bool:
        """Give it another priority while it waits, from the next claim on.

        Args:
            priority: -100 to 100, higher first within its queue.
            by: who, for the audit.
            why: the reason.

        Returns:
            False where it runs, or is over: a priority counts only while a job waits, and nothing was changed.

        Raises:
            DeclarationError: it is no priority.
            NotFound: it is gone (its retention is over), or not committed yet.
            StoreUnavailable: the database cannot be reached.
        """
        return self._client.reprioritize(self.id, priority, by, why)

    async def areprioritize(self, priority: int, *, by: str = "the application", why: str | None = None) -> bool:
        """As `reprioritize`, for async code."""
        return await self._client.areprioritize(self.id, priority, by, why)

    def result(self, timeout: Duration = "30s") -> R:
        """Wait for the job's end and give what it returned. No connection is held while it waits.

        In a task it keeps a slot of the worker waiting, and jobs that wait for each other's slots wait for ever: let the
        first job enqueue the second instead.

        Args:
            timeout: how long to wait, as a duration ("90s", 5, timedelta); 0 looks once.

        Raises:
            JobFailed: it failed for good; reason, code, error and attempts are on the error.
            JobCancelled: it was cancelled.
            WaitTimeout: it has not ended yet; it goes on, and may be asked again.
            ResultExpired, ResultUnavailable, ResultMismatch: it succeeded, and there is no result to give.
            NotFound: it is gone (its retention is over), not committed yet, or of another task than this handle.
            TransactionMisuse: inside `app.within(…)`, where it would wait for its own transaction.
            ResultError: called on a running event loop, which it would block; use `aresult`.
            StoreUnavailable: the database cannot be reached; the job is as it was.
        """
        from jobwell.client import results

        found: R = results.wait(self._client, [self], timeout)[0]
        return found

    async def aresult(self, timeout: Duration = "30s") -> R:
        """As `result`, for async code."""
        from jobwell.client import results

        found: R = (await results.await_all(self._client, [self], timeout))[0]
        return found

    def then(self, task: "Task[P, S]", *args: P.args, **kwargs: P.kwargs) -> "Handle[S]":
        """Enqueue what follows this job: `report.then(send, to=…)` is `send.after(report).enqueue(to=…)`.

        Args:
            task: of the job that follows; with options by `using`, or by `after(other, when="ended")` with more to wait for.
            *args: its arguments.
            **kwargs: its arguments.

        Raises:
            As `Task.after` and `Task.enqueue`.
        """
        return task.after(self).enqueue(*args, **kwargs)

    async def athen(self, task: "Task[P, S]", *args: P.args, **kwargs: P.kwargs) -> "Handle[S]":
        """As `then`, for async code."""
        return await task.after(self).aenqueue(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.id} of {self.task or 'some task'}>"


class Enqueued(Sequence[UUID]):
    """The ids of many jobs, in input order, 16 bytes each.

    Where an equal job stands for one of them (`Dedup`), that one's id is in its place.

    Attributes:
        suppressed: the places, from 0 on, of those that made no job of their own.
    """

    def __init__(self, ids: bytes | bytearray, suppressed: Sequence[int] = ()) -> None:
        self._ids = bytes(ids)
        self.suppressed = suppressed

    def made(self) -> "Sequence[UUID]":
        """The ids of the jobs that were made, in input order."""
        if not self.suppressed:
            return self
        left = set(self.suppressed)
        return [job for place, job in enumerate(self) if place not in left]

    @property
    def created(self) -> int:
        """How many jobs were made."""
        return len(self) - len(self.suppressed)

    def __len__(self) -> int:
        return len(self._ids) // 16

    @overload
    def __getitem__(self, at: int) -> UUID: ...
    @overload
    def __getitem__(self, at: slice) -> list[UUID]: ...
    def __getitem__(self, at: int | slice) -> UUID | list[UUID]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(at)
        return UUID(bytes=self._ids[index * 16 : index * 16 + 16])

    def __iter__(self) -> Iterator[UUID]:
        return (UUID(bytes=self._ids[at : at + 16]) for at in range(0, len(self._ids), 16))

    def __repr__(self) -> str:
        also = f", {len(self.suppressed)} of them there already" if self.suppressed else ""
        return f"<{len(self)} jobs{also}>"


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that were stored together, and the one that follows all of them.

    Attributes:
        jobs: the ids, in input order.
        then: the job that follows.
    """

    jobs: Enqueued
    then: Handle[Any]


Followable = Handle[Any] | UUID | NewJob | Enqueued | Group


def ids_of(jobs: "tuple[Followable, ...]") -> tuple[UUID, ...]:
    """The ids of what a job shall follow, each once.

    Raises:
        EnqueueError: it is no job, or too many.
    """
    found: dict[UUID, None] = {}
    for job in jobs:
        if isinstance(job, UUID):
            found[job] = None
        elif isinstance(job, Handle | NewJob):
            found[job.id] = None
        elif isinstance(job, Enqueued):
            found.update(dict.fromkeys(job))
        elif isinstance(job, Group):
            found[job.then.id] = None
        else:
            raise EnqueueError(f"after({job!r:.200}): give handles, ids, or what enqueue_many or enqueue_group has returned")
    if len(found) > MOST:
        raise EnqueueError(
            f"after(…): {len(found):,} jobs, and one job may follow {MOST:,}; enqueue them as a group with one job behind it"
            " (app.enqueue_group), and follow that one"
        )
    return tuple(found)
