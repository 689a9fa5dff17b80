"""Jobs of one call become due evenly over a time: by every path, on the database's clock; and how many one call may have."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, BatchTooLarge, EnqueueError, NewJob
from jobwell.client.task import Task
from tests.client.helpers import count, one

PLACES = "select extract(epoch from run_at - enqueued_at)::float8 from jobs order by (args->>'n')::int"
Many = Callable[..., Any]


@pytest.fixture(params=["plain", "async", "within", "async within"])
def many(request: pytest.FixtureRequest, app: App, caller: Connection[Any]) -> Many:
    """`enqueue_many` by each path; within a transaction it is committed."""

    async def asynchronous(jobs: Any, spread: Any) -> None:
        from psycopg import AsyncConnection

        try:
            if request.param == "async":
                await app.aenqueue_many(jobs, spread=spread)
                return
            async with await AsyncConnection.connect(caller.info.dsn, password=caller.info.password) as own, own.transaction():
                await app.aenqueue_many(jobs, spread=spread, conn=own)
        finally:
            await app.aclose()

    def put(jobs: Any, spread: Any) -> None:
        if request.param == "plain":
            app.enqueue_many(jobs, spread=spread)
        elif request.param == "within":
            with app.within(caller):
                app.enqueue_many(jobs, spread=spread)
            caller.commit()
        else:
            asyncio.run(asynchronous(jobs, spread))

    return put


def check(places: list[tuple[float]], over: float, slack: float) -> None:
    """Each gap is one share of the time, or two where the number was not known."""
    found = sorted(place for (place,) in places)
    share = over / len(found)
    gaps = [right - left for left, right in zip(found, [*found[1:], over], strict=True)]
    assert found[0] == pytest.approx(0, abs=slack)
    assert max(gaps) <= 2 * share + slack
    assert min(gaps) >= share / 2 - slack


@pytest.mark.parametrize("amount", [1, 7, 199, 200, 4500])
def test_a_list_is_spread_in_input_order(many: Many, note: Task[..., None], conn: Connection[Any], amount: int) -> None:
    many([note.job(n) for n in range(amount)], "10m")
    places = conn.execute(PLACES).fetchall()
    assert [place for (place,) in places] == pytest.approx([600 * n / amount for n in range(amount)], abs=1)
    assert places == sorted(places)
    assert one(conn, "select count(*) from jobs where state = 'ready'") == 1


@pytest.mark.parametrize("amount", [0, 5, 200, 4500])
def test_a_stream_of_unknown_length_is_spread_evenly_too(
    many: Many, note: Task[..., None], conn: Connection[Any], amount: int
) -> None:
    many((note.job(n) for n in range(amount)), timedelta(hours=1))
    assert count(conn) == amount
    if amount:
        check(conn.execute(PLACES).fetchall(), 3600, slack=1)


def test_the_same_call_gives_the_same_places(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    seen = []
    for _ in range(2):
        app.enqueue_many((note.job(n) for n in range(300)), spread="1h")
        seen.append(conn.execute(PLACES).fetchall())
        conn.execute("truncate jobs")
    assert seen[0] == seen[1]


def test_the_own_time_is_added_to_and_the_deadline_counts_from_it(
    many: Many, note: Task[..., None], conn: Connection[Any]
) -> None:
    later, past = datetime.now(UTC) + timedelta(days=2), datetime(2020, 1, 1, tzinfo=UTC)
    jobs = [note.job(0), note.using(run_after="1h", deadline="5m").job(1), note.using(run_after=past).job(2),
            note.using(run_after=later).job(3)]  # fmt: skip
    many(jobs, 400)
    places = [place for (place,) in conn.execute(PLACES).fetchall()]
    assert places[:3] == pytest.approx([0, 3600 + 100, 200], abs=1)
    assert one(conn, "select run_at from jobs where args->>'n' = '3'") == later + timedelta(seconds=300)
    assert one(conn, "select extract(epoch from deadline - run_at)::int from jobs where args->>'n' = '1'") == 300


def test_the_databases_clock_decides(many: Many, note: Task[..., None], conn: Connection[Any], travel: Any) -> None:
    travel("400 days")
    many([note.job(n) for n in range(4)], "1h")
    assert one(conn, "select min(run_at) > now() + interval '399 days', max(run_at) - min(run_at) = interval '45 min' from jobs") == (
        True, True,
    )  # fmt: skip


def test_a_wrong_spread_is_refused_before_anything_is_stored(many: Many, note: Task[..., None], conn: Connection[Any]) -> None:
    with pytest.raises(EnqueueError, match="spread='soon' is not a duration"):
        many([note.job(1)], "soon")
    assert count(conn) == 0


# --- how many ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [100, 2500])
@pytest.mark.parametrize("kind", [list, iter], ids=["list", "stream"])
def test_more_than_the_limit_are_refused_and_nothing_is_stored(
    many: Many, app: App, note: Task[..., None], conn: Connection[Any], limit: int, kind: Callable[..., Any]
) -> None:
    app.override({"batch_limit": limit})
    with pytest.raises(BatchTooLarge, match=rf"more than {limit:,} jobs \(the setting batch_limit\); nothing was enqueued"):
        many(kind([note.job(n) for n in range(limit + 1)]), None)
    assert count(conn) == 0
    many(kind([note.job(n) for n in range(limit)]), None)
    assert count(conn) == limit


def test_a_list_that_is_too_long_is_not_even_looked_at(app: App, note: Task[..., None]) -> None:
    class Watched(list[NewJob]):
        def __iter__(self) -> Iterator[NewJob]:
            raise AssertionError

    app.override({"batch_limit": 2})
    with pytest.raises(BatchTooLarge):
        app.enqueue_many(Watched([note.job(n) for n in range(3)]))


def test_a_batch_that_is_refused_leaves_the_callers_transaction(
    app: App, note: Task[..., None], caller: Connection[Any], conn: Any
) -> None:
    app.override({"batch_limit": 500})
    caller.execute("insert into orders values (1)")
    with app.within(caller):
        with pytest.raises(BatchTooLarge):
            app.enqueue_many(note.job(n) for n in range(501))
        note.enqueue(7)
    caller.commit()
    assert (count(conn), count(conn, "orders")) == (1, 1)
