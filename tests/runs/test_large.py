"""Large runs: bounded memory, quick cards and lists. A million in the long variant."""

import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.runs import Items, RunContext
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, Office, Transfer, check, people


def test_scattered_items_are_retried_though_their_numbers_take_much_room(app: App, bed: Testbed, conn: "Connection[Any]") -> None:
    mass = app.bulk("mass", item=Employee, key="employee_id")
    fails = [True]
    seen: list[int] = []

    @mass.stage(chunk=500)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        for item in items:
            if item.data.employee_id % 2 and fails[0]:
                item.fail("odd")
            else:
                seen.append(item.data.employee_id)

    run = mass.start(items=people(1000))
    bed.drain()
    fails[0] = False
    seen.clear()
    assert run.retry(by="x") == 500
    assert conn.execute("select count(*) from payloads").fetchone() == (1,)  # above what stands in a job's row
    run.pause(by="x")
    bed.drain()
    assert run.status()["touch"].open == 500
    run.resume(by="x")
    bed.drain()
    assert seen == list(range(1, 1001, 2))
    assert run.status().status == "completed"
    check(app, conn, run.id)


def test_g11_clicks_at_the_same_time_retry_each_item_once(office: Office, bed: Testbed, conn: "Connection[Any]") -> None:
    office.fails = set(range(1, 38))
    run = office.operation.start(Transfer(to="Astana"), items=people(100))
    bed.drain()
    office.fails = set()
    office.applied.clear()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: run.retry(by="x"), range(4)))
    assert sorted(found) == [0, 0, 0, 37]
    bed.drain()
    assert office.applied == list(range(1, 38))
    check(office.app, conn, run.id)


def _stream(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"employee_id": number, "department": "Sales", "email": f"user{number}@example.com"}


def _store(app: App, conn: "Connection[Any]", count: int, *, traced: bool = True) -> tuple[Any, float, int]:
    mass = app.bulk("mass", item=Employee, key="employee_id")

    @mass.stage(chunk=500)
    async def touch(ctx: RunContext, items: Items[Employee]) -> None:
        pass

    run = mass.start(seal=False)
    run = mass.run(run.id)
    run.add(_stream(1))
    if traced:
        tracemalloc.start()  # it makes everything several times as slow
    began = time.monotonic()
    assert run.add(_stream(count)) == count - 1
    took = time.monotonic() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    run.seal()
    return run, count / took, peak


def test_storing_takes_a_bounded_room(app: App, conn: "Connection[Any]") -> None:
    run, _, peak = _store(app, conn, 30_000)
    assert peak < 8_000_000  # a block of 5,000 and what the driver sends of it
    assert run.status().total == 30_000


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_items(app: App, conn: "Connection[Any]") -> None:
    before = psutil.Process().memory_info().rss
    run, rate, _ = _store(app, conn, 1_000_000, traced=False)
    assert psutil.Process().memory_info().rss - before < 40_000_000
    assert rate > 15_000  # on a machine that does other things; at rest it is to be 50,000
    conn.execute(
        "insert into run_states (run_id, no, stage, state, code)"
        " select run_id, no, 0, case when no % 20 = 0 then 'failed' else 'done' end, 'locked' from run_items"
    )
    conn.execute("analyze run_states")
    for ask in (run.status, run.errors, lambda: run.errors(after=(0, 900_000)), lambda: run.errors(code="locked")):
        quickest = min(_took(ask) for _ in range(5))
        assert quickest < 0.1


def _took(ask: Any) -> float:
    began = time.monotonic()
    ask()
    return time.monotonic() - began
