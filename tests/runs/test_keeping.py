"""What housekeeping does for runs: it moves them on, finds what was lost, and forgets what is old."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, DeclarationError
from jobwell.runs import RunContext
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.store.link import Link
from jobwell.store.statements import Program, Query
from jobwell.store.statements import run as drive
from jobwell.testing import Testbed
from jobwell.worker.housekeeping.runs import RunsService
from tests.runs.conftest import Employee, Office, Transfer, check, people
from tests.waiting import auntil
from tests.worker.helpers import working


def ask(query: Query) -> Program[list[tuple[Any, ...]]]:
    """One statement."""
    rows: list[tuple[Any, ...]] = yield query
    return rows


def test_items_whose_jobs_are_gone_wait_again(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(50))
    conn.execute("delete from jobs where id in (select id from jobs order by id limit 2)")
    bed.drain()
    assert run.status()["apply"].open == 20
    statements = office.app.database.statements
    assert drive(conn, store.rescue(statements, run.id)) == 20
    assert drive(conn, store.rescue(statements, run.id)) == 0
    drive(conn, store.turn(statements, run.id))
    bed.drain()
    assert run.status().status == "completed"
    assert sorted(office.applied) == list(range(1, 51))
    check(office.app, conn, run.id)


def test_nothing_is_rescued_that_has_a_job(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(50))
    conn.execute("update run_counts set out = out + 3")
    assert drive(conn, store.rescue(office.app.database.statements, run.id)) == 0
    assert conn.execute("select sum(out)::int from run_counts").fetchone() == (50,)
    bed.drain()
    assert run.status().status == "completed"


def test_a_preparation_whose_job_is_gone_pauses_the_run(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.prepare
    def find(ctx: RunContext, params: None) -> list[Employee]:
        return people(3)

    @mass.stage
    def touch(ctx: RunContext, item: Item[Employee]) -> None:
        pass

    run = mass.start()
    statements = app.database.statements
    drive(conn, store.rescue(statements, run.id))
    assert run.status().parts[0].state == "enqueued"
    conn.execute("delete from jobs")
    drive(conn, store.rescue(statements, run.id))
    drive(conn, store.turn(statements, run.id))
    card = run.status()
    assert (card.status, card.why) == ("paused", "the preparation failed: its job is gone")
    assert run.resume(by="x")
    bed.drain()
    assert (run.status().status, run.status()["touch"].done) == ("completed", 3)


async def test_a_worker_moves_on_a_run_whose_process_died_behind_a_commit(app: App, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage
    async def touch(ctx: RunContext, item: Item[Employee]) -> None:
        pass

    run = await mass.astart(items=people(3), seal=False)
    conn.execute("update runs set sealed = true")
    conn.execute("update run_lots set held = false")  # as a process leaves it that dies before its turn
    async with working(app):
        await auntil(lambda: run.status().over)
    assert (await run.astatus())["touch"].done == 3


async def test_what_ended_long_ago_is_forgotten_in_pieces(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(20))
    await bed.adrain()
    bed.clock.travel("91d")
    link = Link(office.app.database, "test")
    service = RunsService(office.app.database.statements, link, keep=90 * 86400.0, clock=iter(range(0, 100_000, 700)).__next__)
    for _ in range(5):
        await service.tick()
    await link.close()
    for table in ("runs", "run_items", "run_states", "run_stages", "run_counts", "run_lots"):
        assert conn.execute(f"select count(*) from {table}").fetchone() == (0,), table
    assert run.id


def test_declarations_are_checked(app: App) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    with pytest.raises(DeclarationError, match="'executor' is no option"):
        mass.stage(executor="process")(lambda ctx, item: None)
    with pytest.raises(DeclarationError, match="chunk="):
        mass.stage(chunk=-1)
    with pytest.raises(DeclarationError, match="when="):
        mass.finish(when="often")  # type: ignore[call-overload]  # on purpose
    with pytest.raises(DeclarationError, match="has no stage"):
        mass.start(items=[])


def test_a_run_is_not_dropped_while_another_forgets_a_piece_of_it(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(20))
    bed.drain()
    conn.execute("update runs set ended_at = now() - interval '91 days'")
    conn.execute("delete from run_states")
    statements = office.app.database.statements
    # As for one who waited for the piece of another, and then found it gone.
    assert drive(conn, ask(statements("runs.forget_rest", run=run.id, limit=10))) == [(0,)]
    assert conn.execute("select count(*) from runs").fetchone() == (1,)
    for _ in range(5):
        drive(conn, store.forget(statements, seconds=90 * 86400.0))
    for table in ("runs", "run_items", "run_states", "run_stages", "run_counts", "run_lots"):
        assert conn.execute(f"select count(*) from {table}").fetchone() == (0,), table


def test_runs_that_stand_still_do_not_hold_up_the_others(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    for _ in range(11):
        office.operation.start(Transfer(to="Astana"), items=people(1)).pause(by="x")
        office.operation.start(Transfer(to="Astana"), items=people(1), seal=False)
    run = office.operation.start(Transfer(to="Astana"), items=people(1))
    statements = office.app.database.statements
    conn.execute("update runs set looked_at = now() - interval '5 seconds'")
    conn.execute("update runs set looked_at = now() - interval '3 seconds' where id = %s", [run.id])
    assert drive(conn, store.to_look_at(statements, every=1.0, still=30.0)) == [(run.id, False)]
    conn.execute("update runs set looked_at = now() - interval '40 seconds' where id <> %s", [run.id])
    assert len(drive(conn, store.to_look_at(statements, every=1.0, still=30.0))) == 20
