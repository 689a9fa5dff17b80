"""The app of `tasks.py` on the test's tables; its children are told what it overrides."""

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App
from tests.worker.apart import tasks
from tests.worker.helpers import Desk


@pytest.fixture
def app(database_url: str, schema: str, conn: "Connection[Any]") -> Iterator[App]:
    """The app that children import; it leads to the same tables there, by what it overrides: their environment says nothing."""
    tasks.app.close()
    tasks.app.override({"database_url": database_url, "schema": schema})
    yield tasks.app
    tasks.app.close()


@pytest.fixture
def desk(app: App, conn: "Connection[Any]") -> Desk:
    """What the store says."""
    return Desk(app, conn)
