"""Inline mode: a job runs before `enqueue` returns, through the same encoder, claim and finish."""

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from jobwell import App, Dedup, InvalidArguments, PayloadTooLarge
from jobwell.testing import Testbed, TestbedError
from tests.testing.conftest import Shop


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    at: datetime


class Person(BaseModel):
    name: str
    salary: Decimal


# --- H2: types ------------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    datetime(2031, 1, 1, 9, 30, tzinfo=UTC), datetime(2031, 1, 1, 9, 30), datetime(2031, 10, 26, 1, 30, fold=1), date(2031, 1, 1), time(9, 30), timedelta(days=-1, microseconds=3),
    uuid.UUID(int=7), Decimal("1.10"), b"\x00\xff", {1, 2}, frozenset({3}), (1, (2, "x")), {1: "a", 2: "b"}, 2**53 + 1, 2**70, "ə 🎉", [Decimal("2.50"), {"k": (1,)}], None, True, 1.5,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:40])
def test_values_arrive_as_what_they_are(app: App, bed: Testbed, value: Any) -> None:
    got: list[Any] = []

    @app.task(name="take")
    def take(value: Any) -> Any:
        got.append(value)
        return value

    with bed.inline(raising=True):
        handle = take.enqueue(value)
    assert got == [value]
    assert type(got[0]) is type(value)
    assert getattr(got[0], "fold", 0) == getattr(value, "fold", 0)
    assert bed.result(handle) == value
    assert type(bed.result(handle)) is type(value)
    bed.assert_enqueued(take, {"value": value}, count=1)
    assert bed.perform(take, value) == value


def test_classes_that_the_signature_names_arrive_as_such(app: App, bed: Testbed) -> None:
    @app.task(name="take")
    def take(colour: Colour, points: list[Point], person: Person) -> Person:
        assert (type(colour), type(points[0]), type(person)) == (Colour, Point, Person)
        return person

    person = Person(name="Aigerim", salary=Decimal("10.50"))
    with bed.inline(raising=True):
        handle = take.enqueue(Colour.RED, [Point(1, datetime(2031, 1, 1, tzinfo=UTC))], person)
    assert bed.result(handle) == person


class Row:
    """As an ORM has them."""


BAD = {
    "function": lambda: None,
    "row": Row(),
    "inside": [Row()],
    "in a dict": {"user": object()},
    "zero": "\x00",
    "half": "\ud800",
}


@pytest.mark.parametrize("value", BAD.values(), ids=list(BAD))
def test_what_fails_in_production_fails_here(app: App, bed: Testbed, value: Any) -> None:
    ran: list[Any] = []
    take = app.task(name="take_any")(_any_taker(ran))
    with bed.inline(), pytest.raises(InvalidArguments, match=r"value(\[0\]|\.user)?: .* cannot be stored"):
        take.enqueue(value)
    with pytest.raises(InvalidArguments):
        bed.perform(take, value)
    assert (ran, bed.jobs()) == ([], [])


def _any_taker(ran: list[Any]) -> Any:
    def take(value: Any) -> None:
        ran.append(value)

    return take


def test_too_large_is_refused(app: App, bed: Testbed) -> None:
    @app.task(name="take")
    def take(text: str) -> None: ...

    with bed.inline(), pytest.raises(PayloadTooLarge):
        take.enqueue("x" * 300_000)


def test_a_change_of_the_callers_object_does_not_reach_the_job(app: App, bed: Testbed) -> None:
    @app.task(name="change")
    def change(items: list[int]) -> None:
        items.append(9)

    mine = [1]
    with bed.inline(raising=True):
        change.enqueue(mine)
    assert mine == [1]


# --- when -----------------------------------------------------------------------------------------------------------------


def test_a_job_has_run_when_enqueue_returns_and_its_children_after_it(shop: Shop, bed: Testbed) -> None:
    with bed.inline():
        assert shop.order.enqueue(1).status() == "succeeded"
        assert shop.did == [("order", 1, 0), ("pay", 1, 1), ("welcome", 1, 1)]
    shop.pay.enqueue(2).status()
    assert len(shop.did) == 3


def test_only_its_own_jobs(shop: Shop, bed: Testbed) -> None:
    before = shop.pay.enqueue(1)
    with bed.inline():
        shop.pay.enqueue(2)
    assert ([n for _, n, _ in shop.did], before.status()) == ([2], "ready")


def test_a_failure_is_recorded_or_raised(shop: Shop, bed: Testbed) -> None:
    with bed.inline():
        handle = shop.welcome.enqueue(-1)
    assert handle.status() == "retrying"
    with bed.inline(raising=True), pytest.raises(TimeoutError, match="no mail server"):
        shop.welcome.enqueue(-2)
    assert bed.drain(retries=True).counts == {"retrying": 2, "failed": 2}


def test_what_is_for_later_waits(shop: Shop, bed: Testbed) -> None:
    with bed.inline():
        handle = shop.pay.using(run_after="2h").enqueue(1)
    assert (shop.did, handle.status()) == ([], "scheduled")


def test_many_at_once(shop: Shop, app: App, bed: Testbed) -> None:
    with bed.inline():
        app.enqueue_many(shop.pay.job(n) for n in range(5))
        assert [n for _, n, _ in shop.did] == [0, 1, 2, 3, 4]


def test_one_that_is_lost_is_rescued_and_runs_again(shop: Shop, bed: Testbed) -> None:
    with bed.inline(), bed.vanishing(shop.pay, after=True):
        handle = shop.pay.enqueue(1)
        assert handle.status() == "succeeded"
    assert shop.did == [("pay", 1, 1), ("pay", 1, 2)]


# --- the caller's transaction --------------------------------------------------------------------------------------------


def test_in_a_transaction_jobs_run_after_the_commit(shop: Shop, app: App, bed: Testbed, conn: Any) -> None:
    with bed.inline():
        with conn.transaction(), app.within(conn):
            handle = shop.pay.enqueue(1)
            assert shop.did == []
        assert shop.did == []
    assert (shop.did, handle.status()) == ([("pay", 1, 1)], "succeeded")


def test_what_was_rolled_back_never_runs(shop: Shop, app: App, bed: Testbed, conn: Any) -> None:
    with bed.inline(), conn.transaction(force_rollback=True):
        shop.pay.using(conn=conn).enqueue(1)
    assert (shop.did, bed.jobs()) == ([], [])


def test_a_transaction_that_is_still_open_is_an_error(shop: Shop, app: App, bed: Testbed, database_url: str) -> None:
    with psycopg.connect(database_url) as caller:
        with pytest.raises(TestbedError, match="1 job.s. were enqueued in a transaction that is still open"), bed.inline():
            shop.pay.using(conn=caller).enqueue(1)
        caller.rollback()
    shop.pay.enqueue(2)
    assert shop.did == []  # the mode has ended all the same


# --- async ----------------------------------------------------------------------------------------------------------------


async def test_async(shop: Shop, app: App, bed: Testbed) -> None:
    async with bed.inline():
        handle = await shop.order.aenqueue(1)
        assert await handle.astatus() == "succeeded"
        await app.aenqueue_many(shop.pay.job(n) for n in (2, 3))
    assert shop.did == [("order", 1, 0), ("pay", 1, 1), ("welcome", 1, 1), ("pay", 2, 1), ("pay", 3, 1)]


async def test_plain_calls_in_async_code_run_at_the_end(shop: Shop, bed: Testbed) -> None:
    async with bed.inline():
        shop.pay.enqueue(1)
        assert shop.did == []
    assert shop.did == [("pay", 1, 1)]
    with pytest.raises(TestbedError, match="write `async with testbed.inline"), bed.inline():
        shop.pay.enqueue(2)


async def test_async_transactions(shop: Shop, app: App, bed: Testbed, database_url: str) -> None:
    async with bed.inline(), await psycopg.AsyncConnection.connect(database_url) as conn, conn.transaction():
        with app.within(conn):
            await shop.pay.aenqueue(1)
    assert shop.did == [("pay", 1, 1)]


def test_equal_jobs_inline_run_once_while_the_first_stands_for_them(bed: Testbed) -> None:
    ran: list[int] = []

    @bed.app.task(name="windowed", dedup=Dedup("n", window="1h"))
    def windowed(n: int) -> None:
        ran.append(n)
        assert not windowed.enqueue(n).created  # it stands for its key while it runs

    @bed.app.task(name="one", dedup=Dedup("n"))
    def one(n: int) -> None:
        ran.append(n)

    with bed.inline():
        assert [windowed.enqueue(1).created, windowed.enqueue(1).created] == [True, False]
        assert [one.enqueue(2).created, one.enqueue(2).created] == [True, True]  # the first is done at once
        assert bed.app.enqueue_many([windowed.job(n) for n in (1, 3, 3)]).suppressed == [0, 2]
    assert ran == [1, 2, 2, 3]
