"""The jobs of a run: what each of them does around the function that was declared."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobwell.core import text
from jobwell.core.context import Context, SyncContext
from jobwell.core.errors import Conflict
from jobwell.core.outcome import Reject
from jobwell.runs.clerk import clerk_of
from jobwell.runs.intake import afill, fill
from jobwell.runs.items import LONGEST_MESSAGE, Item, Items
from jobwell.runs.work import Work
from jobwell.store import runs as store
from jobwell.store.runs import Facts, Loaded
from jobwell.store.statements import run

if TYPE_CHECKING:
    from jobwell.client.client import Client
    from jobwell.runs.operation import Operation
    from jobwell.runs.parts import Part

UNREADABLE = "unreadable"  # the code of items that the model of today does not take


class RunContext:
    """The context of a stage: all that a task's context has, and what the run was started with.

    Attributes:
        run: its id.
        params: as it was started with them.
        started_by: who.
        key: of the run.
    """

    def __init__(self, ctx: Context | SyncContext, run: UUID, facts: Facts, params: Any) -> None:
        self._ctx = ctx
        self.run = run
        self.params = params
        self.started_by = facts.started_by
        self.key = facts.key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def job_of(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    """The function of the task behind a part."""
    makers = {
        ("items", True): _stage, ("items", False): _plain_stage, ("finish", True): _finish, ("finish", False): _plain_finish,
        ("prepare", True): _prepare, ("prepare", False): _plain_prepare,
    }  # fmt: skip
    made: Callable[..., Any] = makers[part.kind, part.coroutine](operation, part)
    made.__module__, made.__qualname__, made.__doc__ = part.fn.__module__, part.fn.__qualname__, part.fn.__doc__
    return made


def _claim(ctx: Context | SyncContext) -> UUID:
    claim = ctx.claim_id
    if claim is None:
        raise Conflict("this is the job of a run; it can only run in a worker: call the function itself in a test")
    return claim


def _work(
    operation: "Operation[Any, Any]", part: "Part", ctx: Context | SyncContext, place: tuple[UUID, int], clerk: Any
) -> Work:
    return Work(
        operation.client, clerk, job=ctx.id, claim=_claim(ctx), run_id=place[0], stage=place[1], rule=part.task.spec.retry
    )  # fmt: skip


def _items(operation: "Operation[Any, Any]", rows: Sequence[Loaded], run_id: UUID, stage: int, facts: Facts) -> list[Item[Any]]:
    items = []
    for row in rows:
        data, wrong = None, None
        if row.data is not None:
            try:
                data = operation.items.load(row.data)
            except ValueError as error:  # stored by another release
                wrong = str(error)
        item = Item(
            run=run_id,
            stage=stage,
            no=row.no,
            key=row.key,
            data=data,
            attempt=row.attempt + 1,
            tries=row.tries,
            secret=facts.secret,
        )
        if wrong is not None:
            item.fail(UNREADABLE, text.clean(wrong, LONGEST_MESSAGE))
        items.append(item)
    return items


def _rejected(item: Item[Any], error: Reject) -> None:
    item.fail(str(error.code), str(error.message))


def _stage(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    async def stage_job(ctx: Context, bulk_run: str, stage: int, spans: list[list[int]]) -> None:
        run_id, clerk = UUID(bulk_run), clerk_of(operation.client)
        with clerk.at_work(run_id):
            rows = await clerk.load(ctx.id, run_id, stage, spans)
            if not rows:
                return
            facts = await clerk.facts(run_id)
            work = _work(operation, part, ctx, (run_id, stage), clerk)
            work.open(rows, _items(operation, rows, run_id, stage, facts))
            if work.going and work.items:
                await call(part, work, RunContext(ctx, run_id, facts, operation.read_params(facts.params)))
            await work.aclose()

    return stage_job


async def call(part: "Part", work: Work, ctx: RunContext) -> None:
    """The function; what it raises is the job's, but for a Reject of a single item."""
    work.begun = True
    try:
        await part.fn(ctx, Items(work, work.items) if part.chunk else work.items[0])
    except Reject as error:
        if part.chunk:
            await work.aleave()
            raise
        _rejected(work.items[0], error)
    except Exception:
        await work.aleave()
        raise


def _plain_stage(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    def stage_job(ctx: SyncContext, bulk_run: str, stage: int, spans: list[list[int]]) -> None:
        run_id, client = UUID(bulk_run), operation.client
        with client.connections.plain() as conn:
            rows = run(conn, store.load(client.statements, [(ctx.id, run_id, stage, spans)]))
            facts = run(conn, store.facts(client.statements, run_id))
        if not rows:
            return
        work = _work(operation, part, ctx, (run_id, stage), None)
        work.open(rows, _items(operation, rows, run_id, stage, facts))
        if work.going and work.items:
            work.begun = True
            inner = RunContext(ctx, run_id, facts, operation.read_params(facts.params))
            try:
                part.fn(inner, Items(work, work.items) if part.chunk else work.items[0])
            except Reject as error:
                if part.chunk:
                    work.leave()
                    raise
                _rejected(work.items[0], error)
            except Exception:
                work.leave()
                raise
        work.close()

    return stage_job


def _finish(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    async def finish_job(ctx: Context, bulk_run: str, stage: int) -> None:
        run_id, clerk, statements = UUID(bulk_run), clerk_of(operation.client), operation.client.statements
        if not await clerk.ask(store.begins(statements, run_id, stage, ctx.id, _claim(ctx))):
            return
        facts = await clerk.facts(run_id)
        inner = RunContext(ctx, run_id, facts, operation.read_params(facts.params))
        await part.fn(inner, await clerk.ask(store.card(statements, run_id)))
        await clerk.ask(store.end_part(statements, run_id, stage, ctx.id, _claim(ctx)))
        await clerk.ask(store.turn(statements, run_id))

    return finish_job


def _plain_finish(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    def finish_job(ctx: SyncContext, bulk_run: str, stage: int) -> None:
        run_id, client = UUID(bulk_run), operation.client
        with client.connections.plain() as conn:
            if not run(conn, store.begins(client.statements, run_id, stage, ctx.id, _claim(ctx))):
                return
            facts = run(conn, store.facts(client.statements, run_id))
            card = run(conn, store.card(client.statements, run_id))
        part.fn(RunContext(ctx, run_id, facts, operation.read_params(facts.params)), card)
        _plain_end(client, ctx, run_id, stage)

    return finish_job


def _plain_end(client: "Client", ctx: SyncContext, run_id: UUID, stage: int) -> None:
    with client.connections.plain() as conn:
        run(conn, store.end_part(client.statements, run_id, stage, ctx.id, _claim(ctx)))
        run(conn, store.turn(client.statements, run_id))


def _prepare(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    async def prepare_job(ctx: Context, bulk_run: str, stage: int) -> None:
        run_id, clerk, statements = UUID(bulk_run), clerk_of(operation.client), operation.client.statements
        if not await clerk.ask(store.begins(statements, run_id, stage, ctx.id, _claim(ctx))):
            return
        facts = await clerk.facts(run_id)
        params = operation.read_params(facts.params)
        if not (await clerk.ask(store.card(statements, run_id))).sealed:  # otherwise an attempt before has died behind its seal
            rows = part.fn(RunContext(ctx, run_id, facts, params), params)
            rows = await rows if inspect.iscoroutine(rows) else rows
            await afill(operation.client, operation.items, run_id, rows, resumes=True)
            await clerk.ask(store.seal(statements, run_id))
        await clerk.ask(store.end_part(statements, run_id, stage, ctx.id, _claim(ctx)))
        await clerk.ask(store.turn(statements, run_id))

    return prepare_job


def _plain_prepare(operation: "Operation[Any, Any]", part: "Part") -> Callable[..., Any]:
    def prepare_job(ctx: SyncContext, bulk_run: str, stage: int) -> None:
        run_id, client = UUID(bulk_run), operation.client
        with client.connections.plain() as conn:
            if not run(conn, store.begins(client.statements, run_id, stage, ctx.id, _claim(ctx))):
                return
            facts = run(conn, store.facts(client.statements, run_id))
            sealed = run(conn, store.card(client.statements, run_id)).sealed
        params = operation.read_params(facts.params)
        if not sealed:
            fill(client, operation.items, run_id, part.fn(RunContext(ctx, run_id, facts, params), params), resumes=True)
            with client.connections.plain() as conn:
                run(conn, store.seal(client.statements, run_id))
        _plain_end(client, ctx, run_id, stage)

    return prepare_job
