"""Jobs that follow others, by the API and a real worker."""

import threading
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import AsyncConnection

from jobwell import App, Context, Dedup, EnqueueError, Followed, Group, NotFound, Reject, SyncContext
from jobwell.client.task import AsyncTask
from jobwell.core.ids import new_id
from jobwell.testing import Testbed
from tests.waiting import auntil
from tests.worker.helpers import QUICK, Desk, wait, working


@pytest.fixture
def told() -> dict[str, Followed]:
    return {}


@pytest.fixture
def build(app: App) -> AsyncTask[[int], int]:
    @app.task(name="build")
    async def build(n: int) -> int:
        if n < 0:
            raise Reject("negative", f"{n} cannot be built")
        return n * 10

    return build


@pytest.fixture
def send(app: App, told: dict[str, Followed]) -> AsyncTask[[str], str]:
    @app.task(name="send")
    async def send(ctx: Context, to: str) -> str:
        assert to not in told, "it runs once"
        told[to] = ctx.followed
        return to

    return send


Build = AsyncTask[[int], int]
Send = AsyncTask[[str], str]


async def test_a_chain_by_a_worker(app: App, desk: Desk, build: Build, send: Send, told: dict[str, Followed]) -> None:
    report = await build.aenqueue(1)
    mail = await report.athen(send, to="olga")
    last = await send.after(report, mail).aenqueue("archive")
    assert await mail.astatus() == "waiting"
    async with working(app):
        assert await last.aresult() == "archive"
    assert told["olga"] == Followed((report.id,), 1, 0, 0)
    assert told["archive"] == Followed(tuple(sorted((report.id, mail.id))), 2, 0, 0)
    assert told["archive"].total == 2


def test_plain_code_reads_the_result_of_what_it_followed(app: App, bed: Testbed, build: Build) -> None:
    read: list[Any] = []

    @app.task
    def total(ctx: SyncContext) -> None:
        read.extend(app.results([app.handle(job, build) for job in ctx.followed.ids], timeout=0))

    total.after(build.enqueue(1), build.enqueue(2)).enqueue()
    bed.drain(until_empty=True)
    assert read == [10, 20]


def test_what_a_job_was_told_is_not_inherited(
    app: App, bed: Testbed, build: Build, told: dict[str, Followed], send: Send
) -> None:
    @app.task
    async def middle(ctx: Context) -> None:
        assert ctx.followed.succeeded == 1
        await send.aenqueue("child")

    with app.correlate(request_id="r1"):
        middle.after(build.enqueue(1)).enqueue()
    bed.drain(until_empty=True)
    assert told["child"] == Followed()
    (child,) = bed.jobs("send")
    assert set(child.meta) == {"request_id", "parent"}


def test_also_if_it_failed(bed: Testbed, build: Build, send: Send, told: dict[str, Followed]) -> None:
    bad = build.enqueue(-1)
    never, always = bad.then(send, "never"), bad.then(send.after(when="ended"), "always")
    bed.drain(until_empty=True)
    assert (never.status(), always.status()) == ("waiting", "succeeded")
    assert told["always"] == Followed((bad.id,), 0, 1, 0)
    assert [one.code for one in never.why()] == ["follows_failed"]
    assert never.cancel() == "cancelled"


def test_what_cannot_be_followed_is_refused(send: Send, build: Build) -> None:
    with pytest.raises(NotFound, match="to be followed"):
        send.after(new_id()).enqueue("x")
    with pytest.raises(EnqueueError, match="when='done'"):
        send.after(when="done")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(EnqueueError, match="give handles"):
        send.after("the report")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(EnqueueError, match=r"app\.enqueue_group"):
        send.after(*(new_id() for _ in range(10_001)))
    assert send.after().enqueue("nothing to wait for").status() == "ready"


def test_many_with_what_follows_among_them(app: App, bed: Testbed, build: Build, send: Send, told: dict[str, Followed]) -> None:
    """A stream above what one statement takes, so by COPY."""
    first = build.enqueue(0)

    def jobs() -> Any:
        for n in range(300):
            made = build.job(n)
            yield made
            if n % 100 == 0:
                yield send.after(made, first).job(str(n))

    ids = app.enqueue_many(jobs())
    assert len(ids) == 303
    bed.drain(until_empty=True)
    assert {to: one.total for to, one in told.items()} == {"0": 2, "100": 2, "200": 2}


@pytest.mark.parametrize("count", [0, 1, 5, 250])
def test_a_group_tells_its_counts(
    app: App, bed: Testbed, build: Build, send: Send, told: dict[str, Followed], count: int
) -> None:
    group = app.enqueue_group((build.job(-1 if n % 5 == 4 else n) for n in range(count)), then=send.job("summary"))
    assert isinstance(group, Group)
    assert len(group.jobs) == count
    after = send.after(group).enqueue("after the summary")
    bed.drain(until_empty=True, limit=2000)
    assert (told["summary"].succeeded, told["summary"].failed) == (count - count // 5, count // 5)
    assert after.status() == "succeeded"


def test_a_group_that_must_succeed(app: App, bed: Testbed, build: Build, send: Send) -> None:
    group = app.enqueue_group([build.job(1), build.job(-1)], then=send.job("all well"), when="succeeded")
    bed.drain(until_empty=True)
    assert group.then.status() == "waiting"
    app.handle(group.jobs[1]).cancel()  # too late: it is in the quarantine
    assert group.then.status() == "waiting"


def test_a_group_with_a_cancelled_member(app: App, bed: Testbed, build: Build, send: Send, told: dict[str, Followed]) -> None:
    group = app.enqueue_group([build.job(1), build.job(2)], then=send.job("summary"))
    app.handle(group.jobs[0]).cancel()
    bed.drain(until_empty=True)
    assert told["summary"] == Followed(tuple(sorted(group.jobs)), 1, 0, 1)


def test_in_the_callers_transaction(app: App, desk: Desk, database_url: str, build: Build, send: Send) -> None:
    with psycopg.connect(database_url) as caller:
        with app.within(caller):
            send.after(build.enqueue(1)).enqueue("x")
            app.enqueue_group((build.job(n) for n in range(250)), then=send.job("y"))
        caller.rollback()
        assert desk.states() == {}
        with app.within(caller):
            send.after(build.enqueue(1)).enqueue("x")
            app.enqueue_group((build.job(n) for n in range(250)), then=send.job("y"))
    assert desk.states() == {"ready": 251, "waiting": 2}


async def test_in_the_callers_transaction_of_async_code(
    app: App, desk: Desk, database_url: str, build: Build, send: Send
) -> None:
    async with await AsyncConnection.connect(database_url) as caller:
        with app.within(caller):
            report = await build.aenqueue(1)
            await report.athen(send, "x")
            await app.aenqueue_group([build.job(2)], then=send.job("y"))
    assert desk.states() == {"ready": 2, "waiting": 2}
    await app.aclose()


@pytest.mark.parametrize("count", [3, 300])
def test_a_group_in_which_other_jobs_stand_for_equal_ones(
    app: App, bed: Testbed, send: Send, told: dict[str, Followed], count: int
) -> None:
    @app.task(name="once", dedup=Dedup("n"))
    async def once(n: int) -> None: ...

    there = once.enqueue(0)
    group = app.enqueue_group([*(once.job(n) for n in range(count)), once.job(1)], then=send.job("summary"))
    assert group.jobs[0] == there.id
    assert group.then.status() == "waiting"
    bed.drain(until_empty=True)
    assert told["summary"].succeeded == count
    with pytest.raises(EnqueueError, match="cannot have a key"):
        once.after(there).enqueue(7)


async def test_on_a_connection_of_asyncpg(app: App, desk: Desk, database_url: str, build: Build, send: Send) -> None:
    caller = await asyncpg.connect(database_url)
    try:
        async with caller.transaction():
            with app.within(caller):
                report = await build.aenqueue(1)
                await report.athen(send, "x")
                await app.aenqueue_many([send.after(report).job("z"), *(build.job(n) for n in range(250))])
                await app.aenqueue_group((build.job(n) for n in range(250)), then=send.job("y"))
    finally:
        await caller.close()
    assert desk.states() == {"ready": 501, "waiting": 3}
    await app.aclose()


async def test_a_group_of_ten_thousand_by_a_worker(
    app: App, desk: Desk, build: Build, send: Send, told: dict[str, Followed]
) -> None:
    async with working(app, slots=100):
        await app.aenqueue_group((build.job(n) for n in range(10_000)), then=send.job("summary"))
        await auntil(lambda: told, timeout=120, what="the job behind the group")
    assert told["summary"].succeeded == 10_000
    assert len(told["summary"].ids) == 50
    await app.aclose()


async def test_a_running_job_that_is_cancelled_takes_what_follows_along(app: App, desk: Desk, acts: Any, send: Send) -> None:
    async with working(app):
        job = acts.act.enqueue("wait")
        never, always = job.then(send, "never"), job.then(send.after(when="ended"), "always")
        await auntil(lambda: acts.ran)
        job.cancel()
        assert await always.aresult() == "always"
    assert desk.job(never)["note"] == f"cancelled: it followed job {job.id}, which was cancelled"
    await app.aclose()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_transaction_with_an_old_snapshot_ends_no_job_over_the_head_of_a_new_follower(
    app: App, desk: Desk, send: Send, isolation: Any
) -> None:
    door, attempts = threading.Event(), []

    @app.task(retry=QUICK, timeout="30s")
    async def commit(ctx: Context) -> None:
        async with ctx.transaction(isolation=isolation) as own:
            await own.execute("select 1")  # the snapshot
            attempts.append(ctx.attempt)
            await wait(door)

    async with working(app):
        job = await commit.aenqueue()
        await job.athen(send, "early")
        await auntil(lambda: attempts)
        late = await job.athen(send, "late")
        door.set()
        assert await late.aresult() == "late"
    assert attempts == [1, 2]
    await app.aclose()


def test_inline_mode_runs_what_follows(app: App, bed: Testbed, build: Build, send: Send, told: dict[str, Followed]) -> None:
    with bed.inline():
        build.enqueue(1).then(send, "x")
        app.enqueue_group([build.job(1), build.job(2)], then=send.job("y"))
    assert set(told) == {"x", "y"}
