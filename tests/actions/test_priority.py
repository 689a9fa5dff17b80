"""Another priority for jobs that wait: named or by what they have in common, audited, and never for what runs."""

import threading
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App, DeclarationError, NotFound
from jobwell.actions import jobs as actions
from jobwell.client.task import Task
from jobwell.core.errors import InvalidArguments
from jobwell.core.filters import Selection
from jobwell.core.ids import new_id
from jobwell.store import control
from jobwell.store.statements import run
from tests.waiting import until

Conn = Connection[Any]


@pytest.fixture
def item(app: App) -> Task[[int], None]:
    @app.task(name="item", tenant="n")
    def item(n: int) -> None: ...

    return item


def ranks(conn: Conn) -> dict[str, int]:
    """Rank by tenant."""
    return dict(conn.execute("select tenant, rank from jobs").fetchall())


def test_named_jobs_that_wait_get_it_and_the_others_are_told_why_not(app: App, item: Task[..., None], conn: Conn) -> None:
    ready, late, runs, gone, nobody = *(item.enqueue(n).id for n in range(4)), new_id()
    conn.execute("update jobs set state = 'scheduled', ready_at = null where id = %s", [late])
    conn.execute("update jobs set state = 'running', worker = %s, claim_id = %s where id = %s", [new_id(), new_id(), runs])
    actions.named(app.database, "jobs.cancel", [gone], by="olga")
    done = actions.named(app.database, "jobs.priority", [ready, late, runs, gone, nobody], by="olga", why="urgent", to=50)
    assert done.touched == 2
    assert {job: reason.split(",")[0].split(":")[0] for job, reason in done.refused.items()} == {
        runs: "it is running", gone: "it is cancelled already", nobody: "there is no such job",
    }  # fmt: skip
    assert ranks(conn) == {"0": 50, "1": 50, "2": 100}
    (row,) = conn.execute("select actor, detail from audit where action = 'jobs.priority'").fetchall()
    assert (row[0], row[1]["to"], row[1]["why"], len(row[1]["ids"])) == ("olga", 50, "urgent", 2)
    assert actions.named(app.database, "jobs.priority", [ready], by="olga", to=50).touched == 1  # it has it: nothing to refuse


def test_many_by_a_filter_are_previewed_and_exactly_those_are_changed(app: App, item: Task[..., None], conn: Conn) -> None:
    app.enqueue_many(item.job(n) for n in range(1200))
    app.enqueue_many(item.using(run_after="1h", tenant="late").job(n) for n in range(3))
    conn.execute("update jobs set state = 'running', worker = %s, claim_id = gen_random_uuid() where tenant = '7'", [new_id()])
    total, bound = actions.preview(app.database, "jobs.priority", Selection(task="item"))
    assert total == 1202
    item.using(tenant="after").enqueue(1)
    done = actions.many(app.database, "jobs.priority", bound, total=total, by="olga", why="soon", to=-100)
    assert (done.touched, done.finished) == (1202, True)
    assert conn.execute("select rank, count(*) from jobs group by 1 order by 1").fetchall() == [(100, 2), (200, 1202)]
    assert {tenant for tenant, rank in ranks(conn).items() if rank == 100} == {"7", "after"}
    (row,) = actions.latest(app.database)
    assert (row["verb"], row["to"], row["done"], row["state"]) == ("jobs.priority", -100, 1202, "done")
    assert conn.execute("select count(*) from audit where (detail ->> 'to')::int = -100").fetchone() == (4,)
    assert actions.preview(app.database, "jobs.priority", Selection(task="item", state="scheduled"))[0] == 3


def test_an_action_left_in_the_middle_goes_on_with_the_same_priority(app: App, item: Task[..., None], conn: Conn) -> None:
    app.enqueue_many(item.job(n) for n in range(700))
    total, bound = actions.preview(app.database, "jobs.priority", Selection(task="item"))
    statements = app.database.statements
    action = run(conn, control.begin(statements, "jobs.priority", bound, actor="olga", why=None, total=total, to=7))
    with conn.transaction():
        assert run(conn, control.step(statements, action)) == (500, False)
    assert actions.resume(app.database, action).touched == 200
    assert set(ranks(conn).values()) == {93}


def test_a_claim_under_way_is_waited_for_and_its_job_is_refused(
    app: App, item: Task[..., None], conn: Conn, database_url: str
) -> None:
    job = item.enqueue(1).id
    found: list[actions.Done] = []
    with psycopg.connect(database_url, options=f"-c search_path={app.settings.schema}") as claimer:
        claimer.execute("update jobs set state = 'running', worker = %s, claim_id = %s", [new_id(), new_id()])
        change = threading.Thread(target=lambda: found.append(actions.named(app.database, "jobs.priority", [job], by="o", to=1)))
        change.start()
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%set rank%'"
        until(lambda: conn.execute(waiting).fetchall())
    change.join()
    assert (found[0].touched, list(found[0].refused)) == (0, [job])
    assert ranks(conn) == {"1": 100}


def test_a_handle_tells_when_it_is_too_late(app: App, item: Task[..., None], conn: Conn) -> None:
    handle = item.enqueue(1)
    assert handle.reprioritize(100)
    conn.execute("update jobs set state = 'running', worker = %s, claim_id = %s", [new_id(), new_id()])
    assert not handle.reprioritize(5)
    assert ranks(conn) == {"1": 0}
    with pytest.raises(NotFound):
        app.handle(new_id()).reprioritize(5)
    for wrong in (101, -101, True, 1.5):
        with pytest.raises(DeclarationError, match="must be a whole number from -100 to 100"):
            handle.reprioritize(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="cannot be stored"):
        handle.reprioritize(5, why="a\x00b")
    assert conn.execute("select count(*) from audit").fetchone() == (1,)
