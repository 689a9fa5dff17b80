"""Real worker processes that are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg import Connection

from jobwell import App
from tests.waiting import until

ROOT = Path(__file__).parents[2]
LEASE = 3.0


class Fleet:
    """Supervisors with their workers, and what their jobs have left.

    Args:
        url, schema: where.
        conn: the test's own connection.
        log: collects what the processes say.
    """

    target = "tests.crash.app_under_test:app"
    queues = "default"

    def __init__(self, url: str, schema: str, conn: "Connection[Any]", log: Path) -> None:
        self.url = url
        self.schema = schema
        self.conn = conn
        self.log = log
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, processes: int = 1, slots: int = 10, **settings: Any) -> "subprocess.Popen[bytes]":
        """Start a supervisor and wait for its workers."""
        return self.several(1, processes, slots, **settings)[0]

    def several(
        self, count: int, processes: int = 1, slots: int = 10, environ: Mapping[str, str] = {}, **settings: object
    ) -> "list[subprocess.Popen[bytes]]":
        """Start supervisors at once, and wait for all their workers.

        Args:
            environ: beside the settings.
        """
        before = self.live()
        made = [self.launch(processes, slots, environ, **settings) for _ in range(count)]
        until(
            lambda: self.live() >= before + count * processes or any(each.poll() is not None for each in made),
            timeout=60,
            what="their workers live",
        )
        assert all(each.poll() is None for each in made), self.log.read_text()
        return made

    def launch(self, processes: int, slots: int, environ: Mapping[str, str], **settings: object) -> "subprocess.Popen[bytes]":
        """Start a supervisor and wait for nothing."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
        given = {"lease": f"{LEASE}s", "grace": "2s", "database_url": self.url, "schema": self.schema, **settings}
        clean |= {f"JOBWELL_{name.upper()}": str(value) for name, value in given.items()} | dict(environ)
        command = [sys.executable, "-m", "jobwell", "worker", self.target, "--processes", str(processes),
                   "--slots", str(slots), "--queues", self.queues, "--log", "text"]  # fmt: skip
        with self.log.open("ab") as log:
            supervisor = subprocess.Popen(command, env=clean, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.started.append(supervisor)
        return supervisor

    def live(self) -> int:
        """How many workers live, by their rows."""
        return int(self.one("select count(*) from workers where state = 'live'"))

    def one(self, query: str) -> Any:
        """One value."""
        row = self.conn.execute(query).fetchone()
        return row[0] if row else None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.conn.execute(query).fetchall()

    def marks(self, what: str) -> int:
        """How many jobs have come so far."""
        return int(self.one(f"select count(*) from {self.schema}.marks where what = '{what}'"))

    def finished(self) -> int:
        """How many are done."""
        return int(self.one("select count(*) from finished where state = 'succeeded'"))

    @staticmethod
    def children(supervisor: "subprocess.Popen[bytes]") -> list[psutil.Process]:
        """The worker processes of a supervisor."""
        return psutil.Process(supervisor.pid).children()

    def end(self) -> None:
        """Kill what is left."""
        for supervisor in self.started:
            if supervisor.poll() is None:
                for child in self.children(supervisor):
                    child.kill()
                supervisor.kill()
            supervisor.wait(20)


@pytest.fixture
def fleet(app: App, database_url: str, schema: str, conn: "Connection[Any]", tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on empty tables, with the table of marks."""
    conn.execute(f"drop table if exists {schema}.marks")
    conn.execute(
        f"create table {schema}.marks (job text, attempt integer, pid integer, what text, at timestamptz default clock_timestamp())"
    )
    made = Fleet(database_url, schema, conn, tmp_path / "log")
    yield made
    made.end()
    conn.execute(f"drop table if exists {schema}.marks")


SIGKILL, SIGTERM, SIGSTOP, SIGCONT = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT
