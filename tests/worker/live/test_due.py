"""Jobs for later: not before, exactly once, also over a restart (A1)."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobwell import App
from tests.waiting import auntil
from tests.worker.live.helpers import Books, Start


@pytest.fixture
def ran() -> Counter[int]:
    return Counter()


@pytest.fixture
def note(app: App, ran: Counter[int]) -> Any:
    @app.task(name="note")
    async def note(n: int) -> None:
        ran[n] += 1

    return note


@pytest.mark.parametrize("moment", [False, True])
async def test_a_job_is_untouched_until_it_is_due(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int], moment: bool
) -> None:
    await start()
    when = datetime.now(UTC) + timedelta(seconds=1.5) if moment else 1.5
    job = await note.using(run_after=when).aenqueue(1)
    states = set()

    def ended() -> Any:
        row = books.live(job)
        if row is not None:
            states.add((row["state"], row["attempt"], row["started_at"] is None))
        return books.end(job)

    end = await auntil(ended)
    assert ("scheduled", 0, True) in states
    assert {attempt for state, attempt, _ in states if state in {"scheduled", "ready"}} == {0}
    assert (end["attempt"], end["failures"], ran) == (1, 0, Counter({1: 1}))
    assert end["started_at"] >= end["run_at"]
    assert 1.4 < (end["run_at"] - end["enqueued_at"]).total_seconds() < 1.6
    assert (end["started_at"] - end["run_at"]).total_seconds() < 5


async def test_two_hundred_run_exactly_once_over_a_restart(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int]
) -> None:
    first = await start()
    await app.aenqueue_many(note.using(run_after=0.5 + 0.01 * n).job(n) for n in range(200))
    await auntil(lambda: len(ran) >= 60)
    assert await first.stop() == 0
    assert len(ran) < 200
    assert books.count("workers") == 0
    await start()
    await books.empty()
    assert ran == Counter(range(200))
    assert books.count("finished", "attempt = 1 and started_at >= run_at") == 200


async def test_what_came_due_while_no_worker_lived_runs_at_the_next_start(
    start: Start, books: Books, note: Any, ran: Counter[int]
) -> None:
    job = await note.using(run_after="1h").aenqueue(1)
    books.conn.execute("update jobs set run_at = now() - interval '1 hour'")
    assert books.live(job)["state"] == "scheduled"  # type: ignore[index]
    await start()
    assert (await books.ended(job))["attempt"] == 1
    assert ran == Counter({1: 1})
