"""Limits and rates as real workers keep them, several at once."""

import asyncio

from jobwell import App
from jobwell.store import limits
from jobwell.store.statements import run
from tests.core.windows import fullest
from tests.waiting import apause, auntil
from tests.worker.live.helpers import Books, Start


class Crowd:
    """How many are in it now, and at the most."""

    def __init__(self) -> None:
        self.inside = self.most = self.over = 0

    async def stay(self, seconds: float) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await apause(seconds)
        self.inside -= 1
        self.over += 1


async def test_four_workers_together_keep_a_limit_and_use_it(app: App, start: Start, books: Books) -> None:
    crowd, beside = Crowd(), Crowd()
    app.resource("sms", concurrency=3)

    @app.task(name="send", resources=("sms",))
    async def send(n: int) -> None:
        await crowd.stay(0.01)

    @app.task(name="plain")
    async def plain(n: int) -> None:
        await beside.stay(0.01)

    for _ in range(4):
        await start(slots=5)
    await app.aenqueue_many([send.job(n) for n in range(80)])
    await app.aenqueue_many([plain.job(n) for n in range(20)])
    await books.empty()
    assert (crowd.over, beside.over) == (80, 20)
    assert crowd.most == 3
    assert books.rows("select count(*) as n from finished where attempt = 1") == [{"n": 100}]


async def test_four_workers_together_keep_a_rate(app: App, start: Start, books: Books) -> None:
    """In no window on the clock of the database are there more, though a worker stops and another one comes in the middle."""
    app.resource("sms", rate=("10/s", "5/2s"))

    @app.task(name="send", resources=("sms",))
    async def send(n: int) -> None: ...

    crew = [await start(slots=5) for _ in range(4)]
    await app.aenqueue_many([send.job(n) for n in range(12)])
    await auntil(lambda: books.rows("select count(*) as n from finished")[0]["n"] >= 5)
    await crew.pop().stop()
    await start(slots=5)
    await books.empty()
    started = [row["at"] for row in books.rows("select extract(epoch from started_at)::float8 as at from finished order by 1")]
    assert len(started) == 12
    assert fullest(started, 2) <= 5
    assert fullest(started, 1) <= 10
    assert started[-1] - started[0] >= 2 * 7 / 5


async def test_an_operators_value_counts_without_a_restart(app: App, start: Start, books: Books) -> None:
    app.limit_queue("default", concurrency=1)
    crowd, gate = Crowd(), asyncio.Event()

    @app.task(name="stay")
    async def stay(n: int) -> None:
        crowd.inside += 1
        await gate.wait()

    await start(slots=10)
    await start(slots=10)
    await app.aenqueue_many([stay.job(n) for n in range(20)])
    await auntil(lambda: crowd.inside == 1)
    with app.database.connect("test") as conn:
        run(
            conn,
            limits.put(app.database.statements, "queue", "default", "fleet", {"concurrency": 4}, actor="me", why="-", until=None),
        )
        await auntil(lambda: crowd.inside == 4, 5)
        run(
            conn,
            limits.put(app.database.statements, "queue", "default", "fleet", {"concurrency": 0}, actor="me", why="-", until=None),
        )
        gate.set()
        await auntil(lambda: books.rows("select count(*) as n from finished")[0]["n"] == 4)
        assert crowd.inside == 4
        run(conn, limits.clear(app.database.statements, "queue", "default", "fleet"))
    await books.empty()
    assert crowd.inside == 20
