"""Each test of the matrix runs once for each way."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from psycopg import Connection

from tests.client.within.ways import WAYS, Way


@pytest.fixture(params=WAYS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[Way]:
    """A way in."""
    found: type[Way] = request.param
    return found


@pytest_asyncio.fixture
async def way(kind: type[Way], database_url: str, rows: str) -> AsyncIterator[Way]:
    """A caller by this way."""
    caller = kind(database_url)
    await caller.open()
    yield caller
    await caller.rollback()
    await caller.end()


@pytest.fixture
def rows(conn: "Connection[Any]", orders: str, schema: str) -> str:
    """The caller's table, by its full name."""
    return f"{schema}.{orders}"
