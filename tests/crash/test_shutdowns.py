"""Case B1: SIGTERM in the middle of jobs of every kind, and what the next worker finds."""

import time

import pytest

from jobwell import App
from tests.crash import app_under_test as tasks
from tests.crash.conftest import SIGTERM, Fleet
from tests.crash.test_poison import put
from tests.waiting import until

SLOW = 2.0  # seconds that a busy machine may take for what is nothing on another


def shutdown(app: App, fleet: Fleet, *, grace: float, short: float) -> None:
    shop = put(app, fleet)
    supervisor = fleet.start(slots=10, grace=f"{grace}s", lease="20s")
    kinds = (tasks.nap, tasks.plain, tasks.shielded)
    shop.enqueue_many([task.job(60, f"long {task.name}") for task in kinds])
    until(lambda: fleet.marks("start") == 3, timeout=40)
    shop.enqueue_many([task.job(short, f"short {task.name}") for task in kinds])
    until(lambda: fleet.marks("start") == 6, timeout=40)
    began = time.monotonic()
    supervisor.send_signal(SIGTERM)
    until(lambda: fleet.one("select count(*) from workers where state = 'draining'") == 1)
    told = time.monotonic() - began
    late = [tasks.nap.enqueue(0.01, f"late {n}") for n in range(20)]
    assert supervisor.wait(grace + 30) == 0
    took = time.monotonic() - began
    assert grace <= took < grace + 2 + SLOW
    assert told < 0.1 + SLOW
    assert fleet.finished() == 3, "the short ones have ended within the grace"
    assert fleet.one(f"select count(*) from {fleet.schema}.marks where job like 'late%'") == 0, (
        "nothing was claimed after the signal"
    )
    rows = fleet.rows(
        "select task, state, attempt, failures, crashes, losses, postponements from jobs where args->>'job' like 'long%' order by task"
    )
    assert rows == [(task, "ready", 0, 0, 0, 0, 1) for task in ("nap", "plain", "shielded")]
    assert fleet.rows("select distinct outcome, note from attempts where outcome <> 'succeeded'") == [("released", "shutdown")]
    fleet.start(slots=30, lease="20s")
    until(lambda: fleet.marks("start") == 6 + 3 + len(late), timeout=30, what="another worker starts them at once")
    shop.close()


def test_a_signal_in_the_middle_of_jobs_of_every_kind(app: App, fleet: Fleet) -> None:
    shutdown(app, fleet, grace=3.0, short=1.0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_signal_in_the_middle_of_jobs_at_full_length(app: App, fleet: Fleet) -> None:
    shutdown(app, fleet, grace=5.0, short=1.0)
