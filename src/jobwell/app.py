"""The application's side: settings, queues, catalog and client in one."""

import fnmatch
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jobwell import settings as setting
from jobwell.client import correlation
from jobwell.client.asking import Asking
from jobwell.client.handle import Group
from jobwell.client.quarantine import Deciding
from jobwell.core.duration import Duration
from jobwell.core.error_rules import ErrorKey
from jobwell.core.error_rules import rules as error_rules
from jobwell.core.error_table import Kind
from jobwell.core.errors import DeclarationError, SettingsError
from jobwell.core.follow import When, check_when
from jobwell.core.job import NewJob
from jobwell.core.limiting import Limiting
from jobwell.core.queues import Queue, bounded
from jobwell.core.task import TaskSpec, check_queue, declare_queues
from jobwell.settings import Settings
from jobwell.tasks import Tasks

if TYPE_CHECKING:
    from jobwell.core.events import Event
    from jobwell.core.letter import Report
    from jobwell.runs.run import Runs

H = TypeVar("H", bound=Callable[[Any], Any])
R = TypeVar("R", bound=Callable[["Report"], Any])


class App(Tasks, Limiting, Asking, Deciding):
    """An application: settings, queues, catalog and client. Light to make; it connects at the first enqueue.

    Args:
        database_url: "postgresql://…", or "embedded" to try things out (default: JOBWELL_DATABASE_URL, then the file).
        queues: names of queues besides the standard ones (critical, notifications, default, bulk, reports); or `Queue("bulk",
            soft=…, hard=…)`, for a new one or a standard one with a limit.
        discover: patterns of modules that declare tasks, such as "shop.*.tasks"; imported by `load`, which workers and the
            command line call.
        middleware: code around every attempt, outermost first: `async def timing(ctx, call): …; return await call()`.
        errors: what errors of all its tasks are, by class, dotted name or HTTP status; a task's own `errors` go before them.
        settings: any other setting by name, such as `schema="jobs"`; `jobwell doctor` lists them.

    Raises:
        SettingsError: a setting is wrong; the message says where it came from.
        DeclarationError: a queue or a rule for errors is declared wrongly.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        queues: str | Queue | Iterable[str | Queue] = (),
        discover: str | Iterable[str] = (),
        middleware: Iterable[Any] = (),
        errors: Mapping[ErrorKey, Kind] | None = None,
        **settings: Any,
    ) -> None:
        Tasks.__init__(self)
        Limiting.__init__(self)
        self._given = {"database_url": database_url, **settings}
        self.overridden: dict[str, Any] = {}
        self.settings: Settings = setting.load(self._given)
        declared = (queues,) if isinstance(queues, str | Queue) else tuple(queues)
        self.queues = declare_queues(queue.name if isinstance(queue, Queue) else queue for queue in declared)
        self._bounded = [queue for queue in declared if isinstance(queue, Queue)]
        self._check_bounded()
        self.discover = (discover,) if isinstance(discover, str) else tuple(discover)
        self.middleware = tuple(middleware)
        self._error_rules = error_rules(errors, "App: ")
        self.handlers: dict[type[Event], list[Callable[[Any], Any]]] = {}
        self.report_hook: Callable[[Report], Any] | None = None
        self.binding.client = lambda: self.client
        self.binding.payload_limit = lambda: self.settings.payload_limit

    @cached_property
    def database(self) -> Any:
        """Where the store is. The driver is imported here, at the first use."""
        from jobwell.store.database import Database

        return Database(self.settings)

    @cached_property
    def client(self) -> Any:
        """What stores jobs."""
        from jobwell.client.client import Client

        return Client(self.database, self.catalog, self.bounded_queues)

    @cached_property
    def runs(self) -> "Runs":
        """The runs of its bulk operations: `app.runs.get(id)`, `list()`, `deliver(token, state)`."""
        from jobwell.runs.run import Runs

        return Runs(lambda: self.client)

    @property
    def bounded_queues(self) -> Mapping[str, Queue]:
        """The queues whose length has a limit, as declared here or set by operators (`queue_lengths`)."""
        return bounded(self._bounded, self.settings.queue_lengths)

    def include(self, *groups: Tasks) -> None:
        """Take tasks in that were declared on `Tasks()`.

        Raises:
            DeclarationError: a name is taken, or a queue is not declared.
        """
        for group in groups:
            for spec in group.catalog:
                self.accept(spec)
            for operation in group.operations.values():
                self.take_operation(operation)
            group.includers.append(self)  # what is declared on it later comes too
            group.binding.client = self.binding.client
            group.binding.payload_limit = self.binding.payload_limit

    def on(self, *kinds: "type[Event]") -> Callable[[H], H]:
        """Listen to events of workers: `@app.on(JobQuarantined)` above a plain or async function that takes the event.

        A handler is called after the fact and beside the work: an async one on the worker's loop, a plain one on a thread. Its
        errors are logged and touch no job. It has 10 s for a call; three overruns in a row switch it off until the worker starts
        again. Beyond 10,000 events that wait for it more are dropped.

        Guarantee: at most once. Events are lost where a worker dies, and where an answer of the database is lost. What must
        happen after a job is a job of its own, enqueued by the first one.

        Args:
            kinds: exactly these, such as JobSucceeded, from `jobwell.events`.

        Raises:
            DeclarationError: a kind is no event of these.
        """
        from jobwell.core.events import Event  # not before somebody listens: an application that only enqueues does not

        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Event)) or kind.__subclasses__():
                raise DeclarationError(f"on({kind!r}): give the kinds of events to listen to, such as JobSucceeded")
        if not kinds:
            raise DeclarationError("on(): name at least one kind of event, such as JobSucceeded")

        def listen(handler: H) -> H:
            for kind in kinds:
                self.handlers.setdefault(kind, []).append(handler)
            return handler

        return listen

    def on_report(self, hook: R) -> R:
        """Send reports on failed jobs another way than by mail: `@app.on_report` above a function that takes a `Report`.

        It is called with those recipients of a subscription that hold no @ (such as "slack:ops"), and where the setting
        `smtp_url` is empty with all of them. A plain function runs on a thread; either has 30 s.

        Guarantee: at least once. A hook that raises, or is late, is called again later with the same report; also one that had
        ended well, where its worker dies a moment later. `report.id` is the same each time.

        Args:
            hook: the function; an app has one.

        Raises:
            DeclarationError: there is one already.
        """
        if self.report_hook is not None:
            raise DeclarationError("on_report: there is a hook already; an app has one, which may hand over to several")
        self.report_hook = hook
        return hook

    def load(self) -> None:
        """Import the modules that `discover` names, and check every signature.

        Raises:
            DeclarationError: a pattern matches no module, or a task's types cannot be stored.
        """
        for pattern in self.discover:
            found = _modules(pattern)
            if not found:
                raise DeclarationError(f"discover={pattern!r} matches no module")
            for name in found:
                module = importlib.import_module(name)
                self.include(*(value for value in vars(module).values() if isinstance(value, Tasks) and value is not self))
        self.catalog.check()

    def enqueue_many(self, jobs: Iterable[NewJob], *, conn: Any | None = None, spread: Duration | None = None) -> Any:
        """Store many jobs in bounded memory: all or nothing.

        Args:
            jobs: `task.job(…)` for each; a generator is read as it is stored.
            conn: what `within` takes (default: what the innermost `within` was given, or a connection of our own). All or
                nothing is a savepoint of the caller's transaction from 200 jobs on, and one statement below.
            spread: a duration over which the jobs become due, evenly, from now on: in input order where `jobs` has a length,
                and in another order where it is a stream. A job's own `run_after` is added to its place.

        Returns:
            The ids in input order, a sequence of 16 bytes each.

        Raises:
            EnqueueError: with the position of the job; also for the same job twice. Nothing was stored.
            BatchTooLarge, QueueFull: there are more than `batch_limit`, or than a queue takes. Nothing was stored.
            TransactionMisuse: the caller's connection cannot give the promise.
            StoreUnavailable: the database cannot be reached. On the caller's connection errors stay those of its driver.
            Exception: what the caller's own generator raises, unchanged. Nothing was stored.
        """
        return self.client.put_many(jobs, conn, spread)

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, conn: Any | None = None, spread: Duration | None = None) -> Any:
        """As `enqueue_many`, for async code."""
        return await self.client.aput_many(jobs, conn, spread)

    def enqueue_group(self, jobs: Iterable[NewJob], *, then: NewJob, when: When = "ended", conn: Any | None = None) -> Group:
        """Store many jobs, and one that follows all of them: `app.enqueue_group(jobs, then=report.job(month=1))`.

        All or nothing, as `enqueue_many`. The job behind the group reads in `ctx.followed` how many have succeeded, failed and
        were cancelled. Behind an empty group it runs at once.

        Args:
            jobs: `task.job(…)` for each; a generator is read as it is stored.
            then: the job that follows.
            when: "ended" (the default): when all have ended, whatever way; being in the quarantine is an end. "succeeded": when
                all have succeeded; while one waits in the quarantine it waits, and it is cancelled with any of them.
            conn: as for `enqueue_many`.

        Returns:
            A Group: the ids in `jobs`, and in `then` the handle of the job that follows.

        Raises:
            As `enqueue_many`.
        """
        check_when(when)
        group: Group = self.client.put_group(jobs, then, conn, ended=when == "ended")
        return group

    async def aenqueue_group(
        self, jobs: Iterable[NewJob], *, then: NewJob, when: When = "ended", conn: Any | None = None
    ) -> Group:
        """As `enqueue_group`, for async code."""
        check_when(when)
        group: Group = await self.client.aput_group(jobs, then, conn, ended=when == "ended")
        return group

    def within(self, connection: Any) -> AbstractContextManager[Any]:
        """Every enqueue inside goes through the caller's connection and commits or vanishes with its transaction.

        Never commits, rolls back or flushes. Errors of the caller's driver stay what they are, so that a serialization failure
        reaches the caller's own retry loop.

        Args:
            connection: for `enqueue` a psycopg Connection or a SQLAlchemy Session, scoped_session or Connection; for
                `await aenqueue` a psycopg AsyncConnection, an asyncpg Connection (also one of a pool), or a SQLAlchemy
                AsyncSession, async_scoped_session or AsyncConnection. To the store's database, not in autocommit mode; asyncpg
                with an open transaction.

        Raises:
            TransactionMisuse: the promise cannot be kept on this connection: here, as far as it can be seen, or at an enqueue.
        """
        within: AbstractContextManager[Any] = self.client.within(connection)
        return within

    def correlate(self, **fields: str | float | bool | None) -> AbstractContextManager[None]:
        """Give request_id, initiator and the like to every job enqueued inside, and to the children of those jobs."""
        return correlation.correlate(**fields)

    def override(self, settings: Mapping[str, Any]) -> None:
        """Let a command line go before what the module says; before the first use.

        Raises:
            SettingsError: a value is wrong.
        """
        self._given.update(settings)
        self.settings = setting.load(self._given)
        self._check_bounded()
        self.overridden.update(settings)  # for child processes, which import the module anew

    def _check_bounded(self) -> None:
        for queue in self.bounded_queues:
            if queue not in self.queues:
                have = ", ".join(self.queues)
                raise SettingsError(f"queue_lengths: the app declares no queue {queue!r}; declared are {have}")

    def close(self) -> None:
        """Give the connections back. The app can be used again afterwards."""
        if "client" in self.__dict__:
            self.client.close()

    async def aclose(self) -> None:
        """As `close`, with the pool of the running loop."""
        if "client" in self.__dict__:
            await self.client.aclose()

    def accept(self, spec: TaskSpec) -> None:
        """Take a task into the catalog; its queue must be declared."""
        check_queue(spec, self.queues)
        super().accept(replace(spec, errors=(*spec.errors, *self._error_rules)) if self._error_rules else spec)


def _modules(pattern: str) -> list[str]:
    if not any(sign in pattern for sign in "*?["):
        return [pattern] if _is_there(pattern) else []
    root = pattern.split(".", 1)[0]
    if not _is_there(root):
        return []
    package = importlib.import_module(root)
    found = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{root}.", onerror=_again)
    return sorted(info.name for info in found if fnmatch.fnmatchcase(info.name, pattern))


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            return False
        raise  # a parent is there, and what it imports is not


def _again(_: str) -> NoReturn:
    raise  # noqa: PLE0704  called while the error is handled: a package that cannot be imported hides no tasks in silence
