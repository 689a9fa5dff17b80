"""The store's fixtures, and proof that one connection waits for another."""

from collections.abc import Callable

import pytest
from psycopg import Connection

from tests.client.conftest import aapp, acaller, caller, orders
from tests.store.conftest import hand, hands, store, workers
from tests.store.helpers import Store
from tests.waiting import until

__all__ = ["aapp", "acaller", "caller", "hand", "hands", "orders", "store", "workers"]
Waiting = Callable[[int], object]


@pytest.fixture
def waiting(store: Store) -> Waiting:
    """Wait until the connection of this backend waits for a lock."""
    query = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    return lambda pid: until(lambda: store.ask(query, pid), what="it waits for a lock")


@pytest.fixture
def beside(database_url: str, schema: str) -> Callable[[], Connection]:
    """Makes further connections of callers."""
    import psycopg

    return lambda: psycopg.connect(database_url, options=f"-c search_path={schema}")
