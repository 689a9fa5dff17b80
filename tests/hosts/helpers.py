"""Workers on hosts, what their jobs have left, and the verdict over it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import psutil

from jobwell import App
from jobwell.core.errors import JobwellError, StoreUnavailable
from jobwell.core.job import NewJob
from jobwell.lab.chaos.marks import URL_VARIABLE
from jobwell.lab.chaos.statements import statements
from jobwell.lab.chaos.tasks import quick
from jobwell.store.history import tables
from jobwell.store.migrations import migrate
from jobwell.store.statements import run
from jobwell.testing.evidence import Fate, Mark, Put, read
from jobwell.testing.history import Verdict, check
from tests.hosts.network import Host
from tests.hosts.servers import Postgres, url_of
from tests.waiting import pause, until

RUN_VARIABLE = "JOBWELL_TEST_HOSTS"  # in the environment of everything that a test starts: so it is found again


class Marks:
    """What jobs record, on a server of its own: no fault of a test reaches it.

    Args:
        server: fresh, and running.
    """

    def __init__(self, server: Postgres) -> None:
        self.url = server.own_url
        self._conn = server.connect()
        self._conn.execute(statements()["make"])

    def all(self) -> list[Mark]:
        """What has been written so far."""
        return [Mark(*row) for row in self._conn.execute(statements()["marks"])]

    def clear(self) -> None:
        """Forget all."""
        self._conn.execute("truncate chaos.marks")

    def count(self, what: str) -> int:
        """How many jobs have come so far: begin, effect or end."""
        return len({mark.job for mark in self.all() if mark.what == what})

    def close(self) -> None:
        """No more is read."""
        self._conn.close()


class Producer:
    """Enqueues, and knows what became of each enqueue.

    Args:
        url: of the store.
        settings: of its app.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = App(url, **{"connect_timeout": "4s", "statement_timeout": "6s"} | settings)
        self.puts: dict[UUID, Put] = {}
        self.errors: list[JobwellError] = []
        self._stopping = Event()
        self._thread: Thread | None = None

    def migrate(self) -> None:
        """Make the tables."""
        migrate(self.app.database)

    def put(self, seconds: float) -> UUID:
        """One job of so many seconds; it raises nothing."""
        job: NewJob = quick.job(seconds=seconds)
        fate: Fate = "unknown"
        self.puts[job.id] = Put(job.id, fate)  # first: it may run before more is known
        try:
            self.app.client.put(job, None)
        except StoreUnavailable as error:
            self.errors.append(error)
            fate = "unknown" if error.unsure else "rolled back"
        else:
            fate = "committed"
        self.puts[job.id] = Put(job.id, fate)
        return job.id

    @property
    def committed(self) -> int:
        """Jobs that were acknowledged."""
        return sum(put.fate == "committed" for put in list(self.puts.values()))

    def flow(self, seconds: float, every: float) -> None:
        """Enqueue from a thread, until told to stop."""

        def serve() -> None:
            while not self._stopping.wait(every):
                self.put(seconds)

        self._thread = Thread(target=serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the flow."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def close(self) -> None:
        """Give everything back."""
        self.stop()
        self.app.close()


class Workers:
    """Supervisors with their workers, each on a host.

    Args:
        marks: where jobs leave their marks.
        folder: for logs.
    """

    def __init__(self, marks: Marks, folder: Path) -> None:
        self.marks = marks
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, url: str, host: Host | None = None, **settings: object) -> "subprocess.Popen[bytes]":
        """A supervisor; it is not waited for."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
        given = {"lease": "3s", "grace": "2s", "slots": "10", "database_url": url, **settings}
        environ = clean | {f"JOBWELL_{name.upper()}": str(value) for name, value in given.items()}
        environ |= {URL_VARIABLE: self.marks.url, RUN_VARIABLE: str(self.folder)}
        command = [*(host.run if host else ()), sys.executable, "-m", "jobwell", "worker", "jobwell.lab.chaos.tasks:app",
                   "--queues", "default", "--log", "text"]  # fmt: skip
        with (self.folder / f"workers-{len(self.started)}.log").open("ab") as log:
            process = subprocess.Popen(command, env=environ, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def said(self, number: int) -> str:
        """What a supervisor and its workers have said."""
        return (self.folder / f"workers-{number}.log").read_text(encoding="utf-8")

    def children(self, number: int) -> list[psutil.Process]:
        """The worker processes of a supervisor."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.started[number].pid).children()
        return []

    def kill(self, number: int) -> None:
        """A supervisor with all that it has started, as when its host goes."""
        family = psutil.Process(self.started[number].pid).children(recursive=True)
        self.started[number].kill()
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=10)
        self.started[number].wait(10)

    def end(self) -> None:
        """Kill what is left; the evidence is read already."""
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if each.pid != os.getpid() and each.environ().get(RUN_VARIABLE) == str(self.folder):
                    each.send_signal(signal.SIGKILL)
        for process in self.started:
            process.wait(10)


class Site:
    """A store, its workers, its producer and its evidence."""

    def __init__(self, servers: Sequence[Postgres], marks: Marks, workers: Workers) -> None:
        self.server = servers[0]  # the primary
        self.url = url_of(servers)
        self.marks = marks
        self.workers = workers
        self._producer: Producer | None = None

    def begin(self, hosts: Sequence[Host | None], **settings: object) -> Producer:
        """Make the tables, and start a supervisor with one worker on each host; all of them live."""
        # A test on another host than the server reaches it past the network.
        self._producer = producer = Producer(self.server.own_url if self.server.space else self.url)
        producer.migrate()
        for host in hosts:
            self.workers.start(self.url, host, **settings)
        until(lambda: self.live() == len(hosts), timeout=30, what=f"the workers live: {self.workers.folder}")
        return producer

    def live(self) -> int:
        """Workers whose lease holds."""
        return int(self.server.one("select count(*) from workers where state = 'live' and lease_until > jobwell.now()"))

    def ids(self) -> set[UUID]:
        """The workers that live."""
        return {row[0] for row in self.rows("select id from workers where state = 'live' and lease_until > jobwell.now()")}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows."""
        with self.server.connect() as conn:
            return conn.execute(query).fetchall()

    def outcomes(self) -> Counter[str]:
        """What the log of attempts holds."""
        return Counter(dict(self.rows("select outcome, count(*) from attempts group by 1")))

    def finished(self) -> int:
        """Jobs that have succeeded."""
        return int(self.server.one("select count(*) from finished where state = 'succeeded'"))

    def left(self) -> int:
        """Jobs that have not come to an end."""
        return int(self.server.one("select count(*) from jobs"))

    def judge(self, producer: Producer) -> Verdict:
        """What the checker says, once nothing is left."""
        until(lambda: self.left() == 0, timeout=60, what=f"everything is done: {self.workers.folder}")
        with self.server.connect() as conn:
            conn.execute(statements()["consistent"])
            found = run(conn, tables(producer.app.database.statements))
        return check(read(found, puts=list(producer.puts.values()), marks=self.marks.all()))

    def close(self) -> None:
        """End what runs."""
        self.workers.end()
        if self._producer is not None:
            self._producer.close()


def stays(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition holds for so long."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if not condition():
            return False
        pause(0.05)
    return True
