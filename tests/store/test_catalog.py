"""Workers publish what they can run."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import Connection

from jobwell import App, NotFound
from jobwell.core.ids import new_id
from jobwell.core.published import publish
from jobwell.store import catalog
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.worker import Worker
from tests.store.helpers import Hand, Store


@pytest.fixture
def specs(app: App) -> dict[str, str]:
    @app.task(name="b", queue="bulk")
    async def b(n: int) -> None: ...

    @app.task(name="a")
    async def a(n: int) -> None: ...

    return {spec.name: publish(spec) for spec in app.catalog}


async def test_a_worker_publishes_once_at_its_start(app: App, store: Store, specs: dict[str, str]) -> None:
    worker = Worker(app, slots=1)
    living = asyncio.create_task(worker.run())
    await worker.ready()
    assert store.one("select tasks from workers where id = %s", worker.id) == ["a", "b"]
    assert store.ask("select task, spec::text from catalog order by task") == sorted(specs.items())
    worker.stop()
    assert await living == 0
    assert store.count("catalog") == 2  # it stays, for those who enqueue while no worker lives


async def test_what_is_known_already_is_not_written_again(app: App, store: Store, hand: Hand, specs: dict[str, str]) -> None:
    def put(given: dict[str, str], release: str = "1") -> int:
        return run(store.conn, catalog.publish(store.statements, hand.worker, given, release=release))

    assert put(specs) == 2
    assert put(specs) == 0
    assert put(specs | {"a": specs["b"]}) == 1
    assert put(specs, "2") == 2
    store.conn.execute("update catalog set seen_at = seen_at - interval '2 hours'")
    assert put(specs, "2") == 2
    assert put({}) == 0


async def test_one_and_the_nearest(store: Store, hand: Hand, specs: dict[str, str]) -> None:
    with pytest.raises(NotFound, match="no worker has published its tasks"):
        run(store.conn, catalog.one(store.statements, "a"))
    run(store.conn, catalog.publish(store.statements, hand.worker, specs, release="1"))
    assert run(store.conn, catalog.one(store.statements, "b")).queue == "bulk"
    with pytest.raises(NotFound, match="there are a, b"):
        run(store.conn, catalog.one(store.statements, "zzz"))
    assert run(store.conn, catalog.queues(store.statements)) == ["bulk", "default"]


def test_workers_that_start_together_do_not_wait_in_a_circle(
    app: App, conn: "Connection[object]", workers: WorkerVerbs, specs: dict[str, str]
) -> None:
    many = {f"task_{n}": specs["a"] for n in range(200)}

    def start(order: int) -> int:
        worker, given = new_id(), dict(sorted(many.items(), reverse=bool(order % 2)))
        with app.database.connect("test") as own:
            run(own, workers.register(worker, lease=9.0, pid=1, host="h", name="n", version="0", slots=1, queues=["default"]))
            return sum(run(own, catalog.publish(app.database.statements, worker, given, release=str(order))) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(8))) >= 200
