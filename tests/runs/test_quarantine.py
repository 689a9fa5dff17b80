"""Jobs of runs in the quarantine: parts go on from there, the jobs of stages do not."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection

from jobwell import App, Conflict, Reject
from jobwell.actions import jobs as actions
from jobwell.core.filters import Selection
from jobwell.runs import Items, RunContext
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.store.statements import run as drive
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, check, people


def failed(conn: "Connection[Any]") -> list[UUID]:
    """All of it."""
    return [row[0] for row in conn.execute("select id from quarantine order by id")]


def test_a_finish_that_is_taken_back_is_done_and_the_run_with_it(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    broken = [True]
    sums: list[Any] = []

    @mass.stage(chunk=10)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None: ...

    @mass.finish
    async def total(ctx: RunContext, summary: Any) -> None:
        if broken:
            raise Reject("no", "the printer is off")
        sums.append(summary)

    run = mass.start(items=people(3))
    bed.drain()
    run.seal()
    assert run.status().status == "completed_with_errors"
    broken.clear()
    assert actions.named(app.database, "quarantine.retry", failed(conn), by="x").touched == 1
    bed.drain()
    card = run.status()
    assert (card.status, card.parts[0].state, len(sums)) == ("completed", "done", 1)
    assert conn.execute("select active from runs").fetchone() == (False,)


def test_a_finish_that_the_run_has_tried_again_is_not_done_twice(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    broken = [True]
    sums: list[Any] = []

    @mass.stage(chunk=10)
    def touch(ctx: RunContext, items: Items[Employee]) -> None: ...

    @mass.finish
    def total(ctx: RunContext, summary: Any) -> None:
        if broken:
            raise Reject("no", "the printer is off")
        sums.append(summary)

    run = mass.start(items=people(3))
    bed.drain()
    run.seal()
    broken.clear()
    run.retry(by="x")
    assert actions.named(app.database, "quarantine.retry", failed(conn), by="x").touched == 1
    bed.drain()
    assert (run.status().status, len(sums)) == ("completed", 1)


def test_a_preparation_that_is_taken_back_goes_on_with_its_run(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    broken = [True]

    @mass.prepare
    def find(ctx: RunContext, params: None) -> Iterator[Employee]:
        yield from people(3)
        if broken:
            raise Reject("no", "the share is gone")

    @mass.stage
    def touch(ctx: RunContext, item: Item[Employee]) -> None: ...

    run = mass.start()
    bed.drain()
    drive(conn, store.turn(app.database.statements, run.id))
    assert run.status().status == "paused"
    broken.clear()
    assert actions.named(app.database, "quarantine.retry", failed(conn), by="x").touched == 1
    bed.drain()
    assert (run.status().status, run.status()["touch"].done) == ("completed", 3)
    check(app, conn, run.id)


def test_a_stage_is_retried_by_its_run_and_the_quarantine_says_so(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage
    def touch(ctx: RunContext, item: Item[Employee]) -> None:
        raise OSError

    @app.task(name="plain", retry=None)
    def plain() -> None:
        raise Reject("no", "no")

    run = mass.start(items=people(1))
    bed.drain(retries=True)
    [job] = failed(conn)
    told = actions.named(app.database, "quarantine.retry", [job], by="x")
    assert told.touched == 0
    assert "retry the run" in told.refused[job]
    assert failed(conn) == [job]
    with pytest.raises(Conflict, match="retry the run"):
        app.quarantine.retry(job, by="x")
    plain.enqueue()
    bed.drain()
    total, chosen = actions.preview(app.database, "quarantine.retry", Selection())
    assert actions.many(app.database, "quarantine.retry", chosen, total=total, by="x").touched == 1
    assert failed(conn) == [job]
    assert run.failed() == 1
