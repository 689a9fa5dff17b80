"""The store's tables, and workers reduced to what the store sees of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from psycopg import Connection

from jobwell import App
from jobwell.store.jobs import JobVerbs
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.store.helpers import Hand, Store

Hands = Callable[..., Awaitable[Hand]]


@pytest.fixture
def store(app: App, conn: "Connection[Any]") -> Store:
    """Empty tables."""
    return Store(conn, app.database.statements)


@pytest.fixture
def workers(app: App) -> WorkerVerbs:
    """Verbs about workers."""
    return WorkerVerbs(app.database.statements)


@pytest_asyncio.fixture
async def hands(app: App, store: Store, workers: WorkerVerbs) -> AsyncIterator[Hands]:
    """Makes registered workers, each with a connection of its own."""
    async with AsyncExitStack() as stack:

        async def make(host: str = "here") -> Hand:
            conn = await stack.enter_async_context(await app.database.aconnect("test"))
            hand = Hand(conn, JobVerbs(app.database.statements))
            run(store.conn, workers.register(
                hand.worker, lease=60.0, pid=1, host=host, name="here/1", version="0", slots=10, queues=["default"]))  # fmt: skip
            return hand

        yield make


@pytest_asyncio.fixture
async def hand(hands: Hands) -> Hand:
    """One of them."""
    return await hands()
