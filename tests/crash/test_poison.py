"""A job that kills the whole worker: it is found, and its neighbours finish."""

import os
import signal
from typing import Any

import pytest

from jobwell import App
from tests.crash import app_under_test as tasks
from tests.crash.conftest import SIGKILL, Fleet
from tests.waiting import until


def put(app: App, fleet: Fleet) -> App:
    tasks.app.override({"database_url": fleet.url, "schema": fleet.schema})
    return tasks.app


def test_a5_neighbours_of_a_poison_job_finish_and_only_it_is_quarantined(app: App, fleet: Fleet) -> None:
    """Case A5."""
    shop = put(app, fleet)
    fleet.start(slots=20)
    neighbours = [str(n) for n in range(9)]
    shop.enqueue_many([*(tasks.nap.job(1.0, n) for n in neighbours), tasks.poison.job(0.4, "p")])
    until(lambda: fleet.finished() == 9, timeout=40, what="the neighbours finish")
    found = until(lambda: fleet.rows("select task, reason, crashes, losses, message from quarantine"), timeout=60)
    shop.close()
    ((task, reason, crashes, losses, message),) = found
    assert (task, reason, crashes, losses) == ("poison", "crashed", 3, 0)
    assert os.uname().nodename in message
    assert fleet.one("select max(failures) from finished") == 0
    # The worker died once. Afterwards every suspect ran alone, so poison killed only its own children.
    assert (
        fleet.one("select count(distinct worker) from attempts where outcome = 'crashed' and note like '%worker''s process%'")
        == 1
    )
    assert fleet.one("select count(*) from attempts where outcome = 'crashed' and note not like '%worker''s process%'") == 2


def test_what_ran_in_a_child_is_no_suspect_when_the_worker_is_killed(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    supervisor = fleet.start(slots=5)
    shop.enqueue_many([tasks.shielded.job(4, "s"), tasks.nap.job(4, "n")])
    until(lambda: fleet.marks("start") == 2)
    (worker,) = fleet.children(supervisor)
    family = worker.children(recursive=True)
    worker.send_signal(SIGKILL)
    until(lambda: fleet.finished() == 2, timeout=40)
    shop.close()
    outcomes: dict[str, Any] = dict(
        fleet.rows("select f.task, a.outcome from attempts a join finished f on f.id = a.job_id where a.outcome <> 'succeeded'")
    )
    assert outcomes == {"shielded": "lost", "nap": "crashed"}
    until(lambda: not [each for each in family if each.is_running() and each.status() != "zombie"], what="its children are gone")


def test_a_child_in_the_middle_of_a_job_does_not_outlive_its_worker(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    supervisor = fleet.start(slots=5)
    shop.enqueue_many([tasks.shielded.job(60, "s"), tasks.shielded.job(60, "t")])
    until(lambda: fleet.marks("start") == 2)
    shop.close()
    (worker,) = fleet.children(supervisor)
    family = worker.children(recursive=True)
    worker.send_signal(SIGKILL)
    until(lambda: not [each for each in family if each.is_running() and each.status() != "zombie"], what="its children are gone")


def test_a_worker_that_ends_by_itself_leaves_no_suspects(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    supervisor = fleet.start(slots=5)
    shop.enqueue_many([tasks.nap.job(30, "n")])
    until(lambda: fleet.marks("start") == 1)
    (worker,) = fleet.children(supervisor)
    worker.send_signal(signal.SIGTERM)
    until(lambda: fleet.one("select count(*) from attempts where outcome = 'released'") == 1, timeout=20)
    shop.close()
    assert fleet.one("select sum(crashes + losses) from jobs") == 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a4_every_way_to_die_ends_after_three_crashes_and_the_rest_is_done(app: App, fleet: Fleet) -> None:
    """Case A4 in the workers' own processes, which their supervisors start again."""
    shop = put(app, fleet)
    fleet.several(2, slots=5)
    ways = {"exit": "code 1", "kill": "SIGKILL", "null": "SIGSEGV"}
    shop.enqueue_many([tasks.deadly.job(how, how) for how in ways] + [tasks.nap.job(0.01, str(n)) for n in range(100)])
    until(lambda: fleet.finished() == 100, timeout=200)
    until(lambda: fleet.one("select count(*) from quarantine") == 3, timeout=200)
    shop.close()
    for how, crashes, failures, reason, message in fleet.rows(
        "select args->>'how', crashes, failures, reason, message from quarantine"
    ):
        assert (crashes, failures, reason) == (3, 0, "crashed")
        assert ways[how] in message
        assert os.uname().nodename in message


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a5_three_rounds_with_long_neighbours(app: App, fleet: Fleet) -> None:
    """Case A5 at full length."""
    shop = put(app, fleet)
    fleet.start(slots=10)
    for number in range(1, 4):
        shop.enqueue_many([*(tasks.nap.job(5.0, f"{number} {n}") for n in range(9)), tasks.poison.job(2.0, f"p{number}")])
        until(lambda number=number: fleet.finished() == 9 * number, timeout=80)  # type: ignore[misc]
        until(lambda number=number: fleet.one("select count(*) from quarantine") == number, timeout=80)  # type: ignore[misc]
    shop.close()
    assert fleet.rows("select distinct task, reason, crashes from quarantine") == [("poison", "crashed", 3)]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_c7_one_death_among_children_at_full_length(app: App, fleet: Fleet) -> None:
    """Case C7: three long ones beside the one that dies, and 200 behind them."""
    shop = put(app, fleet)
    fleet.start(slots=10, children=4)
    slow = [tasks.shielded.job(3.0, f"slow {n}") for n in range(3)]
    shop.enqueue_many([*slow, tasks.deadly_apart.job("d"), *(tasks.shielded.job(0.0, str(n)) for n in range(200))])
    until(lambda: fleet.finished() == 203, timeout=120)
    found = until(lambda: fleet.rows("select task, reason, crashes from quarantine"), timeout=60)
    shop.close()
    assert found == [("deadly_apart", "crashed", 3)]
    assert fleet.marks("start") == 203 + 3, "nobody else ran twice"
