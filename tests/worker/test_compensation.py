"""`compensate=`: what the steps of a job that is called off have done is undone, the last one first."""

from dataclasses import dataclass
from typing import Any

import pytest

from jobwell import App, Compensate, Context, Fixed, JobCancelled, Reject, Tasks
from jobwell.actions import jobs as actions
from jobwell.actions import steps as answers
from jobwell.testing import Testbed
from tests.waiting import auntil
from tests.worker.helpers import Desk, working
from tests.worker.test_steps import states


@dataclass
class Seat:
    flight: str
    number: int


@dataclass
class Trip:
    """What was booked and undone, in order; what the end of the job is like."""

    app: App
    ends: str = "compensate"
    broken: bool = False

    def __post_init__(self) -> None:
        self.log: list[str] = []
        app = self.app

        @app.task(name="release", queue="critical", retry=Fixed("0s", attempts=1), version=2, upgrades={})
        async def release(seat: Seat) -> None:
            if self.broken:
                raise Reject("closed", "nobody is there")
            self.log.append(f"release {seat.flight} {seat.number}")

        @app.task(name="refund", queue="critical")
        def refund(paid: str) -> None:
            self.log.append(f"refund {paid[:8]}")

        @app.task(name="trip", tenant="of", retry=Fixed("0s", attempts=2))
        async def trip(ctx: Context, of: str) -> None:
            await ctx.step("there", self.book, "AB", 7, compensate=release)
            await ctx.step("pay", self.pay, compensate=refund)
            await ctx.step("mail", self.log.append, "mail")
            await ctx.step("back", self.book, "BA", 8, compensate=release)
            if self.ends == "compensate":
                raise Compensate("no_hotel", "there is no room")
            if self.ends == "reject":
                raise Reject("no_hotel", "there is no room")

        self.trip = trip

    def book(self, flight: str, number: int) -> Seat:
        self.log.append(f"book {flight}")
        return Seat(flight, number)

    def pay(self) -> str:
        self.log.append("pay")
        return "receipt " + "7" * 3000


DONE = ["book AB", "pay", "mail", "book BA"]
UNDONE = ["release BA 8", "refund receipt ", "release AB 7"]


@pytest.fixture
def trip(app: App) -> Trip:
    return Trip(app)


def test_a_job_that_calls_itself_off_is_undone_in_reverse_order(bed: Testbed, desk: Desk, trip: Trip) -> None:
    with bed.app.correlate(request_id="r1"):
        job = trip.trip.enqueue("acme")
    bed.drain(until_empty=True)
    assert trip.log == DONE + UNDONE
    found = desk.job(job)
    assert (found["state"], desk.outcomes(job)) == ("cancelled", ["cancelled"])
    assert found["attempts"][-1]["message"] == "there is no room (no_hotel)"
    assert states(desk, job) == [("there", "compensated"), ("pay", "compensated"), ("mail", "done"), ("back", "compensated")]
    assert {(one.tenant, one.queue, one.meta["parent"], one.meta["request_id"]) for one in bed.jobs("release")} == {
        ("acme", "critical", str(job.id), "r1")
    }
    with pytest.raises(JobCancelled, match="there is no room"):
        job.result(timeout=0)


def test_a_failed_job_is_undone_when_it_is_given_up_and_not_before(bed: Testbed, desk: Desk, trip: Trip) -> None:
    trip.ends = "reject"
    job = trip.trip.enqueue("acme")
    bed.drain(until_empty=True)
    assert (trip.log, desk.job(job)["reason"]) == (DONE, "rejected")
    actions.named(bed.app.database, "quarantine.discard", [job.id], by="olga", why="the customer has gone")
    bed.drain(until_empty=True)
    assert trip.log == DONE + UNDONE


def test_nothing_is_undone_of_what_succeeds(bed: Testbed, desk: Desk, trip: Trip) -> None:
    trip.ends = "well"
    job = trip.trip.enqueue("acme")
    bed.drain(until_empty=True)
    assert (trip.log, desk.state(job)) == (DONE, "succeeded")


def test_a_failed_compensation_stops_the_rest_until_a_person_has_decided(bed: Testbed, desk: Desk, trip: Trip) -> None:
    trip.broken = True
    job = trip.trip.enqueue("acme")
    bed.drain(until_empty=True)
    assert trip.log == DONE
    assert states(desk, job) == [("there", "done"), ("pay", "done"), ("mail", "done"), ("back", "compensating")]
    (failed,) = desk.all("select id from quarantine")
    (row,) = answers.unsettled(bed.app.database)
    assert (row["job"], row["job_state"], row["state"], row["undo_id"], row["undo_failed"]) == (
        job.id, "cancelled", "compensating", failed, "rejected")  # fmt: skip
    assert any(event["text"] == f"step 'back' is being undone by job {failed}" for event in _timeline(desk, job))
    trip.broken = False
    actions.named(bed.app.database, "quarantine.retry", [failed], by="olga")
    bed.drain(until_empty=True)
    assert trip.log == DONE + UNDONE


def test_a_compensation_that_is_given_up_leaves_its_step_and_the_rest_goes_on(bed: Testbed, desk: Desk, trip: Trip) -> None:
    trip.broken = True
    job = trip.trip.enqueue("acme")
    bed.drain(until_empty=True)
    trip.broken = False
    failed = desk.all("select id from quarantine")
    actions.named(bed.app.database, "quarantine.discard", failed, by="olga", why="released by telephone")
    bed.drain(until_empty=True)
    assert trip.log == DONE + UNDONE[1:]
    assert states(desk, job)[-1] == ("back", "left")
    told = [event["text"] for event in _timeline(desk, job) if event["event"] == "step"]
    assert any("step 'back' left as it is: discarded by olga: released by telephone" in line for line in told)
    assert any("step 'pay' undone (job " in line for line in told)


def _timeline(desk: Desk, job: Any) -> list[dict[str, Any]]:
    from jobwell.store import reads
    from jobwell.store.statements import run

    return [event.as_json() for event in run(desk.conn, reads.timeline(desk.app.database.statements, desk.job(job)))]


async def test_a_cancelled_job_is_undone_by_workers_and_what_is_not_known_when_it_is_told(app: App, desk: Desk) -> None:
    log: list[str] = []
    stop = []

    @app.task(name="undo")
    async def undo(what: str) -> None:
        log.append(f"undo {what}")

    async def begin(what: str) -> str:
        log.append(what)
        if what == "b":
            stop.append(1)
            await auntil(lambda: False, timeout=60)
        return what

    @app.task(name="long")
    async def long(ctx: Context) -> None:
        for what in ("a", "b"):
            await ctx.step(what, begin, what, compensate=undo)

    async with working(app, queues=["default"]):
        job = long.enqueue()
        await auntil(lambda: stop)
        actions.named(app.database, "jobs.cancel", [job.id], by="olga")
        await desk.end(job)
        await auntil(lambda: log == ["a", "b", "undo a"])
        await auntil(lambda: states(desk, job) == [("a", "compensated"), ("b", "started")])
        became = answers.answer(app.database, job.id, "b", happened=True, by="olga", why="it is there", result='"b"')
        await auntil(lambda: log == ["a", "b", "undo a", "undo b"])
    assert became == "over"


def test_what_cannot_undo_a_step_is_refused_before_it_happens(bed: Testbed, desk: Desk) -> None:
    other, done = Tasks(), []

    @other.task
    async def elsewhere(one: int) -> None: ...

    @bed.app.task(name="two", retry=Fixed("0s", attempts=1))
    async def two(one: int, more: int) -> None: ...

    @bed.app.task(name="off", retry=Fixed("0s", attempts=1))
    async def off(ctx: Context, which: str) -> None:
        await ctx.step("a", done.append, 1, compensate=two if which == "two" else elsewhere)

    for which, said in (("two", "has one parameter besides its context"), ("elsewhere", "belongs to another app")):
        job = off.enqueue(which)
        bed.drain()
        assert said in desk.job(job)["message"]
    assert done == []


@pytest.mark.parametrize("ends", ["compensate", "well"])
def test_what_returned_something_that_is_not_kept_is_undone_when_a_person_has_said_what_it_was(
    bed: Testbed, desk: Desk, ends: str
) -> None:
    log: list[Any] = []

    @bed.app.task(name="undo")
    def undo(what: Any) -> None:
        log.append(what)

    @bed.app.task(name="odd")
    async def odd(ctx: Context) -> None:
        await ctx.step("first", str, "first", compensate=undo)
        await ctx.step("odd", object, compensate=undo)
        await ctx.step("last", str, "last", compensate=undo)
        if ends == "compensate":
            raise Compensate("off", "called off")

    job = odd.enqueue()
    bed.drain(until_empty=True)
    if ends == "well":
        assert (log, answers.unsettled(bed.app.database)) == ([], [])
        return
    assert (log, states(desk, job)) == (["last"], [("first", "done"), ("odd", "done"), ("last", "compensated")])
    (row,) = answers.unsettled(bed.app.database)
    assert (row["job"], row["name"], row["state"]) == (job.id, "odd", "done")
    assert "could not be stored" in row["note"]
    assert answers.answer(bed.app.database, job.id, "odd", happened=True, by="olga", why="asked", result='"odd"') == "over"
    bed.drain(until_empty=True)
    assert log == ["last", "odd", "first"]
    assert answers.unsettled(bed.app.database) == []
