"""Real workers in this process, on empty tables."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from psycopg import Connection

from jobwell import App
from jobwell.worker import heartbeat
from tests.worker.live.helpers import Books, Make, Start, Working


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat looks up more often, so that a worker ends sooner and a blocked loop is seen sooner."""
    monkeypatch.setattr(heartbeat, "BLOCKED_AFTER", 0.2)


@pytest.fixture
def books(conn: "Connection[Any]") -> Books:
    """The tables, as they are committed."""
    return Books(conn)


@pytest_asyncio.fixture
async def make(store_settings: dict[str, Any], schema: str, conn: "Connection[Any]") -> AsyncIterator[Make]:
    """Makes apps with settings of their own."""
    async with AsyncExitStack() as stack:

        def make(**given: Any) -> App:
            app = App(**store_settings, schema=schema, **given)
            stack.push_async_callback(app.aclose)
            return app

        yield make


@pytest.fixture
def app(make: Make) -> App:
    """An app with the usual settings."""
    return make()


@pytest_asyncio.fixture
async def start(app: App, make: Make) -> AsyncIterator[Start]:
    """Starts workers, of the usual app or another one; what is left of them at the end stops at once."""
    working: list[Working] = []

    async def start(of: App | None = None, **options: Any) -> Working:
        one = Working(of or app, **{"slots": 10} | options)
        working.append(one)
        await one.ready()
        return one

    yield start
    for one in working:
        await one.stop(at_once=True)
