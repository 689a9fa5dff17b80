"""Processes that die in the middle of a step: before it is written down, before the call, after it, and when it is written."""

from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

import pytest

from jobwell import App
from jobwell.actions import steps as actions
from tests.crash import app_under_test as tasks
from tests.crash.conftest import Fleet
from tests.crash.test_poison import put
from tests.waiting import until

POINTS = ("begin", "begun", "called", "done")
STEPS = ["s0", "s1", "s2"]
HOW = ("repeat", "hold", "check")


def plan(seed: int) -> tuple[Any, str, list[str]]:
    """The task, what becomes of a step whose outcome is unknown, and where the first attempts die: twice, since three are a crash."""
    random = Random(seed)
    deaths = [f"{random.choice(STEPS)} {random.choice(POINTS)}" for _ in range(2)]
    return random.choice((tasks.stepped, tasks.stepped_plain)), HOW[seed % 3], deaths


def settle(app: App, fleet: Fleet) -> bool:
    """As a careful person: look in the outside system, and say what is true. True: all jobs are done."""
    for job, name in fleet.rows(
        "select s.job_id, s.name from steps s join quarantine q on q.id = s.job_id where s.state = 'started' and q.reason = 'held'"
    ):
        truth = effects(fleet, job)[name] > 0
        actions.answer(app.database, job, name, happened=truth, by="olga", why="looked", result=f'"{name}"' if truth else None)
    return not fleet.one("select count(*) from jobs") and not fleet.one("select count(*) from quarantine where reason = 'held'")


def effects(fleet: Fleet, job: UUID) -> "Counter[str]":
    """What has happened outside for one job, by its steps."""
    found = fleet.rows(
        f"select substr(m.what, 8) from {fleet.schema}.marks m where m.what like 'effect %'"
        f" and m.job = (select a.args ->> 'job' from (select args, id from jobs union all select args, id from finished"
        f" union all select args, id from quarantine) a where a.id = '{job}')"
    )
    return Counter(name for (name,) in found)


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 58), marks=[pytest.mark.long, pytest.mark.timeout(900)])], ids=["8", "50"]
)
def test_no_step_is_repeated_blindly_wherever_its_process_dies(app: App, fleet: Fleet, seeds: range) -> None:
    shop = put(app, fleet)
    fleet.start(slots=4, children=4)
    plans = {seed: plan(seed) for seed in seeds}
    jobs = {
        seed: task.enqueue(job=f"j{seed}", unknown=how, deaths=deaths).id for seed, (task, how, deaths) in plans.items()
    }  # fmt: skip
    until(lambda: settle(shop, fleet), timeout=90 if len(plans) < 20 else 600, what="every job is done")
    shop.close()
    assert fleet.one("select sum(crashes) from quarantine") is None
    died = 0
    for seed, (task, how, deaths) in plans.items():
        told = f"seed {seed}: {task.name} {how} {deaths}"
        state, result = fleet.rows(f"select state, result::jsonb from finished where id = '{jobs[seed]}'")[0]
        assert (state, result) == ("succeeded", STEPS), told
        done = effects(fleet, jobs[seed])
        assert set(done) == set(STEPS), told
        if how != "repeat":
            assert set(done.values()) == {1}, told
        rows = fleet.rows(f"select name, state from steps where job_id = '{jobs[seed]}' order by seq")
        assert rows == [(name, "done") for name in STEPS], told
        died += fleet.one(f"select count(*) from attempts where job_id = '{jobs[seed]}' and outcome = 'crashed'")
    assert died >= len(plans)  # they did die


@pytest.mark.parametrize(
    "point", ["called", *(pytest.param(point, marks=pytest.mark.long) for point in ("begin", "begun", "done"))]
)
def test_a_worker_that_dies_in_a_step_of_its_own(app: App, fleet: Fleet, point: str) -> None:
    """Case G13 for steps: what was done before is not done again."""
    shop = put(app, fleet)
    fleet.start(slots=4)
    job = tasks.stepped_inside.enqueue(job="inside", unknown="hold", deaths=[f"s1 {point}"])
    until(lambda: settle(shop, fleet), timeout=60, what="the job is done")
    shop.close()
    assert effects(fleet, job.id) == Counter(STEPS)
    held = fleet.one("select count(*) from attempts where note = 'held'")
    assert held == (point in ("begun", "called"))
    assert fleet.one("select count(*) from attempts where outcome = 'crashed'") == 1
