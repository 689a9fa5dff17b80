"""The listener heals by itself and its mode is the truth: case E1. Polling is off here, so whoever is quick was woken."""

import asyncio
import logging
import time
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, embedded
from jobwell.client.task import Task
from jobwell.store.database import Database
from jobwell.worker import ears, heartbeat
from tests.outage.conftest import Own
from tests.outage.helpers import Proxy
from tests.waiting import apause, auntil, until
from tests.worker.helpers import working

BACK = 5.0  # seconds after the database's return
QUICK = 0.5
LISTENER = "application_name = 'jobwell heartbeat' and datname = current_database()"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BLOCKED_AFTER", 0.2)


class Watch:
    """When jobs began, by the clock of this process."""

    def __init__(self, app: App) -> None:
        self.began: dict[int, float] = {}

        @app.task(name="note")
        def note(n: int) -> None:
            self.began[n] = time.monotonic()

        self.note: Task[..., None] = note
        self.n = 0

    async def took(self) -> float:
        """Seconds from the enqueue to the start of a job."""
        self.n += 1
        asked = time.monotonic()
        await self.note.aenqueue(self.n)
        await auntil(lambda: self.n in self.began)
        return self.began[self.n] - asked

    async def quick(self, conn: "Connection[Any]") -> None:
        """An idle worker is woken."""
        await auntil(lambda: conn.execute("select idle and wakeups = 'notify' from workers").fetchone() == (True,), BACK)
        assert min([await self.took() for _ in range(3)]) < QUICK


async def test_a_dismissed_listener_listens_again(own: Own) -> None:
    app = own.app(poll=60)
    watch = Watch(app)
    with own.connect() as conn:
        async with working(app, slots=2):
            await watch.quick(conn)
            for _ in range(2):
                assert conn.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {LISTENER}").rowcount == 1
                began = time.monotonic()
                await auntil(lambda: conn.execute(f"select count(*) from pg_stat_activity where {LISTENER}").fetchone() == (1,))
                await watch.quick(conn)
                assert time.monotonic() - began < BACK
    await app.aclose()


async def test_after_a_restart_and_an_outage_everybody_is_woken_again(own: Own, caplog: pytest.LogCaptureFixture) -> None:
    """Also case E4: worker and producer work again, nobody ends, and the log stays short."""
    caplog.set_level(logging.INFO)
    app = own.app(poll=60)
    watch = Watch(app)
    async with working(app, slots=2) as worker:
        for seconds in (0.0, 2.0):
            own.stop()
            await apause(seconds)
            own.start()
            back = time.monotonic()
            assert await watch.took() < BACK
            with own.connect() as conn:
                await watch.quick(conn)
            assert time.monotonic() - back < BACK + 1
        assert worker._exit == 0
    told = [record.getMessage() for record in caplog.records if "waits" in record.getMessage()]
    assert len(told) <= 2 * 8, told
    await app.aclose()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [30.0, 360.0])
async def test_after_a_long_outage_everybody_works_again(own: Own, seconds: float) -> None:
    """Case E4. A lease that ends meanwhile ends the worker, and the supervisor starts another; so this lease is long."""
    app = own.app(poll=60, lease=600)
    watch = Watch(app)
    async with working(app, slots=2):
        assert await watch.took() < BACK
        own.stop()
        until(lambda: not embedded.is_running(own.folder))
        await apause(seconds)
        own.start()
        assert await watch.took() < 10.0
    await app.aclose()


async def test_who_starts_while_the_database_is_away_begins_when_it_is_back(own: Own, caplog: pytest.LogCaptureFixture) -> None:
    """Case E4."""
    app = own.app(poll=60)
    watch = Watch(app)
    own.stop()
    fleet = working(app, slots=2)
    opened = asyncio.create_task(fleet.__aenter__())
    await auntil(lambda: any("the start waits for the store" in record.getMessage() for record in caplog.records))
    own.start()
    await asyncio.wait_for(opened, BACK)
    assert sum("the start waits for the store" in record.getMessage() for record in caplog.records) == 1
    with own.connect() as conn:
        await watch.quick(conn)
    await fleet.__aexit__(None, None, None)
    await app.aclose()


async def test_a_direct_url_that_does_not_work_costs_only_wake_ups_until_it_is_mended(
    own: Own, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "AGAIN", 0.5)
    proxy = Proxy(own.url)
    proxy.close()
    app = own.app(direct_url=proxy.url, lease=8)
    watch = Watch(app)
    with own.connect() as conn:
        async with working(app, slots=2):
            assert await watch.took() < QUICK + 1, "by polling"
            await auntil(lambda: conn.execute("select beat_at > started_at + interval '1 s' from workers").fetchone() == (True,))
            assert conn.execute("select state, wakeups from workers").fetchone() == ("live", "poll")
            assert sum("direct_url does not work" in record.getMessage() for record in caplog.records) == 1
            proxy.open()
            await watch.quick(conn)
            proxy.fall_silent()
            await auntil(lambda: conn.execute("select wakeups from workers").fetchone() == ("poll",))
            assert await watch.took() < QUICK + 1
            proxy.speak()
            await watch.quick(conn)
    proxy.close()
    await app.aclose()


async def test_a_listener_that_hears_nothing_is_found_out(own: Own, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """As behind a pooler that nobody knows of: LISTEN succeeds, and nothing ever comes."""
    monkeypatch.setattr(ears, "TRY_AGAIN", 0.5)
    deaf = True
    heard = ears.Ears.heard

    def hear(self: ears.Ears, text: str) -> None:
        if not deaf:
            heard(self, text)

    monkeypatch.setattr(ears.Ears, "heard", hear)
    app = own.app()
    watch = Watch(app)
    with own.connect() as conn:
        async with working(app, slots=2):
            await auntil(lambda: any("did not come back" in record.getMessage() for record in caplog.records), 5)
            assert conn.execute("select wakeups from workers").fetchone() == ("poll",)
            assert await watch.took() < QUICK + 1
            deaf = False
            await watch.quick(conn)
    await app.aclose()


async def test_a_subscription_that_was_dropped_is_made_again(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    app = own.app(poll=60, lease=2)
    watch = Watch(app)
    connections: list[Any] = []
    connect = Database.connect

    def kept(self: Database, name: str = "tool", **options: Any) -> Any:
        connections.append(connect(self, name, **options))
        return connections[-1]

    monkeypatch.setattr(Database, "connect", kept)
    with own.connect() as conn:
        async with working(app, slots=2):
            await watch.quick(conn)
            await auntil(lambda: unlisten(connections[-1]))
            await auntil(lambda: len(connections) == 2)
            await watch.quick(conn)
    await app.aclose()


def unlisten(conn: Any) -> bool:
    """Between two waits of the heartbeat's thread."""
    conn.execute("unlisten *")
    return True
