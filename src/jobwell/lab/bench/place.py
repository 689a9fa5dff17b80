"""Where a benchmark runs: a throw-away schema, or a database of its own, with real worker processes.

Dropped afterwards, also after an error, Ctrl-C or SIGTERM. What a killed run has left behind goes at the next one.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil
import psycopg

from jobwell.app import App
from jobwell.core.errors import JobwellError, StoreRefused
from jobwell.core.ids import new_id
from jobwell.core.job import NewJob
from jobwell.core.limits import MOST, rate
from jobwell.lab import meter, tasks
from jobwell.settings import Settings, load
from jobwell.store import migrations
from jobwell.store.database import Database, check_fitness, first_line

SCHEMA = "jobwell_bench"  # these three as store/sql/bench.sql has them
DATABASE = "jobwell_bench_pinned"
NOTE = "made by jobwell bench, dropped by it"
FLOOR_BATCH = 500
SLOTS = 1000  # as the peers ran with batches of 500 to 2,000
PATIENCE = 300.0
Say = Callable[[str], None]


class Bench:
    """A throw-away place with what the scenarios share.

    Args:
        database: with the schema of the benchmark.
        conn: a connection to it.
        app: a producer for it, which the tasks of the laboratory are bound to.
        say: told what goes on.
    """

    def __init__(self, database: Database, conn: "psycopg.Connection[Any]", app: App, say: Say) -> None:
        self.database = database
        self.conn = conn
        self.app = app
        self.say = say
        self.statement = database.statements
        self.postmaster = meter.find_postmaster(conn.info.backend_pid)

    def run(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """One statement."""
        cursor = self.conn.execute(self.statement[f"bench.{name}"], parameters or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, name: str, **parameters: Any) -> Any:
        """One statement that answers one value."""
        return self.run(name, **parameters)[0][0]

    def limit(self) -> None:
        """Put a limit and a rate on all jobs, far above what runs."""
        override = {"concurrency": 2 * SLOTS, "rates": [rate(f"{MOST}/s").stored()]}
        self.run("limit", override=orjson.dumps(override).decode())

    def fill(self, jobs: int, make: "Callable[[int], NewJob] | None" = None) -> float:
        """Enqueue jobs in bulk into empty tables (default: no-ops). Returns seconds."""
        self.run("empty")
        began = time.perf_counter()
        self.app.enqueue_many(map(make or noop, range(jobs)))
        return time.perf_counter() - began

    def floor(self, jobs: int) -> float:
        """The bare claim+finish loop on one connection: jobs per second."""
        self.fill(jobs)
        self.run("vacuum")
        cursor = self.conn.cursor(binary=True)
        done, began = 0, time.perf_counter()
        while True:
            claim = new_id()
            wanted = {"claim": claim, "want": FLOOR_BATCH}
            rows = cursor.execute(self.statement["bench.floor_claim"], wanted, prepare=True).fetchall()
            if not rows:
                return done / (time.perf_counter() - began)
            cursor.execute(self.statement["bench.floor_finish"], {"ids": [row[0] for row in rows], "claim": claim}, prepare=True)
            done += len(rows)

    @contextmanager
    def workers(
        self,
        processes: int = 1,
        slots: int = SLOTS,
        *,
        resting: bool = True,
        target: str = "jobwell.lab.tasks:app",
        environ: dict[str, str] | None = None,
    ) -> Iterator[Callable[[], list[int]]]:
        """Real worker processes under their supervisor. Gives a function that lists the workers' process ids.

        Args:
            processes: how many.
            slots: of each.
            resting: begin when they have found no work; otherwise when they are registered.
            target: their app.
            environ: more variables for them.
        """
        command = [sys.executable, "-m", "jobwell", "worker", target, "--processes", str(processes),
                   "--slots", str(slots), "--queues", "default", "--log", "text"]  # fmt: skip
        settings = self.database.settings
        # Whatever the user has set for workers of their own would change what is measured.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
        given = {"JOBWELL_DATABASE_URL": settings.url, "JOBWELL_DIRECT_URL": settings.direct_url, "JOBWELL_SCHEMA": SCHEMA}
        # In a session of its own: Ctrl-C in a terminal comes here alone, and here it is passed on once.
        supervisor = subprocess.Popen(  # noqa: S603  this Python, and arguments of ours
            command, env={**kept, **given, **(environ or {})}, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            count = "idle_workers" if resting else "live_workers"
            self.wait(lambda: self.value(count) >= processes, supervisor)
            yield lambda: [child.pid for child in psutil.Process(supervisor.pid).children()]
        finally:
            with uninterrupted():
                _end(supervisor)

    def wait(
        self, condition: Callable[[], bool], supervisor: "subprocess.Popen[bytes] | None" = None, *, every: float = 0.02
    ) -> None:
        """Wait for something, looking so often (seconds).

        Raises:
            JobwellError: it does not come, or the worker died.
        """
        until = time.monotonic() + PATIENCE
        while not condition():
            if supervisor is not None and supervisor.poll() is not None:
                raise JobwellError(f"the worker ended with code {supervisor.returncode}; run it by hand to see why")
            if time.monotonic() > until:
                raise JobwellError(f"the benchmark did not come to its end within {PATIENCE:.0f} s")
            time.sleep(every)

    def nothing_left(self) -> bool:
        """Whether all jobs are done."""
        return not self.value("rest")


def noop(number: int) -> NewJob:
    """A job that does nothing."""
    return tasks.noop.job(employee_id=number, event_version="2026-01-28T10:15")


@contextmanager
def open_bench(settings: Settings, say: Say, *, own_database: bool = False) -> Iterator[Bench]:
    """A bench in a place of its own, dropped afterwards. One at a time on a server: two would spoil each other's figures.

    Args:
        settings: say where.
        say: told what goes on.
        own_database: a database and not only a schema, for what would otherwise reach the other tables of the database.

    Raises:
        JobwellError: what has the name of the place is somebody else's; nothing was touched.
        StoreRefused: this role may not create what is needed.
        StoreUnavailable: the server cannot be reached.
    """
    home = Database(settings)  # an embedded server is started here, once, for the workers too
    with _stoppable(), home.connect("bench", direct=True, patience=PATIENCE) as guard, home.telling(), _telling_rights(home):
        _wait_for_turn(guard, home, say)
        with _own_database(guard, home, say) if own_database else nullcontext(home.url) as url:
            direct = url if url != home.url else home.settings.direct_url or url
            given = {"database_url": url, "direct_url": direct, "schema": SCHEMA}
            database, app = Database(load(given)), App(url, direct_url=direct, schema=SCHEMA)
            app.include(tasks.group)
            with _tables(database, app), database.connect("bench") as conn, database.telling():
                check_fitness(conn, database.statements)
                yield Bench(database, conn, app, say)


@contextmanager
def frozen(bench: Bench, pids: Iterable[int]) -> Iterator[None]:
    """Hold the workers still while the jobs are put in, so that all of them wait when the clock starts.

    Not in the middle of a transaction of theirs, which would hold its locks for as long. For seconds only: a worker that is
    silent for longer than its lease is declared dead.
    """
    held = [psutil.Process(pid) for pid in pids]
    until = time.monotonic() + PATIENCE
    while True:
        for process in held:
            process.suspend()
        for _ in range(10):  # what the server has begun, it ends by itself
            if not bench.run("in_transactions")[0][0] or time.monotonic() > until:
                break
            time.sleep(0.01)
        else:
            for process in held:
                process.resume()
            time.sleep(0.02)
            continue
        break
    try:
        yield
    finally:
        for process in held:
            process.resume()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Clean up to the end, whatever a person who has pressed Ctrl-C once presses now."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends a benchmark as Ctrl-C does, so that it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)


@contextmanager
def _telling_rights(home: Database) -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.InsufficientPrivilege, StoreRefused) as error:
        cause = error.__cause__ if isinstance(error, StoreRefused) else error
        if not isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise
        raise StoreRefused(
            f"{home.place}: {first_line(cause)}; a benchmark makes a schema {SCHEMA!r} of its own:"
            " give a role that may create one, or another database"
        ) from error


def _wait_for_turn(guard: "psycopg.Connection[Any]", home: Database, say: Say) -> None:
    told = False
    while not guard.execute(home.statements["bench.take_turn"]).fetchall()[0][0]:  # given back at the end of the connection
        if not told:
            say("another benchmark runs in this database; waiting for its end")
            told = True
        time.sleep(0.2)


@contextmanager
def _own_database(guard: "psycopg.Connection[Any]", home: Database, say: Say) -> Iterator[str]:
    statement = home.statements
    there = guard.execute(statement["bench.database"]).fetchall()
    if there and there[0][0] != NOTE:
        raise JobwellError(
            f"there is a database {DATABASE!r} that no benchmark has made; nothing was touched. Rename it, or drop it if it"
            " may go, and start again"
        )
    try:
        if there:
            guard.execute(statement["bench.drop_database"])
        guard.execute(statement["bench.create_database"])
    except psycopg.errors.InsufficientPrivilege:
        say(
            f"this role may not create databases, so the snapshot is held in {home.place} itself: until the end vacuum cannot"
            " clean up there, in no table"
        )
        yield home.url
        return
    try:
        guard.execute(statement["bench.note_database"])
        yield urlsplit(home.url)._replace(path=f"/{DATABASE}").geturl()
    finally:
        with uninterrupted():
            guard.execute(statement["bench.drop_database"])


@contextmanager
def _tables(database: Database, app: App) -> Iterator[None]:
    _drop(database)
    with database.connect("bench", direct=True) as conn, database.telling(), conn.transaction():
        conn.execute(database.statements["bench.create_schema"])
        conn.execute(database.statements["bench.note_schema"])
    try:
        migrations.migrate(database)
        yield
    finally:
        with uninterrupted():
            app.close()
            _drop(database)


def _drop(database: Database) -> None:
    with database.connect("bench", direct=True) as conn, database.telling(), conn.transaction():
        there = conn.execute(database.statements["bench.schema"]).fetchall()
        if there and there[0][0] != NOTE:
            raise JobwellError(
                f"there is a schema {SCHEMA!r} that no benchmark has made; nothing was touched. Rename it, or drop it if it may"
                " go, and start again"
            )
        migrations.drop(conn, SCHEMA)


def _end(supervisor: "subprocess.Popen[bytes]") -> None:
    if supervisor.poll() is not None:
        return
    children = psutil.Process(supervisor.pid).children()
    supervisor.terminate()
    try:
        supervisor.wait(60)
    except subprocess.TimeoutExpired:
        for process in children:
            process.kill()
        supervisor.kill()
        supervisor.wait()
