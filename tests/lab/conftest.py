"""The test server for benchmarks, and what they leave on it."""

import fcntl
import getpass
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobwell import settings
from jobwell.settings import Settings

Left = Callable[[], list[str]]


@pytest.fixture(autouse=True)
def _turn() -> Iterator[None]:
    """One test of benchmarks at a time: they look for what others would leave on the same server."""
    with Path(tempfile.gettempdir(), f"jobwell-tests-lab-{getpass.getuser()}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@pytest.fixture
def given(database_url: str) -> Settings:
    """Settings that name the test server."""
    return settings.load({"database_url": database_url})


@pytest.fixture
def server(database_url: str) -> "Iterator[psycopg.Connection[Any]]":
    """A connection to the test server that belongs to no benchmark."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def left(server: "psycopg.Connection[Any]") -> Left:
    """Names the schemas and databases of benchmarks that are there."""

    def look() -> list[str]:
        found = server.execute(
            "select 'schema ' || nspname from pg_namespace where nspname like 'jobwell_bench%'"
            " union all select 'database ' || datname from pg_database where datname like 'jobwell_bench%'"
        ).fetchall()
        return [name for (name,) in found]

    return look
