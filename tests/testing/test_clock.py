"""The clock of the schema: all sessions at once, nothing but the own schema, right again at the end."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.core.errors import DeclarationError, StoreRefused
from jobwell.store import testing as store
from jobwell.testing import Schema, Testbed, TestbedError
from tests.testing.conftest import Shop

NOON = datetime(2031, 3, 1, 12, tzinfo=UTC)


def ahead(conn: Any, schema: str) -> float:
    row = conn.execute(f"select extract(epoch from {schema}.now() - clock_timestamp())::float8").fetchone()
    return float(row[0])


def test_travel(bed: Testbed, conn: Any, schema: str) -> None:
    assert ahead(conn, schema) == pytest.approx(0, abs=0.1)
    bed.clock.travel("2h")
    assert ahead(conn, schema) == pytest.approx(7200, abs=0.1)
    bed.clock.travel(timedelta(hours=-3))
    assert ahead(conn, schema) == pytest.approx(-3600, abs=0.1)
    bed.clock.travel_to(NOON)
    assert abs(bed.clock.now() - NOON) < timedelta(seconds=1)
    bed.clock.reset()
    assert ahead(conn, schema) == pytest.approx(0, abs=0.1)
    assert not bed.clock.frozen


def test_freeze(bed: Testbed, conn: Any, schema: str) -> None:
    at = bed.clock.freeze(NOON)
    seen = {conn.execute(f"select {schema}.now()").fetchone()[0] for _ in range(5)}
    assert seen == {NOON} == {at, bed.clock.now()}
    assert bed.clock.travel("90m") == NOON + timedelta(minutes=90) == bed.clock.now()
    assert bed.clock.travel_to(NOON) == NOON
    assert bed.clock.frozen


def test_freezing_keeps_the_microsecond(bed: Testbed, conn: Any, schema: str) -> None:
    at = bed.clock.freeze()
    assert conn.execute(f"select {schema}.now()").fetchone()[0] == at


def test_prepared_statements_of_other_sessions_see_it_at_once(bed: Testbed, database_url: str, schema: str) -> None:
    query = f"select {schema}.now() >= '2031-01-01' where {schema}.now() is not null"
    with psycopg.connect(database_url, autocommit=True) as one, psycopg.connect(database_url) as two:
        for _ in range(8):
            assert one.execute(query, prepare=True).fetchone() == (False,) == two.execute(query, prepare=True).fetchone()
            two.rollback()
        bed.clock.travel_to(NOON)
        assert one.execute(query).fetchone() == (True,) == two.execute(query).fetchone()


def test_enqueue_due_times_and_deadlines_follow(shop: Shop, bed: Testbed) -> None:
    bed.clock.freeze(NOON)
    handle = shop.pay.using(run_after="2h", deadline="1h").enqueue(1)
    job = bed.job(handle)
    assert (job.enqueued_at, job.run_at, job.deadline) == (NOON, NOON + timedelta(hours=2), NOON + timedelta(hours=3))
    bed.clock.travel("119m")
    assert not bed.drain()
    bed.clock.travel("1m")
    assert bed.drain().succeeded == 1


def test_a_wish_for_a_moment_is_read_on_this_clock(app: App, bed: Testbed) -> None:
    from jobwell import Retry

    @app.task(name="wishes")
    def wishes() -> None:
        raise Retry("later", after=NOON + timedelta(hours=1))

    handle = wishes.enqueue()
    bed.clock.freeze(NOON)
    handle = wishes.enqueue()
    bed.drain()
    assert NOON + timedelta(hours=1) <= bed.job(handle).run_at <= NOON + timedelta(hours=2)


def test_leases_end_by_it(shop: Shop, bed: Testbed, conn: Any) -> None:
    """A worker that was silent for longer than its lease is dead, and its job comes back."""
    handle = shop.pay.enqueue(1)
    conn.execute(
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues)"
        " values (%s, now() + interval '10 seconds', 1, 'h', 'n', 'v', 1, '{}')",
        [handle.id],
    )
    conn.execute(
        "update jobs set state = 'running', ready_at = null, attempt = 1, started_at = now(), claim_id = id, worker = id"
    )
    assert not bed.drain()
    bed.clock.travel("11s")
    assert bed.drain().succeeded == 1
    assert (bed.job(handle).attempt, bed.attempts(handle)[0]["outcome"]) == (2, "lost")


def test_only_the_own_schema_is_touched(bed: Testbed, kit: Schema, database_url: str) -> None:
    with Schema(database_url) as other:
        bed.clock.travel("2h")
        assert ahead(other.conn, other.name) == pytest.approx(0, abs=0.1)
        assert ahead(other.conn, kit.name) == pytest.approx(7200, abs=0.1)


def test_a_schema_that_the_kit_has_not_made_is_refused(kit: Schema, conn: Any, database_url: str) -> None:
    name = "somebodys_jobs"
    conn.execute(f"drop schema if exists {name} cascade")
    conn.execute(f"create schema {name}")
    try:
        changes: list[Callable[[], None]] = [
            lambda: store.set_clock(conn, name, ahead=timedelta(hours=1)), lambda: store.empty(conn, name, ["jobs"]),
            lambda: store.drop(conn, name), lambda: store.set_clock(conn, "nowhere", ahead=timedelta(hours=1)),
        ]  # fmt: skip
        for change in changes:
            with pytest.raises(StoreRefused, match="was not made by jobwell.testing.*Nothing was changed"):
                change()
        assert store.sweep(conn) == []
        assert conn.execute("select to_regnamespace(%s) is not null", [name]).fetchone() == (True,)
    finally:
        conn.execute(f"drop schema {name}")


def test_what_cannot_be_read_is_said(bed: Testbed) -> None:
    with pytest.raises(TestbedError, match="has no time zone"):
        bed.clock.travel_to(datetime(2031, 1, 1))
    with pytest.raises(TestbedError, match="has no time zone"):
        bed.clock.freeze(datetime(2031, 1, 1))
    with pytest.raises(DeclarationError, match="travel='soon'"):
        bed.clock.travel("soon")
