"""What people do to a run: pause, resume, cancel, a canary."""

from typing import Any

from psycopg import Connection

from jobwell import App
from jobwell.runs import Items, RunContext
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, Office, Transfer, check, people


def test_pause_and_resume(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(50))
    assert run.pause(by="hr.officer", why="a question")
    assert not run.pause(by="hr.officer")
    bed.drain()
    card = run.status()
    assert (card.status, card.by, card.why, card["apply"].open) == ("paused", "hr.officer", "a question", 50)
    assert not office.applied
    check(office.app, conn, run.id)
    assert run.resume(by="hr.officer")
    assert not run.resume(by="hr.officer")
    bed.drain()
    assert run.status().status == "completed"
    assert sorted(office.applied) == list(range(1, 51))
    assert [row[0] for row in conn.execute("select action from audit order by id")] == ["runs.start", "runs.pause", "runs.resume"]


def test_a_pause_in_the_middle_of_a_chunk_hands_the_rest_back(
    app: App, bed: Testbed, conn: "Connection[Any]", monkeypatch: Any
) -> None:
    monkeypatch.setattr("jobwell.runs.items.GROUP", 5)
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[int] = []

    @mass.stage(chunk=50)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        async for item in items:
            seen.append(item.data.employee_id)
            if item.data.employee_id == 13:
                await app.runs.get(ctx.run).apause(by="x")

    run = mass.start(items=people(50))
    bed.drain()
    assert seen == list(range(1, 16))
    assert run.status()["touch"].done == 15
    check(app, conn, run.id)
    run.resume(by="x")
    bed.drain()
    assert seen == list(range(1, 51))
    assert run.status().status == "completed"
    check(app, conn, run.id)


def test_cancel_ends_what_is_open_and_nothing_else(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    office.fails = {2}
    run = office.operation.start(Transfer(to="Astana"), items=people(50))
    bed.drain("bulk")
    assert run.status()["apply"].done == 49
    assert run.cancel(by="hr.officer", why="a mistake")
    assert not run.cancel(by="hr.officer")
    bed.drain()
    card = run.status()
    assert (card.status, card["apply"].done, card["apply"].failed, card["notify"].cancelled) == ("cancelled", 49, 1, 49)
    assert not office.notified
    check(office.app, conn, run.id)
    assert conn.execute("select count(*) from run_lots").fetchone() == (0,)
    assert conn.execute("select active from runs").fetchone() == (False,)


def test_failed_items_of_a_cancelled_run_can_be_retried_and_the_cancelled_stay(
    office: Office, bed: Testbed, conn: "Connection[Any]"
) -> None:
    """G11."""
    office.fails = set(range(1, 4))
    run = office.operation.start(Transfer(to="Astana"), items=people(20))
    bed.drain("bulk", limit=1000, until_empty=True)
    run.cancel(by="x")
    office.fails = set()
    assert run.retry(by="x") == 3
    bed.drain()
    card = run.status()
    assert (card["apply"].done, card["notify"].done, card["notify"].cancelled, card.status) == (20, 3, 17, "cancelled")
    check(office.app, conn, run.id)


def test_a_canary_of_some_holds_until_it_is_let_go(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(40), canary=0.1)
    bed.drain()
    card = run.status()
    assert (card.status, card.canary, card.why) == ("paused", True, "the canary is over")
    assert sorted(office.applied) == sorted(office.notified) == [1, 2, 3, 4]
    assert not run.resume(by="x")
    assert run.continue_(by="x", why="looks good")
    assert not run.continue_(by="x")
    bed.drain()
    assert run.status().status == "completed"
    assert sorted(office.applied) == list(range(1, 41))
    check(office.app, conn, run.id)


def test_a_canary_by_a_filter_and_a_cancel_behind_it(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(40), only={"department": "Finance"})
    bed.drain()
    assert sorted(office.applied) == list(range(4, 41, 4))
    assert run.cancel(by="x")
    card = run.status()
    assert (card.status, card["apply"].done, card["apply"].cancelled) == ("cancelled", 10, 30)
    check(office.app, conn, run.id)


def test_the_window_keeps_the_queue_short(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage(chunk=10, window=3)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        pass

    run = mass.start(items=people(500))
    assert conn.execute("select count(*) from jobs").fetchone() == (3,)
    bed.drain()
    assert run.status()["touch"].done == 500


def test_a_canary_that_matches_nothing_says_so_and_can_be_let_go(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(3), only={"department": "Finence"})
    bed.drain()
    card = run.status()
    assert (card.status, card.why) == ("paused", "the canary matches 0 of 3 items; nothing has run")
    assert not run.resume(by="x")
    assert run.continue_(by="x")
    bed.drain()
    assert (run.status().status, sorted(office.applied)) == ("completed", [1, 2, 3])
    check(office.app, conn, run.id)


def test_a_canary_that_matches_nothing_can_be_let_go_before_anybody_has_looked(office: Office, conn: "Connection[Any]") -> None:
    run = office.operation.start(Transfer(to="Astana"), items=people(3), only={"department": "Finence"}, seal=False)
    conn.execute("select run_seal(%s)", [run.id])  # as a process leaves it that dies before its turn
    assert run.status().status == "queued"
    assert run.continue_(by="x")
    assert run.status().status == "running"


def test_a_run_that_was_cancelled_while_its_items_came_ends_after_a_retry(
    office: Office, bed: Testbed, conn: "Connection[Any]"
) -> None:
    office.fails = {1, 2}
    run = office.operation.start(Transfer(to="Astana"), items=people(2), on_bad="skip", seal=False)
    bed.drain()
    assert run.cancel(by="x")
    run.seal()  # which comes too late
    office.fails = set()
    assert run.retry(by="x") == 2
    bed.drain()
    card = run.status()
    assert (card.status, card.sealed, card["apply"].done, card["notify"].done) == ("completed", True, 2, 2)
    check(office.app, conn, run.id)
