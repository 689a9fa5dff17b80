"""Who has a job, and who has lost it: cases A2, A3, A6, A8, A17 and A20 with real processes."""

import subprocess
import time

import psutil
import pytest

from jobwell import App
from tests.crash import app_under_test as tasks
from tests.crash.conftest import SIGCONT, SIGKILL, SIGSTOP, Fleet
from tests.crash.test_poison import put
from tests.waiting import until

SLOW = 2.0  # seconds that a busy machine may take for what is nothing on another


def vanish(fleet: Fleet, supervisor: "subprocess.Popen[bytes]") -> float:
    """As if a host were gone: nobody is left who sees the worker die. Returns when, by the monotonic clock."""
    children = fleet.children(supervisor)
    supervisor.kill()
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=10)
    supervisor.wait(10)
    return time.monotonic()


def zombie(app: App, fleet: Fleet, *, lease: float, seconds: float, more: int) -> None:
    shop = put(app, fleet)
    stalled, _ = fleet.several(2, slots=1, lease=f"{lease}s")
    held = tasks.one_at_a_time.using(priority=90).enqueue(seconds, "held", key="k")
    until(lambda: fleet.marks("start") == 1)
    pid = fleet.one(f"select pid from {fleet.schema}.marks")
    first = psutil.Process(pid)
    first.send_signal(SIGSTOP)
    until(lambda: fleet.marks("start") == 2, timeout=3 * lease + 20, what="another worker has it")
    now = fleet.one("select claim_id from jobs")
    first.send_signal(SIGCONT)
    shop.enqueue_many([tasks.one_at_a_time.job(0.02, str(n), key="k") for n in range(more)])
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, fleet.one("select count(*) from jobs where state = 'running' and lock_key <> ''"))
        return fleet.finished() == 1 + more

    until(done, timeout=seconds + more + 20)
    shop.close()
    assert most == 1
    assert fleet.rows(f"select state, attempt from finished where id = '{held.id}'") == [("succeeded", 2)]
    found = fleet.rows(f"select outcome, claim_id = '{now}' from attempts where job_id = '{held.id}' order by ended_at")
    assert found == [("lost", False), ("succeeded", True)]
    log = fleet.log.read_text()
    assert "ownership lost" in log or "the lease is lost" in log
    until(lambda: not first.is_running(), what="it has found itself dead, and ended")
    assert stalled.poll() is None
    overlap = f"""select count(*) from {fleet.schema}.marks s join {fleet.schema}.marks e on e.job = s.job and e.what = 'end'
        join {fleet.schema}.marks o on o.what = 'start' and o.at > s.at and o.at < e.at and o.job <> s.job
        where s.what = 'start' and s.job <> 'held'"""
    assert fleet.one(overlap) == 0, "no two of the key have run at once"


def test_a_worker_declared_dead_while_it_stood_still_changes_nothing_and_its_lock_counts_once(app: App, fleet: Fleet) -> None:
    """Case A2."""
    zombie(app, fleet, lease=2.0, seconds=1.5, more=50)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_declared_dead_while_it_stood_still_at_full_length(app: App, fleet: Fleet) -> None:
    """Case A2."""
    zombie(app, fleet, lease=5.0, seconds=12.0, more=50)


@pytest.mark.parametrize("then", ["its row is deleted", "another takes its name"])
def test_an_orphan_is_found_whatever_becomes_of_its_workers_row(app: App, fleet: Fleet, then: str) -> None:
    """Case A3: what counts is a fresh id for each start, and no name."""
    lease = 2.0
    shop = put(app, fleet)
    doomed = fleet.start(slots=1, lease=f"{lease}s")
    job = tasks.nap.enqueue(60, "a")
    until(lambda: fleet.marks("start") == 1)
    ((name, host, pid),) = fleet.rows("select name, host, pid from workers")
    fleet.start(lease=f"{lease}s")
    gone = vanish(fleet, doomed)
    if then == "its row is deleted":
        fleet.conn.execute("delete from workers where name = %s", [name])
    else:
        taken = "update workers set name = %s, host = %s, pid = %s where id <> (select worker from jobs)"
        fleet.conn.execute(taken, [name, host, pid])
    until(lambda: fleet.marks("start") == 2, timeout=20)
    assert time.monotonic() - gone < 2 * lease + SLOW
    shop.close()
    assert fleet.rows(f"select outcome from attempts where job_id = '{job.id}'") == [("lost",)]
    if then != "its row is deleted":
        assert fleet.rows("select name, state from workers order by state") == [(name, "dead"), (name, "live")]


def liveness(app: App, fleet: Fleet, *, lease: float, seconds: float) -> None:
    shop = put(app, fleet)
    doomed = fleet.start(slots=1, lease=f"{lease}s")
    tasks.nap.enqueue(1000, "dead")
    until(lambda: fleet.marks("start") == 1)
    fleet.several(2, slots=5, lease=f"{lease}s")
    shop.enqueue_many([task.job(seconds, task.name) for task in (tasks.nap, tasks.plain, tasks.shielded)])
    until(lambda: fleet.marks("start") == 4)
    gone = vanish(fleet, doomed)
    until(lambda: fleet.marks("start") >= 5, timeout=20, what="what the dead one had runs again")
    assert time.monotonic() - gone < 2 * lease + SLOW
    until(lambda: fleet.finished() == 3, timeout=seconds + 20)
    shop.close()
    # What the dead one had is one job, or two: beside its slot it has children.
    lost = fleet.rows("select worker from attempts where outcome = 'lost'")
    assert len(set(lost)) == 1
    assert fleet.marks("start") == 4 + len(lost), "the others ran once, without any setting of their own"
    assert fleet.rows("select outcome from attempts where outcome not in ('succeeded', 'lost')") == []


def test_a_healthy_job_outlives_any_lease_and_a_dead_workers_is_taken_back_soon(app: App, fleet: Fleet) -> None:
    """Case A8: liveness decides, and not age."""
    liveness(app, fleet, lease=3.0, seconds=7.0)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("lease", "seconds"), [(5.0, 60.0), (2.0, 240.0)])
def test_a_healthy_job_outlives_any_lease_at_full_length(app: App, fleet: Fleet, lease: float, seconds: float) -> None:
    """Case A8."""
    liveness(app, fleet, lease=lease, seconds=seconds)


def blocked(app: App, fleet: Fleet, *, lease: float, seconds: float) -> None:
    shop = put(app, fleet)
    fleet.several(3, slots=1, lease=f"{lease}s")
    shop.enqueue_many([task.job(seconds, task.name) for task in (tasks.doze, tasks.compute, tasks.clutch)])
    until(lambda: fleet.marks("start") == 3)
    until(lambda: fleet.finished() == 3, timeout=2 * seconds + 20)
    shop.close()
    assert fleet.marks("start") == 3
    assert fleet.one("select count(*) from attempts where outcome <> 'succeeded'") == 0
    assert "by one of: doze" in fleet.log.read_text()


def test_code_that_blocks_loop_thread_or_interpreter_runs_once(app: App, fleet: Fleet) -> None:
    """Case A6: signs of life come from outside user code; the warning names the job."""
    blocked(app, fleet, lease=3.0, seconds=7.0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_code_that_blocks_at_full_length(app: App, fleet: Fleet) -> None:
    """Case A6."""
    blocked(app, fleet, lease=5.0, seconds=20.0)


@pytest.mark.parametrize("gone", ["the worker", "the host"])
def test_what_the_task_says_of_a_lost_worker_is_done(app: App, fleet: Fleet, gone: str) -> None:
    """Case A20: one type is tried again by itself, the other waits for a person."""
    shop = put(app, fleet)
    doomed = fleet.start(slots=5, lease="2s")
    tasks.nap.enqueue(60, "n")
    tasks.pay.enqueue(60, "p")
    until(lambda: fleet.marks("start") == 2)
    if gone == "the host":
        fleet.start(slots=5, lease="2s")
        vanish(fleet, doomed)
    else:
        (child,) = fleet.children(doomed)
        child.send_signal(SIGKILL)
    reason = "lost" if gone == "the host" else "crashed"
    assert until(lambda: fleet.rows("select task, reason, attempt from quarantine"), timeout=30) == [("pay", reason, 1)]
    until(lambda: fleet.marks("start") == 3, timeout=30)
    shop.close()
    assert fleet.rows("select task, state, attempt, failures from jobs") == [("nap", "running", 2, 0)]
