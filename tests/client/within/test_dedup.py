"""Equal jobs by every way into a caller's transaction: cases G1, G6 and L2."""

from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Dedup, Duplicate
from tests.client.helpers import count, one
from tests.client.within.ways import Way

Conn = Connection[Any]
pytestmark = pytest.mark.asyncio


def tasks(app: App) -> tuple[Any, Any, Any]:
    @app.task(name="skips", dedup=Dedup("n"))
    def skips(n: int, text: str = "") -> None: ...

    @app.task(name="replaces", dedup=Dedup("n", on_conflict="replace"))
    def replaces(n: int, text: str = "") -> None: ...

    @app.task(name="refuses", dedup=Dedup("n", window="1h", on_conflict="reject"))
    def refuses(n: int, text: str = "") -> None: ...

    return skips, replaces, refuses


async def test_g6_equal_jobs_share_the_callers_transaction(aapp: App, conn: Conn, way: Way, rows: str) -> None:
    """Cases G6 and L2."""
    skips, replaces, refuses = tasks(aapp)
    there = [task.enqueue(1) for task in (skips, replaces, refuses)]
    await way.start()
    await way.execute(f"insert into {rows} values (1)")
    with aapp.within(way.lent):
        assert (await way.enqueue(skips, 1)).id == there[0].id
        assert (await way.enqueue(replaces, 1, text="new " + "x" * 3000)).id == there[1].id
        with pytest.raises(Duplicate) as told:
            await way.enqueue(refuses, 1)
        assert told.value.job_id == there[2].id
        mine = await way.enqueue(skips.using(run_after="1h"), 2)
        again = await way.enqueue(skips, 2)
        assert (mine.created, again.created, again.id == mine.id) == (True, False, True)
        await way.execute(f"insert into {rows} values (2)")
    assert (count(conn), count(conn, "dedup_hits"), count(conn, "payloads")) == (3, 0, 0)
    await way.commit()
    assert (count(conn, rows), count(conn), count(conn, "dedup_hits"), count(conn, "payloads")) == (2, 4, 4, 1)


async def test_what_rolls_back_stands_for_nothing(aapp: App, conn: Conn, way: Way, rows: str) -> None:
    """Cases G1 and L2."""
    skips, _, refuses = tasks(aapp)
    await way.start()
    with aapp.within(way.lent):
        async with way.undone():
            assert (await way.enqueue(skips, 1)).created
            assert (await way.enqueue(refuses, 1)).created
        kept = await way.enqueue(skips, 1)
        assert kept.created
    await way.commit()
    await way.start()
    with aapp.within(way.lent):
        assert (await way.enqueue(refuses, 1)).created
    await way.rollback()
    assert one(conn, "select id from jobs") == kept.id
    assert refuses.enqueue(1).created


async def test_bulks_by_every_way(aapp: App, conn: Conn, way: Way, rows: str) -> None:
    """Case L2: in pieces, with equal ones inside the call and outside of it, and undone as a whole where one is refused."""
    skips, _, refuses = tasks(aapp)
    there = skips.enqueue(5)
    await way.start()
    with aapp.within(way.lent):
        for size in (20, 700):
            found = await way.many(aapp, [skips.job(n // 2) for n in range(size)])
            assert found[10] == found[11] == there.id
        with pytest.raises(Duplicate):
            await way.many(aapp, [*(refuses.job(n) for n in range(300)), refuses.job(7)])
        assert (await way.enqueue(refuses, 7)).created
        await way.execute(f"insert into {rows} values (1)")
    await way.commit()
    assert (count(conn), count(conn, rows)) == (351, 1)
    assert one(conn, "select count(*) from dedup_hits where reason = 'rejected'") == 1
