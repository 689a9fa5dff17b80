"""A spread by every way into a caller's transaction."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from jobwell.client.task import Task
from tests.client.within.ways import Way

pytestmark = pytest.mark.asyncio
PLACES = "select extract(epoch from run_at - min(enqueued_at) over ())::float8 from jobs order by (args->>'n')::int"


@pytest.mark.parametrize("amount", [5, 1200])
async def test_every_way_within_spreads(aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way, amount: int) -> None:
    await way.start()
    with aapp.within(way.lent):
        jobs = [note.job(n) for n in range(amount)]
        if way.asynchronous:
            await aapp.aenqueue_many(jobs, spread="10m")
        else:
            aapp.enqueue_many(jobs, spread="10m")
    await way.commit()
    places = [place for (place,) in conn.execute(PLACES).fetchall()]
    assert places == pytest.approx([600 * n / amount for n in range(amount)], abs=2)
