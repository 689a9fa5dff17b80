"""An item is in one place: never in two live jobs, nor in a job and a lot, whatever people and lost answers do."""

from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import Connection

from jobwell import App, Fixed, Reject
from jobwell.runs import Items, RunContext
from jobwell.runs.items import Item
from jobwell.store import runs as store
from jobwell.store.runs import Ended
from jobwell.store.statements import run as drive
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, check, people


def held(conn: "Connection[Any]") -> Counter[int]:
    """How many live jobs hold each item."""
    rows = conn.execute("select coalesce(j.args, (select p.args from payloads p where p.id = j.id)) from jobs j").fetchall()
    return Counter(no for (args,) in rows for first, last in args["spans"] for no in range(first, last + 1))


def taken_back(conn: "Connection[Any]") -> None:
    """All of the quarantine, by hand: `quarantine retry` refuses it."""
    conn.execute(
        "with gone as (delete from quarantine returning *) insert into jobs select j.* from gone, lateral jsonb_populate_record("
        "null::jobs, to_jsonb(gone) || jsonb_build_object('state', 'ready', 'ready_at', now(), 'linked', false)) j"
    )


def claimed(conn: "Connection[Any]") -> dict[UUID, UUID]:
    """Its jobs, as if they ran, with their claims."""
    claims = {row[0]: uuid4() for row in conn.execute("select id from jobs order by id")}
    for job, claim in claims.items():
        conn.execute(
            "update jobs set state = 'running', claim_id = %s, worker = %s, started_at = now() where id = %s",
            [claim, uuid4(), job],
        )
    return claims


@pytest.mark.parametrize("many", [10, 1500])
def test_a_job_that_is_tried_again_does_not_find_what_a_retry_has_opened(
    app: App, bed: Testbed, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """Of 1,500 scattered numbers the arguments stand apart."""
    monkeypatch.setattr("jobwell.runs.items.GROUP", 5)
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[int] = []
    broken = [True]

    @mass.stage(chunk=many, retry=Fixed("10s", attempts=3))
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        async for item in items:
            seen.append(item.data.employee_id)
            if broken and item.data.employee_id % 4 == 3 and item.data.employee_id < many - 4:
                item.fail("locked", "it is locked")
            if broken and item.data.employee_id == many - 2:
                raise OSError("the share is gone")

    run = mass.start(items=people(many))
    bed.drain()
    opened = run.failed()
    assert opened > 0
    broken.clear()
    assert run.retry(by="x") == opened
    assert set(held(conn).values()) == {1}
    seen.clear()
    bed.drain(retries=True)
    assert max(Counter(seen).values()) == 1
    assert (run.status().status, run.status()["touch"].done) == ("completed", many)
    check(app, conn, run.id)
    assert conn.execute("select sum(out)::int from run_counts").fetchone() == (0,)


@pytest.mark.parametrize("first", ["run", "quarantine"])
def test_a_job_that_comes_back_from_the_quarantine_holds_nothing_of_a_retry(
    app: App, bed: Testbed, conn: "Connection[Any]", first: str
) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[int] = []
    broken = [True]

    @mass.stage(chunk=10)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        if broken:
            raise Reject("no", "not these")
        seen.extend(item.data.employee_id for item in items)

    run = mass.start(items=people(30))
    bed.drain()
    broken.clear()
    if first == "quarantine":
        taken_back(conn)
    assert run.retry(by="x", keys=[str(number) for number in range(1, 15)]) == 14
    if first == "run":
        taken_back(conn)
    assert {number: held(conn)[number] for number in range(1, 15)} == dict.fromkeys(range(1, 15), 1)
    bed.drain()
    assert sorted(seen) == list(range(1, 15))
    assert run.status()["touch"].failed == 16
    assert run.retry(by="x") == 16
    bed.drain()
    assert sorted(seen) == list(range(1, 31))
    assert run.status().status == "completed"
    check(app, conn, run.id)
    assert conn.execute("select sum(out)::int from run_counts").fetchone() == (0,)


def test_a_worker_that_has_the_arguments_of_before_does_not_load_what_a_retry_has_opened(
    app: App, bed: Testbed, conn: "Connection[Any]"
) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage(chunk=10)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        raise AssertionError

    run = mass.start(items=people(10))
    statements = app.database.statements
    [(job, claim)] = claimed(conn).items()
    drive(conn, store.record(statements, [Ended(job, claim, run.id, 0, 3, "failed", "x", "y")], []))
    assert run.retry(by="x") == 1
    found = drive(conn, store.load(statements, [(job, run.id, 0, [[1, 10]])]))
    assert [one.no for one in found] == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    # Nor does it record it again, as it would where the first answer was lost.
    drive(conn, store.record(statements, [Ended(job, claim, run.id, 0, 3, "failed", "x", "y")], []))
    assert run.status()["touch"].failed == 0
    check(app, conn, run.id)


def test_two_jobs_with_the_same_items_spoil_no_batch(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    """There are none; but should there be, they count once, and others with them."""
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage(chunk=10)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None: ...

    run = mass.start(items=people(20))
    statements = app.database.statements
    conn.execute("update jobs set args = (select j.args from jobs j order by j.id limit 1)")
    claims = claimed(conn)
    ended = [Ended(job, claim, run.id, 0, no, "done") for job, claim in claims.items() for no in (1, 2)]
    back = [Ended(job, claim, run.id, 0, no, "back") for job, claim in claims.items() for no in (3, 4)]
    rest = [(job, f'{{"bulk_run":"{run.id}","stage":0,"spans":[[5,10]]}}') for job in claims]
    drive(conn, store.record(statements, ended + back, rest))
    assert (run.status()["touch"].done, conn.execute("select nos from run_lots").fetchall()) == (2, [([3, 4],)])
    check(app, conn, run.id)


def _lossy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first answer to what is recorded is lost, behind the commit."""
    record, calls = store.record, [0]

    def lossy(*given: Any) -> Any:
        told = yield from record(*given)
        calls[0] += 1
        if calls[0] == 1:
            raise psycopg.OperationalError("the answer is lost")
        return told

    monkeypatch.setattr(store, "record", lossy)
    monkeypatch.setattr("jobwell.runs.clerk.PAUSE", 0.01)
    return calls


def test_a_lost_answer_opens_an_item_once(
    app: App, bed: Testbed, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[int] = []

    @mass.stage
    async def touch(ctx: RunContext, item: Item[Employee]) -> None:
        seen.append(item.data.employee_id)
        if len(seen) == 1:
            item.retry("later", after="1s")

    run = mass.start(items=people(1))
    calls = _lossy(monkeypatch)
    bed.drain()
    assert calls == [2]
    assert conn.execute("select nos from run_lots").fetchall() == [([1],)]
    assert run.item("1")[0]["attempt"] == 1
    bed.clock.travel("1m")
    run.seal()  # which moves it on
    bed.drain()
    assert (seen, run.status().status) == ([1, 1], "completed")
    assert conn.execute("select sum(out)::int from run_counts").fetchone() == (0,)
    check(app, conn, run.id)


def test_a_lost_answer_hands_items_back_once(
    app: App, bed: Testbed, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    seen: list[int] = []

    @mass.stage(chunk=10)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        async for item in items:
            seen.append(item.data.employee_id)
            if item.data.employee_id == 4:
                break

    run = mass.start(items=people(10))
    calls = _lossy(monkeypatch)
    bed.drain()
    assert calls[0] >= 2
    assert (sorted(seen), run.status().status) == (list(range(1, 11)), "completed")
    assert conn.execute("select sum(out)::int from run_counts").fetchone() == (0,)
    check(app, conn, run.id)
