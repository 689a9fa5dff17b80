"""Schemas of one's own, dropped at the end."""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from jobwell import settings
from jobwell.store.database import Database

Fresh = Callable[[], Database]


@pytest.fixture
def server(database_url: str) -> Iterator["Connection[Any]"]:
    """A connection that belongs to no schema."""
    with psycopg.connect(database_url, autocommit=True, options="-c lock_timeout=15s") as conn:
        yield conn


@pytest.fixture
def fresh(database_url: str, server: "Connection[Any]") -> Iterator[Fresh]:
    """Databases, each with the name of a schema that does not exist yet."""
    made: list[str] = []
    numbers = itertools.count()

    def make() -> Database:
        made.append(f"jwsql_{os.getpid()}_{next(numbers)}")
        return Database(settings.load({"database_url": database_url, "schema": made[-1]}))

    yield make
    for name in made:
        server.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))
