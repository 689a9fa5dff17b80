"""Case G3: the process of a key's holder is killed; the key goes with the job, and not with the process."""

from jobwell import App, Dedup
from tests.crash import app_under_test as tasks
from tests.crash.conftest import SIGKILL, Fleet
from tests.waiting import until


def test_g3_a_killed_holder_keeps_its_key_until_its_job_is_over_and_no_longer(app: App, fleet: Fleet) -> None:
    """Case G3."""
    shop = tasks.app
    shop.override({"database_url": fleet.url, "schema": fleet.schema})
    nap, poison = tasks.nap.using(dedup=Dedup("job")), tasks.poison.using(dedup=Dedup("job"))
    supervisor = fleet.start(slots=5)
    holder = nap.enqueue(1.5, "n")
    until(lambda: fleet.marks("start") == 1)
    (worker,) = fleet.children(supervisor)
    supervisor.kill()
    worker.send_signal(SIGKILL)
    again = nap.enqueue(1.5, "n")
    assert (again.id, again.created) == (holder.id, False)  # it will run again
    fleet.start(slots=5)
    until(lambda: fleet.finished() == 1, timeout=40, what="the rescued one ends")
    assert fleet.marks("start") == 2
    deadly = poison.enqueue(0.1, "p")
    until(lambda: fleet.rows("select 1 from quarantine"), timeout=60, what="three crashes")
    assert fleet.one("select id from quarantine") == deadly.id
    assert nap.enqueue(60, "n").created
    assert poison.using(run_after="1h").enqueue(0.1, "p").created
    assert fleet.one("select count(*) from dedup_hits") == 1
    shop.close()
