"""Case D6: a transaction elsewhere holds its snapshot, so that nothing which was claimed since can be cleaned away."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from jobwell import App, settings
from jobwell.store.database import Database
from jobwell.store.jobs import JobVerbs
from jobwell.store.migrations import migrate
from tests.waiting import auntil
from tests.worker.helpers import Desk, working


@dataclass
class Meter:
    """What the claims of a measured flood cost."""

    reads: int = 0
    jobs: int = 0
    times: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def reads_per_job(self) -> float:
        return self.reads / max(1, self.jobs)

    @property
    def seconds_in_claims(self) -> float:
        return sum(self.times)

    def __str__(self) -> str:
        times = sorted(self.times)
        return (
            f"{self.jobs} jobs in {self.seconds:.2f} s, {len(times)} claims in {self.seconds_in_claims:.2f} s, {self.reads_per_job:.1f} index entries"
            f" read for a job, claims p50 {1000 * times[len(times) // 2]:.1f} ms, p99 {1000 * times[len(times) * 99 // 100]:.1f} ms"
        )


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    """In a database of its own: a held snapshot is felt in the whole of its database, by the tests beside this one too."""
    name = f"jwpinned_{os.getpid()}"
    url = urlsplit(database_url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute(f"drop database if exists {name} with (force)")
        server.execute(f"create database {name}")
        migrate(Database(settings.load({"database_url": url})))
        app = App(url)
        yield app
        app.close()
        server.execute(f"drop database {name} with (force)")


@pytest.fixture
def conn(app: App) -> Iterator["psycopg.Connection[Any]"]:
    """A connection there."""
    with psycopg.connect(app.settings.url, autocommit=True, options="-c search_path=jobwell") as conn:
        yield conn


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Meter]]:
    """The last one of the list counts."""
    meters = [Meter()]
    true = JobVerbs.claim

    async def claim(self: Any, conn: Any, request: Any) -> Any:
        began = time.perf_counter()
        rows = await true(self, conn, request)
        meters[-1].times.append(time.perf_counter() - began)
        meters[-1].jobs += len(rows)
        meters[-1].reads += rows[-1].reads if rows else 0
        return rows

    monkeypatch.setattr(JobVerbs, "claim", claim)
    return meters


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("tenants", "dead"), [(1, 20_000), (10, 20_000), pytest.param(10, 200_000, marks=pytest.mark.long)])
async def test_a_held_snapshot_does_not_slow_the_claims_down(
    app: App, desk: Desk, meter: list[Meter], tenants: int, dead: int
) -> None:
    """Thousands of jobs go through and leave their dead entries at the head of each lane; the next ones cost about as before."""

    done = 0

    @app.task(name="nothing", tenant="n")
    async def nothing(n: int) -> None:
        nonlocal done
        done += 1

    async def flood(amount: int) -> Meter:
        nonlocal done
        done = 0
        meter.append(Meter())
        app.enqueue_many(nothing.job(n % tenants) for n in range(amount))
        began = time.perf_counter()
        async with working(app, slots=100):
            await auntil(lambda: done == amount, timeout=300)
            meter[-1].seconds = time.perf_counter() - began
            await desk.settled()
        return meter[-1]

    desk.conn.execute("vacuum (analyze) jobs")
    await flood(2000)
    desk.conn.execute("vacuum jobs")
    clean = await flood(5000)
    with psycopg.connect(app.settings.url) as pin:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select 1")
        filling = await flood(dead)
        pinned = await flood(5000)
    said = f"\nclean:   {clean}\nfilling: {filling}\npinned:  {pinned}"
    # A whole look now and then walks over all the dead; what lies between must not.
    assert pinned.reads < 4 * dead + 50 * pinned.jobs, said
    assert sorted(pinned.times)[len(pinned.times) // 2] < 3 * sorted(clean.times)[len(clean.times) // 2] + 0.005, said
    assert pinned.seconds_in_claims < 3 * clean.seconds_in_claims + 0.5, said


async def test_a_job_that_commits_late_is_found_under_a_held_snapshot_too(app: App, desk: Desk) -> None:
    """Its time lies far behind the marks of its lane, and the flood goes on."""
    seen: list[int] = []

    @app.task(name="nothing")
    async def nothing(n: int) -> None:
        seen.append(n)

    with psycopg.connect(app.settings.url) as pin, psycopg.connect(app.settings.url) as caller:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select 1")
        app.enqueue_many(nothing.job(n) for n in range(20_000))
        async with working(app, slots=100):
            nothing.using(conn=caller).enqueue(-1)
            await desk.settled(timeout=100)
            app.enqueue_many(nothing.job(n) for n in range(60_000))
            await auntil(lambda: len(seen) > 22_000)
            caller.commit()
            await auntil(lambda: -1 in seen, timeout=20)
            assert desk.one("select count(*) from jobs where state = 'ready'") > 0, "the flood was over before"
            desk.conn.execute("delete from jobs where state = 'ready'")
