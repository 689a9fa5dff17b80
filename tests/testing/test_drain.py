"""Drains: real attempts, in order, in this process."""

import asyncio
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from jobwell import App, Context, Fixed, Lock, SyncContext
from jobwell.testing import AttemptFailed, EndlessDrain, Testbed, TestbedError
from tests.testing.conftest import Shop
from tests.waiting import apause, pause


def test_jobs_run_by_priority_then_the_oldest_and_children_too(shop: Shop, bed: Testbed) -> None:
    shop.welcome.enqueue(1)
    shop.pay.enqueue(2)
    shop.welcome.enqueue(3)
    shop.order.enqueue(4)
    drained = bed.drain()
    assert shop.did == [("order", 4, 0), ("welcome", 1, 1), ("pay", 2, 1), ("welcome", 3, 1), ("pay", 4, 1), ("welcome", 4, 1)]
    assert (drained.counts, len(drained), drained.errors) == ({"succeeded": 6}, 6, [])
    assert [job.state for job in bed.jobs()] == ["succeeded"] * 6


def test_results_are_those_of_the_store(shop: Shop, bed: Testbed) -> None:
    handle = shop.welcome.enqueue(7, locale="en", branch="almaty")
    with pytest.raises(TestbedError, match=r"there is no result: welcome\(employee_id=7, locale='en', branch='almaty'\) ready"):
        bed.result(handle)
    bed.drain()
    job = bed.job(handle)
    assert (job.state, job.result, job.args) == ("succeeded", "en:7", {"employee_id": 7, "locale": "en", "branch": "almaty"})
    assert (job.tenant, job.queue, job.attempt, bed.result(handle)) == ("almaty", "notifications", 1, "en:7")
    assert handle.status() == "succeeded"


def test_nothing_to_do(shop: Shop, bed: Testbed) -> None:
    drained = bed.drain()
    assert (str(drained), drained.counts, list(drained)) == ("nothing was ready", {}, [])


def test_one_queue(shop: Shop, bed: Testbed) -> None:
    shop.welcome.enqueue(1)
    shop.pay.enqueue(2)
    assert bed.drain("notifications").counts == {"succeeded": 1}
    assert shop.did == [("welcome", 1, 1)]
    assert bed.drain(["default", "bulk"]).succeeded == 1
    with pytest.raises(TestbedError, match="declares no queue 'nots'; declared are .*notifications"):
        bed.drain("nots")
    with pytest.raises(TestbedError, match="takes the name of a queue, or several; <task pay> is none"):
        bed.drain(shop.pay)  # type: ignore[arg-type]


def test_only_what_is_ready_at_the_start(shop: Shop, bed: Testbed) -> None:
    shop.order.enqueue(1)
    assert bed.drain(until_empty=False).counts == {"succeeded": 1}
    assert [job.state for job in bed.jobs()] == ["succeeded", "ready", "ready"]


def test_outcomes_are_recorded_as_in_production(shop: Shop, bed: Testbed) -> None:
    handles = [shop.pay.enqueue(n, act) for n, act in enumerate(["reject", "snooze", "fail", ""])]
    drained = bed.drain()
    assert drained.counts == {"failed": 1, "snoozed": 1, "retrying": 1, "succeeded": 1}
    assert (drained.failed, drained.retrying, drained.succeeded) == (1, 1, 1)
    assert [type(error).__name__ for error in drained.errors] == ["Reject", "ConnectionResetError"]
    assert [bed.job(handle).state for handle in handles] == ["failed", "scheduled", "retrying", "succeeded"]
    (failed,) = bed.quarantined(shop.pay)
    assert (failed.reason, failed.code, failed.error) == ("rejected", "no_account", "Reject: there is no account")
    (attempt,) = bed.attempts(handles[2])
    assert (attempt["outcome"], attempt["kind"], attempt["message"]) == ("retrying", "temporary", "gone")
    first = attempt["traceback"].splitlines()[1]
    assert "conftest.py" in first, "nothing of the kit stands before the user's frames"
    assert "pay attempt 1 retrying: ConnectionResetError" in str(drained)


def test_retries_to_exhaustion(shop: Shop, bed: Testbed) -> None:
    handle = shop.welcome.enqueue(-1)
    shop.pay.using(run_after="3d").enqueue(1)
    began = bed.clock.now()
    drained = bed.drain(retries=True)
    assert [one.outcome for one in drained] == ["retrying", "retrying", "failed"]
    assert shop.did == [("welcome", -1, attempt) for attempt in (1, 2, 3)]
    job = bed.job(handle)
    assert (job.reason, job.attempt, job.failures) == ("exhausted", 3, 3)
    assert 20 * 60 <= (bed.clock.now() - began).total_seconds() < 40 * 60
    assert bed.jobs(shop.pay)[0].state == "scheduled"


def test_retries_and_travel_by_hand(shop: Shop, bed: Testbed) -> None:
    shop.welcome.enqueue(-1)
    assert bed.drain().retrying == 1
    assert not bed.drain()
    bed.clock.travel("9m")
    assert not bed.drain()
    bed.clock.travel("5m")
    assert bed.drain().retrying == 1


def test_all_that_is_for_later(shop: Shop, bed: Testbed) -> None:
    shop.pay.using(run_after="3d").enqueue(1)
    shop.pay.using(run_after="2d").enqueue(2)
    assert not bed.drain()
    assert [one.outcome for one in bed.drain(scheduled=True)] == ["succeeded"] * 2
    assert [n for _, n, _ in shop.did] == [2, 1]


def test_an_endless_drain_ends(shop: Shop, bed: Testbed) -> None:
    shop.report.enqueue()
    with pytest.raises(EndlessDrain, match="20 attempts have run and there is still work: report ran 20 times"):
        bed.drain(limit=20)
    assert len(shop.did) == 20


def test_snoozing_for_ever_ends_at_the_limit_or_the_deadline(shop: Shop, bed: Testbed) -> None:
    shop.pay.enqueue(1, "snooze")
    with pytest.raises(EndlessDrain, match="pay ran 5 times"):
        bed.drain(limit=5, scheduled=True)
    assert bed.drain(scheduled=True).failed == 1  # the deadline of a day
    assert bed.quarantined()[0].reason == "deadline"


def test_as_many_as_the_limit_is_no_error(shop: Shop, bed: Testbed) -> None:
    for n in range(3):
        shop.pay.enqueue(n)
    assert bed.drain(limit=3).succeeded == 3


@pytest.mark.parametrize("kind", ["welcome", "pay"])
def test_raising_gives_the_error_with_its_traceback_and_stores_the_outcome(shop: Shop, bed: Testbed, kind: str) -> None:
    handle = shop.welcome.enqueue(-1) if kind == "welcome" else shop.pay.enqueue(1, "fail")
    with pytest.raises(OSError, match="no mail server|gone") as caught:
        bed.drain(raising=True)
    frames = [Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "conftest.py"
    assert "attempt.py" not in frames
    with pytest.raises(TestbedError, match="its last attempt: .*Error: (no mail server|gone)"):
        bed.result(handle)
    assert f"attempt 1 of job {handle.id} ({kind}); it is recorded as retrying" in caught.value.__notes__[0]
    assert bed.job(handle).state == "retrying"


def test_plain_functions_run_in_this_thread_without_a_loop(app: App, bed: Testbed) -> None:
    seen: list[Any] = []

    async def inner() -> int:
        await apause(0)
        return 3

    @app.task(name="plain")
    def plain() -> int:
        seen.append(threading.current_thread())
        return asyncio.run(inner())

    handle = plain.enqueue()
    before = threading.active_count()
    bed.drain()
    assert (bed.result(handle), seen, threading.active_count()) == (3, [threading.current_thread()], before)


def test_what_a_job_leaves_on_the_loop_is_gone_at_the_next_test(app: App, bed: Testbed) -> None:
    left: list[asyncio.Task[None]] = []

    @app.task(name="leaves")
    async def leaves() -> None:
        left.append(asyncio.create_task(apause(3600)))

    leaves.enqueue()
    bed.drain()
    assert not left[0].done()
    bed.reset()
    assert left[0].cancelled()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_time_limit_strikes(app: App, bed: Testbed, kind: str) -> None:
    @app.task(name="slow", timeout="100ms", retry=Fixed("1m", attempts=1))
    async def slow() -> None:
        await apause(60)

    @app.task(name="slow_plain", timeout="100ms", retry=Fixed("1m", attempts=1))
    def slow_plain() -> str:
        pause(0.15)
        return "too late"

    (slow if kind == "async" else slow_plain).enqueue()
    (one,) = bed.drain()
    assert (one.outcome, str(one.error)) == ("failed", "TimeLimit: it ran longer than its time limit of 100ms")
    assert bed.quarantined()[0].error.startswith("TimeLimit")
    bed.reset()
    (slow if kind == "async" else slow_plain).enqueue()
    with pytest.raises(AttemptFailed, match="TimeLimit"):
        bed.drain(raising=True)


def test_a_deadline_passes(shop: Shop, bed: Testbed) -> None:
    handle = shop.pay.using(deadline="1h").enqueue(1)
    bed.clock.travel("61m")
    assert bed.drain().counts == {"failed": 1}
    assert (bed.job(handle).reason, shop.did) == ("deadline", [])


def test_a_payload_that_no_longer_fits(shop: Shop, bed: Testbed, conn: Any) -> None:
    handle = shop.pay.enqueue(1)
    conn.execute("""update jobs set args = '{"n": "x"}'""")
    with pytest.raises(AttemptFailed, match="the payload does not fit the task"):
        bed.drain(raising=True)
    job = bed.job(handle)
    assert (job.reason, job.args) == ("invalid", {"n": "x"})
    assert "shown as stored" in job.note


def test_middleware_runs_around_each(database_url: str, kit: Any) -> None:
    seen: list[str] = []

    async def outer(ctx: Any, call: Any) -> Any:
        seen.append(f"before {ctx.task}")
        try:
            return await call()
        finally:
            seen.append("after")

    app = App(middleware=[outer])
    task = app.task(name="task")(lambda: seen.append("task"))
    with Testbed(app, schema=kit) as bed:
        task.enqueue()
        bed.drain(raising=True)
    assert seen == ["before task", "task", "after"]


def test_an_attempt_sees_nothing_of_the_tests_context(app: App, bed: Testbed, conn: Any) -> None:
    """On a worker there is none: neither the caller's transaction nor what it correlates."""

    @app.task(name="child")
    def child() -> None: ...

    @app.task(name="parent")
    def parent() -> None:
        child.enqueue()

    parent.enqueue()
    with conn.transaction(force_rollback=True), app.within(conn), app.correlate(request_id="r1"):
        bed.drain(until_empty=False, raising=True)
    (made,) = bed.enqueued(child)
    assert made.meta == {"parent": str(bed.jobs(parent)[0].id)}


def test_correlation_comes_along(app: App, bed: Testbed) -> None:
    @app.task(name="child")
    def child() -> None: ...

    @app.task(name="parent")
    def parent() -> None:
        child.enqueue()

    with app.correlate(request_id="r1"):
        parent.enqueue()
    bed.drain()
    assert bed.enqueued(child)[0].meta["request_id"] == "r1"


def test_locks_hold_and_the_order_stays(app: App, bed: Testbed) -> None:
    ran: list[tuple[str, int]] = []

    @app.task(name="locked", lock=Lock("key"))
    def locked(key: str, n: int) -> None:
        ran.append((key, n))

    given = [("b", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5)]
    for key, n in given:
        locked.enqueue(key, n)
    bed.drain(raising=True)
    assert ran == given


def test_a_job_whose_lock_is_held_elsewhere_waits(app: App, bed: Testbed, conn: Any) -> None:
    @app.task(name="locked", lock=Lock("key"))
    def locked(key: str) -> None: ...

    held, other = locked.enqueue("a"), locked.enqueue("b")
    conn.execute(
        "update jobs set state = 'running', ready_at = null, claim_id = gen_random_uuid(), worker = %s where id = %s",
        [held.id, held.id],
    )
    conn.execute(
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues) values (%s, now() + interval '1 hour', 1, 'h', 'n', 'v', 1, '{}')",
        [held.id],
    )
    waits = locked.enqueue("a")
    assert bed.drain().succeeded == 1
    assert [bed.job(job).state for job in (held, other, waits)] == ["running", "succeeded", "ready"]


def test_large_arguments_come_along(app: App, bed: Testbed) -> None:
    @app.task(name="large")
    def large(text: str) -> int:
        return len(text)

    handle = large.enqueue("x" * 50_000)
    bed.drain(raising=True)
    assert bed.result(handle) == 50_000
    assert len(bed.job(handle).args["text"]) == 50_000


def test_many_jobs(shop: Shop, bed: Testbed, app: App) -> None:
    app.enqueue_many(shop.pay.job(n) for n in range(300))
    assert bed.drain().succeeded == 300
    assert [n for _, n, _ in shop.did] == list(range(300))


def test_a_task_cannot_drain(app: App, bed: Testbed) -> None:
    @app.task(name="drains")
    def drains() -> None:
        bed.drain()

    drains.enqueue()
    with pytest.raises(TestbedError, match="a drain is under way"):
        bed.drain(raising=True)


def test_a_failed_assertion_of_the_test_inside_a_task_reaches_the_test(app: App, bed: Testbed) -> None:
    """And so do a Ctrl-C and the time limit of the test runner."""

    @app.task(name="asks")
    def asks() -> None:
        pytest.fail("this must not run")

    handle = asks.enqueue()
    with pytest.raises(pytest.fail.Exception, match="this must not run"):
        bed.drain()
    assert bed.job(handle).state == "retrying"
    assert not bed.drain()  # the testbed goes on working


def test_system_exit_is_the_tasks_own(app: App, bed: Testbed) -> None:
    @app.task(name="exits")
    def exits() -> None:
        raise SystemExit(3)

    exits.enqueue()
    assert bed.drain().retrying + bed.drain().failed == 1


# --- async ---------------------------------------------------------------------------------------------------------------


async def test_async_drain_runs_on_this_loop_and_leaves_no_thread(app: App, bed: Testbed) -> None:
    seen: list[Any] = []

    @app.task(name="on_loop")
    async def on_loop(ctx: Context) -> None:
        seen.append(asyncio.get_running_loop())

    @app.task(name="on_thread")
    def on_thread(ctx: SyncContext) -> None:
        seen.append(threading.current_thread() is not threading.main_thread())

    await on_loop.aenqueue()
    await on_thread.aenqueue()
    before = threading.active_count()
    drained = await bed.adrain(raising=True)
    assert (drained.succeeded, seen) == (2, [asyncio.get_running_loop(), True])
    assert threading.active_count() == before


async def test_the_plain_drain_says_what_to_call_here(shop: Shop, bed: Testbed) -> None:
    shop.pay.enqueue(1)
    with pytest.raises(TestbedError, match="an event loop runs here; call `await testbed.adrain"):
        bed.drain()
    assert (await bed.adrain()).succeeded == 1


async def test_async_retries_limits_and_errors(shop: Shop, bed: Testbed) -> None:
    await shop.welcome.aenqueue(-1)
    assert [one.outcome for one in await bed.adrain(retries=True)] == ["retrying", "retrying", "failed"]
    await shop.report.aenqueue()
    with pytest.raises(EndlessDrain):
        await bed.adrain(limit=3)
    bed.reset()
    await shop.pay.aenqueue(1, "fail")
    with pytest.raises(ConnectionResetError):
        await bed.adrain(raising=True)


async def test_a_plain_function_over_its_limit_is_left_behind(app: App, bed: Testbed) -> None:
    door = threading.Event()

    @app.task(name="stuck", timeout="100ms", retry=Fixed("1m", attempts=1))
    def stuck() -> None:
        door.wait(20)

    await stuck.aenqueue()
    (one,) = await bed.adrain()
    door.set()
    assert (one.outcome, bed.quarantined()[0].error[:9]) == ("failed", "TimeLimit")
