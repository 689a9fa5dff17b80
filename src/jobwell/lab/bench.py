"""Benchmarks on a throw-away schema.

Each measures the bare SQL loop of the same shape in the same run, because machines are noisy: the ratio is the figure to
compare.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import psycopg

from jobwell.core.errors import JobwellError
from jobwell.core.ids import new_id
from jobwell.lab import meter, tasks
from jobwell.settings import Settings, load
from jobwell.store import migrations
from jobwell.store.database import Database

SCHEMA = "jobwell_bench"
FLOOR_BATCH = 500
SLOTS = 1000  # as the peers ran with batches of 500 to 2,000
PATIENCE = 300.0
Say = Callable[[str], None]


@dataclass(kw_only=True)
class Result:
    """What one scenario found; None where a figure does not apply."""

    scenario: str
    jobs: int
    jobs_per_s: float | None = None
    floor_per_s: float | None = None
    ratio: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    worker_cpu_us: float | None = None
    server_cpu_us: float | None = None
    rss_mb: float | None = None
    server: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON; figures rounded to what they are worth."""
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


class Bench:
    """A throw-away schema with what the scenarios share.

    Args:
        database: with the schema of the benchmark.
        say: told what goes on.
    """

    def __init__(self, database: Database, conn: "psycopg.Connection[Any]", say: Say) -> None:
        self.database = database
        self.conn = conn
        self.say = say
        self.statement = database.statements
        self.postmaster = meter.find_postmaster(conn.info.backend_pid)

    def run(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """One statement."""
        cursor = self.conn.execute(self.statement[f"bench.{name}"], parameters or None)
        return cursor.fetchall() if cursor.description else []

    def fill(self, jobs: int) -> float:
        """Enqueue no-ops in bulk into an empty table. Returns seconds."""
        self.run("empty")
        began = time.perf_counter()
        tasks.app.enqueue_many(tasks.noop.job(employee_id=number, event_version="2026-01-28T10:15") for number in range(jobs))
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
    def workers(self, processes: int, slots: int) -> Iterator[Callable[[], list[int]]]:
        """Real worker processes under their supervisor. Gives a function that lists the workers' process ids."""
        command = [sys.executable, "-m", "jobwell", "worker", "jobwell.lab.tasks:app", "--processes", str(processes),
                   "--slots", str(slots), "--queues", "default", "--log", "text"]  # fmt: skip
        environ = {**os.environ, "JOBWELL_DATABASE_URL": self.database.url, "JOBWELL_SCHEMA": SCHEMA}
        supervisor = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)  # noqa: S603
        try:
            self.wait(lambda: self.run("idle_workers")[0][0] >= processes, supervisor)
            yield lambda: [child.pid for child in psutil.Process(supervisor.pid).children()]
        finally:
            supervisor.terminate()
            supervisor.wait(60)

    def wait(self, condition: Callable[[], bool], supervisor: "subprocess.Popen[bytes] | None" = None) -> None:
        """Wait for something.

        Raises:
            JobwellError: it does not come, or the worker died.
        """
        until = time.monotonic() + PATIENCE
        while not condition():
            if supervisor is not None and supervisor.poll() is not None:
                raise JobwellError(f"the worker ended with code {supervisor.returncode}; run it by hand to see why")
            if time.monotonic() > until:
                raise JobwellError(f"the benchmark did not come to its end within {PATIENCE:.0f} s")
            time.sleep(0.02)


@contextmanager
def open_bench(settings: Settings, say: Say) -> Iterator[Bench]:
    """A bench on a schema of its own, dropped afterwards."""
    url = Database(settings).url  # an embedded server is started here, once, for the workers too
    database = Database(load({"database_url": url, "schema": SCHEMA}))
    tasks.app.override({"database_url": url, "schema": SCHEMA})
    with database.connect("bench") as conn, database.telling():
        migrations.drop(conn, SCHEMA)
        migrations.migrate(database)
        try:
            yield Bench(database, conn, say)
        finally:
            tasks.app.close()
            migrations.drop(conn, SCHEMA)


def drain(bench: Bench, jobs: int, *, processes: int = 1, slots: int = SLOTS) -> Result:
    """No-op async jobs, enqueued before, through real worker processes, from the first start to the last commit."""
    bench.say(f"the bare loop over {jobs:,} jobs")
    floor = bench.floor(jobs)
    bench.run("empty")
    with bench.workers(processes, slots) as pids:
        bench.say(f"{processes} worker process(es), {jobs:,} jobs")
        _freeze(pids(), stopped=True)
        try:
            bench.fill(jobs)
            bench.run("vacuum")
            before = meter.read(pids(), bench.postmaster)
        finally:
            _freeze(pids(), stopped=False)
        bench.wait(lambda: not bench.run("rest")[0][0])
        after = meter.read(pids(), bench.postmaster)
        memory = meter.peak_memory_mb(pids())
    seconds, done = bench.run("span")[0]
    if done != jobs:
        raise JobwellError(f"{done} of {jobs} jobs are finished; the figure would be wrong")
    rate = jobs / seconds
    server_cpu = None if before.server is None or after.server is None else (after.server - before.server) / jobs * 1e6
    return Result(
        scenario="drain" if processes == 1 else f"drain-{processes}", jobs=jobs,
        jobs_per_s=rate, floor_per_s=floor, ratio=rate / floor,
        worker_cpu_us=(after.worker - before.worker) / jobs * 1e6, server_cpu_us=server_cpu, rss_mb=memory,
    )  # fmt: skip


def enqueue_bulk(bench: Bench, jobs: int) -> Result:
    """`enqueue_many` from a generator, against a bare COPY of the same rows into the same table."""
    bench.say(f"enqueue_many of {jobs:,} jobs")
    bench.fill(1000)
    own = meter.read([os.getpid()], bench.postmaster)
    seconds = bench.fill(jobs)
    after = meter.read([os.getpid()], bench.postmaster)
    with bench.conn.cursor().copy(bench.statement["bench.copy_out"]) as copy:
        rows = list(copy.rows())
    bench.run("empty")
    bench.say("a bare COPY of the same rows")
    began = time.perf_counter()
    with bench.conn.cursor().copy(bench.statement["bench.copy_in"]) as copy:
        for row in rows:
            copy.write_row(row)
    floor = jobs / (time.perf_counter() - began)
    server_cpu = None if own.server is None or after.server is None else (after.server - own.server) / jobs * 1e6
    return Result(
        scenario="enqueue-bulk", jobs=jobs, jobs_per_s=jobs / seconds, floor_per_s=floor, ratio=jobs / seconds / floor,
        worker_cpu_us=(after.worker - own.worker) / jobs * 1e6, server_cpu_us=server_cpu,
    )  # fmt: skip


def latency(bench: Bench, jobs: int, *, every: float = 0.02) -> Result:
    """An idle worker; one job at a time; from the call of enqueue, its commit included, to the first line of the task."""
    bench.run("empty")
    with bench.workers(1, 100) as pids:
        for _ in range(20):  # connections, prepared statements, plans
            tasks.stamp.enqueue(time.monotonic())
            time.sleep(every)
        bench.wait(lambda: not bench.run("rest")[0][0])
        bench.run("empty")
        bench.say(f"{jobs} jobs, one each {every * 1000:.0f} ms")
        for _ in range(jobs):
            tasks.stamp.enqueue(time.monotonic())
            time.sleep(every)
        bench.wait(lambda: not bench.run("rest")[0][0])
        memory = meter.peak_memory_mb(pids())
    found = sorted(float(row[0]) * 1000 for row in bench.run("results"))
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return Result(scenario="latency", jobs=jobs, p50_ms=cuts[49], p95_ms=cuts[94], p99_ms=cuts[98], rss_mb=memory)


SCENARIOS: dict[str, tuple[int, Callable[[Bench, int], Result]]] = {
    "drain": (60_000, drain),
    "drain-2": (60_000, lambda bench, jobs: drain(bench, jobs, processes=2)),
    "enqueue-bulk": (100_000, enqueue_bulk),
    "latency": (200, latency),
}


def measure(settings: Settings, scenario: str, *, jobs: int | None, say: Say) -> Result:
    """Run one scenario.

    Args:
        settings: say where; the schema is the benchmark's own.
        scenario: a key of `SCENARIOS`.
        jobs: how many (default: the scenario's own number).
        say: told what goes on.
    """
    number, play = SCENARIOS[scenario]
    with open_bench(settings, say) as bench:
        result = play(bench, jobs or number)
        result.server = f"PostgreSQL {bench.conn.info.server_version // 10000}.{bench.conn.info.server_version % 10000}"
    return result


def _freeze(pids: list[int], *, stopped: bool) -> None:
    """Hold the workers still while the jobs are put in, so that all of them wait when the clock starts."""
    for pid in pids:
        process = psutil.Process(pid)
        process.suspend() if stopped else process.resume()
