"""A queue that takes no more, by every way into a caller's transaction: refused, and the transaction goes on."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Queue, QueueFull
from tests.client.helpers import count, one
from tests.client.within.ways import Way

pytestmark = pytest.mark.asyncio


async def test_every_way_is_refused_and_goes_on(
    store_settings: dict[str, Any], schema: str, conn: Connection[Any], way: Way, rows: str
) -> None:
    app = App(**store_settings, schema=schema, queues=Queue("bulk", hard=600))

    @app.task(name="item", queue="bulk")
    def item(n: int) -> None: ...

    app.client.gauge.clock = lambda: 100.0  # nobody counts anew: what this transaction has stored is in no count yet
    await way.start()
    await way.execute(f"insert into {rows} values (1)")
    with app.within(way.lent):
        await way.many(app, (item.job(n) for n in range(590)))
        for few_or_many in (11, 611):
            with pytest.raises(QueueFull):
                await way.many(app, (item.job(n) for n in range(few_or_many)))
        for n in range(10):
            await way.enqueue(item, n)
        with pytest.raises(QueueFull):
            await way.enqueue(item, 11)
    await way.execute(f"insert into {rows} values (2)")
    await way.commit()
    await app.aclose()
    assert (count(conn), one(conn, f"select count(*) from {rows}")) == (600, 2)
