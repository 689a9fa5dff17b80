"""What a task returns or raises becomes the end, or the next attempt, of its job."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from jobwell import App, Backoff, Fixed, Reject, Retry, Snooze
from tests.worker.live.helpers import BOTH, SOON, Books, Kind, Start, declare, raising


class ConnectionLost(ConnectionError):
    """An application's own error, of a kind that is known to pass."""


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("value", "stored"),
    [(None, None), ("día 🛠️", "día 🛠️"), (0, 0), ([], []), ({"a": [1, None]}, {"a": [1, None]}), (Decimal("1.10"), {"$decimal": "1.10"})],
    ids=str,
)  # fmt: skip
async def test_a_result_is_stored(app: App, start: Start, books: Books, kind: Kind, value: Any, stored: Any) -> None:
    job = await declare(app, kind, lambda: value).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["state"], end["result"], end["note"], end["attempt"], end["failures"]) == ("succeeded", stored, None, 1, 0)
    assert books.history(job) == []
    assert await job.astatus() == "succeeded"


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("error", "tries", "about"),
    [
        (ValueError("no"), 3, "unknown"), (KeyError("k"), 3, "unknown"), (TimeoutError("slow"), 5, "temporary"),
        (ConnectionLost("gone"), 5, "temporary"), (Retry("again"), 5, "temporary"),
    ],
    ids=repr,
)  # fmt: skip
async def test_attempts_are_used_up_as_the_error_deserves(
    app: App, start: Start, books: Books, kind: Kind, error: Exception, tries: int, about: str
) -> None:
    runs: list[int] = []

    def body() -> None:
        runs.append(1)
        raise type(error)(*error.args)

    job = await declare(app, kind, body, retry=SOON).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["state"], end["reason"], end["attempt"], end["failures"]) == ("failed", "exhausted", tries, tries)
    assert len(runs) == tries
    assert books.history(job) == ["retrying"] * (tries - 1) + ["failed"]
    assert books.history(job, "attempt", "kind") == [(number, about) for number in range(1, tries + 1)]
    assert str(error) in end["message"]
    assert type(error).__name__ in end["error_type"]
    assert "test_outcomes.py" in end["traceback"]
    assert "jobwell/worker" not in end["traceback"]


@pytest.mark.parametrize("error", [FileNotFoundError("no"), NotImplementedError(), PermissionError()], ids=repr)
async def test_a_logical_error_is_not_tried_again(app: App, start: Start, books: Books, error: Exception) -> None:
    job = await declare(app, "async", raising(error), retry=SOON).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["attempt"], end["code"]) == ("rejected", 1, None)
    assert books.history(job, "outcome", "kind") == [("failed", "logical")]


async def test_a_job_that_succeeds_later_keeps_its_history(app: App, start: Start, books: Books) -> None:
    runs: list[int] = []

    def body() -> str:
        runs.append(1)
        if len(runs) < 3:
            raise TimeoutError
        return "done"

    job = await declare(app, "plain", body, retry=SOON).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["state"], end["result"], end["attempt"], end["failures"]) == ("succeeded", "done", 3, 2)
    assert books.history(job) == ["retrying", "retrying", "succeeded"]


@pytest.mark.parametrize("kind", BOTH)
async def test_reject_goes_to_the_quarantine_with_code_and_message(app: App, start: Start, books: Books, kind: Kind) -> None:
    job = await declare(app, kind, raising(Reject("no_such_employee", "employee 7 has left")), retry=SOON).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["code"], end["message"]) == ("rejected", "no_such_employee", "employee 7 has left")
    assert (end["attempt"], end["failures"]) == (1, 1)
    assert end["fingerprint"] == "job|no_such_employee"


@pytest.mark.parametrize(
    ("after", "least", "most"), [("2m", 120, 180), (90, 90, 150), ("600", 600, 660), (timedelta(hours=1), 3600, 3660)], ids=str
)
async def test_retry_waits_at_least_as_long_as_asked(
    app: App, start: Start, books: Books, after: Any, least: float, most: float
) -> None:
    job = await declare(app, "async", raising(Retry("busy", after=after)), retry=SOON).aenqueue()
    await start()
    row = await books.in_state(job, "retrying")
    ((next_at, ended_at, note, message),) = books.history(job, "next_at", "ended_at", "note", "message")
    assert next_at == row["run_at"]
    assert least <= (next_at - ended_at).total_seconds() + 0.1 <= most
    assert (note, message, row["failures"]) == (None, "busy", 1)


async def test_retry_takes_a_moment(app: App, start: Start, books: Books) -> None:
    moment = datetime.now(UTC) + timedelta(minutes=10)
    job = await declare(app, "async", raising(Retry(after=moment)), retry=SOON).aenqueue()
    await start()
    row = await books.in_state(job, "retrying")
    assert -1 <= (row["run_at"] - moment).total_seconds() <= 61


@pytest.mark.parametrize(
    "after",
    ["soon", "Mon, whenever", -1, object(), datetime(2026, 1, 1), float("nan"), "\ud800", "x" * 100_000],
    ids=lambda v: repr(v)[:20],
)
async def test_a_wish_that_cannot_be_read_is_noted_and_the_rule_decides(app: App, start: Start, books: Books, after: Any) -> None:
    job = await declare(app, "async", raising(Retry("busy", after=after)), retry=Fixed("10ms", attempts=2)).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["attempt"]) == ("exhausted", 2)
    (note,), (_,) = books.history(job, "note")
    assert note.startswith("its wish could not be read: ")
    assert len(note) <= 5_000


async def test_a_wish_above_a_day_is_cut_with_a_note(app: App, start: Start, books: Books) -> None:
    job = await declare(app, "async", raising(Retry(after="3d")), retry=SOON, deadline="9d").aenqueue()
    await start()
    row = await books.in_state(job, "retrying")
    assert 86_399 <= (row["run_at"] - row["started_at"]).total_seconds() <= 86_465
    assert books.history(job, "note") == [("asked to wait 3d; cut to 1d",)]


@pytest.mark.parametrize("kind", BOTH)
async def test_snooze_costs_no_attempt(app: App, start: Start, books: Books, kind: Kind) -> None:
    runs: list[int] = []

    def body() -> int:
        runs.append(1)
        if len(runs) <= 6:
            raise Snooze("5ms", "not yet")
        return len(runs)

    job = await declare(app, kind, body, retry=Fixed("10ms", attempts=1)).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["state"], end["result"], end["attempt"], end["failures"]) == ("succeeded", 7, 1, 0)
    assert books.history(job, "outcome", "attempt", "note") == [("snoozed", 1, "not yet")] * 6


async def test_snooze_is_scheduled(app: App, start: Start, books: Books) -> None:
    job = await declare(app, "async", raising(Snooze("1h", "closed"))).aenqueue()
    await start()
    row = await books.in_state(job, "scheduled")
    assert (row["attempt"], row["failures"], row["postponements"], row["claim_id"]) == (0, 0, 1, None)
    assert 3595 < (row["run_at"] - row["enqueued_at"]).total_seconds() < 3640


async def test_snooze_is_bounded_by_the_deadline(app: App, start: Start, books: Books) -> None:
    job = await declare(app, "async", raising(Snooze("1h", "closed")), deadline="30m").aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["failures"], end["error_type"]) == ("deadline", 0, "Snooze")
    assert end["message"] == "it asked to sleep past its deadline: closed"


@pytest.mark.parametrize("until", ["later", None, datetime(2026, 1, 1)], ids=repr)
async def test_a_snooze_that_cannot_be_read_is_a_failure(app: App, start: Start, books: Books, until: Any) -> None:
    job = await declare(app, "async", raising(Snooze(until)), retry=SOON).aenqueue()
    await start()
    assert (await books.ended(job))["reason"] == "exhausted"


async def test_a_throng_of_all_ends_is_booked_right(app: App, start: Start, books: Books) -> None:
    @app.task(name="mixed", retry=SOON)
    async def mixed(n: int) -> int:
        if n % 4 == 1:
            raise Reject("odd")
        if n % 4 == 2:
            raise ValueError(n)
        if n % 4 == 3:
            raise Snooze("1h")
        return n

    ids = list(await app.aenqueue_many(mixed.job(n) for n in range(80)))
    await start()
    for job in (job for at, job in enumerate(ids) if at % 4 != 3):
        await books.ended(job)
    reasons = {row["reason"]: row["n"] for row in books.rows("select reason, count(*) as n from quarantine group by reason")}
    assert reasons == {"rejected": 20, "exhausted": 20}
    assert [books.count("finished"), books.count("jobs", "state = 'scheduled'"), books.count("jobs")] == [20, 20, 20]
    assert books.count("attempts", "outcome = 'retrying'") == 40


async def test_the_first_delay_follows_the_rule(app: App, start: Start, books: Books) -> None:
    job = await declare(app, "async", raising(TimeoutError()), retry=Backoff("1h", cap="2h", jitter="none")).aenqueue()
    await start()
    row = await books.in_state(job, "retrying")
    assert 3599 < (row["run_at"] - row["started_at"]).total_seconds() < 3630
