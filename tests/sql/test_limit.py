"""Case D1: a claim takes no more than it was asked for, nor locks more, under any plan."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection

from jobwell.store.jobs import JobVerbs
from jobwell.store.migrations import migrate
from jobwell.store.statements import within
from tests.sql.conftest import Fresh
from tests.store.helpers import GATE, Hand

HOSTILE = ("enable_hashjoin", "enable_mergejoin", "enable_material", "enable_memoize", "enable_bitmapscan")
JOBS = 10_000
WORKER = UUID(int=1)
FILL = f"""
alter table jobwell.jobs set (autovacuum_enabled = false);
insert into jobwell.workers (id, lease_until, pid, host, name, version, slots, queues)
values ('{WORKER}', now() + interval '1 day', 1, 'h', 'h', '0', 1, array['default']);
insert into jobwell.jobs (id, gate, task, tenant, lock_key)
select gen_random_uuid(), {GATE}, 'note', 't' || n %% 7, case when n %% 5 = 0 then 'k' || n else '' end from generate_series(1, {JOBS}) n
"""


@pytest.fixture
def schema_without_statistics(fresh: Fresh, server: "psycopg.Connection[Any]") -> Any:
    """10,000 ready jobs in a table that was never analysed."""
    database = fresh()
    migrate(database)
    server.execute(within(FILL, database.settings.schema).replace("%%", "%"))  # type: ignore[call-overload]
    never = "select reltuples <= 0 and not exists (select from pg_statistic where starelid = c.oid) from pg_class c where oid = %s::regclass"
    assert server.execute(never, [f"{database.settings.schema}.jobs"]).fetchone() == (True,)
    return database


@pytest.mark.parametrize("want", [1, 5])
async def test_ten_claimers_never_get_more_than_asked_for(schema_without_statistics: Any, want: int) -> None:
    database = schema_without_statistics
    taken: list[Any] = []
    enough = 800

    async def work(hand: Hand) -> None:
        for setting in HOSTILE:
            await hand.conn.execute(f"set {setting} = off")  # type: ignore[call-overload]
        while len(taken) < enough:
            rows = await hand.claim(want)
            assert len(rows) <= want
            taken.extend(row.id for row in rows)

    async with AsyncExitStack() as stack:
        hands = []
        for _ in range(10):
            conn = await stack.enter_async_context(await AsyncConnection.connect(database.url, autocommit=True))
            hands.append(Hand(conn, JobVerbs(database.statements), WORKER))
        await asyncio.gather(*map(work, hands))
        assert len(set(taken)) == len(taken)
        running = await (
            await hands[0].conn.execute(f"select count(*) from {database.settings.schema}.jobs where state = 'running'")
        ).fetchone()  # type: ignore[call-overload]
        assert running == (len(taken),)


@pytest.mark.parametrize("want", [1, 5, 50])
async def test_nor_does_a_claim_lock_more_than_it_takes(schema_without_statistics: Any, want: int) -> None:
    database = schema_without_statistics
    async with (
        await AsyncConnection.connect(database.url, autocommit=True) as conn,
        await AsyncConnection.connect(database.url) as other,
    ):
        for setting in HOSTILE:
            await conn.execute(f"set {setting} = off")  # type: ignore[call-overload]
        hand = Hand(conn, JobVerbs(database.statements), WORKER)
        async with conn.transaction():
            rows = await hand.claim(want)
            assert len(rows) == want
            free = await other.execute(
                f"select count(*) from (select from {database.settings.schema}.jobs for update skip locked) f"
            )  # type: ignore[call-overload]
            assert await free.fetchone() == (JOBS - want,)
            await other.rollback()
