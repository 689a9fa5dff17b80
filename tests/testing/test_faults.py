"""Failures on demand, lost workers, and attempts alone."""

import asyncio
import traceback
from typing import Any

import pytest

from jobwell import App, Context, InvalidArguments, Reject, Retry, Snooze, SyncContext
from jobwell.testing import AttemptFailed, Testbed, TestbedError
from tests.testing.conftest import Shop
from tests.waiting import apause


@pytest.mark.parametrize(
    "error", [TimeoutError("slow"), TimeoutError, lambda: TimeoutError("made")], ids=["one", "class", "function"]
)
def test_the_next_attempts_fail_instead_of_running(shop: Shop, bed: Testbed, error: Any) -> None:
    handle = shop.welcome.enqueue(1)
    with bed.failing(shop.welcome, error, times=2) as fault:
        drained = bed.drain(retries=True)
    assert [one.outcome for one in drained] == ["retrying", "retrying", "succeeded"]
    assert (shop.did, fault.met) == ([("welcome", 1, 3)], 2)
    assert [row["error_type"] for row in bed.attempts(handle)[:2]] == ["TimeoutError"] * 2


def test_the_work_is_done_and_the_attempt_fails(shop: Shop, bed: Testbed) -> None:
    shop.pay.enqueue(1)
    with bed.failing("pay", ConnectionResetError("after the call"), after=True):
        bed.drain(retries=True)
    assert shop.did == [("pay", 1, 1), ("pay", 1, 2)]  # what a test of idempotency is about


def test_only_that_task_and_only_inside(shop: Shop, bed: Testbed) -> None:
    shop.pay.enqueue(1)
    shop.welcome.enqueue(1)
    with bed.failing(shop.pay, Reject("closed"), times=9):
        assert bed.drain().counts == {"failed": 1, "succeeded": 1}
    shop.pay.enqueue(2)
    assert bed.drain().counts == {"succeeded": 1}


def test_the_apps_middleware_sees_the_error(kit: Any) -> None:
    seen: list[BaseException] = []

    async def outer(ctx: Any, call: Any) -> Any:
        try:
            return await call()
        except TimeoutError as error:
            seen.append(error)
            return "saved"

    app = App(middleware=[outer])
    task = app.task(name="task")(lambda: None)
    with Testbed(app, schema=kit) as bed, bed.failing(task, TimeoutError()):
        handle = task.enqueue()
        bed.drain()
        assert bed.result(handle) == "saved"
    assert len(seen) == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_vanishes(shop: Shop, bed: Testbed, after: bool) -> None:
    handle = shop.pay.enqueue(1)
    with bed.vanishing(shop.pay, after=after):
        assert [one.outcome for one in bed.drain()] == ["lost", "succeeded"]
    assert [attempt for _, _, attempt in shop.did] == ([1, 2] if after else [2])
    job = bed.job(handle)
    assert (job.state, job.attempt, job.failures) == ("succeeded", 2, 0)
    assert [row["outcome"] for row in bed.attempts(handle)] == ["lost", "succeeded"]


def test_lost_again_and_again_it_goes_to_the_quarantine(shop: Shop, bed: Testbed) -> None:
    shop.pay.enqueue(1)
    with bed.vanishing(shop.pay, times=99):
        bed.drain(retries=True)
    (job,) = bed.quarantined(reason="lost")
    assert job.losses > 1
    assert shop.did == []


def test_lose(shop: Shop, bed: Testbed) -> None:
    handle = shop.pay.enqueue(1)
    lost = bed.lose(handle)
    assert (lost.state, lost.losses, lost.failures) == ("ready", 1, 0)
    assert bed.lose(lost).state == "retrying"
    with pytest.raises(TestbedError, match=r"only a ready job can be claimed and lost; this one is retrying: pay\(n=1"):
        bed.lose(handle.id)
    assert bed.drain(retries=True).succeeded == 1


async def test_async_faults(shop: Shop, bed: Testbed) -> None:
    handle = await shop.welcome.aenqueue(1)
    await bed.alose(handle)
    with bed.vanishing(shop.welcome):
        assert (await bed.adrain()).counts == {"lost": 1}
    with bed.failing(shop.welcome, TimeoutError()):
        assert (await bed.adrain(retries=True)).counts == {"retrying": 1, "succeeded": 1}


# --- one attempt alone ---------------------------------------------------------------------------------------------------


def test_perform(shop: Shop, bed: Testbed) -> None:
    assert bed.perform(shop.welcome, 7, locale="en") == "en:7"
    assert bed.perform(shop.pay, 3) == 3
    assert shop.did == [("welcome", 7, 1), ("pay", 3, 1)]
    assert bed.jobs() == []
    bed.perform(shop.order, 1)
    bed.assert_enqueued(shop.pay, {"n": 1}, count=1)


@pytest.mark.parametrize(
    "error", [Reject("gone"), Retry("busy", after="1h"), Snooze("1m"), ValueError("wrong"), SystemExit(3)], ids=repr
)
def test_perform_raises_what_the_task_raised(app: App, bed: Testbed, error: BaseException) -> None:
    @app.task(name="raises")
    def raises() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        bed.perform(raises)
    assert caught.value is error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "raises"


def test_perform_gives_a_real_context(app: App, bed: Testbed) -> None:
    seen: list[Any] = []

    @app.task(name="looks", queue="bulk", deadline="2h")
    def looks(ctx: SyncContext) -> None:
        seen.append((ctx.task, ctx.queue, ctx.tenant, ctx.attempt))
        assert 7000 < (ctx.remaining() or 0) <= 7200

    bed.perform(looks.using(tenant="hr"))
    assert seen == [("looks", "bulk", "hr", 1)]


def test_perform_says_what_production_would_not_keep(app: App, bed: Testbed) -> None:
    @app.task(name="returns")
    def returns() -> Any:
        return object()

    with pytest.raises(TestbedError, match="returns: its result could not be stored"):
        bed.perform(returns)
    with pytest.raises(InvalidArguments, match="takes 0 positional arguments"):
        bed.perform(returns, 1)


def test_perform_has_a_time_limit(app: App, bed: Testbed) -> None:
    @app.task(name="slow", timeout="100ms")
    async def slow() -> None:
        await apause(60)

    with pytest.raises(AttemptFailed, match="TimeLimit: it ran longer than its time limit of 100ms"):
        bed.perform(slow)


async def test_perform_async(app: App, shop: Shop, bed: Testbed) -> None:
    loops: list[Any] = []

    @app.task(name="on_loop")
    async def on_loop(ctx: Context, n: int) -> int:
        loops.append(asyncio.get_running_loop())
        return n + 1

    assert await bed.aperform(on_loop, 2) == 3
    assert await bed.aperform(shop.welcome, 2) == "kk:2"
    assert loops == [asyncio.get_running_loop()]
