"""Partitions ahead, old days dropped whole, old rows of the default partitions in pieces, payloads when their job is gone."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobwell import App
from jobwell.core.ids import new_id
from jobwell.store.statements import run
from jobwell.store.upkeep import DAYS_AHEAD, PIECE, UpkeepVerbs
from tests.store.helpers import DONE, FAILED, RETRYING, Hand, Store, new

DAY = 86400.0
TABLES = ["finished", "attempts"]
FIRST = UUID(int=0)


@pytest.fixture
def upkeep(app: App, store: Store) -> Iterator["Upkeep"]:
    """Without any daily partition at the beginning; with those of today and the days ahead at the end."""
    made = Upkeep(store, UpkeepVerbs(app.database.statements))
    made.drop_all()
    yield made
    store.conn.execute("truncate finished, attempts")
    made.drop_all()
    made("make_partitions")


class Upkeep:
    """Short calls."""

    def __init__(self, store: Store, verbs: UpkeepVerbs) -> None:
        self.store = store
        self.verbs = verbs

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        return run(self.store.conn, getattr(self.verbs, name)(*args, **options))

    def days(self, table: str) -> list[str]:
        found = self.store.ask(
            "select right(inhrelid::regclass::text, 8) from pg_inherits where inhparent = %s::regclass"
            " and inhrelid::regclass::text not like '%%default' order by 1", table)  # fmt: skip
        return [row[0] for row in found]

    def drop_all(self) -> None:
        for table in TABLES:
            for day in self.days(table):
                self.store.conn.execute(f"drop table {table}_{day}")  # type: ignore[call-overload]

    def put_finished(self, count: int, ago: float) -> None:
        self.store.conn.execute(
            "insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
            " select gen_random_uuid(), clock_timestamp() - make_interval(secs => %s), now(), now(), 1, 1, 0, 2, 'q', 't', 'succeeded', ''"
            " from generate_series(1, %s)", [ago, count])  # fmt: skip

    def put_attempts(self, count: int, ago: float) -> None:
        self.store.conn.execute(
            "insert into attempts (job_id, ended_at, attempt, outcome)"
            " select gen_random_uuid(), clock_timestamp() - make_interval(secs => %s), 1, 'lost' from generate_series(1, %s)", [ago, count])  # fmt: skip


def day_names(first: int, last: int) -> list[str]:
    """Days relative to today, in UTC."""
    return [(datetime.now(UTC) + timedelta(days=n)).strftime("%Y%m%d") for n in range(first, last + 1)]


# --- partitions ----------------------------------------------------------------------------------------------------------


def test_today_and_the_days_ahead_are_made_once(upkeep: Upkeep) -> None:
    assert upkeep("make_partitions") == 2 * (DAYS_AHEAD + 1)
    for table in TABLES:
        assert upkeep.days(table) == day_names(0, DAYS_AHEAD)
    assert upkeep("make_partitions") == 0


def test_the_next_day_brings_the_next_partition(upkeep: Upkeep, travel: Callable[[str], None]) -> None:
    upkeep("make_partitions")
    travel("1 day")
    assert upkeep("make_partitions") == 2
    assert upkeep.days("finished") == day_names(0, DAYS_AHEAD + 1)


async def test_rows_go_into_the_day_of_their_end(upkeep: Upkeep, store: Store, hand: Hand, travel: Callable[[str], None]) -> None:
    upkeep("make_partitions")
    store.put_new(4)
    for by in ("0 days", "3 days"):
        travel(by)
        await hand.claim(2)
        rows = await hand.verbs.held_by(hand.conn, hand.worker)
        await hand.end(DONE, rows[0])
        await hand.end(RETRYING, rows[1])
    for table in TABLES:
        days = store.ask(f"select right(tableoid::regclass::text, 8) from {table} order by 1")
        assert [day for (day,) in days] == [day_names(0, 0)[0], day_names(3, 3)[0]]


def test_bounds_are_days_in_utc_whatever_zone_the_session_has(upkeep: Upkeep, store: Store) -> None:
    store.conn.execute("set timezone = 'Asia/Almaty'")
    upkeep("make_partitions")
    store.conn.execute("set timezone = 'UTC'")
    today = day_names(0, 0)[0]
    bound = store.one("select pg_get_expr(relpartbound, oid) from pg_class where oid = %s::regclass", f"finished_{today}")
    assert f"{datetime.now(UTC):%Y-%m-%d} 00:00:00+00" in bound
    assert store.ask("select 1 from pg_constraint where conname = 'bounds'") == []


def test_a_day_that_already_has_rows_in_the_default_is_left_and_the_others_are_made(upkeep: Upkeep) -> None:
    upkeep.put_finished(3, ago=-2 * DAY)
    assert upkeep("make_partitions") == 2 * (DAYS_AHEAD + 1) - 1
    assert day_names(2, 2)[0] not in upkeep.days("finished")
    assert upkeep.store.count("finished_default") == 3


def test_whole_days_older_than_the_retention_are_dropped(upkeep: Upkeep, travel: Callable[[str], None]) -> None:
    travel("-10 days")
    upkeep("make_partitions")
    travel("0 days")
    upkeep("make_partitions")
    upkeep.put_finished(5, ago=9 * DAY)
    upkeep.put_finished(5, ago=4 * DAY)
    dropped = upkeep("drop_old", "finished", seconds=5 * DAY)
    assert upkeep.days("finished") == [*day_names(-5, -3), *day_names(0, DAYS_AHEAD)]
    assert dropped == 5
    assert upkeep.store.count("finished") == 5
    assert upkeep.days("attempts") == [*day_names(-10, -3), *day_names(0, DAYS_AHEAD)]  # another table is another call
    assert upkeep("drop_old", "finished", seconds=5 * DAY) == 0


def test_the_default_and_tables_of_others_are_never_dropped(upkeep: Upkeep, store: Store) -> None:
    store.conn.execute("create table finished_20200101 (id int)")
    upkeep.put_finished(1, ago=100 * DAY)
    upkeep("drop_old", "finished", seconds=DAY)
    assert store.count("finished_default") == 1
    assert store.count("finished_20200101") == 0
    store.conn.execute("drop table finished_20200101")


@pytest.mark.parametrize("table", TABLES)
def test_old_rows_of_the_default_go_in_pieces(upkeep: Upkeep, table: str) -> None:
    put = upkeep.put_finished if table == "finished" else upkeep.put_attempts
    put(PIECE + 200, ago=10 * DAY)
    put(30, ago=2 * DAY)
    left = []
    for _ in range(3):
        upkeep("delete_old", seconds=5 * DAY)
        left.append(upkeep.store.count(table))
    assert left == [230, 30, 30]


# --- payloads ------------------------------------------------------------------------------------------------------------


async def test_payloads_go_only_when_their_job_is_nowhere(upkeep: Upkeep, store: Store, hand: Hand) -> None:
    text = '"' + "x" * 5000 + '"'
    names = ["live", "waits", "runs", "retries", "finished", "failed", "gone"]
    jobs = dict(
        zip(
            names,
            [job for name in names for job in new(1, args=text, size=len(text), delay=60.0 if name == "waits" else 0.0)],
            strict=True,
        )
    )
    store.put([jobs[name] for name in names if name not in {"live", "waits"}])
    claimed = {row.id for row in await hand.claim(5)}
    assert len(claimed) == 5
    for name, end in {"retries": RETRYING, "finished": DONE, "failed": FAILED, "gone": DONE}.items():
        await hand.end(end, (jobs[name].id, hand.claim_id))
    store.put([jobs["live"], jobs["waits"]])
    store.conn.execute("delete from finished where id = %s", [jobs["gone"].id])
    looked, deleted, last = upkeep("delete_payloads", after=FIRST, seconds=-60.0)
    assert (looked, deleted, last) == (7, 1, max(job.id for job in jobs.values()))
    assert {row[0] for row in store.ask("select id from payloads")} == {job.id for name, job in jobs.items() if name != "gone"}


def test_the_walk_over_payloads_goes_on_where_it_stopped(upkeep: Upkeep, store: Store) -> None:
    store.conn.execute(
        "insert into payloads select lpad(to_hex(n), 32, '0')::uuid, '1' from generate_series(1, %s) n", [2 * PIECE + 10]
    )
    after, looks = FIRST, []
    while True:
        looked, _, last = upkeep("delete_payloads", after=after, seconds=-60.0)
        looks.append(looked)
        if not looked:
            break
        after = last
    assert looks == [PIECE, PIECE, 10, 0]
    assert store.count("payloads") == 0


def test_young_payloads_are_not_looked_at(upkeep: Upkeep, store: Store) -> None:
    """Their job may be on its way: an id is older than its commit."""
    old, young = UUID(int=5), new_id()
    for job in (old, young):
        store.conn.execute("insert into payloads values (%s, '1')", [job])
    assert upkeep("delete_payloads", after=FIRST, seconds=60.0) == (1, 1, old)
    assert store.ask("select id from payloads") == [(young,)]


def test_the_database_says_which_are_young(upkeep: Upkeep, store: Store, travel: Callable[[str], None]) -> None:
    job = new_id()
    store.conn.execute("insert into payloads values (%s, '1')", [job])
    travel("-1 hour")
    assert upkeep("delete_payloads", after=FIRST, seconds=0.0) == (0, 0, None)
    travel("1 hour")
    assert upkeep("delete_payloads", after=FIRST, seconds=3500.0) == (1, 1, job)


# --- steps ---------------------------------------------------------------------------------------------------------------


def test_steps_go_when_their_job_is_nowhere_and_nothing_of_it_is_being_undone(upkeep: Upkeep, store: Store) -> None:
    put = (
        "insert into steps (job_id, name, unknown, attempt, claim_id, state) values (%s, %s, 'repeat', 1, gen_random_uuid(), %s)"
    )
    (live,) = made = new(1)
    store.put(made)
    gone, undone, young = UUID(int=5), UUID(int=6), new_id()
    for job, name, state in (
        (gone, "a", "done"), (gone, "b", "started"), (undone, "a", "done"), (undone, "b", "compensating"), (young, "a", "done"),
        (live.id, "a", "done"),
    ):  # fmt: skip
        store.conn.execute(put, [job, name, state])
    assert upkeep("delete_steps", after=(FIRST, ""), seconds=60.0) == (4, 2, (undone, "b"))  # an id is older than its commit
    assert upkeep("delete_steps", after=(undone, "b"), seconds=60.0) == (0, 0, None)
    assert upkeep("delete_steps", after=(undone, "b"), seconds=-60.0)[:2] == (2, 1)
    assert store.ask("select job_id, name from steps order by 1, 2") == [(undone, "a"), (undone, "b"), (live.id, "a")]
