"""User code that stops everything in its process: threads, the loop, or even the interpreter (cases C1, C2 and A6)."""

import socket

from jobwell import App
from tests.crash import app_under_test as tasks
from tests.crash.conftest import LEASE, SIGSTOP, Fleet
from tests.crash.test_poison import put
from tests.waiting import until


def test_a_worker_that_is_stopped_from_outside_is_not_spoken_for(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    first = fleet.start(slots=5)
    shop.enqueue_many([tasks.nap.job(60, "n")])
    until(lambda: fleet.marks("start") == 1)
    (worker,) = fleet.children(first)
    worker.send_signal(SIGSTOP)
    fleet.start(slots=5)
    until(lambda: fleet.marks("start") == 2, timeout=10 * LEASE, what="another worker has taken it over")
    shop.close()
    assert fleet.one("select losses from jobs") == 1


def test_a_silent_worker_is_killed_in_the_end(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    fleet.start(slots=5, hang="10s")
    shop.enqueue_many([tasks.clutch.job(120, "c")])
    until(lambda: "given no sign of life" in fleet.log.read_text(), timeout=40)
    until(lambda: fleet.one("select crashes from jobs") == 1)
    shop.close()


def test_c2_a_loop_that_is_blocked_over_the_limit_is_left_behind(app: App, fleet: Fleet) -> None:
    """Case C2."""
    shop = put(app, fleet)
    fleet.start(slots=5)
    shop.enqueue_many([tasks.nap.job(4.0, str(n)) for n in range(3)])
    until(lambda: fleet.marks("start") == 3)
    shop.enqueue_many([tasks.spin.job("s")])
    found = until(lambda: fleet.rows("select task, reason, error_type, failures, crashes from quarantine"), timeout=30)
    assert found == [("spin", "exhausted", "TimeLimit", 1, 0)]
    until(lambda: fleet.finished() == 3, timeout=30, what="the neighbours finish in another process")
    shop.close()
    assert fleet.rows("select distinct failures, attempt from finished") == [(0, 1)]
    assert fleet.rows("select outcome, count(*) from attempts group by 1 order by 1") == [("failed", 1), ("released", 3)]
    assert "the event loop has stood still" in fleet.log.read_text()


def test_what_a_neighbour_has_done_on_its_thread_is_stored_when_the_loop_is_left(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    fleet.start(slots=5)
    shop.enqueue_many([tasks.letter.job("l")])
    until(lambda: fleet.marks("start") == 1)
    shop.enqueue_many([tasks.spin.job("s")])
    until(lambda: fleet.one("select count(*) from quarantine") == 1, timeout=30)
    until(lambda: fleet.finished() == 1, timeout=30)
    shop.close()
    assert fleet.marks("sent") == 1
    assert fleet.rows("select result::text, attempt from finished") == [('"sent"', 1)]


def test_a_loop_blocked_by_a_task_of_the_jobs_own_making_is_left_too(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    fleet.start(slots=5)
    shop.enqueue_many([tasks.spin_inside.job("s")])
    found = until(lambda: fleet.rows("select task, reason, error_type, crashes from quarantine"), timeout=30)
    assert found == [("spin_inside", "exhausted", "TimeLimit", 0)]
    shop.close()


def test_a_worker_that_loses_its_lease_leaves_no_suspects(app: App, fleet: Fleet) -> None:
    shop = put(app, fleet)
    fleet.start(slots=5)
    shop.enqueue_many([tasks.nap.job(60, "n"), tasks.nap.job(60, "m")])
    until(lambda: fleet.marks("start") == 2)
    fleet.conn.execute("begin")  # its row is locked for longer than a lease: it can neither renew nor take its leave
    fleet.conn.execute("select from workers for update")
    until(lambda: "the lease is lost" in fleet.log.read_text(), timeout=30)
    until(lambda: "ended with code 3" in fleet.log.read_text(), timeout=30)
    fleet.conn.execute("rollback")
    until(lambda: fleet.one("select count(*) from attempts where outcome = 'lost'") == 2, timeout=30)
    shop.close()
    assert fleet.one("select sum(crashes) from jobs") == 0


def test_c1_when_every_thread_is_stuck_the_process_is_replaced_and_the_rest_runs(app: App, fleet: Fleet) -> None:
    """Case C1: a silent peer, and as many that listen to it as there are slots."""
    shop = put(app, fleet)
    supervisor = fleet.start(slots=4)
    (first,) = fleet.children(supervisor)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        shop.enqueue_many([tasks.recv.job(silent.getsockname()[1], f"r{n}") for n in range(4)])
        until(lambda: fleet.marks("start") == 4, timeout=30)
        shop.enqueue_many([tasks.quiet.job(0.0, f"q{n}") for n in range(20)])
        until(lambda: fleet.finished() == 20, timeout=30, what="the quick ones run")
        until(lambda: not first.is_running(), timeout=30, what="the process with the stuck threads ends")
    shop.close()
    until(lambda: "ended with code 4" in fleet.log.read_text(), timeout=30)
    found = fleet.rows("select task, state, failures, crashes, losses from jobs")
    assert found == [("recv", "retrying", 1, 0, 0)] * 4
    assert fleet.rows("select distinct outcome, error_type from attempts where outcome <> 'succeeded'") == [
        ("retrying", "TimeLimit")
    ]
