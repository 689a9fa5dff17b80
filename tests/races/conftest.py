"""The store's fixtures, and proof that one connection waits for another."""

from collections.abc import Awaitable, Callable

import pytest

from tests.store.conftest import hand, hands, store, workers
from tests.store.helpers import Hand, Store
from tests.waiting import auntil

__all__ = ["hand", "hands", "store", "workers"]
Waits = Callable[[Hand], Awaitable[object]]


@pytest.fixture
def waits(store: Store) -> Waits:
    """Wait until this hand's connection waits for a lock."""
    query = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    return lambda one: auntil(lambda: store.ask(query, one.conn.info.backend_pid), what="it waits for a lock")
