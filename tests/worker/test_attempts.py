"""From claim to outcome: what a task returns or raises, and what becomes of its job."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobwell import App, Backoff, Delays, Fixed, Reject, Retry, Snooze
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working

both = pytest.mark.parametrize("kind", ["act", "act_plain"])


# --- results -------------------------------------------------------------------------------------------------------------


@both
async def test_a_result_is_stored(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    handle = getattr(acts, kind).enqueue("ok", 7)
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["result"], job["note"], job["attempt"], job["failures"], job["attempts"]) == ("succeeded", '{"n":7}', None, 1, 0, [])
    assert [(ran.n, ran.attempt, ran.job) for ran in acts.ran] == [(7, 1, handle.id)]


async def test_plain_functions_run_on_threads_and_async_ones_on_the_loop(app: App, acts: Acts, desk: Desk) -> None:
    async with working(app):
        await desk.end(acts.act.enqueue("ok"))
        await desk.end(acts.act_plain.enqueue("ok"))
    assert acts.ran[0].thread == threading.get_ident()
    assert acts.ran[1].thread != threading.get_ident()


@both
async def test_nothing_returned_is_nothing_stored(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    acts.words["none"] = lambda ctx, n: None
    handle = getattr(acts, kind).enqueue("none")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["result"], job["note"]) == ("succeeded", None, None)


@both
async def test_a_result_that_cannot_be_encoded_is_a_note_and_not_another_run(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    acts.words["odd"] = lambda ctx, n: {"lock": asyncio.Lock()}
    handle = getattr(acts, kind).enqueue("odd")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["result"], len(acts.ran)) == ("succeeded", None, 1)
    assert job["note"].startswith("its result could not be stored")


async def test_a_result_that_is_too_large_is_a_note(app: App, acts: Acts, desk: Desk) -> None:
    acts.words["large"] = lambda ctx, n: "x" * n
    limit = app.settings.result_limit
    fits, large = acts.act.enqueue("large", limit - 2), acts.act.enqueue("large", limit - 1)
    async with working(app):
        assert len((await desk.end(fits))["result"]) == limit
        job = await desk.end(large)
    assert (job["state"], job["result"]) == ("succeeded", None)
    assert f"the limit is {limit:,}" in job["note"]


# --- errors --------------------------------------------------------------------------------------------------------------


@both
async def test_a_logical_error_stops_at_once(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    handle = getattr(acts, kind).enqueue("logical")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"], job["error_type"], job["message"], job["failures"]) == ("failed", "rejected", "FileNotFoundError", "no such file", 1)
    assert len(acts.ran) == 1
    assert [(row["outcome"], row["kind"]) for row in job["attempts"]] == [("failed", "logical")]


@both
async def test_reject_stops_at_once_with_its_code(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    handle = getattr(acts, kind).enqueue("reject")
    async with working(app):
        job = await desk.end(handle)
    assert (job["reason"], job["code"], job["message"], job["error_type"]) == ("rejected", "no_such_employee", "employee 7 is gone", "Reject")
    assert len(acts.ran) == 1


@both
@pytest.mark.parametrize(("word", "attempts", "kind_of"), [("unknown", 3, "unknown"), ("temporary", 5, "temporary"), ("retry", 5, "temporary")])
async def test_other_errors_are_tried_again_and_then_exhausted(
    app: App, acts: Acts, desk: Desk, kind: str, word: str, attempts: int, kind_of: str
) -> None:
    handle = getattr(acts, kind).enqueue(word)
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"], job["failures"], job["attempt"]) == ("failed", "exhausted", attempts, attempts)
    assert [ran.attempt for ran in acts.ran] == list(range(1, attempts + 1))
    history = [(row["attempt"], row["outcome"], row["kind"]) for row in job["attempts"]]
    assert history == [(n, "retrying" if n < attempts else "failed", kind_of) for n in range(1, attempts + 1)]
    for row, following in zip(job["attempts"], job["attempts"][1:], strict=False):
        assert row["started_at"] <= row["ended_at"] <= row["next_at"] <= following["started_at"]
        assert row["worker"] is not None


@both
async def test_success_in_the_end_keeps_the_history(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    handle = getattr(acts, kind).enqueue("fail twice", 1)
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["result"], job["failures"], job["attempt"]) == ("succeeded", '{"n":1}', 2, 3)
    assert desk.outcomes(handle) == ["retrying", "retrying", "succeeded"]


async def test_the_traceback_begins_in_user_code(app: App, acts: Acts, desk: Desk) -> None:
    handle = acts.act.enqueue("logical")
    async with working(app):
        job = await desk.end(handle)
    assert "raise RAISED[word]()" in job["traceback"]
    assert "attempt.py" not in job["traceback"]
    assert desk.one("select fingerprint from quarantine") == "act|FileNotFoundError|helpers.py:_do"


async def test_causes_are_in_the_traceback(app: App, acts: Acts, desk: Desk) -> None:
    def chained(ctx: Any, n: int) -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise PermissionError("outer") from error

    acts.words["chained"] = chained
    handle = acts.act.enqueue("chained")
    async with working(app):
        job = await desk.end(handle)
    assert "KeyError: 'inner'" in job["traceback"]
    assert job["message"] == "outer"


# --- when the next attempt is ------------------------------------------------------------------------------------------


async def test_the_rule_decides_when(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    acts = acts_with(retry=Delays("50s", "100s", jitter=0))
    handle = acts.act.enqueue("temporary")
    async with working(app):
        await auntil(lambda: desk.state(handle) == "retrying")
    (row,) = desk.job(handle)["attempts"]
    assert (row["next_at"] - row["ended_at"]).total_seconds() == pytest.approx(50, abs=0.5)
    assert desk.one("select run_at from jobs") == row["next_at"]


WISHES = [
    ("seconds", lambda: 120, 120), ("text", lambda: "120", 120), ("duration", lambda: "2m", 120), ("timedelta", lambda: timedelta(minutes=2), 120),
    ("moment", lambda: datetime.now(UTC) + timedelta(seconds=120), 120),
    ("HTTP date", lambda: (datetime.now(UTC) + timedelta(seconds=120)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 119),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wish", "least"), WISHES, ids=[name for name, *_ in WISHES])
async def test_a_wish_is_never_undercut(app: App, acts: Acts, desk: Desk, name: str, wish: Callable[[], Any], least: float) -> None:
    def raise_it(ctx: Any, n: int) -> None:
        raise Retry("429", after=wish())

    acts.words["wish"] = raise_it
    handle = acts.act.enqueue("wish")
    async with working(app):
        await auntil(lambda: desk.state(handle) == "retrying")
    (row,) = desk.job(handle)["attempts"]
    waits = (row["next_at"] - row["ended_at"]).total_seconds()
    assert least - 1 <= waits <= 120 + 60
    assert row["note"] is None


async def test_a_wish_for_a_year_is_cut_to_a_day_and_says_so(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    acts = acts_with(deadline="30d")
    acts.words["year"] = lambda ctx, n: (_ for _ in ()).throw(Retry("later", after=timedelta(days=365)))
    handle = acts.act.enqueue("year")
    async with working(app):
        await auntil(lambda: desk.state(handle) == "retrying")
    (row,) = desk.job(handle)["attempts"]
    assert 86400 <= (row["next_at"] - row["ended_at"]).total_seconds() <= 86400 + 70
    assert "cut to" in row["note"]


async def test_a_wish_in_the_past_means_soon(app: App, acts: Acts, desk: Desk) -> None:
    acts.words["past"] = lambda ctx, n: (_ for _ in ()).throw(Retry("go", after=datetime(2020, 1, 1, tzinfo=UTC)))
    handle = acts.act.enqueue("past")
    async with working(app):
        job = await desk.end(handle)
    assert (job["reason"], job["failures"]) == ("exhausted", 5)


@pytest.mark.parametrize("wish", ["soon", "Mon, nonsense", float("nan"), -5, datetime(2031, 1, 1), object(), b"12", [], float("inf"), 1e308, "9" * 400])
async def test_a_wish_that_cannot_be_read_costs_only_the_wish(app: App, acts: Acts, desk: Desk, wish: Any) -> None:
    acts.words["odd"] = lambda ctx, n: (_ for _ in ()).throw(Retry("later", after=wish))
    handle = acts.act.enqueue("odd")
    async with working(app):
        await auntil(lambda: desk.outcomes(handle))
    row = desk.job(handle)["attempts"][0]
    assert (row["outcome"], row["error_type"]) == ("retrying", "jobwell.core.outcome.Retry")
    assert row["note"]


async def test_a_thousand_failures_of_one_second_come_back_spread(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    """Case I1: full jitter over the window."""
    acts = acts_with(retry=Backoff("100s", factor=1, cap="100s"))
    app.enqueue_many(acts.act.job("temporary", n) for n in range(1000))
    async with working(app):
        await auntil(lambda: desk.states() == {"retrying": 1000})
    waits = sorted(float(seconds) for seconds in desk.all("select extract(epoch from next_at - ended_at) from attempts"))
    assert 0 <= waits[0]
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
    assert waits[0] >= 120
    assert waits[-1] - waits[0] > 8
    assert waits[900] - waits[100] > 6


# --- snooze --------------------------------------------------------------------------------------------------------------


@both
async def test_a_snooze_costs_no_attempt(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    handle = getattr(acts, kind).enqueue("snooze once")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["attempt"], job["failures"]) == ("succeeded", 1, 0)
    assert [ran.attempt for ran in acts.ran] == [1, 1]
    assert desk.outcomes(handle) == ["snoozed"]


async def test_snoozing_for_ever_ends_at_the_deadline(app: App, acts: Acts, desk: Desk) -> None:
    handle = acts.act.using(deadline="300ms").enqueue("snooze")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"], job["failures"]) == ("failed", "deadline", 0)
    assert len(acts.ran) > 2
    assert job["ended_at"] <= job["deadline"] + timedelta(seconds=5)


async def test_a_snooze_past_the_deadline_is_the_end_at_once(app: App, acts: Acts, desk: Desk) -> None:
    handle = acts.act.using(deadline="1h").enqueue("snooze", 3601)
    async with working(app):
        job = await desk.end(handle)
    assert (job["reason"], job["message"], len(acts.ran)) == ("deadline", "it asked to sleep past its deadline: not yet", 1)


@pytest.mark.parametrize("until", ["tomorrow", None, datetime(2031, 1, 1), object(), float("nan"), -1])
async def test_a_snooze_that_cannot_be_read_is_a_failure(app: App, acts: Acts, desk: Desk, until: Any) -> None:
    acts.words["odd"] = lambda ctx, n: (_ for _ in ()).throw(Snooze(until))
    handle = acts.act.enqueue("odd")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"]) == ("failed", "exhausted")


async def test_a_snooze_until_a_moment_ago_comes_again_at_once(app: App, acts: Acts, desk: Desk) -> None:
    acts.words["ago"] = lambda ctx, n: None if len(acts.ran) > 3 else (_ for _ in ()).throw(Snooze(datetime(2020, 1, 1, tzinfo=UTC)))
    handle = acts.act.enqueue("ago")
    async with working(app):
        assert (await desk.end(handle))["state"] == "succeeded"
    assert len(acts.ran) == 4


# --- the deadline --------------------------------------------------------------------------------------------------------


async def test_a_job_past_its_deadline_is_not_begun(app: App, acts: Acts, desk: Desk) -> None:
    handle = acts.act.using(deadline="1ms").enqueue("ok")
    await auntil(lambda: desk.one("select deadline < clock_timestamp() from jobs"))
    async with working(app):
        job = await desk.end(handle)
    assert (job["reason"], job["failures"], acts.ran) == ("deadline", 0, [])
    assert job["message"] == "the deadline passed before the attempt began"


@both
async def test_a_deadline_that_passes_while_it_runs_ends_it(app: App, acts: Acts, desk: Desk, kind: str) -> None:
    handle = getattr(acts, kind).using(deadline="300ms").enqueue("wait")
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"], job["message"]) == ("failed", "deadline", "the deadline passed while it ran")
    assert len(acts.ran) == 1


async def test_no_retry_is_planned_past_the_deadline(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    acts = acts_with(retry=Fixed("1h", attempts=9))
    handle = acts.act.using(deadline="10m").enqueue("temporary")
    async with working(app):
        job = await desk.end(handle)
    assert (job["reason"], job["error_type"], len(acts.ran)) == ("deadline", "TimeoutError", 1)


async def test_the_context_knows_the_deadline(app: App, acts: Acts, desk: Desk) -> None:
    acts.words["left"] = lambda ctx, n: ctx.remaining()
    handle = acts.act.using(deadline="1h").enqueue("left")
    async with working(app):
        job = await desk.end(handle)
    assert 3590 < float(job["result"]) <= 3600


# --- the time limit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "word"), [("act", "wait"), ("act", "swallow once"), ("act_plain", "wait"), ("act_plain", "obey")])
async def test_what_runs_over_its_limit_is_timed_out_and_tried_again(
    app: App, acts_with: Callable[..., Acts], desk: Desk, kind: str, word: str
) -> None:
    acts = acts_with(timeout="200ms", retry=Fixed("10ms", attempts=2))
    handle = getattr(acts, kind).enqueue(word)
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], job["reason"], job["error_type"]) == ("failed", "exhausted", "TimeLimit")
    assert [(row["outcome"], row["kind"], row["message"]) for row in job["attempts"]] == [
        (outcome, "temporary", "it ran longer than its time limit of 200ms") for outcome in ("retrying", "failed")]  # fmt: skip
    assert len(acts.ran) == 2
    assert all(ran.context.cancelled for ran in acts.ran)


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


async def test_a_timed_out_thread_is_replaced_and_its_late_result_dropped(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    acts = acts_with(timeout="200ms", retry=Fixed("10ms", attempts=1))
    stuck = [acts.act_plain.enqueue("wait", n) for n in range(4)]
    async with working(app, slots=4):
        for handle in stuck:
            assert (await desk.end(handle))["error_type"] == "TimeLimit"
        assert acts.under_way == 4
        quick = [acts.act_plain.enqueue("ok") for _ in range(20)]
        for handle in quick:
            assert (await desk.end(handle, timeout=5))["state"] == "succeeded"
        acts.open_all()
        await auntil(lambda: acts.under_way == 0)
        assert (await desk.end(acts.act_plain.enqueue("ok")))["state"] == "succeeded"
    assert desk.states() == {"succeeded": 21, "failed": 4}


async def test_a_result_just_before_the_limit_counts(app: App, acts_with: Callable[..., Acts], desk: Desk) -> None:
    acts = acts_with(timeout="5s")
    handle = acts.act.enqueue("wait")
    async with working(app):
        await auntil(lambda: acts.ran)
        acts.open_all()
        assert (await desk.end(handle))["state"] == "succeeded"


# --- what the worker does not know ---------------------------------------------------------------------------------------


async def test_a_task_that_this_release_does_not_know_waits(app: App, acts: Acts, desk: Desk) -> None:
    """Case B5."""
    other = App(app.settings.database_url, schema=app.settings.schema)

    @other.task(name="later")
    async def later() -> None: ...

    unknown = later.enqueue()
    async with working(app):
        for _ in range(20):
            await desk.end(acts.act.enqueue("ok"))
    other.close()
    job = desk.job(unknown)
    assert (job["state"], job["attempt"]) == ("ready", 0)


async def test_a_payload_that_does_not_fit_is_invalid_at_once(app: App, acts: Acts, desk: Desk) -> None:
    """Case B6."""
    handles = [acts.act.enqueue("ok") for _ in range(4)]
    for handle, args in zip(handles, ['{"word": 1}', "{}", '{"word": "ok", "more": 1}', "[1]"], strict=True):
        desk.conn.execute("update jobs set args = %s where id = %s", [args, handle.id])
    async with working(app):
        jobs = [await desk.end(handle) for handle in handles]
    assert {(job["state"], job["reason"], job["failures"]) for job in jobs} == {("failed", "invalid", 0)}
    assert all("does not fit the task" in job["message"] for job in jobs)
    assert acts.ran == []

