"""A retry that goes to another queue or has another priority, and where errors come from: from a task to the store and to people."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jobwell import Delays, Fixed, Reject, ResourceUnavailable, Retries, Retry, Snooze
from jobwell.core.classify import Verdict
from jobwell.store import reads
from jobwell.store.statements import run
from jobwell.testing import Testbed
from jobwell.worker import attempt
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working


def throws(*errors: BaseException) -> Callable[[Any, int], None]:
    """A word that raises these, one at each attempt."""
    left = list(errors)

    def act(ctx: Any, n: int) -> None:
        if left:
            raise left.pop(0)

    return act


def told(desk: Desk, handle: Any) -> list[str]:
    """The timeline of a job."""
    statements = desk.app.database.statements
    return [event.text for event in run(desk.conn, reads.timeline(statements, desk.job(handle)))]


def test_a_retry_goes_where_the_task_sends_it(bed: Testbed, acts: Acts, desk: Desk) -> None:
    acts.words["move"] = throws(Retry("too heavy", after="10ms", queue="bulk", priority=-20), Retry("again"))
    handle = acts.act.enqueue("move")
    assert bed.drain().counts == {"retrying": 1}
    job = bed.job(handle)
    assert (job.queue, job.priority, job.state, job.failures) == ("bulk", -20, "retrying", 1)
    assert [(row["note"], row["queue"], row["origin"]) for row in bed.attempts(handle)] == [
        ("goes to bulk at priority -20", "default", "code")
    ]
    assert bed.drain(retries=True).counts == {"retrying": 1, "succeeded": 1}
    assert bed.job(handle).queue == "bulk"  # it stays where it went
    (enqueued, _, moved, *_) = told(desk, handle)
    assert enqueued == "enqueued into default"
    assert "goes to bulk at priority -20" in moved


def test_a_queue_that_nobody_declares_costs_nothing(bed: Testbed, acts: Acts) -> None:
    acts.words["typo"] = throws(Retry("x", queue="bluk", after="50s"))
    handle = acts.act.enqueue("typo")
    assert bed.drain().counts == {"retrying": 1}
    (row,) = bed.attempts(handle)
    assert row["note"] == "it stays in its queue: it asked for 'bluk', which the app does not declare (did it mean 'bulk'?)"
    assert (bed.job(handle).queue, row["queue"]) == ("default", None)
    assert (row["next_at"] - row["ended_at"]).total_seconds() >= 49  # the rest of the wish counts


def test_rules_send_by_class_and_by_number(bed: Testbed, acts_with: Callable[..., Acts], monkeypatch: pytest.MonkeyPatch) -> None:
    acts = acts_with(
        retry=Retries(
            Fixed("1s", attempts=9, priority=-50, from_attempt=4),
            throttled=Fixed("1s", queue="bulk", attempts=9),
            errors={ConnectionError: Delays("1s", "1s", queue="reports")},
        )
    )
    handle = acts.act.enqueue("temporary")
    places = []
    for _ in range(4):
        bed.drain()
        places.append((bed.job(handle).queue, bed.job(handle).priority))
        bed.clock.travel("2s")
    assert places == [("default", 0), ("default", 0), ("default", -50), ("default", -50)]
    assert [row["note"] for row in bed.attempts(handle)] == [None, None, "gets priority -50", None]
    acts.words["gone"] = throws(ConnectionResetError())
    other = acts.act.enqueue("gone")
    bed.drain()
    assert bed.job(other).queue == "reports"
    monkeypatch.setattr(attempt, "classify", lambda error, *rules: Verdict("throttled", "limits", 429, "20"))
    third = acts.act.enqueue("unknown")
    bed.drain()
    assert (bed.job(third).queue, bed.attempts(third)[0]["origin"]) == ("bulk", "limits")


async def test_whoever_serves_the_other_queue_runs_it(acts: Acts, desk: Desk) -> None:
    """And whoever serves only the first one does not."""
    acts.words["move"] = throws(Retry(queue="bulk", after=0))
    handle = acts.act.enqueue("move")
    async with working(desk.app, queues=("default",)):
        await auntil(lambda: desk.job(handle)["queue"] == "bulk" and desk.job(handle)["state"] == "ready")
        await desk.end(acts.act.enqueue("ok"))  # served after it, and it is not
        assert desk.state(handle) == "ready"
        async with working(desk.app, queues=("bulk",)):
            assert (await desk.end(handle))["state"] == "succeeded"
    assert desk.job(handle)["queue"] == "bulk"


def test_a_job_that_fails_there_comes_back_there(bed: Testbed, acts: Acts, desk: Desk) -> None:
    """The quarantine knows where it stood, and so does a retry from it."""
    acts.words["move"] = throws(Retry(queue="bulk", after=0), FileNotFoundError("x"))
    handle = acts.act.enqueue("move")
    bed.drain(retries=True)
    assert desk.one("select queue, origin from quarantine") == ("bulk", "code")
    assert (desk.job(handle)["queue"], told(desk, handle)[0]) == ("bulk", "enqueued into default")


ORIGINS: list[tuple[BaseException, str, str]] = [
    (TimeoutError("x"), "retrying", "external"), (ValueError("x"), "retrying", "code"), (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "failed", "validation"),
    (MemoryError("x"), "retrying", "limits"), (FileNotFoundError("x"), "failed", "code"), (Reject("no"), "failed", "code"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "outcome", "origin"), ORIGINS, ids=lambda it: type(it).__name__ if isinstance(it, Exception) else str(it)
)
def test_the_origin_is_stored(bed: Testbed, acts: Acts, desk: Desk, error: BaseException, outcome: str, origin: str) -> None:
    acts.words["throw"] = throws(error)
    handle = acts.act.enqueue("throw")
    bed.drain()
    assert [(row["outcome"], row["origin"]) for row in bed.attempts(handle)] == [(outcome, origin)]
    if outcome == "failed":
        assert desk.one("select origin from quarantine") == origin


def test_a_reject_comes_from_where_its_cause_comes_from(bed: Testbed, acts: Acts, desk: Desk) -> None:
    def act(ctx: Any, n: int) -> None:
        try:
            raise TimeoutError("the bank says nothing")  # noqa: TRY301  the cause, as user code has it
        except TimeoutError as error:
            raise Reject("declined", "the bank declines") from error

    acts.words["decline"] = act
    acts.act.enqueue("decline")
    bed.drain()
    assert desk.one("select origin, code from quarantine") == ("external", "declined")


def test_arguments_that_do_not_fit_are_validation(bed: Testbed, acts: Acts, desk: Desk) -> None:
    acts.act.enqueue("ok")
    desk.conn.execute("""update jobs set args = '{"word": 7}'""")
    bed.drain()
    assert desk.one("select reason, origin from quarantine") == ("invalid", "validation")


# --- several at once -----------------------------------------------------------------------------------------------------


def together(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("unhandled errors in a TaskGroup", errors)


SHUT = ResourceUnavailable("smtp is not to be called", resource="smtp", retry_in=3.0)
GROUPS = [
    (together(SHUT, SHUT), "released", 0), (together(SHUT, asyncio.CancelledError()), "released", 0), (together(SHUT, TimeoutError("x")), "retrying", 1),
    (together(Snooze("50s"), Snooze("9s")), "snoozed", 0), (together(Retry(after="50s"), Retry()), "retrying", 1),
    (together(SHUT, FileNotFoundError("x")), "failed", 1), (together(Reject("no"), TimeoutError("x")), "failed", 1),
]  # fmt: skip


@pytest.mark.parametrize(("group", "outcome", "failures"), GROUPS)
@pytest.mark.parametrize("plain", [False, True])
def test_orders_in_a_group_are_followed(
    bed: Testbed, acts: Acts, desk: Desk, group: BaseException, outcome: str, failures: int, *, plain: bool
) -> None:
    acts.words["throw"] = throws(group)
    handle = (acts.act_plain if plain else acts.act).enqueue("throw")
    bed.drain()
    job = bed.job(handle)
    assert (bed.attempts(handle)[-1]["outcome"], job.failures) == (outcome, failures)
    if outcome == "failed" and "Reject" in repr(group):
        assert (job.reason, job.code) == ("rejected", "no")


def test_the_longest_wish_of_a_group_is_a_floor(bed: Testbed, acts: Acts) -> None:
    bed.clock.freeze()
    for group in (together(Retry(after="50s", queue="bulk"), Retry(after="9s")), together(TimeoutError(), Retry(after="50s"))):
        acts.words["throw"] = throws(group)
        handle = acts.act.enqueue("throw")
        bed.drain()
        (row,) = bed.attempts(handle)
        assert 50 <= (row["next_at"] - row["ended_at"]).total_seconds() <= 110
    assert bed.job(bed.jobs()[0]).queue == "bulk"


async def test_a_task_group_in_a_real_task(acts: Acts, desk: Desk) -> None:
    """As asyncio makes it: one child finds the breaker open, and its sibling is cancelled."""

    async def shut() -> None:
        raise SHUT

    @desk.app.task(name="grouped")
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(shut())

    handle = grouped.enqueue()
    async with working(desk.app):
        await auntil(lambda: desk.job(handle)["postponements"] == 1)
    job = desk.job(handle)
    assert (job["state"], job["attempt"], job["failures"], job["postponements"]) == ("scheduled", 0, 0, 1)
