"""A declared task as the developer holds it: call it, or enqueue it."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeVar, cast

from jobwell.client.handle import Followable, Handle, ids_of
from jobwell.core import job as jobs
from jobwell.core.context import Context, SyncContext
from jobwell.core.dedup import Dedup
from jobwell.core.duration import Duration
from jobwell.core.errors import DeclarationError, TransactionMisuse
from jobwell.core.follow import When, check_when
from jobwell.core.job import NewJob, Options
from jobwell.core.task import TaskSpec

if TYPE_CHECKING:  # the driver takes longer to import than everything else: it waits for the first enqueue
    from jobwell.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")


class Binding:
    """What a task needs of its app; filled when the task is declared on an app or included into one."""

    __slots__ = ("client", "payload_limit")

    def __init__(self) -> None:
        self.client: Callable[[], Client] | None = None
        self.payload_limit: Callable[[], int] = lambda: 0


class Task(Generic[P, R]):
    """A function with its contract.

    `task(…)` calls the function (for an async one: `await task(…)`) with a context of its own and without any queue.
    `task.enqueue(…)` and `await task.aenqueue(…)` store a job. The arguments are those of the function, without its context.
    """

    def __init__(self, spec: TaskSpec, binding: Binding, options: Options = jobs.PLAIN, conn: Any | None = None) -> None:
        self.spec = spec
        self.fn = spec.fn
        self._binding = binding
        self._options = options
        self._conn = conn

    @property
    def name(self) -> str:
        """The task's name, as it stands on its jobs."""
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return cast("R", self._call(args, kwargs))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.spec.signature.context:
            return self.fn(*args, **kwargs)
        kind = Context if self.spec.coroutine else SyncContext
        return self.fn(kind.local(self.name), *args, **kwargs)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A checked and encoded job for `enqueue_many`; nothing is stored.

        Raises:
            InvalidArguments: the arguments do not fit or cannot be stored; the message names the path.
            PayloadTooLarge: the encoded arguments are above `payload_limit`.
            TransactionMisuse: a connection was given by `using`, which a job cannot carry: give it to `enqueue_many`.
        """
        if self._conn is not None:
            raise TransactionMisuse(
                f"{self.name}: a job does not carry the connection of `using(conn=…)`, so it would not commit with your rows;"
                " give it as `enqueue_many(…, conn=conn)`. Nothing was enqueued"
            )
        return self._made(args, kwargs)

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        return jobs.make(self.spec, args, kwargs, self._options, self._bound().payload_limit())

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a job.

        Inside `app.within(conn)` or with `using(conn=…)` it commits or vanishes with the caller's transaction; otherwise it
        is committed when this returns.

        Returns:
            The job's handle. Where an equal job stands for this one (`Dedup`), that one's, with `created=False`.

        Raises:
            InvalidArguments, PayloadTooLarge, QueueFull: nothing was stored.
            Duplicate: an equal job is there, and the task's `Dedup` refuses a second one.
            TransactionMisuse: the caller's connection cannot give the promise.
            StoreUnavailable: the database cannot be reached. Where the answer to the commit was lost the job may be there.
                On the caller's connection errors stay those of its driver.
        """
        return self._client().put(self._made(args, kwargs), self._conn)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `enqueue`, for async code."""
        return await self._client().aput(self._made(args, kwargs), self._conn)

    def using(
        self,
        *,
        run_after: Duration | datetime | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        deadline: Duration | None = None,
        dedup: Dedup | Literal[False] | None = None,
        dedup_key: str | None = None,
        conn: Any | None = None,
    ) -> Self:
        """The same task with other options for what is enqueued through the result.

        Args:
            run_after: not before: a duration from now ("10m", 600, timedelta) or an aware datetime.
            priority: -100 to 100, higher first (default: the task's).
            tenant: for whom (default: the parameter that the task names).
            deadline: how long after being due it may wait and try, in all (default: the task's).
            dedup: other terms than the task's (`Dedup(…)`), or False for none.
            dedup_key: a key of the caller's, such as "order-7", in place of the parameters that the terms name. Where the task
                has no terms, a job stands for its key as long as it lives.
            conn: the caller's connection or session, which `App.within` takes too: the job commits or vanishes with its
                transaction.
        """
        before = self._options
        options = replace(
            before,
            run_after=run_after if run_after is not None else before.run_after,
            priority=priority if priority is not None else before.priority,
            tenant=tenant if tenant is not None else before.tenant,
            deadline=deadline if deadline is not None else before.deadline,
            dedup=dedup if dedup is not None else before.dedup,
            dedup_key=dedup_key if dedup_key is not None else before.dedup_key,
        )
        return type(self)(self.spec, self._binding, options, conn if conn is not None else self._conn)

    def after(self, *jobs: Followable, when: When | None = None) -> Self:
        """The same task for jobs that wait until others have ended: `send.after(report).enqueue(to=…)`.

        Its job is not claimed before. `run_after`, where it is a duration, and the deadline count from its release. Where a job
        that it follows is cancelled or discarded, it is cancelled; while one waits in the quarantine, it waits.

        Args:
            *jobs: all of them: handles, ids, jobs that stand before it in the same `enqueue_many`, or what `enqueue_many` or
                `enqueue_group` has returned. Of none at all, nothing is waited for.
            when: "succeeded" (the default): all must have succeeded; "ended": also if they fail (being in the quarantine is an
                end here) or are cancelled.

        Raises:
            EnqueueError: it is no job or no condition, or more than 10,000 of them; put those into a group.
            NotFound: at the enqueue: one of them is nowhere. Nothing is stored.
        """
        if when is not None:
            check_when(when)
        options = replace(
            self._options,
            after=ids_of((*self._options.after, *jobs)),
            ended=self._options.ended if when is None else when == "ended",
        )
        return type(self)(self.spec, self._binding, options, self._conn)

    def _bound(self) -> Binding:
        if self._binding.client is None:
            raise DeclarationError(f"task {self.name} belongs to no app yet; call app.include(tasks) where the app is made")
        return self._binding

    def _client(self) -> "Client":
        client = self._bound().client
        assert client is not None
        return client()

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class AsyncTask(Task[P, R]):
    """A task made from an async function: `await task(…)` calls it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Call the function here and now."""
        return cast("Coroutine[Any, Any, R]", self._call(args, kwargs))
