"""What follows is released in the commit that ends a job, so nothing of it is lost with a worker."""

import random

from jobwell import App
from tests.crash.conftest import SIGKILL, Fleet
from tests.waiting import pause, until


def test_workers_killed_while_200_jobs_end_release_each_follower_once(app: App, fleet: Fleet) -> None:
    """Each follower is released once, however often its worker and that of the job before it die."""

    @app.task(name="nap")
    async def nap(seconds: float, job: str) -> str:
        return job

    chance = random.Random(3)
    firsts = [nap.enqueue(0.02, f"a{n}") for n in range(200)]
    for n, first in enumerate(firsts):
        first.then(nap, 0.0, f"b{n}")
    group = nap.after(*firsts).enqueue(0.0, "all")
    doomed = fleet.start(slots=20, lease="3s")
    for _ in range(3):
        until(lambda: fleet.marks("start") >= 20)
        pause(chance.uniform(0.05, 0.3))
        children = fleet.children(doomed)
        doomed.kill()
        for child in children:
            child.send_signal(SIGKILL)
        doomed = fleet.start(slots=20, lease="3s")
    until(lambda: fleet.finished() == 401, timeout=60)
    assert group.status() == "succeeded"
    assert fleet.rows("select count(*), count(distinct id) from finished") == [(401, 401)]
    assert fleet.rows("select count(*) from waits") == fleet.rows("select count(*) from unsettled") == [(0,)]
    early = (
        "select count(*) from follows l join finished a on a.id = l.after join finished b on b.id = l.job"
        " where b.started_at < a.finished_at"
    )
    assert fleet.rows(early) == [(0,)]
    assert fleet.rows("select count(*) from follows where state = 'succeeded'") == [(400,)]
