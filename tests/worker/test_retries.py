"""From claim to outcome: what a task returns or raises, and what becomes of its job."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobwell import App, Backoff, Delays, Fixed, Retry, Snooze
from jobwell.testing import Testbed
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working

both = pytest.mark.parametrize("kind", ["act", "act_plain"])


# --- results -------------------------------------------------------------------------------------------------------------


async def test_plain_functions_run_on_threads_and_async_ones_on_the_loop(app: App, acts: Acts, desk: Desk) -> None:
    async with working(app):
        await desk.end(acts.act.enqueue("ok"))
        await desk.end(acts.act_plain.enqueue("ok"))
    assert acts.ran[0].thread == threading.get_ident()
    assert acts.ran[1].thread != threading.get_ident()


# --- errors --------------------------------------------------------------------------------------------------------------


async def test_the_traceback_begins_in_user_code(app: App, acts: Acts, desk: Desk) -> None:
    handle = acts.act.enqueue("logical")
    async with working(app):
        job = await desk.end(handle)
    assert "raise RAISED[word]()" in job["traceback"]
    assert "attempt.py" not in job["traceback"]
    assert desk.one("select fingerprint from quarantine").startswith("act|FileNotFoundError|helpers.py:_do")


async def test_causes_are_in_the_traceback(app: App, acts: Acts, desk: Desk) -> None:
    def chained(ctx: Any, n: int) -> None:
        try:
            raise KeyError("inner")  # noqa: TRY301  the cause, as user code has it
        except KeyError as error:
            raise PermissionError("outer") from error

    acts.words["chained"] = chained
    handle = acts.act.enqueue("chained")
    async with working(app):
        job = await desk.end(handle)
    assert "KeyError: 'inner'" in job["traceback"]
    assert job["message"] == "outer"


# --- when the next attempt is ------------------------------------------------------------------------------------------


def test_the_rule_decides_when(bed: Testbed, acts_with: Callable[..., Acts]) -> None:
    acts = acts_with(retry=Delays("50s", "100s", jitter=0))
    bed.clock.freeze()
    handle = acts.act.enqueue("temporary")
    for seconds in (50, 100):
        bed.drain()
        row = bed.attempts(handle)[-1]
        assert row["next_at"] - row["ended_at"] == timedelta(seconds=seconds)
        assert bed.job(handle).run_at == row["next_at"]
        bed.clock.travel(timedelta(seconds=seconds - 1))
        assert not bed.drain()
        bed.clock.travel("1s")
    assert bed.drain().counts == {"failed": 1}


WISHES = [
    ("seconds", lambda: 120, 120), ("text", lambda: "120", 120), ("duration", lambda: "2m", 120), ("timedelta", lambda: timedelta(minutes=2), 120),
    ("moment", lambda: datetime.now(UTC) + timedelta(seconds=120), 120),
    ("HTTP date", lambda: (datetime.now(UTC) + timedelta(seconds=120)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 119),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wish", "least"), WISHES, ids=[name for name, *_ in WISHES])
def test_a_wish_is_never_undercut(bed: Testbed, acts: Acts, name: str, wish: Callable[[], Any], least: float) -> None:
    def raise_it(ctx: Any, n: int) -> None:
        raise Retry("429", after=wish())

    acts.words["wish"] = raise_it
    handle = acts.act.enqueue("wish")
    assert bed.drain().retrying == 1
    (row,) = bed.attempts(handle)
    waits = (row["next_at"] - row["ended_at"]).total_seconds()
    assert least - 1 <= waits <= 120 + 60
    assert row["note"] is None


def test_a_wish_in_the_past_means_soon(bed: Testbed, acts: Acts) -> None:
    acts.words["past"] = lambda ctx, n: (_ for _ in ()).throw(Retry("go", after=datetime(2020, 1, 1, tzinfo=UTC)))
    acts.act.enqueue("past")
    began = bed.clock.now()
    assert bed.drain(retries=True).counts == {"retrying": 4, "failed": 1}
    (job,) = bed.quarantined(acts.act)
    assert (job.reason, job.failures) == ("exhausted", 5)
    assert bed.clock.now() - began < timedelta(minutes=2)


async def test_a_thousand_failures_of_one_second_come_back_spread(
    app: App, acts_with: Callable[..., Acts], desk: Desk, bed: Testbed
) -> None:
    """Case I1: full jitter over the window."""
    bed.clock.freeze()  # the log is written a moment after the time was chosen
    acts = acts_with(retry=Backoff("100s", factor=1, cap="100s"))
    app.enqueue_many(acts.act.job("temporary", n) for n in range(1000))
    async with working(app):
        await auntil(lambda: desk.states() == {"retrying": 1000})
    waits = sorted(float(seconds) for seconds in desk.all("select extract(epoch from next_at - ended_at) from attempts"))
    assert waits[0] >= 0
    assert waits[-1] <= 100
    buckets = [sum(low <= wait < low + 10 for wait in waits) for low in range(0, 100, 10)]
    assert min(buckets) > 50, buckets
    assert max(buckets) < 180, buckets


async def test_a_thousand_told_the_same_second_do_not_return_in_one(app: App, acts: Acts, desk: Desk) -> None:
    acts.words["busy"] = lambda ctx, n: (_ for _ in ()).throw(Retry("429", after=120))
    app.enqueue_many(acts.act.job("busy", n) for n in range(1000))
    async with working(app):
        await auntil(lambda: desk.states() == {"retrying": 1000})
    waits = sorted(float(seconds) for seconds in desk.all("select extract(epoch from next_at - ended_at) from attempts"))
    assert waits[0] >= 119.5  # the log is written a moment after the time was chosen
    assert waits[-1] - waits[0] > 8
    assert waits[900] - waits[100] > 6


# --- snooze --------------------------------------------------------------------------------------------------------------


def test_snoozing_for_ever_ends_at_the_deadline(bed: Testbed, acts: Acts) -> None:
    handle = acts.act.using(deadline="1h").enqueue("snooze", 600)
    assert bed.drain(scheduled=True).counts == {"snoozed": 5, "failed": 1}
    job = bed.job(handle)
    assert (job.reason, job.failures, job.attempt) == ("deadline", 0, 1)
    assert job.deadline is not None
    assert bed.clock.now() < job.deadline


def test_a_snooze_until_a_moment_ago_comes_again_at_once(bed: Testbed, acts: Acts) -> None:
    acts.words["ago"] = lambda ctx, n: (
        None if len(acts.ran) > 3 else (_ for _ in ()).throw(Snooze(datetime(2020, 1, 1, tzinfo=UTC)))
    )
    acts.act.enqueue("ago")
    assert bed.drain(scheduled=True).counts == {"snoozed": 3, "succeeded": 1}


# --- the deadline --------------------------------------------------------------------------------------------------------


# --- the time limit ------------------------------------------------------------------------------------------------------


async def test_one_that_swallows_its_cancellation_again_and_again_is_cancelled_again_and_again(app: App, desk: Desk) -> None:
    swallowed = 0

    async def stubborn(n: int) -> None:
        nonlocal swallowed
        while swallowed < n:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1

    task = app.task(name="stubborn", timeout="100ms", retry=Fixed("10ms", attempts=1))(stubborn)
    handle = task.enqueue(4)
    async with working(app):
        job = await desk.end(handle)
    assert (job["error_type"], swallowed) == ("TimeLimit", 4)


async def test_a_result_just_before_the_limit_counts(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    acts = acts_with(timeout="5s")
    handle = acts.act.enqueue("wait")
    async with working(app):
        await auntil(lambda: acts.ran)
        acts.open_all()
        assert (await desk.end(handle))["state"] == "succeeded"


# --- what the worker does not know ---------------------------------------------------------------------------------------
