"""Where tasks are declared: the decorator, and Tasks to declare apart from an app."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from jobwell.client.task import AsyncTask, Binding, Task
from jobwell.core.catalog import Catalog
from jobwell.core.context import Context, SyncContext
from jobwell.core.dedup import Dedup
from jobwell.core.duration import Duration
from jobwell.core.error_rules import ErrorKey
from jobwell.core.error_table import Kind
from jobwell.core.failed import FailedJob
from jobwell.core.limits import Limit, Rates
from jobwell.core.retry import Retries, RetryRule
from jobwell.core.size import Size
from jobwell.core.task import Lock, OnLeaseLost, OnLost, TaskSpec, Upgrade, declare

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")

if TYPE_CHECKING:
    from jobwell.runs.operation import Operation


class Decorator(Protocol):
    """What `@app.task(…)` gives: a task with the function's own parameters, without its context."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[SyncContext, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R]) -> Task[P, R]: ...


class Tasks:
    """Tasks declared apart from an app, in modules that must not import it: `tasks = Tasks()`, later `app.include(tasks)`."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.includers: list[Tasks] = []
        self.operations: dict[str, Operation[Any, Any]] = {}
        self.binding = Binding()

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration = "5m",
        deadline: Duration = "24h",
        retry: RetryRule | Retries | None = None,
        owner: str | None = None,
        tenant: str | None = None,
        lock: Lock | None = None,
        executor: str | None = None,
        memory: Size | None = None,
        aliases: Iterable[str] = (),
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
        result_ttl: Duration | None = None,
        keep_result: bool = True,
        on_lost: OnLost = "retry",
        on_lease_lost: OnLeaseLost = "stop",
        cost: int = 1,
        resources: Iterable[str] = (),
        concurrency: int | None = None,
        rate: Rates | None = None,
        limits: Iterable[Limit] = (),
        errors: Mapping[ErrorKey, Kind] | None = None,
        on_failed: Task[[FailedJob], Any] | None = None,
        dedup: Dedup | None = None,
    ) -> Decorator: ...
    def task(self, fn: Any = None, /, **options: Any) -> Any:
        """Declare a task with its whole contract. An async function runs on the worker's loop, a plain one on a thread.

        Args:
            fn: the function, where the decorator stands without brackets.
            **options: all of the following.
            name: how jobs name it (default: `module.function`; better chosen, since stored jobs outlive a rename).
            queue: one of the declared queues.
            priority: -100 to 100, higher first within its queue.
            timeout: the time limit of one attempt. An async task is cancelled; of a plain one the attempt is recorded as
                timed out and its thread is left behind, as Python cannot stop a thread.
            deadline: how long after being due the job may wait and try, in all. No retry is planned past it.
            retry: `Backoff`, `Fixed` or `Delays`, or `Retries` with one for each class of error (default: five attempts, 10 s
                growing threefold to 10 min, full jitter). Each may send retries to another queue, or give them another priority.
            owner: who answers for its failures.
            tenant: the name of the parameter that says for whom the job is; the unit of fairness.
            lock: `Lock("parameter")`: one at a time per value.
            executor: "async" or "thread" (default: by the kind of function), or "process": alone in a child process, which can
                be killed: for code that takes the processor, may crash, or must be held to its limits. The function must stand
                at the top of a module.
            memory: what its child may hold: "512MB", 2_000_000_000. Above it the child is killed and the attempt has failed.
            aliases: names that the task had before: jobs stored under them, and producers of an older release, go on.
            version: of the payload; raise it when the parameters change their meaning. A worker of an older release hands jobs
                with a newer version back, and after an hour of that they wait in the quarantine as `unsupported`.
            upgrades: `{1: to_2, 2: to_3}`: each takes the arguments of a version by name and returns those of the next.
            result_ttl: how long its result can be read (default: as long as the finished job is kept, by `retention`).
            keep_result: False: what it returns is dropped; for results that nobody reads.
            on_lost: of a job whose worker vanished, or whose process died, in the middle: "retry" runs it again (the default; ten
                losses and three crashes are the bounds), "fail" puts it into the quarantine at the first: a person says whether
                it may run again.
            on_lease_lost: of an attempt whose worker cannot renew its lease: "stop" ends it (the default: another worker may have
                it soon), "finish" gives it the grace; its outcome counts only if nobody else has the job.
            cost: slots of its worker that a job takes: 4 for one that is as heavy as four others. Not in a process, which takes a
                child and no slot.
            resources: names of what it uses (`app.resource`): a limit or a hold on one of them counts for all tasks that name it.
            concurrency: jobs of it at once, in the whole fleet.
            rate: how often it may start: "10/s", or several windows: ("10/s", "1000/h").
            limits: more of them, or for each host, process or tenant: `Limit(concurrency=2, per="tenant")`.
            errors: what its errors are, before the app's rules and the built-in table (docs/errors.md): "temporary", "throttled",
                "logical" or "unknown", by class, dotted name or HTTP status: `{"shop.sms.Busy": "throttled", 409: "temporary"}`.
            on_failed: a task with one parameter, a `FailedJob`: enqueued in the same transaction in which a job of this one goes
                to the quarantine, whatever way. A retry that fails again is told again.
            dedup: `Dedup(by=("parameter",), …)`: a second job with the same values is not enqueued while the first stands for it
                (docs/dedup.md).

        Raises:
            DeclarationError: at import, with what would be right.
        """

        def decorate(function: Any) -> Any:
            spec = declare(function, **options)
            for holder in (self, *self.includers):
                holder.accept(spec)
            return (AsyncTask if spec.coroutine else Task)(spec, self.binding)

        return decorate if fn is None else decorate(fn)

    def bulk(
        self,
        name: str,
        *,
        params: type[A] | None = None,
        item: type[B] | None = None,
        key: "str | Callable[[B], Any]",
        version: int = 1,
    ) -> "Operation[A, B]":
        """Declare a bulk operation: many items, each with its state in every stage (docs/runs.md).

        Args:
            name: of the operation, such as "hr.transfer"; its tasks are called `name.function`.
            params: the type of what a start is given: a pydantic model, a dataclass, a typed dict (default: none).
            item: the type of an item (default: a plain dict).
            key: the field that tells items apart, or a function of the item: of two with the same key the second is left out.
            version: of the declaration; shown with its runs.

        Raises:
            DeclarationError: at import, with what would be right.
        """
        from jobwell.runs.operation import Operation

        made: Operation[A, B] = Operation(self, name, params=params, item=item, key=key, version=version)
        self.take_operation(made)
        return made

    def take_operation(self, operation: "Operation[Any, Any]") -> None:
        """Know a bulk operation by its name, for those who start it by that."""
        self.operations[operation.name] = operation
        for includer in self.includers:
            includer.take_operation(operation)

    def accept(self, spec: TaskSpec) -> None:
        """Take a task into the catalog."""
        self.catalog.add(spec)
