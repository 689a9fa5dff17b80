"""Actions on many jobs: exactly those that were shown, once, whatever dies in between."""

import multiprocessing
import os
import signal
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Reject
from jobwell.actions import jobs as actions
from jobwell.actions import queues
from jobwell.core.errors import Conflict, InvalidArguments, NotFound
from jobwell.core.filters import Selection
from jobwell.store import control
from jobwell.store.statements import run
from tests.waiting import until
from tests.worker.helpers import Desk, working

Conn = Connection[Any]


async def fill(app: App, conn: Conn, *, failed: int, good: int) -> Desk:
    """Jobs that have succeeded and jobs that failed for good."""

    @app.task(name="item")
    async def item(n: int) -> int:
        if n < failed:
            raise Reject("bad", "no")
        return n

    desk = Desk(app, conn)
    app.enqueue_many(item.job(n) for n in range(failed + good))
    async with working(app, slots=50):
        await desk.settled()
    return desk


async def test_g11_retry_touches_exactly_what_failed_and_the_second_click_nothing(app: App, conn: Conn) -> None:
    """Case G11."""
    desk = await fill(app, conn, failed=37, good=200)
    before = desk.all("select id, finished_at, result::text from finished order by id")
    chosen = Selection(task="item")
    total, bound = actions.preview(app.database, "quarantine.retry", chosen)
    assert total == 37
    done = actions.many(app.database, "quarantine.retry", bound, total=total, by="olga", why="mended")
    assert (done.touched, done.finished) == (37, True)
    assert actions.many(app.database, "quarantine.retry", bound, total=total, by="olga").touched == 0
    assert actions.preview(app.database, "quarantine.retry", chosen)[0] == 0
    assert desk.all("select id, finished_at, result::text from finished order by id") == before
    async with working(app):
        await desk.settled()
    # They failed again, after the moment of the preview: the old click does not take them twice.
    assert desk.one("select count(*) from quarantine") == 37
    assert actions.many(app.database, "quarantine.retry", bound, total=total, by="olga").touched == 0
    assert actions.preview(app.database, "quarantine.retry", chosen)[0] == 37


def drive(url: str, schema: str, action: Any, started: Any) -> None:
    app = App(url, schema=schema)
    actions.resume(app.database, action, told=lambda _: started.set())


async def test_an_action_whose_process_is_killed_goes_on_where_it_was(app: App, conn: Conn) -> None:
    @app.task(name="later")
    async def later(n: int) -> None:
        del n

    app.enqueue_many(later.using(run_after="1h").job(n) for n in range(20_000))
    total, bound = actions.preview(app.database, "jobs.cancel", Selection(task="later"))
    action = run(conn, control.begin(app.database.statements, "jobs.cancel", bound, actor="olga", why=None, total=total))
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Event()
    driver = spawn.Process(target=drive, args=(app.settings.url, app.settings.schema, action, started))
    driver.start()
    assert started.wait(30)
    assert driver.pid is not None
    os.kill(driver.pid, signal.SIGKILL)
    driver.join()
    until(lambda: not conn.execute("select 1 from pg_locks where relation = 'bulk_actions'::regclass").fetchall())
    (left,) = conn.execute("select count(*) from jobs").fetchone() or (0,)
    assert 0 < left < 20_000
    assert actions.resume(app.database, action).touched == left
    assert conn.execute("select count(*), count(distinct id) from finished where state = 'cancelled'").fetchone() == (
        20_000,
        20_000,
    )
    assert conn.execute("select done, state from bulk_actions").fetchone() == (20_000, "done")
    with pytest.raises(Conflict):
        actions.resume(app.database, action)


def test_what_cannot_be_done_is_told_job_by_job(app: App, conn: Conn) -> None:
    from jobwell.core.ids import new_id

    @app.task(name="one")
    async def one() -> None: ...

    ready, late, nobody = one.enqueue(), one.using(run_after="1h").enqueue(), new_id()
    done = actions.named(app.database, "jobs.retry", [ready.id, late.id, nobody], by="olga")
    assert done.touched == 0
    assert [reason.split(":")[0] for reason in done.refused.values()] == [
        "it is ready", "it is scheduled and has not run yet", "there is no such job",
    ]  # fmt: skip
    assert actions.named(app.database, "jobs.cancel", [ready.id, ready.id], by="olga").touched == 1
    assert conn.execute("select count(*) from audit").fetchone() == (1,)


def test_there_is_no_such_action(app: App) -> None:
    from jobwell.core.ids import new_id

    with pytest.raises(NotFound):
        actions.resume(app.database, new_id())
    with pytest.raises(NotFound):
        actions.stop(app.database, new_id(), by="olga")


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_texts_that_cannot_be_stored_are_refused_before_anything_happens(app: App, conn: Conn, text: str) -> None:
    @app.task(name="later")
    async def later() -> None: ...

    handle = later.using(run_after="1h").enqueue()
    chosen = Selection(task="later")
    for act in (
        lambda: handle.cancel(why=text),
        lambda: handle.cancel(by=text),
        lambda: actions.named(app.database, "jobs.cancel", [handle.id], by="olga", why=text),
        lambda: actions.preview(app.database, "jobs.cancel", Selection(tenant=text)),
        lambda: actions.many(app.database, "jobs.cancel", chosen, total=1, by="olga", why=text),
        lambda: queues.pause(app.database, ["default"], by="olga", why=text),
        lambda: queues.pause(app.database, ["default"], by=text),
    ):
        with pytest.raises(InvalidArguments, match="cannot be stored"):
            act()
    assert handle.status() == "scheduled"
    assert conn.execute("select count(*) from audit").fetchone() == (0,)
