"""Servers that go away, fall silent, and come back."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App, embedded, settings
from jobwell.store.database import Database
from jobwell.store.migrations import migrate
from tests.outage.helpers import Proxy
from tests.worker.helpers import Desk

SCHEMA = "jwoutage"


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """Before the usual server."""
    made = Proxy(database_url)
    yield made
    made.close()


@dataclass
class Own:
    """A server of one's own, to be stopped at will; in a folder that its account can reach."""

    folder: Path
    url: str = field(default="", repr=False)

    def start(self) -> None:
        """Start it; the URL is the same every time."""
        self.url = embedded.start(self.folder).url

    def stop(self) -> None:
        """Stop it; its connections are cut."""
        embedded.stop(self.folder)
        embedded.release(self.folder)

    def connect(self) -> "Connection[Any]":
        """The test's own connection."""
        return psycopg.connect(self.url, autocommit=True, options=f"-c search_path={SCHEMA}")

    def app(self, **given: Any) -> App:
        """An app on its store."""
        return App(**({"database_url": self.url} | given), schema=SCHEMA)


@pytest.fixture(scope="session")
def own_server() -> Iterator[Own]:
    """Made once: to fill a cluster takes a second."""
    made = Own(Path(tempfile.gettempdir(), f"jobwell-outages-{os.getpid()}"))
    made.start()
    migrate(Database(settings.load({"database_url": made.url, "schema": SCHEMA})))
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture
def own(own_server: Own) -> Own:
    """Running, with empty tables."""
    if not embedded.is_running(own_server.folder):
        own_server.start()
    with own_server.connect() as conn:
        conn.execute("truncate jobs, finished, attempts, payloads, quarantine, workers")
    return own_server


@pytest.fixture
def desk(app: App, conn: "Connection[Any]") -> Desk:
    """What the store says."""
    return Desk(app, conn)
