"""What jobs keep survives the death of their process at every moment (case G13), judged by the rows in the database."""

import random
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from psycopg import Connection

from jobwell import App
from tests.crash import keeping_tasks
from tests.crash.conftest import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Fleet
from tests.crash.keeping_tasks import DURING
from tests.waiting import until

BEFORE = ["transaction: begun", "transaction: before the end", "transaction: before commit"]
AFTER = [DURING, "transaction: committed", "transaction: told"]
SAVES = ["save: before", "save: after"]
ALL = [
    *(("pay_on_loop", point) for point in BEFORE + AFTER), *(("pay_apart", point) for point in BEFORE + AFTER),
    *((task, point) for task in ("steps", "steps_apart", "batches") for point in SAVES),
]  # fmt: skip
COUNT, EVERY = 100, 25


@pytest.fixture
def tasks(app: App, fleet: Fleet, conn: "Connection[Any]") -> Iterator[dict[str, Any]]:
    """Of the application under test, bound to the test's own app; their table is empty."""
    app.include(keeping_tasks.tasks)
    conn.execute(f"drop table if exists {fleet.schema}.ledger")
    conn.execute(f"create table {fleet.schema}.ledger (job text, n integer, attempt integer)")
    yield {name: getattr(keeping_tasks, name) for name in {task for task, _ in ALL}}
    fleet.end()
    conn.execute(f"drop table if exists {fleet.schema}.ledger")


def repeats(fleet: Fleet, job: str) -> dict[int, int]:
    """How often each row was written."""
    return dict(fleet.rows(f"select n, count(*)::integer from {fleet.schema}.ledger where job = '{job}' group by n"))


def judge(fleet: Fleet, job: str, task: str, point: str) -> None:
    """What one job has left."""
    ((state, attempt),) = fleet.rows(f"select state, attempt from finished where args->>'job' = '{job}'")
    query = "select a.outcome, a.note, a.message from attempts a join finished f on f.id = a.job_id where f.args->>'job' = '{0}'"
    written, what = repeats(fleet, job), f"{job}: {task} at {point!r}: {fleet.rows(query.format(job))}"
    assert state == "succeeded", what
    assert fleet.one(f"select count(*) from {fleet.schema}.marks where job = '{job}' and what = 'dies'") == 1, what
    if task.startswith("pay"):
        assert written == {0: 1}, what
        assert attempt == (1 if point in AFTER else 2), what
    else:
        assert sorted(written) == list(range(COUNT)), what
        assert attempt == 2, what
        again = sum(times - 1 for times in written.values())
        assert again <= (0 if task == "batches" else EVERY), what


def crash_at(fleet: Fleet, tasks: dict[str, Any], chosen: list[tuple[str, str]]) -> None:
    """Each dies once; everything is done, and nothing of it twice that may happen once only."""
    fleet.start(slots=1, children=4)

    def enqueue(number: int) -> None:
        task, point = chosen[number]
        more = {} if task.startswith("pay") else {"count": COUNT, "every": EVERY}
        tasks[task].enqueue(job=str(number), point=point, **more)

    apart = [number for number, (task, _) in enumerate(chosen) if task.endswith("apart")]
    for number in apart:
        enqueue(number)
    until(lambda: fleet.finished() == len(apart), timeout=60 + 6 * len(apart), what="those in children have succeeded")
    for done, number in enumerate(
        sorted(set(range(len(chosen))) - set(apart)), 1
    ):  # one by one: each takes the whole worker along
        if done % 4 == 0:  # a fresh supervisor: one whose worker dies again and again takes its time to start the next
            fleet.end()
            fleet.start(slots=1, children=4)
        enqueue(number)
        until(lambda done=done: fleet.finished() == len(apart) + done, timeout=60, what=f"{chosen[number]} has succeeded")
    for number, (task, point) in enumerate(chosen):
        judge(fleet, str(number), task, point)
    assert fleet.one("select count(*) from jobs") == 0
    assert fleet.one("select count(*) from quarantine") == 0


@pytest.mark.timeout(240)
def test_a_process_that_dies_at_any_point_loses_and_repeats_nothing(fleet: Fleet, tasks: dict[str, Any]) -> None:
    """Eight moments, two of them in the worker's own process: to start another takes a second."""
    dice = random.Random(17)
    apart = [each for each in ALL if each[0].endswith("apart")]
    chosen = [*dice.sample([each for each in ALL if each not in apart], 2), *dice.sample(apart, 6)]
    crash_at(fleet, tasks, chosen)


@pytest.mark.long
@pytest.mark.timeout(1100)
def test_a_process_that_dies_at_any_point_fifty_times(fleet: Fleet, tasks: dict[str, Any]) -> None:
    dice = random.Random(18)
    crash_at(fleet, tasks, ALL + dice.choices(ALL, k=50 - len(ALL)))


def count(fleet: Fleet) -> int:
    """Steps that were done at least once."""
    return int(fleet.one(f"select count(distinct n) from {fleet.schema}.ledger"))


@pytest.mark.timeout(240)
def test_a_long_job_goes_on_after_two_shutdowns_a_kill_and_a_pause(fleet: Fleet, tasks: dict[str, Any]) -> None:
    """G13: 10,000 steps and a cursor each hundred."""
    job = tasks["steps"].enqueue(job="long", point="", count=10_000, every=100)
    for least in (1500, 3500):
        supervisor = fleet.start(slots=1, grace="20s")
        until(lambda least=least: count(fleet) >= least, 60)
        supervisor.send_signal(SIGTERM)
        assert supervisor.wait(30) == 0
        found = fleet.rows("select state, attempt, failures, crashes, losses from jobs")
        assert found == [("ready", 0, 0, 0, 0)], fleet.rows("select outcome, note, message from attempts order by ended_at")
        assert fleet.one("select (value->>'done')::integer from checkpoints") == count(fleet)
    assert max(repeats(fleet, "long").values()) == 1  # whoever is asked to go repeats nothing

    killed = fleet.start(slots=1)
    until(lambda: count(fleet) >= 5500, 60)
    (child,) = fleet.children(killed)
    child.send_signal(SIGKILL)
    until(lambda: count(fleet) >= 7500, 60, "it goes on, alone in a child process")
    again = sum(times - 1 for times in repeats(fleet, "long").values())
    assert again <= 100

    family = [psutil.Process(killed.pid), *psutil.Process(killed.pid).children(recursive=True)]
    for process in family:
        process.send_signal(SIGSTOP)
    fleet.start(slots=1)
    until(lambda: fleet.finished() == 1, 90, "another worker has taken it over and finished it")
    for process in family:  # the old attempt goes on, and tries to save: its job is gone
        process.send_signal(SIGCONT)
    until(lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family[2:]), 60)
    written = repeats(fleet, "long")
    assert sorted(written) == list(range(10_000))
    # A hundred for the kill, a hundred for the pause, and what the old attempt did before its next save was refused.
    assert sum(times - 1 for times in written.values()) <= 300
    assert fleet.rows(f"select state from finished where id = '{job.id}'") == [("succeeded",)]
    assert fleet.one("select coalesce(max((value->>'done')::integer), 10000) from checkpoints") == 10_000
