"""An old transaction elsewhere (a dump, a report, a forgotten session) that stops vacuum while jobs flow."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from jobwell.core.errors import JobwellError
from jobwell.lab import meter
from jobwell.lab.bench import probe
from jobwell.lab.bench.place import Bench, noop
from jobwell.lab.bench.result import Result, percentiles

SECONDS = 60.0
FLOW = 500  # jobs a second, all the time
PULSE = 0.02  # seconds between two pieces of the flow
WINDOWS = 6
BURSTS = 3  # of which the median is taken, before the snapshot and at its end
RECOVERED = 0.9  # of the rate before
MOST_RECOVERY = 180.0  # seconds
LOOKED_AT = 50  # jobs of a burst whose end is waited for, before all of them are counted


def pinned(bench: Bench, jobs: int, *, seconds: float = SECONDS) -> Result:
    """The rate while a REPEATABLE READ snapshot is held open by another connection, in a database of its own.

    500 jobs/s flow all the time; at the end of each of six windows a burst of `jobs` no-ops, stored in one transaction, is
    worked off by one worker process, and its rate is taken from the first start to the last finish. The rate at the end (the
    median of three bursts, the snapshot still held) is compared with that before. Then the snapshot is released, and bursts go
    on until the rate is nine tenths of that before: nobody helps.

    Args:
        bench: in a database of its own, where possible.
        jobs: of one burst.
        seconds: how long the snapshot is held, bursts apart.
    """
    bench.run("empty")
    with tempfile.NamedTemporaryFile(prefix="jobwell-bench-") as file:
        environ = {probe.VARIABLE: file.name}
        with bench.workers(target=f"{probe.__name__}:app", environ=environ) as pids:
            load = Load(bench, jobs, pids()[0])
            load.burst()  # connections, prepared statements, plans
            calm = time.monotonic()
            load.flow(min(5.0, seconds / WINDOWS))
            start = _median([load.burst() for _ in range(BURSTS)])
            bench.say(f"before the snapshot: {start.rate:,.0f} jobs/s; it is held for {seconds:g} s now")
            bench.run("vacuum")  # what is dead from here on is the snapshot's
            with _snapshot(bench) as held:
                since = time.monotonic()
                windows = [_window(load, seconds, number, held) for number in range(WINDOWS)]
                end = _median([windows[-1], *(load.burst() for _ in range(BURSTS - 1))])
                size, dead = bench.run("size")[0]
                _still_held(held)
                until = time.monotonic()
            bench.say("released")
            recovered, recovery = _recover(load, RECOVERED * start.rate)
        claims = probe.read(Path(file.name))
    late = [took for at, took, _ in claims if (since + until) / 2 <= at <= until]
    early = [took for at, took, _ in claims if calm <= at < since]
    return Result(
        scenario="pinned", jobs=jobs,
        figures={
            "seconds": seconds, "start_per_s": start.rate, "jobs_per_s": end.rate, "ratio": end.rate / start.rate,
            "windows_per_s": [each.rate for each in windows], "lowest_ratio": min(each.rate for each in windows) / start.rate,
            "start_worker_cpu_us": start.worker_cpu, "worker_cpu_us": end.worker_cpu, "start_server_cpu_us": start.server_cpu,
            "server_cpu_us": end.server_cpu, **percentiles(late, "claim_"),
            "start_claim_p99_ms": percentiles(early)["p99_ms"], "claims": len(late), "dead_rows": dead, "table_mb": size,
            "recovered_per_s": recovered, "recovery_s": recovery,
        },
    )  # fmt: skip


def _window(load: "Load", seconds: float, number: int, held: "psycopg.Connection[Any]") -> "Burst":
    load.flow(seconds / WINDOWS)
    burst = load.burst()
    _still_held(held)
    dead = load.bench.run("size")[0][1]
    load.bench.say(f"after {seconds * (number + 1) / WINDOWS:.0f} s: {burst.rate:,.0f} jobs/s, {dead:,} dead rows")
    return burst


@dataclass(frozen=True)
class Burst:
    """Jobs a second, and microseconds of CPU for a job."""

    rate: float
    worker_cpu: float
    server_cpu: float | None


def _median(bursts: list[Burst]) -> Burst:
    """Of each figure."""
    servers = [each.server_cpu for each in bursts if each.server_cpu is not None]
    return Burst(
        statistics.median(each.rate for each in bursts),
        statistics.median(each.worker_cpu for each in bursts),
        statistics.median(servers) if servers else None,
    )


class Load:
    """What is put in.

    Args:
        bench: where.
        jobs: of one burst.
        worker: the process that works them off.
    """

    def __init__(self, bench: Bench, jobs: int, worker: int) -> None:
        self.bench = bench
        self._jobs = jobs
        self._worker = worker

    def flow(self, seconds: float) -> None:
        """Feed at the rate of the flow."""
        began = time.monotonic()
        piece = round(FLOW * PULSE)
        for number in range(max(1, round(seconds / PULSE))):
            self.bench.app.enqueue_many(map(noop, range(piece)))
            time.sleep(max(0.0, began + (number + 1) * PULSE - time.monotonic()))

    def burst(self) -> Burst:
        """Put many in at once, and wait for their end.

        The live table is not asked whether it is empty: under the snapshot that means a walk over all that is dead in it.
        """
        bench, jobs = self.bench, self._jobs
        since = bench.value("now")
        before = meter.read([self._worker], bench.postmaster)
        ids = bench.app.enqueue_many(map(noop, range(jobs)))
        last = ids[-LOOKED_AT:]
        bench.wait(lambda: bench.value("count_ids", ids=last) == len(last))
        ends = {"first": min(ids), "last": max(ids), "since": since}
        bench.wait(lambda: bench.value("count_finished", **ends) >= jobs)
        after = meter.read([self._worker], bench.postmaster)
        seconds, done = bench.run("pace", **ends, count=jobs)[0]
        if done != jobs:
            raise JobwellError(f"{done} of {jobs} jobs are finished; the figure would be wrong")
        server = None if before.server is None or after.server is None else (after.server - before.server) / jobs * 1e6
        return Burst(jobs / seconds, (after.worker - before.worker) / jobs * 1e6, server)


@contextmanager
def _snapshot(bench: Bench) -> "Iterator[psycopg.Connection[Any]]":
    with bench.database.connect("bench snapshot") as conn:
        conn.execute(bench.statement["bench.patient_session"])
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.autocommit = False
        conn.execute(bench.statement["bench.rest"])  # takes the snapshot; the transaction stays open
        try:
            yield conn
        finally:
            conn.close()


def _still_held(held: "psycopg.Connection[Any]") -> None:
    try:
        held.execute("")
    except psycopg.Error as error:
        raise JobwellError(f"the server has ended the held snapshot, so nothing was measured: {error}") from error


def _recover(load: Load, enough: float) -> tuple[float, float]:
    """The flow and bursts until the rate is back. Returns the last rate, and the seconds since the release."""
    began = time.monotonic()
    while True:
        rate = load.burst().rate
        took = time.monotonic() - began
        if rate >= enough:
            load.bench.say(f"recovered after {took:.1f} s: {rate:,.0f} jobs/s")
            return rate, took
        if took > MOST_RECOVERY:
            load.bench.say(f"not recovered within {took:.0f} s: {rate:,.0f} jobs/s")
            return rate, took
        load.flow(1.0)
