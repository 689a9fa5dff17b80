"""What an attempt knows: its context, its middleware, and what its children inherit."""

import logging
import threading
from typing import Any

import pytest

from jobwell import App, Context, Reject, SyncContext
from tests.worker.live.helpers import BOTH, SOON, Books, Kind, Make, Start, declare


@pytest.mark.parametrize("kind", BOTH)
async def test_a_context_knows_its_job(app: App, start: Start, books: Books, kind: Kind) -> None:
    seen: list[dict[str, Any]] = []

    def look(ctx: Context | SyncContext) -> None:
        names = ("id", "task", "queue", "tenant", "attempt", "idempotency_key", "cancelled")
        seen.append({name: getattr(ctx, name) for name in names} | {"remaining": ctx.remaining()})
        if len(seen) < 3:
            raise TimeoutError

    if kind == "async":

        @app.task(name="look", queue="reports", tenant="who", retry=SOON, deadline="1h")
        async def on_loop(ctx: Context, who: str) -> None:
            look(ctx)

        job = await on_loop.aenqueue("acme")
    else:

        @app.task(name="look", queue="reports", tenant="who", retry=SOON, deadline="1h")
        def on_thread(ctx: SyncContext, who: str) -> None:
            look(ctx)

        job = await on_thread.aenqueue("acme")
    await start()
    await books.ended(job)
    remaining = [one.pop("remaining") for one in seen]
    same = {
        "id": job.id,
        "task": "look",
        "queue": "reports",
        "tenant": "acme",
        "idempotency_key": str(job.id),
        "cancelled": False,
    }
    assert seen == [same | {"attempt": number} for number in (1, 2, 3)]
    assert all(3500 < left <= 3600 for left in remaining)
    assert remaining == sorted(remaining, reverse=True)


async def test_remaining_is_counted_by_the_databases_clock(app: App, start: Start, books: Books) -> None:
    @app.task(name="look")
    async def look(ctx: Context) -> float | None:
        return ctx.remaining()

    with_one, without = await look.aenqueue(), await look.aenqueue()
    books.conn.execute("update jobs set deadline = now() + interval '10 days' where id = %s", [with_one.id])
    books.conn.execute("update jobs set deadline = null where id = %s", [without.id])
    await start()
    assert 863_900 < (await books.ended(with_one))["result"] <= 864_000
    assert (await books.ended(without))["result"] is None


async def test_the_logger_carries_the_job(app: App, start: Start, books: Books, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="say", tenant="who", retry=SOON)
    async def say(ctx: Context, who: str) -> None:
        ctx.logger.warning("hello %s", who)
        if ctx.attempt == 1:
            raise TimeoutError

    job = await say.aenqueue("acme")
    await start()
    await books.ended(job)
    records = [record for record in caplog.records if record.name == "jobwell.task.say"]
    fields = [{name: getattr(record, name) for name in ("job", "task", "attempt", "queue", "tenant")} for record in records]
    same = {"job": str(job.id), "task": "say", "queue": "default", "tenant": "acme"}
    assert fields == [same | {"attempt": 1}, same | {"attempt": 2}]
    assert {record.getMessage() for record in records} == {"hello acme"}
    assert {record.levelno for record in records} == {logging.WARNING}


@pytest.mark.parametrize("kind", BOTH)
async def test_children_inherit_the_fields_and_know_their_parent(app: App, start: Start, books: Books, kind: Kind) -> None:
    @app.task(name="child")
    async def child(n: int) -> None: ...

    if kind == "async":

        @app.task(name="parent")
        async def on_loop() -> None:
            await child.aenqueue(1)
            await app.aenqueue_many([child.job(2)])

        parent: Any = on_loop
    else:

        @app.task(name="parent")
        def on_thread() -> None:
            child.enqueue(1)
            with app.correlate(step="second"):
                child.enqueue(2)

        parent = on_thread
    with app.correlate(request_id="r-1", initiator="hr"):
        job = await parent.aenqueue()
    lonely = await parent.aenqueue()
    await start()
    await books.ended(job)
    await books.ended(lonely)
    await books.empty()
    rows = books.rows("select args->>'n' as n, meta from finished where task = 'child'")
    metas = [row["meta"] for row in rows if row["n"] == "1"]
    expected = [{"request_id": "r-1", "initiator": "hr", "parent": str(job.id)}, {"parent": str(lonely.id)}]
    assert sorted(metas, key=len) == sorted(expected, key=len)
    of_job = [row["meta"] for row in rows if row["n"] == "2" and "request_id" in row["meta"]]
    assert of_job == [expected[0] | ({"step": "second"} if kind == "plain" else {})]


@pytest.mark.parametrize("kind", BOTH)
async def test_middleware_runs_outermost_first_on_the_loop(make: Make, start: Start, books: Books, kind: Kind) -> None:
    steps: list[Any] = []

    def layer(name: str) -> Any:
        async def around(ctx: Any, call: Any) -> Any:
            steps.append((f"{name} in", ctx.attempt, threading.get_ident()))
            result = await call()
            steps.append((f"{name} out", ctx.id, threading.get_ident()))
            return [name, result]

        return around

    app = make(middleware=[layer("outer"), layer("inner")])
    job = await declare(app, kind, lambda: steps.append(("job", 0, threading.get_ident()))).aenqueue()
    await start(app)
    end = await books.ended(job)
    assert [step[0] for step in steps] == ["outer in", "inner in", "job", "inner out", "outer out"]
    assert end["result"] == ["outer", ["inner", None]]
    loop = threading.get_ident()
    assert [step[2] == loop for step in steps] == [True, True, kind == "async", True, True]
    assert [steps[0][1], steps[-1][1]] == [1, job.id]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_middleware_raises_is_the_attempts(make: Make, start: Start, books: Books, kind: Kind, when: str) -> None:
    runs: list[int] = []

    async def around(ctx: Any, call: Any) -> Any:
        if when == "before" and ctx.attempt < 3:
            raise TimeoutError("not yet")
        await call()
        raise Reject("closed", "by middleware")

    app = make(middleware=[around])
    job = await declare(app, kind, lambda: runs.append(1), retry=SOON).aenqueue()
    await start(app)
    end = await books.ended(job)
    assert (end["reason"], end["code"], end["message"]) == ("rejected", "closed", "by middleware")
    assert (runs, end["attempt"]) == ([1], 3 if when == "before" else 1)


@pytest.mark.parametrize("kind", BOTH)
async def test_middleware_sees_and_may_replace_what_a_task_raises(make: Make, start: Start, books: Books, kind: Kind) -> None:
    async def forgiving(_ctx: Any, call: Any) -> Any:
        try:
            return await call()
        except ZeroDivisionError as error:
            return f"forgiven: {error}"

    app = make(middleware=[forgiving])
    job = await declare(app, kind, lambda: 1 // 0).aenqueue()
    await start(app)
    end = await books.ended(job)
    assert (end["state"], end["result"], end["attempt"]) == ("succeeded", "forgiven: integer division or modulo by zero", 1)


async def test_middleware_gets_the_context_of_the_task(make: Make, start: Start, books: Books) -> None:
    seen: list[Any] = []

    async def around(ctx: Any, call: Any) -> Any:
        seen.append(ctx)
        return await call()

    app = make(middleware=[around])

    @app.task(name="look")
    async def look(ctx: Context) -> bool:
        return seen == [ctx]

    await start(app)
    assert (await books.ended(await look.aenqueue()))["result"] is True
