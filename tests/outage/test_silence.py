"""A peer that takes everything and never answers: every operation ends in bounded time, and says what is known."""

import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from jobwell import App, StoreUnavailable
from jobwell.core.ids import new_id
from jobwell.store import pool
from jobwell.store.jobs import ClaimRequest, JobVerbs
from jobwell.store.link import Link
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.outage.helpers import Proxy, note_of

LIMIT = 6.0  # one statement (1 s), the request to cancel it (1 s), one attempt to connect (2 s, the driver's least), and room


@pytest.fixture
def app(proxy: Proxy, schema: str, conn: object) -> Iterator[App]:
    app = App(proxy.url, schema=schema, statement_timeout=1, connect_timeout=1)
    yield app
    app.close()


@pytest_asyncio.fixture
async def aapp(app: App) -> AsyncIterator[App]:
    yield app
    await app.aclose()


def test_plain_code_is_told_in_time_and_goes_on_when_the_server_speaks_again(app: App, proxy: Proxy) -> None:
    note = note_of(app)
    job = note.enqueue(1)
    proxy.fall_silent()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"did not answer in time: no answer for 1 s; the answer is lost") as told:
        note.enqueue(2)
    assert told.value.unsure
    assert time.monotonic() - began < LIMIT
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be reached") as told:
        job.status()
    assert not told.value.unsure, "no connection: nothing was sent"
    assert time.monotonic() - began < LIMIT
    proxy.speak()
    note.enqueue(3)
    assert job.status() == "ready"


async def test_async_code_is_told_in_time_and_goes_on_when_the_server_speaks_again(aapp: App, proxy: Proxy) -> None:
    note = note_of(aapp)
    job = await note.aenqueue(1)
    proxy.fall_silent()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer in time") as told:
        await job.astatus()
    assert told.value.unsure
    with pytest.raises(StoreUnavailable, match="cannot be reached") as told:
        await note.aenqueue(2)
    assert not told.value.unsure
    assert time.monotonic() - began < 2 * LIMIT
    proxy.speak()
    await note.aenqueue(3)


def test_a_bulk_is_told_in_time(app: App, proxy: Proxy) -> None:
    note = note_of(app)
    note.enqueue(1)

    def jobs() -> Iterator[object]:
        for n in range(3000):
            if n == 1000:
                proxy.fall_silent()
            yield note.job(n)

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        app.enqueue_many(jobs())  # type: ignore[arg-type]
    assert time.monotonic() - began < LIMIT


async def test_a_claim_is_told_in_time(app: App, proxy: Proxy) -> None:
    link, verbs = Link(app.database, "claims"), JobVerbs(app.database.statements)
    request = ClaimRequest(new_id(), new_id(), ["default"], [], 1)
    async with link.use() as conn:
        assert await verbs.claim(conn, request) == []
    proxy.fall_silent()
    began = time.monotonic()
    with pytest.raises(Exception, match="no answer for 1 s"):
        async with link.use() as conn:
            await verbs.claim(conn, request)
    assert time.monotonic() - began < LIMIT
    proxy.speak()
    async with link.use() as conn:
        assert await verbs.claim(conn, request) == []
    await link.close()


def test_a_renewal_is_told_in_time(app: App, proxy: Proxy) -> None:
    workers = WorkerVerbs(app.database.statements)
    with app.database.connect("heartbeat", direct=True, patience=1.0) as conn:
        assert run(conn, workers.renew(new_id(), lease=2.0, busy=0)) is None
        proxy.fall_silent()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer in time"), app.database.telling():
            run(conn, workers.renew(new_id(), lease=2.0, busy=0))
        assert time.monotonic() - began < LIMIT


def test_what_a_firewall_forgot_while_it_rested_is_found_before_it_is_used(
    app: App, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = note_of(app)
    job = note.enqueue(1)
    monkeypatch.setattr(pool, "PROVE_AFTER", 0.0)  # as if it had rested for so long
    proxy.fall_silent()
    proxy.speak()
    began = time.monotonic()
    assert job.status() == "ready"
    assert time.monotonic() - began < LIMIT


async def test_the_same_for_async_code(aapp: App, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    note = note_of(aapp)
    job = await note.aenqueue(1)
    monkeypatch.setattr(pool, "PROVE_AFTER", 0.0)
    proxy.fall_silent()
    proxy.speak()
    began = time.monotonic()
    assert await job.astatus() == "ready"
    assert time.monotonic() - began < LIMIT
