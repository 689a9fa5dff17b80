"""Nothing is lost when processes die: cases A9 and A14, and what a supervisor sees."""

import random
import time
from typing import Any

import psutil
import pytest

from jobwell import App
from tests.crash.conftest import LEASE, SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Fleet
from tests.waiting import pause, until


@pytest.fixture
def nap(app: App) -> Any:
    """The task of the application under test, bound to the test's own app."""

    @app.task(name="nap")
    async def nap(seconds: float, job: str) -> str:
        return job

    return nap


def test_a_child_killed_under_its_supervisor_gives_its_jobs_back_at_once(fleet: Fleet, nap: Any) -> None:
    supervisor = fleet.start(processes=2, lease="30s")
    job = nap.enqueue(1.0, "a")
    until(lambda: fleet.marks("start") == 1)
    pid = fleet.one(f"select pid from {fleet.schema}.marks")
    began = time.monotonic()
    psutil.Process(pid).send_signal(SIGKILL)
    until(lambda: fleet.marks("start") == 2, timeout=15, what="the job runs again")
    assert time.monotonic() - began < 15  # far below the lease of 30
    until(lambda: fleet.finished() == 1)
    assert fleet.rows(f"select outcome, attempt from attempts where job_id = '{job.id}' order by ended_at") == [
        ("crashed", 1),
        ("succeeded", 2),
    ]
    until(lambda: len(fleet.children(supervisor)) == 2, what="the supervisor starts another")
    until(lambda: fleet.live() == 2)


def test_a_running_worker_rescues_what_a_vanished_host_leaves(fleet: Fleet, nap: Any) -> None:
    """A14: the rescuer was there before, and nothing is started afterwards."""
    doomed = fleet.start(slots=1)
    nap.enqueue(6, "a")
    until(lambda: fleet.marks("start") == 1)
    fleet.start()
    children = fleet.children(doomed)
    doomed.kill()  # first the supervisor: so nobody sees the child die, and only the lease tells
    for child in children:
        child.kill()
    until(lambda: fleet.marks("start") == 2, timeout=2 * LEASE + 5, what="rescued within two leases (and the time of a start)")
    until(lambda: fleet.finished() == 1)
    assert fleet.rows("select outcome, note from attempts order by ended_at")[0] == ("lost", "its worker vanished")
    assert fleet.one("select losses from jobs") is None


def test_children_end_when_their_supervisor_is_killed(fleet: Fleet, nap: Any) -> None:
    supervisor = fleet.start(processes=2)
    children = fleet.children(supervisor)
    assert len(children) == 2
    nap.enqueue(0.5, "a")
    until(lambda: fleet.marks("start") == 1)
    supervisor.kill()
    gone, alive = psutil.wait_procs(children, timeout=15)
    assert len(gone) == 2
    assert not alive
    assert fleet.finished() == 1  # drained, not cut off
    assert fleet.one("select count(*) from workers") == 0


def test_sigterm_hands_back_without_an_attempt_and_exits_zero_within_the_grace(fleet: Fleet, nap: Any) -> None:
    supervisor = fleet.start(slots=2)
    nap.enqueue(0.3, "short")
    long = nap.enqueue(60, "long")
    nap.enqueue(0.1, "behind")
    until(lambda: fleet.marks("start") >= 2)
    began = time.monotonic()
    supervisor.send_signal(SIGTERM)
    assert supervisor.wait(15) == 0
    assert time.monotonic() - began < 2 + 2 + 3  # the grace, two seconds, and a slow machine
    state = fleet.rows(f"select state, attempt, failures, losses, postponements from jobs where id = '{long.id}'")
    assert state == [("ready", 0, 0, 0, 1)]
    assert fleet.rows(f"select outcome, note from attempts where job_id = '{long.id}'") == [("released", "shutdown")]
    assert fleet.one("select count(*) from finished where result::text = '\"short\"'") == 1


def test_the_second_signal_ends_the_grace(fleet: Fleet, nap: Any) -> None:
    supervisor = fleet.start(grace="60s")
    nap.enqueue(50, "a")
    until(lambda: fleet.marks("start") == 1)
    supervisor.send_signal(SIGTERM)
    until(lambda: fleet.one("select count(*) from workers where state = 'draining'") == 1)
    pause(1.2)  # what comes within a second is the same wish
    supervisor.send_signal(SIGTERM)
    assert supervisor.wait(15) == 0
    assert fleet.rows("select state, attempt from jobs") == [("ready", 0)]


def test_a_stalled_worker_that_wakes_up_changes_nothing(fleet: Fleet, nap: Any) -> None:
    stalled = fleet.start(slots=1)
    job = nap.enqueue(0.8, "a")
    until(lambda: fleet.marks("start") == 1)
    (child,) = fleet.children(stalled)
    child.send_signal(SIGSTOP)
    fleet.start()
    until(lambda: fleet.finished() == 1, timeout=4 * LEASE + 10, what="another worker has rescued and finished it")
    child.send_signal(SIGCONT)
    psutil.wait_procs([child], timeout=15)  # it finds itself dead, and ends
    assert not child.is_running()
    assert fleet.rows(f"select state, attempt from finished where id = '{job.id}'") == [("succeeded", 2)]
    assert fleet.one("select count(*) from jobs") == 0
    assert [row[0] for row in fleet.rows("select outcome from attempts order by ended_at")] == ["lost", "succeeded"]


def random_kills(fleet: Fleet, nap: Any, *, jobs: int, seconds: float, every: float) -> None:
    """A9: all end succeeded, each further run is on record with its cause, and comes within two leases."""
    supervisors = [fleet.start(slots=4) for _ in range(3)]
    for number in range(jobs):
        nap.enqueue(seconds, str(number))
    dice = random.Random(9)
    next_kill = time.monotonic() + every
    killed = 0

    def step() -> bool:
        nonlocal next_kill, killed
        if time.monotonic() > next_kill and fleet.finished() < jobs * 0.8:
            victim = dice.choice(supervisors)
            for child in fleet.children(victim)[:1]:
                child.kill()
                killed += 1
            next_kill = time.monotonic() + every
        return fleet.finished() == jobs

    until(step, timeout=60 + jobs * seconds, what="all jobs have succeeded")
    assert killed >= 2
    assert fleet.one("select count(*) from quarantine") == 0
    assert fleet.one("select count(distinct id) from finished") == jobs
    lost = fleet.one("select count(*) from attempts where outcome in ('lost', 'crashed')")
    assert lost >= 1
    # A start without an end is a kill; a job that was lost before its first mark has none.
    assert fleet.marks("start") <= jobs + lost
    gaps = fleet.rows(
        f"""select extract(epoch from min(m.at) - a.ended_at) from attempts a join finished f on f.id = a.job_id
            join {fleet.schema}.marks m on m.job = f.args->>'job' and m.what = 'start' and m.at > a.ended_at
            where a.outcome in ('lost', 'crashed') group by a.job_id, a.ended_at"""
    )
    assert all(gap < 2 * LEASE + 10 for (gap,) in gaps)


def test_random_kills_lose_nothing(fleet: Fleet, nap: Any) -> None:
    random_kills(fleet, nap, jobs=60, seconds=0.3, every=0.7)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_random_kills_lose_nothing_at_full_length(fleet: Fleet, nap: Any) -> None:
    random_kills(fleet, nap, jobs=200, seconds=1.0, every=3.0)


def test_a_signal_to_the_whole_group_is_one_wish_and_keeps_the_grace(fleet: Fleet, nap: Any) -> None:
    """An orchestrator signals supervisor and workers, and the supervisor passes its own on."""
    supervisor = fleet.start(grace="10s")
    nap.enqueue(2.0, "a")
    until(lambda: fleet.marks("start") == 1)
    for process in [*fleet.children(supervisor), psutil.Process(supervisor.pid)]:
        process.send_signal(SIGTERM)
    assert supervisor.wait(20) == 0
    assert fleet.finished() == 1
