"""A real PostgreSQL for every test that asks for one: one schema per test process, its tables empty at the start of each test.

JOBWELL_TEST_DATABASE_URL names the server; without it the embedded one is started. No other JOBWELL_* variable of the
developer reaches a test.

JOBWELL_TEST_POOLER=direct or =alone puts a PgBouncer in transaction mode between the code under test and the server: with or
without a `direct_url` past it. The tests' own look-ups go to the server itself.
"""

import getpass
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg import Connection, sql

from jobwell import App
from jobwell.testing import Schema, Testbed
from tests.pgbouncer.helpers import Bouncer

for _name in [name for name in os.environ if name.startswith("JOBWELL_") and not name.startswith("JOBWELL_TEST_")]:
    del os.environ[_name]

hypothesis.settings.register_profile("jobwell", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("jobwell")

POOLER = os.environ.get("JOBWELL_TEST_POOLER", "")
needs_wakeups = pytest.mark.skipif(POOLER == "alone", reason="no notification passes a pooler in transaction mode")
IMPATIENT = "-c lock_timeout=15s"  # a test that leaves a transaction open fails the next one, and does not hang it


@pytest.fixture(scope="session")
def database_url() -> str:
    """The server."""
    given = os.environ.get("JOBWELL_TEST_DATABASE_URL")
    if given:
        return given
    from jobwell import embedded

    return embedded.start(Path(tempfile.gettempdir(), f"jobwell-tests-{getpass.getuser()}")).url


@pytest.fixture(scope="session")
def store_settings(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """How the code under test reaches the server: arguments of an App."""
    if not POOLER:
        yield {"database_url": database_url}
        return
    assert POOLER in {"direct", "alone"}
    bouncer = Bouncer(database_url, tmp_path_factory.mktemp("pgbouncer"))
    yield {"database_url": bouncer.url} | ({"direct_url": database_url} if POOLER == "direct" else {})
    bouncer.close()


@pytest.fixture(scope="session")
def kit(database_url: str) -> Iterator[Schema]:
    """A migrated schema that belongs to this process."""
    with Schema(database_url) as made:
        yield made


@pytest.fixture(scope="session")
def schema(kit: Schema) -> str:
    """Its name."""
    return kit.name


@pytest.fixture
def conn(database_url: str, schema: str) -> Iterator["Connection[Any]"]:
    """An autocommit connection that finds the tables by their bare names; they are empty."""
    with psycopg.connect(database_url, autocommit=True, options=f"{IMPATIENT} -c search_path={schema}") as conn:
        empty(conn, schema)
        yield conn


def empty(conn: "Connection[Any]", schema: str) -> None:
    """Truncate the tables that hold rows; to truncate them all, partitions included, would take longer than most tests."""
    tables = conn.execute(
        "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p') and not relispartition"
        " and relname not in ('store', 'migrations')",
        [schema],
    ).fetchall()
    hold_rows = sql.SQL(" union all ").join(
        sql.SQL("select {} where exists (select from {})").format(name, sql.Identifier(name)) for (name,) in tables
    )
    used = [sql.Identifier(name) for (name,) in conn.execute(hold_rows)]
    # Dead entries of the test before are not nothing: claims walk over them while somebody's snapshot keeps them.
    if sql.Identifier("jobs") not in used and conn.execute("select pg_relation_size('jobs') > 0").fetchone() == (True,):
        used.append(sql.Identifier("jobs"))
    if used:
        conn.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(used)))


@pytest.fixture
def app(store_settings: dict[str, Any], schema: str, conn: "Connection[Any]") -> Iterator[App]:
    """A fresh app on empty tables."""
    app = App(**store_settings, schema=schema)
    yield app
    app.close()


@pytest.fixture
def bed(app: App, kit: Schema) -> Iterator[Testbed]:
    """The app in a testbed: its jobs are run by the test, and the clock travels."""
    with Testbed(app, schema=kit) as bed:
        yield bed


@pytest.fixture
def travel(kit: Schema) -> Iterator[Callable[[str], None]]:
    """Set this schema's clock off by so much, such as "-3 days"; it is right again at the end."""

    def move(by: str) -> None:
        count, unit = by.split()
        kit.clock.reset()
        kit.clock.travel(timedelta(**{f"{unit.removesuffix('s')}s": int(count)}))

    yield move
    kit.clock.reset()
