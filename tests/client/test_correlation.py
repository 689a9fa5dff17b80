"""What every job carries along: request_id, initiator and the like."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, EnqueueError
from jobwell.client import correlation
from jobwell.client.task import Task
from tests.client.helpers import BOTH, count, one


def meta(conn: Connection[Any]) -> list[Any]:
    """What the jobs carry, in the order of enqueueing."""
    return [row[0] for row in conn.execute("select meta from jobs order by id")]


def test_jobs_inside_carry_the_fields_and_jobs_outside_do_not(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    note.enqueue(1)
    with app.correlate(request_id="r-1", initiator="hr.officer", attempt=3, dry=True):
        note.enqueue(2)
    note.enqueue(3)
    assert meta(conn) == [None, {"request_id": "r-1", "initiator": "hr.officer", "attempt": 3, "dry": True}, None]


@pytest.mark.parametrize("many", BOTH)
@pytest.mark.parametrize("amount", [3, 300])
def test_a_bulk_carries_them_too(app: App, note: Task[..., None], conn: Connection[Any], many: Any, amount: int) -> None:
    with app.correlate(request_id="r-1"):
        many(app, (note.job(n) for n in range(amount)))
    assert meta(conn) == [{"request_id": "r-1"}] * amount


def test_inner_fields_are_added_to_outer_ones_and_win(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    with app.correlate(request_id="r-1", initiator="a"):
        with app.correlate(initiator="b", step=1):
            note.enqueue(1)
        with pytest.raises(ZeroDivisionError), app.correlate(step=2):
            raise ZeroDivisionError
        note.enqueue(2)
    assert meta(conn) == [{"request_id": "r-1", "initiator": "b", "step": 1}, {"request_id": "r-1", "initiator": "a"}]


def test_none_gives_nothing(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    with app.correlate(request_id="r-1", initiator=None):
        note.enqueue(1)
    assert meta(conn) == [{"request_id": "r-1"}]


def test_children_of_a_job_carry_its_fields_and_its_id(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    with app.correlate(request_id="r-1"):
        parent = note.enqueue(1)
    stored = one(conn, "select meta::text from jobs")

    async def attempt() -> None:
        correlation.inherit(SimpleNamespace(id=parent.id, meta=stored))
        await note.aenqueue(2)
        with app.correlate(step="a"):
            await note.aenqueue(3)
        await app.aclose()

    asyncio.run(attempt())
    note.enqueue(4)
    assert meta(conn)[1:] == [
        {"request_id": "r-1", "parent": str(parent.id)}, {"request_id": "r-1", "parent": str(parent.id), "step": "a"}, None,
    ]  # fmt: skip


def test_a_job_without_fields_still_hands_its_id_down(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    async def attempt() -> None:
        correlation.inherit(SimpleNamespace(id="p-1", meta=None))
        await note.aenqueue(1)
        await app.aclose()

    asyncio.run(attempt())
    assert meta(conn) == [{"parent": "p-1"}]


def test_two_tasks_and_threads_do_not_see_each_others_fields(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    async def request(number: int, both: asyncio.Barrier) -> None:
        with app.correlate(request_id=number):
            await both.wait()
            await note.aenqueue(number)

    async def run() -> None:
        both = asyncio.Barrier(2)
        await asyncio.gather(request(1, both), request(2, both))
        await app.aclose()

    asyncio.run(run())
    with app.correlate(request_id=3), ThreadPoolExecutor() as pool:
        pool.submit(note.enqueue, 3).result()
    found = {row[0]: row[1] for row in conn.execute("select args->>'n', meta from jobs")}
    assert found == {"1": {"request_id": 1}, "2": {"request_id": 2}, "3": None}


@pytest.mark.parametrize(
    "value",
    ["\x00", "\ud800", b"a", [1], {"a": 1}, object(), 2**64, -(2**63) - 1, float("nan"), float("inf")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_that_cannot_be_stored_as_it_is_is_refused(
    app: App, note: Task[..., None], conn: Connection[Any], value: Any
) -> None:
    with pytest.raises(EnqueueError, match=r"^correlate\(field="), app.correlate(field=value):
        note.enqueue(1)
    assert count(conn) == 0


@pytest.mark.parametrize("name", ["\x00", "\ud800"])
def test_a_name_that_cannot_be_stored_is_refused(app: App, name: str) -> None:
    with pytest.raises(EnqueueError, match="correlate"), app.correlate(**{name: 1}):
        pass


@pytest.mark.parametrize("text", ["x" * 4100, "ж" * 2100])
def test_too_much_is_refused_with_advice(app: App, text: str) -> None:
    with (
        pytest.raises(EnqueueError, match=r"the fields take 4,?\d+ bytes, the limit is 4,?096; pass references"),
        app.correlate(note=text),
    ):
        pass


def test_what_is_given_inside_counts_together(app: App) -> None:
    with app.correlate(a="x" * 3000), pytest.raises(EnqueueError, match="the limit is"), app.correlate(b="x" * 3000):
        pass


def test_the_largest_that_is_taken_is_stored(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    with app.correlate(a="ж" * 2040):
        note.enqueue(1)
    assert meta(conn) == [{"a": "ж" * 2040}]
