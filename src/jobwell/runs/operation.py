"""The declaration of a bulk operation, and its start."""

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload
from uuid import UUID

from jobwell.client import correlation, transactions
from jobwell.core.errors import DeclarationError, InvalidArguments, TransactionMisuse
from jobwell.core.ids import new_id
from jobwell.core.job import tenant_of
from jobwell.core.runs import canary_of
from jobwell.core.task import check_name
from jobwell.core.text import check_storable
from jobwell.runs.intake import afill, fill
from jobwell.runs.parts import OPTIONS, Declares, Part
from jobwell.runs.plan import Counting, Plan
from jobwell.runs.run import Run
from jobwell.runs.shape import ItemShape, Shape, params_of
from jobwell.runs.stages import job_of
from jobwell.store import runs as store
from jobwell.store.runs import NewPart, NewRun
from jobwell.store.statements import arun, run

if TYPE_CHECKING:
    from jobwell.client.client import Client

P = TypeVar("P")
T = TypeVar("T")
OnBad = Literal["stop", "skip"]
When = Literal["any", "all_done"]
Decorator = Callable[[Callable[..., Any]], Part]
ROOM_ITEMS, ROOM_CHUNKS = 1000, 64
LONGEST_KEY = 200
LARGEST_CHUNK = 10_000


class Operation(Generic[P, T]):
    """A bulk operation, made by `app.bulk(…)`.

    Args:
        tasks: where it is declared.
        name: of the operation; its tasks are called `name.function`.
        params: the type of what a start is given.
        item: the type of an item.
        key: what tells items apart.
        version: of the declaration; shown with the run.
    """

    def __init__(
        self, tasks: Declares, name: str, *, params: Any, item: Any, key: str | Callable[[Any], Any], version: int
    ) -> None:
        self.name = check_name(name, "bulk operation")
        self._tasks = tasks
        self._params = Shape(params, f"{name}: params")
        self.items = ItemShape(item, key, f"{name}: item")
        self.version = version
        self.parts: list[Part] = []

    @property
    def client(self) -> "Client":
        """Of its app."""
        found = self._tasks.binding.client
        if found is None:
            raise DeclarationError(f"{self.name} belongs to no app yet; call app.include(tasks) where the app is made")
        return found()

    def read_params(self, stored: str | None) -> Any:
        """The parameters of a run, as they were given."""
        return None if stored is None else self._params.load(stored)

    # --- declaring -----------------------------------------------------------------------------------------------------------

    @overload
    def prepare(self, fn: Callable[..., Any], /) -> Part: ...
    @overload
    def prepare(self, fn: None = None, /, **options: Any) -> Decorator: ...
    def prepare(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Decorate what finds the items, in the background: a generator, plain or async, that takes (ctx, params).

        It is a job; a further attempt of it reads from the start and leaves out what is there. Options are those of a task
        (default: queue "bulk", an hour of time).
        """
        options = {"queue": "bulk", "timeout": "1h"} | options

        def decorate(function: Callable[..., Any]) -> Part:
            if any(part.kind == "prepare" for part in self.parts):
                raise DeclarationError(f"{self.name}: it has a preparation already")
            coroutine = inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)
            return self._add(Part(self.name, "prepare", function.__name__, function, coroutine), options)

        return decorate if fn is None else decorate(fn)

    @overload
    def stage(self, fn: Callable[..., Any], /) -> Part: ...
    @overload
    def stage(
        self, fn: None = None, /, *, chunk: int = 0, after: Part | None = None, window: int | None = None, **options: Any
    ) -> Decorator: ...
    def stage(
        self, fn: Callable[..., Any] | None = None, /, *, chunk: int = 0, after: Part | None = None, window: int | None = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Decorate a stage: a function of (ctx, item), or with `chunk` of (ctx, items); async or plain.

        Args:
            fn: the function, where the decorator stands without brackets.
            chunk: so many items are one job; 0: each item is a job of its own.
            after: the stage before it: an item comes here as soon as it is done there (default: items come at once).
            window: jobs that are enqueued at once at the most, so that a large run does not fill the queue (default: 1,000, or 64
                chunks).
            **options: of a task: queue (default "bulk"), priority, timeout, deadline, retry, resources, concurrency, rate,
                limits, errors, owner, cost, on_lost.
        """
        if isinstance(chunk, bool) or not isinstance(chunk, int) or not 0 <= chunk <= LARGEST_CHUNK:
            raise DeclarationError(f"{self.name}: chunk={chunk!r} must be a number of items from 1 to {LARGEST_CHUNK:,}, or 0")
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise DeclarationError(f"{self.name}: window={window!r} must be a number of jobs from 1 on")
        room = (window or ROOM_CHUNKS) * chunk if chunk else window or ROOM_ITEMS

        def decorate(function: Callable[..., Any]) -> Part:
            self._known(after)
            coroutine = inspect.iscoroutinefunction(function)
            part = Part(self.name, "items", function.__name__, function, coroutine, chunk, room, after)
            return self._add(part, {"queue": "bulk"} | options)

        return decorate if fn is None else decorate(fn)

    @overload
    def finish(self, fn: Callable[..., Any], /) -> Part: ...
    @overload
    def finish(self, fn: None = None, /, *, after: Part | None = None, when: When = "any", **options: Any) -> Decorator: ...
    def finish(
        self, fn: Callable[..., Any] | None = None, /, *, after: Part | None = None, when: When = "any", **options: Any
    ) -> Any:
        """Decorate what is done once, when no item is open: a function of (ctx, summary), where the summary is the run's card.

        Args:
            fn: the function, where the decorator stands without brackets.
            after: the stage whose end it waits for (default: all stages).
            when: "any": however the items ended; "all_done": when each of them is done or skipped, perhaps after a retry.
            **options: of a task (default: queue "reports").
        """
        if when not in ("any", "all_done"):
            raise DeclarationError(f"{self.name}: when={when!r} must be 'any' or 'all_done'")

        def decorate(function: Callable[..., Any]) -> Part:
            self._known(after)
            coroutine = inspect.iscoroutinefunction(function)
            part = Part(self.name, "finish", function.__name__, function, coroutine, after=after, condition=when)
            return self._add(part, {"queue": "reports"} | options)

        return decorate if fn is None else decorate(fn)

    def _known(self, after: Part | None) -> None:
        if after is not None and (after not in self.parts or after.kind != "items"):
            raise DeclarationError(f"{self.name}: after={after!r} must be a stage of it that is declared above")

    def _add(self, part: Part, options: dict[str, Any]) -> Part:
        unknown = sorted(set(options) - OPTIONS)
        if unknown:
            raise DeclarationError(
                f"{self.name}.{part.name}: {unknown[0]!r} is no option of it; there are {', '.join(sorted(OPTIONS))}"
            )
        if any(one.name == part.name for one in self.parts):
            raise DeclarationError(f"{self.name}: it has a part called {part.name!r} already")
        options.setdefault("keep_result", False)
        part.task = self._tasks.task(name=f"{self.name}.{part.name}", **options)(job_of(self, part))
        self.parts.append(part)
        return part

    # --- starting ------------------------------------------------------------------------------------------------------------

    def start(
        self, params: P | None = None, *, items: Iterable[Any] | None = None, key: str | None = None, by: str = "the application",
        why: str | None = None, tenant: str | None = None, canary: float | None = None, only: Mapping[str, Any] | None = None,
        on_bad: OnBad = "stop", expected: int | None = None, seal: bool = True,
    ) -> Run:  # fmt: skip
        """Start a run. With a preparation it returns at once; with `items` when they are stored.

        Args:
            params: what the stages find as `ctx.params`.
            items: an iterable of items, or of dicts that the model checks; `csv_rows(…)`, `xlsx_rows(…)`, `query_rows(…)`.
            key: names the start: the same key is the same run, and goes on with it where it was left in the middle.
            by: who, for the card and the audit.
            why: the reason.
            tenant: for whom its jobs are.
            canary: so many of the items, or so large a share (0.05), are let go first; the run holds then, until
                `run.continue_()` or `run.cancel()`.
            only: a canary of the items that have these values: `{"department": "Finance"}`.
            on_bad: of rows that do not fit: "stop": the whole input is checked first, and with one of them nothing runs;
                "skip": the others run, from the first block on.
            expected: how many items there will be, where it is known and the run does not know it yet.
            seal: False: more come, by `run.add(…)`, until `run.seal()`.

        Returns:
            The run; `created` is False where it was there.

        Raises:
            InvalidArguments: the parameters do not fit. Nothing was started.
            StoreUnavailable: the database cannot be reached. Items that are stored are stored: the same start again, with the
                same key, goes on.
            Exception: what the iterable of items raises, unchanged; the run stays open, and the same holds.
        """
        new = self._new(
            params, key=key, by=by, why=why, tenant=tenant, canary=canary, only=only, on_bad=on_bad, expected=expected,
            items=items is not None,
        )  # fmt: skip
        client = self.client
        with client.connections.plain() as conn:
            with conn.transaction():
                id, created = run(conn, store.create(client.statements, new))
            sealed = not created and run(conn, store.card(client.statements, id)).sealed
        made = Run(client, id, created=created, shape=self.items)
        if items is not None and not sealed:
            fill(client, self.items, id, items, resumes=True)
        if not sealed and seal and not self._prepares(items=items is not None):
            made.seal()
        return made

    async def astart(
        self, params: P | None = None, *, items: Iterable[Any] | AsyncIterable[Any] | None = None, key: str | None = None,
        by: str = "the application", why: str | None = None, tenant: str | None = None, canary: float | None = None,
        only: Mapping[str, Any] | None = None, on_bad: OnBad = "stop", expected: int | None = None, seal: bool = True,
    ) -> Run:  # fmt: skip
        """As `start`, for async code; `items` may be an async iterable."""
        new = self._new(
            params, key=key, by=by, why=why, tenant=tenant, canary=canary, only=only, on_bad=on_bad, expected=expected,
            items=items is not None,
        )  # fmt: skip
        client = self.client
        async with client.connections.of_loop() as conn:
            async with conn.transaction():
                id, created = await arun(conn, store.create(client.statements, new))
            sealed = not created and (await arun(conn, store.card(client.statements, id))).sealed
        made = Run(client, id, created=created, shape=self.items)
        if items is not None and not sealed:
            await afill(client, self.items, id, items, resumes=True)
        if not sealed and seal and not self._prepares(items=items is not None):
            await made.aseal()
        return made

    def plan(self, params: P | None = None, *, items: Iterable[Any] | None = None, on_bad: OnBad = "stop") -> Plan:
        """A dry run: read and check all items, and say what would be done. Nothing is stored; what `prepare` does, it does.

        Args:
            params: as for `start`.
            items: as for `start` (default: those that the preparation finds, if it is a plain generator).
            on_bad: as for `start`.
        """
        given = params_of(self._params, params, self.name)
        if items is None:
            part = self._preparation()
            if part.coroutine:
                raise InvalidArguments(
                    f"{self.name}: its preparation is async; use `await {self.name.rsplit('.', 1)[-1]}.aplan(…)`", "items"
                )
            items = part.fn(None, self.read_params(given))
        count = Counting(self.items)
        for value in items or ():
            count.add(value)
        return self._planned(count, on_bad)

    async def aplan(
        self, params: P | None = None, *, items: Iterable[Any] | AsyncIterable[Any] | None = None, on_bad: OnBad = "stop"
    ) -> Plan:
        """As `plan`, for async code."""
        given = params_of(self._params, params, self.name)
        if items is None:
            items = self._preparation().fn(None, self.read_params(given))
            items = await items if inspect.iscoroutine(items) else items
        count = Counting(self.items)
        if isinstance(items, AsyncIterable):
            async for value in items:
                count.add(value)
        else:
            for value in items or ():
                count.add(value)
        return self._planned(count, on_bad)

    def _planned(self, count: "Counting", on_bad: OnBad) -> Plan:
        count.take()
        items = count.items
        jobs = {part.name: -(-items // part.chunk) if part.chunk else items for part in self.parts if part.kind == "items"}
        return Plan(items, count.duplicates, count.bad, tuple(count.bad_rows), jobs, on_bad == "skip" or not count.bad)

    def _preparation(self) -> Part:
        found = next((part for part in self.parts if part.kind == "prepare"), None)
        if found is None:
            raise InvalidArguments(f"{self.name}: it has no preparation, so give items", "items")
        return found

    def _prepares(self, *, items: bool) -> bool:
        return not items and any(part.kind == "prepare" for part in self.parts)

    def _new(
        self, params: Any, *, key: str | None, by: str, why: str | None, tenant: str | None, canary: float | None,
        only: Mapping[str, Any] | None, on_bad: str, expected: int | None, items: bool,
    ) -> NewRun:  # fmt: skip
        if transactions.is_inside():
            raise TransactionMisuse(
                f"{self.name}: a run cannot be started inside `app.within(…)`: it commits by itself, and would be there although"
                " your transaction is rolled back. Start it after the commit, or enqueue a task that starts it. Nothing was"
                " started"
            )
        if not any(part.kind == "items" for part in self.parts):
            raise DeclarationError(f"{self.name}: it has no stage")
        if on_bad not in ("stop", "skip"):
            raise InvalidArguments(f"{self.name}: on_bad={on_bad!r} must be 'stop' or 'skip'; nothing was started", "on_bad")
        if key is not None and not 1 <= len(key) <= LONGEST_KEY:
            raise InvalidArguments(f"{self.name}: key has 1 to {LONGEST_KEY} characters; nothing was started", "key")
        check_storable(key=key, by=by, why=why)
        first = canary_of(canary, only)
        return NewRun(
            id=new_id(), operation=self.name, key=key, tenant=tenant_of(self.name, tenant, "tenant"),
            params=params_of(self._params, params, self.name), meta=correlation.current(),
            canary=first.stored() if first else None, on_bad=on_bad, version=self.version, expected=expected, by=by, why=why,
            parts=[self._stored(part, at) for at, part in enumerate(self.parts) if part.kind != "prepare" or not items],
        )  # fmt: skip

    def _stored(self, part: Part, at: int) -> NewPart:
        spec = self._tasks.catalog[part.task.name]
        return NewPart(
            stage=at, kind=part.kind, name=part.name, after=None if part.after is None else self.parts.index(part.after),
            condition=part.condition, chunk=part.chunk, room=part.room, task=spec.name, queue=spec.queue,
            rank=100 - spec.priority, gate=spec.gate, deadline=spec.deadline,
        )  # fmt: skip

    def run(self, id: UUID) -> Run:
        """One of its runs, to which items can be added."""
        return Run(self.client, id, shape=self.items)

    def __repr__(self) -> str:
        return f"<bulk operation {self.name}>"
