"""The database goes away under a running job: case A12."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobwell import App, embedded, settings
from jobwell.store.database import Database
from jobwell.store.migrations import migrate
from tests.crash.conftest import Fleet
from tests.waiting import pause, until

SCHEMA = "jwoutage"


@pytest.fixture
def own() -> Iterator[embedded.Server]:
    """A server of one's own, to be stopped at will; in a folder that its account can reach."""
    server = embedded.start(Path(tempfile.gettempdir(), f"jobwell-outage-{os.getpid()}"))
    yield server
    embedded.stop(server.folder)
    embedded.release(server.folder)
    shutil.rmtree(server.folder, ignore_errors=True)


def outage(own: embedded.Server, log: Path, *, job_seconds: float, down_seconds: float, lease: str) -> None:
    migrate(Database(settings.load({"database_url": own.url, "schema": SCHEMA})))
    app = App(own.url, schema=SCHEMA)

    @app.task(name="nap")
    async def nap(seconds: float, job: str) -> str:
        return job

    def connect() -> "psycopg.Connection[Any]":
        return psycopg.connect(own.url, autocommit=True, options=f"-c search_path={SCHEMA}")

    conn = connect()
    conn.execute(
        f"create table {SCHEMA}.marks (job text, attempt integer, pid integer, what text, at timestamptz default clock_timestamp())"
    )
    fleet = Fleet(own.url, SCHEMA, conn, log)
    try:
        fleet.start(lease=lease)
        fleet.start(lease=lease)
        nap.enqueue(job_seconds, "a")
        until(lambda: fleet.marks("start") == 1)
        app.close()
        conn.close()
        embedded.stop(own.folder)
        pause(down_seconds)
        embedded.start(own.folder)
        fleet.conn = connect()
        until(lambda: fleet.finished() == 1, timeout=job_seconds + 40, what="the job is stored as done")
        assert fleet.marks("start") == 1, "it ran once: the row lease is still its own"
        assert fleet.rows("select attempt, state from finished") == [(1, "succeeded")]
        assert fleet.one("select count(*) from attempts") == 0
        nap.enqueue(0.0, "b")  # and both sides go on
        until(lambda: fleet.finished() == 2)
    finally:
        fleet.end()
        app.close()
        fleet.conn.close()
        embedded.release(own.folder)


def test_a_restart_of_the_database_during_a_job_repeats_nothing(own: embedded.Server, tmp_path: Path) -> None:
    outage(own, tmp_path / "log", job_seconds=3.0, down_seconds=1.5, lease="8s")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_restart_of_the_database_during_a_job_repeats_nothing_at_full_length(own: embedded.Server, tmp_path: Path) -> None:
    outage(own, tmp_path / "log", job_seconds=60.0, down_seconds=3.0, lease="10s")
