"""`ctx.resume`: loops that go on where they were."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, CheckpointMismatch, Context, DeclarationError, SyncContext, TransactionMisuse
from jobwell.core.checkpoint import LocalKeeper
from jobwell.core.resume import NAME, AsyncResume, Resume
from tests.waiting import auntil
from tests.worker.helpers import QUICK, Desk, wait, working
from tests.worker.keeping.helpers import kept, take_away


def plain(items: Any, keeper: LocalKeeper, **options: Any) -> "Resume[Any]":
    """A loop of a fresh attempt."""
    keeper._walks.clear()
    return Resume(keeper, items, **({"every": 2, "key": None, "name": NAME} | options))


def some(loop: Any, count: int) -> list[Any]:
    """So many items, and then the process is gone."""
    found = []
    for item in loop:
        found.append(item)
        if len(found) == count:
            break
    return found


async def stream() -> AsyncIterator[int]:
    for n in range(7):
        yield n


def generated() -> Iterator[int]:
    yield from range(7)


@pytest.mark.parametrize("items", [range(7), list(range(7)), generated], ids=["range", "list", "generator"])
def test_it_goes_on_at_the_first_item_that_is_not_saved(items: Any) -> None:
    keeper = LocalKeeper()
    make = items if items is generated else lambda: items
    assert some(plain(make(), keeper), 6) == [0, 1, 2, 3, 4, 5]  # the sixth was begun: five are done, and four of them saved
    assert list(plain(make(), keeper)) == [4, 5, 6]
    assert list(plain(make(), keeper)) == []


async def test_an_async_stream_does_the_same() -> None:
    keeper = LocalKeeper()
    found = []
    async for item in AsyncResume(keeper, stream(), every=2, key=None, name=NAME):
        found.append(item)
        if item == 5:
            break
    keeper._walks.clear()
    assert [item async for item in AsyncResume(keeper, stream(), every=2, key=None, name=NAME)] == [4, 5, 6]


def test_a_function_is_given_the_cursor() -> None:
    keeper, asked = LocalKeeper(), []
    rows = [{"id": n * 10, "name": f"n{n}"} for n in range(6)]

    def behind(after: int | None) -> list[dict[str, Any]]:
        asked.append(after)
        return [row for row in rows if after is None or row["id"] > after]

    loop = plain(behind, keeper, key=lambda row: row["id"], every=3)
    assert len(some(loop, 5)) == 5
    assert [row["id"] for row in plain(behind, keeper, key=lambda row: row["id"], every=3)] == [30, 40, 50]
    assert asked == [None, 20]


def test_a_function_without_a_key_gives_its_items_back() -> None:
    keeper = LocalKeeper()
    ids = lambda after: [n for n in range(5) if after is None or n > after]  # noqa: E731  as a user writes it in the call
    some(plain(ids, keeper, every=1), 3)
    assert list(plain(ids, keeper)) == [2, 3, 4]


def test_with_a_key_items_may_come_before_it_and_may_not_be_missing() -> None:
    keeper = LocalKeeper()
    some(plain(["b", "c", "d"], keeper, key=str, every=1), 3)
    assert list(plain(["a", "b", "c", "d"], keeper, key=str)) == ["d"]
    with pytest.raises(CheckpointMismatch, match="'d'"):
        list(plain(["a", "b"], keeper, key=str))


def test_what_is_wrong_is_told() -> None:
    keeper = LocalKeeper()
    with pytest.raises(DeclarationError, match="every=0"):
        plain([], keeper, every=0)
    with pytest.raises(DeclarationError, match="int"):
        plain(7, keeper)
    with pytest.raises(DeclarationError, match="name=''"):
        plain([], keeper, name="")
    list(plain([1], keeper))
    with pytest.raises(DeclarationError, match="a name of its own"):
        list(Resume(keeper, [1], every=1, key=None, name=NAME))


@pytest.mark.parametrize("on_thread", [False, True])
async def test_an_attempt_that_fails_repeats_only_the_item_that_failed(app: App, desk: Desk, on_thread: bool) -> None:
    seen: list[int] = []

    def work(attempt: int, n: int) -> None:
        seen.append(n)
        if n == 57 and attempt == 1:
            raise ConnectionResetError("gone")

    @app.task(retry=QUICK)
    async def on_loop(ctx: Context) -> None:
        async for n in ctx.resume(range(60), every=50):
            work(ctx.attempt, n)

    @app.task(retry=QUICK)
    def plainly(ctx: SyncContext) -> None:
        for n in ctx.resume(range(60), every=50):
            work(ctx.attempt, n)

    async with working(app):
        await desk.end(await (plainly if on_thread else on_loop).aenqueue())
    assert seen == [*range(58), 57, 58, 59]


@pytest.mark.parametrize("on_thread", [False, True])
async def test_a_shutdown_ends_it_between_two_items_and_spends_no_attempt(
    app: App, desk: Desk, conn: "Connection[Any]", on_thread: bool
) -> None:
    door, seen = threading.Event(), []

    @app.task
    async def on_loop(ctx: Context) -> None:
        async for n in ctx.resume(range(1000), every=100):
            seen.append(n)
            if n == 42:
                await wait(door)

    @app.task
    def plainly(ctx: SyncContext) -> None:
        for n in ctx.resume(range(1000), every=100):
            seen.append(n)
            if n == 42:
                door.wait(20)

    async with working(app) as worker:
        job = await (plainly if on_thread else on_loop).aenqueue()
        await auntil(lambda: len(seen) == 43)
        worker.stop()
        await auntil(lambda: desk.one("select count(*) from workers where state = 'draining'") == 1)
        door.set()  # the item comes to its end within the grace; the loop does not go on
        await auntil(lambda: worker.finished == 1)
    assert (desk.job(job)["state"], desk.job(job)["attempt"], desk.outcomes(job)) == ("ready", 0, ["released"])
    assert kept(conn, job, "items")["done"] == 43
    async with working(app):
        await desk.end(job)
    assert seen == list(range(1000))


async def test_a_shutdown_in_the_middle_of_an_item_repeats_that_item_alone(app: App, desk: Desk, conn: "Connection[Any]") -> None:
    door, seen = threading.Event(), []

    @app.task
    async def send(ctx: Context) -> None:
        async for n in ctx.resume(range(50), every=100):
            seen.append(n)
            if n == 42:
                await wait(door)

    async with working(app):  # stopped twice: the grace is over at once
        job = await send.aenqueue()
        await auntil(lambda: len(seen) == 43)
    assert desk.outcomes(job) == ["released"]
    door.set()
    async with working(app):
        await desk.end(job)
    assert seen == [*range(43), *range(42, 50)]


async def test_a_loop_whose_job_is_taken_away_ends_at_its_next_save(app: App, desk: Desk, conn: "Connection[Any]") -> None:
    door, seen = threading.Event(), []

    @app.task
    async def send(ctx: Context) -> None:
        async for n in ctx.resume(range(50), every=10):
            seen.append(n)
            if n == 15:
                await wait(door)

    async with working(app) as worker:
        job = await send.aenqueue()
        await auntil(lambda: len(seen) == 16)
        take_away(conn, job)
        door.set()
        await auntil(lambda: worker.finished == 1)
        assert seen == list(range(20))
        assert kept(conn, job, "items")["done"] == 10
        conn.execute("delete from jobs")


async def test_an_operators_cancel_ends_a_plain_loop(app: App, desk: Desk) -> None:
    seen: list[int] = []

    @app.task
    def endless(ctx: SyncContext) -> None:
        for n in ctx.resume(iter(int, 1), every=1):  # zero, for ever
            seen.append(n)
            threading.Event().wait(0.002)

    async with working(app):
        job = await endless.aenqueue()
        await auntil(lambda: len(seen) > 3)
        await job.acancel()
        assert (await desk.end(job))["state"] == "cancelled"


def deaf_task(app: App, how: str, door: threading.Event, seen: list[Any]) -> Any:
    """A task with two loops that takes their cancellation for nothing; the item 15 waits for the door."""

    async def walk(ctx: Context, name: str) -> None:
        async for n in ctx.resume(range(100), every=10, name=name):
            seen.append((name, n))
            if n == 15:
                await wait(door)

    async def walks(ctx: Context) -> None:
        if how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(walk(ctx, "a"))
                group.create_task(walk(ctx, "b"))
        else:
            await asyncio.gather(walk(ctx, "a"), walk(ctx, "b"), return_exceptions=True)

    @app.task
    async def on_loop(ctx: Context) -> str:
        if how == "block":
            walking = asyncio.create_task(walks(ctx))
            await auntil(lambda: len(seen) == 32)
            async with ctx.transaction():
                await walking
            return "all of it"
        await walks(ctx)
        if how == "transaction":
            async with ctx.transaction():
                seen.append(("the transaction", 0))
        return "all of it"

    return on_loop


def deaf_plain_task(app: App, door: threading.Event, seen: list[Any]) -> Any:
    """The same on a thread."""

    @app.task
    def plainly(ctx: SyncContext) -> str:
        for name in "ab":
            with contextlib.suppress(asyncio.CancelledError):
                for n in ctx.resume(range(100), every=10, name=name):
                    seen.append((name, n))
                    if (name, n) == ("a", 15):
                        door.wait(20)
        return "all of it"

    return plainly


@pytest.mark.parametrize("how", ["group", "gathered", "block", "transaction", "thread"])
async def test_a_shutdown_that_the_code_takes_for_nothing_is_no_success(
    app: App, desk: Desk, conn: "Connection[Any]", how: str
) -> None:
    door, seen = threading.Event(), []
    task = deaf_plain_task(app, door, seen) if how == "thread" else deaf_task(app, how, door, seen)
    async with working(app) as worker:
        job = await task.aenqueue()
        await auntil(lambda: len(seen) == (16 if how == "thread" else 32))
        worker.stop()
        await auntil(lambda: desk.one("select count(*) from workers where state = 'draining'") == 1)
        door.set()
        await auntil(lambda: worker.finished == 1)
    assert (desk.job(job)["state"], desk.job(job)["attempt"], desk.outcomes(job)) == ("ready", 0, ["released"])
    assert kept(conn, job, "a")["done"] == 16
    assert ("the transaction", 0) not in seen
    if how != "block":
        async with working(app):
            await desk.end(job)
        assert sorted(set(seen) - {("the transaction", 0)}) == [(name, n) for name in "ab" for n in range(100)]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_loop_in_a_transaction_would_pass_over_what_is_rolled_back_and_is_refused(
    app: App, desk: Desk, conn: "Connection[Any]", plain: bool
) -> None:
    refused: list[str] = []

    @app.task(retry=QUICK)
    async def on_loop(ctx: Context) -> None:
        async with ctx.transaction():
            with pytest.raises(TransactionMisuse, match="Loop over the items themselves"):
                await anext(aiter(ctx.resume(range(50), every=10)))
            with pytest.raises(TransactionMisuse, match="Save before the block"):
                await ctx.checkpoint.save(7)
            refused.append("in")

    @app.task(retry=QUICK)
    def plainly(ctx: SyncContext) -> None:
        with ctx.transaction():
            with pytest.raises(TransactionMisuse, match="Loop over the items themselves"):
                next(iter(ctx.resume(range(50), every=10)))
            with pytest.raises(TransactionMisuse, match="Save before the block"):
                ctx.checkpoint.save(7)
            refused.append("in")

    async with working(app):
        job = await (plainly if plain else on_loop).aenqueue()
        await desk.end(job)
    assert (desk.state(job), refused) == ("succeeded", ["in"])
    assert kept(conn, job, "items") is None
