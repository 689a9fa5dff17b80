"""Events: told after the fact, to whoever listens, and never in the way of a job."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from jobwell import App, DeclarationError, events
from jobwell.core.ids import new_id
from jobwell.events import (
    Event,
    JobEvent,
    JobQuarantined,
    JobReleased,
    JobRetrying,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    WorkerStarted,
    WorkerStopping,
)
from jobwell.worker import events as hub_module
from jobwell.worker.events import Hub
from jobwell.worker.executors.threads import Threads
from tests.waiting import apause, auntil
from tests.worker.helpers import Acts, Desk, starting, working

ALL = [getattr(events, name) for name in events.__all__ if name not in ("Event", "JobEvent")]


@pytest.fixture
def told(app: App) -> list[Event]:
    """Everything that is told, in order."""
    found: list[Event] = []

    @app.on(*ALL)
    async def keep(event: Event) -> None:
        found.append(event)

    return found


async def heard(told: list[Event], kind: type[Event], count: int = 1) -> Any:
    await auntil(lambda: sum(type(event) is kind for event in told) >= count, what=f"{kind.__name__} in {told}")
    return next(event for event in told if type(event) is kind)


async def test_a_job_that_succeeds_is_told_with_its_fields(acts: Acts, told: list[Event], desk: Desk) -> None:
    with acts.app.correlate(request_id="r-1", initiator="hr"):
        job = await acts.act.using(tenant="acme").aenqueue("give", 1)
    async with working(acts.app) as worker:
        succeeded = await heard(told, JobSucceeded)
        started = await heard(told, JobStarted)
        assert desk.state(job) == "succeeded"  # it was stored before it was told
    for event in (started, succeeded):
        assert (event.job_id, event.task, event.queue, event.tenant, event.attempt) == (job.id, "act", "default", "acme", 1)
        assert event.correlation == {"request_id": "r-1", "initiator": "hr"}
        assert event.worker == worker.id
        assert abs((event.at - datetime.now(UTC)).total_seconds()) < 60
    assert 0 < succeeded.seconds < 20
    assert succeeded.note is None
    assert [type(event) for event in told if isinstance(event, JobEvent)] == [JobStarted, JobSucceeded]


@pytest.mark.parametrize(
    ("word", "kind", "fields"),
    [
        (
            "reject",
            JobQuarantined,
            {"reason": "rejected", "code": "no_such_employee", "error_type": "Reject", "message": "employee 7 is gone"},
        ),
        (
            "logical",
            JobQuarantined,
            {"reason": "rejected", "code": None, "error_type": "FileNotFoundError", "message": "no such file"},
        ),
        (
            "fail twice",
            JobRetrying,
            {"delay": 0.01, "kind": "temporary", "error_type": "ConnectionResetError", "message": "gone"},
        ),
        ("snooze once", JobSnoozed, {"delay": 0.01, "message": "snoozed"}),
    ],
)
async def test_other_ends_are_told_too(
    acts: Acts, told: list[Event], desk: Desk, word: str, kind: Any, fields: dict[str, Any]
) -> None:
    job = await acts.act.aenqueue(word)
    async with working(acts.app):
        event = await heard(told, kind)
        await desk.end(job)
    assert {name: getattr(event, name) for name in fields} == fields


async def test_a_worker_tells_its_life_and_what_it_hands_back(acts: Acts, told: list[Event]) -> None:
    await acts.act.aenqueue("wait")
    async with working(acts.app, slots=7) as worker:
        began = await heard(told, WorkerStarted)
        await auntil(lambda: acts.under_way)
    assert (began.worker, began.slots, began.queues) == (worker.id, 7, acts.app.queues)
    assert [type(event) for event in told] == [WorkerStarted, JobStarted, WorkerStopping, JobReleased]
    stopping, released = told[2:]
    assert isinstance(stopping, WorkerStopping)
    assert isinstance(released, JobReleased)
    assert (stopping.running, released.cause, released.delay) == (1, "shutdown", 0.0)


async def test_a_lost_lease_is_told_and_no_outcome_of_its_jobs(acts: Acts, told: list[Event], desk: Desk) -> None:
    await acts.act.aenqueue("wait")
    async with starting(acts.app) as (_, task):
        await auntil(lambda: acts.under_way)
        desk.conn.execute("update workers set state = 'dead'")
        assert await asyncio.wait_for(task, 20) == 3
    assert [type(event) for event in told] == [WorkerStarted, JobStarted, LeaseLost]
    assert isinstance(told[2], LeaseLost)
    assert (told[2].why, told[2].running) == ("this worker was declared dead; another one has its jobs", 1)


async def test_an_outcome_that_was_not_stored_is_not_told(
    acts: Acts, told: list[Event], desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = await acts.act.aenqueue("wait", 1), await acts.act.aenqueue("give")
    async with working(acts.app):
        await auntil(lambda: acts.under_way)
        desk.conn.execute("update jobs set claim_id = gen_random_uuid() where id = %s", [mine.id])
        acts.door(1).set()
        await auntil(lambda: "ownership lost" in caplog.text)
    ends = [event.job_id for event in told if type(event) is JobSucceeded]
    assert ends == [other.id]


async def test_a_plain_handler_runs_on_a_thread(acts: Acts) -> None:
    threads: list[int] = []

    @acts.app.on(JobSucceeded)
    def plain(event: JobSucceeded) -> None:
        threads.append(threading.get_ident())

    await acts.act.aenqueue("give")
    async with working(acts.app):
        await auntil(lambda: threads)
    assert threads[0] != threading.get_ident()


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), TimeoutError()]
)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_an_error_of_a_handler_is_logged_and_touches_nothing(
    acts: Acts, told: list[Event], desk: Desk, caplog: pytest.LogCaptureFixture, error: BaseException, kind: str
) -> None:
    if kind == "async":

        @acts.app.on(JobStarted, JobSucceeded)
        async def breaks(event: Event) -> None:
            raise error

    else:

        @acts.app.on(JobStarted, JobSucceeded)
        def breaks_too(event: Event) -> None:
            raise error

    jobs = [await acts.act.aenqueue("give", n) for n in range(3)]
    async with working(acts.app):
        await heard(told, JobSucceeded, 3)
        await auntil(lambda: sum("failed at Job" in record.getMessage() for record in caplog.records) == 6)
    assert [desk.state(job) for job in jobs] == ["succeeded"] * 3
    assert desk.states() == {"succeeded": 3}


async def test_a_slow_handler_holds_nobody_up_and_is_switched_off(
    acts: Acts, told: list[Event], desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "HANDLER_LIMIT", 0.03)
    calls: list[str] = []

    @acts.app.on(JobSucceeded)
    async def hangs(event: JobSucceeded) -> None:
        calls.append("async")
        while True:
            try:
                await apause(30)
            except asyncio.CancelledError:
                if "let go" in calls:
                    raise

    @acts.app.on(JobSucceeded)
    def hangs_too(event: JobSucceeded) -> None:
        calls.append("plain")
        acts.door(99).wait(20)

    for n in range(20):
        await acts.act.aenqueue("give", n)
    async with working(acts.app) as worker:
        await heard(told, JobSucceeded, 20)
        await auntil(lambda: sum("is switched off" in record.getMessage() for record in caplog.records) == 2)
        calls.append("let go")
        for line in worker._hub._all:
            for late in line._late:
                late.cancel()
    assert (calls.count("async"), calls.count("plain")) == (3, 3)
    assert desk.states() == {"succeeded": 20}


async def test_a_long_line_drops_and_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(hub_module, "LONGEST_LINE", 5)
    door, seen = asyncio.Event(), list[Any]()

    async def slow(event: Any) -> None:
        await door.wait()
        seen.append(event.running)

    hub = Hub({WorkerStopping: [slow]}, Threads(asyncio.get_running_loop()), new_id(), lambda: datetime.now(UTC))
    for number in range(30):
        hub.tell(WorkerStopping, running=number)
    door.set()
    await hub.close()
    assert seen == [0, 1, 2, 3, 4]
    said = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in said] == ["1", "2", "4", "8", "16"]
    assert "slow is slower than what it listens to" in said[0]


async def test_what_waits_is_delivered_before_the_worker_ends(acts: Acts) -> None:
    seen: list[Any] = []

    @acts.app.on(JobSucceeded)
    async def slowly(event: JobSucceeded) -> None:
        await apause(0.01)
        seen.append(event.job_id)

    jobs = [await acts.act.aenqueue("give", n) for n in range(20)]
    async with working(acts.app) as worker:
        await auntil(lambda: worker.finished == 20)
    assert sorted(seen) == sorted(job.id for job in jobs)


async def test_a_handler_that_does_not_end_does_not_keep_the_worker(
    acts: Acts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hub_module, "LAST_CALL", 0.05)

    @acts.app.on(WorkerStarted)
    async def stays(event: WorkerStarted) -> None:
        await apause(60)

    async with working(acts.app):
        pass
    assert "did not end in time" in caplog.text


async def test_where_nobody_listens_nothing_is_made(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("started", "ended", "_told"):
        holder: Any = hub_module if name == "_told" else Hub
        monkeypatch.setattr(holder, name, lambda *given, name=name: made.append(name))
    await acts.act.aenqueue("give")
    async with working(acts.app) as worker:
        await auntil(lambda: worker.finished == 1)
        assert worker._hub._all == []
    assert made == []


@pytest.mark.parametrize("kinds", [(), (int,), (Event,), (JobEvent,), ("JobStarted",), (JobStarted, ValueError)])
def test_what_is_no_event_is_refused(app: App, kinds: Any) -> None:
    with pytest.raises(DeclarationError, match="such as JobSucceeded"):
        app.on(*kinds)
    assert app.handlers == {}


def test_events_are_frozen_documented_and_carry_no_payload() -> None:
    for kind in ALL:
        assert kind.__doc__
        assert kind.__dataclass_params__.frozen
        for field in dataclasses.fields(kind):
            owner = next(base for base in reversed(kind.__mro__) if field.name in getattr(base, "__dataclass_fields__", {}))
            assert f"{field.name}:" in owner.__doc__ or f"{field.name}," in owner.__doc__, f"{kind.__name__}.{field.name}"
            assert field.name not in ("args", "result")


def test_a_decorated_handler_is_what_it_was(app: App) -> None:
    def handler(event: Event) -> str:
        return "as before"

    kept: Callable[[Event], str] = app.on(JobStarted, JobSucceeded)(handler)
    assert kept is handler
