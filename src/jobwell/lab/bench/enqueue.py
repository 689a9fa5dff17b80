"""The producer's side: many jobs at once, and one after the other."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from jobwell.core.errors import JobwellError
from jobwell.core.ids import new_id
from jobwell.core.job import NewJob
from jobwell.lab import meter, tasks
from jobwell.lab.bench.place import Bench, noop
from jobwell.lab.bench.result import Result, percentiles

BLOCK = 100  # calls in a row, then as many of the other kind: noise of the machine meets both
WARM = 50
TURNS = 3
VERSION = "2026-01-28T10:15"
Put = Callable[[int], list[float]]  # puts so many jobs in one by one, and tells the seconds that each took


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
    rate = jobs / seconds
    server = None if own.server is None or after.server is None else (after.server - own.server) / jobs * 1e6
    return Result(
        scenario="enqueue-bulk", jobs=jobs,
        figures={
            "jobs_per_s": rate, "floor_per_s": floor, "ratio": rate / floor,
            "worker_cpu_us": (after.worker - own.worker) / jobs * 1e6, "server_cpu_us": server,
        },
    )  # fmt: skip


def enqueue_once(bench: Bench, jobs: int) -> Result:
    """`enqueue_many` of jobs that are the only ones of their kind, none of them there yet, against the same without, by turns."""
    seconds = {True: 0.0, False: 0.0}
    bench.fill(1000)
    for turn in range(2 * TURNS):
        keyed = bool(turn % 2)
        bench.say(f"enqueue_many of {jobs:,} jobs {'with' if keyed else 'without'} dedup")
        seconds[keyed] += bench.fill(jobs, once if keyed else noop)
    bench.say(f"the same {jobs:,} once more: each is there already")
    began = time.perf_counter()
    found = bench.app.enqueue_many(map(once, range(jobs)))
    held = jobs / (time.perf_counter() - began)
    if found.created:
        raise JobwellError(f"{found.created} of {jobs} jobs were made twice; the figure would be wrong")
    rate, floor = (TURNS * jobs / seconds[keyed] for keyed in (True, False))
    return Result(
        scenario="enqueue-bulk-dedup", jobs=jobs,
        figures={"jobs_per_s": rate, "unkeyed_per_s": floor, "ratio": rate / floor, "suppressed_per_s": held},
    )  # fmt: skip


def once(number: int) -> NewJob:
    """One that is the only one of its kind."""
    return tasks.once.job(employee_id=number, event_version=VERSION)


def enqueue_single(bench: Bench, jobs: int, *, asynchronous: bool = False, woken: bool = False) -> Result:
    """`enqueue` one at a time, each its own commit, against a bare prepared INSERT of the same row, in blocks by turns.

    Args:
        bench: where.
        jobs: so many of each.
        asynchronous: `aenqueue` on an event loop in place of `enqueue`.
        woken: with a worker that rests, so that the enqueue pays for waking it (the bare INSERT wakes nobody).
    """
    bench.run("empty")
    with ExitStack() as stack:
        if woken:
            stack.enter_context(bench.workers(1, 100))
        ours = stack.enter_context(_asynchronous(bench) if asynchronous else _plain())
        bare = stack.enter_context(_bare(bench))
        bench.say(f"{jobs:,} jobs one by one, and as many bare rows, in blocks by turns")
        times: dict[Put, list[float]] = {ours: [], bare: []}
        for put in times:  # connections, prepared statements, plans
            put(WARM)
        for number, first in enumerate(range(0, jobs, BLOCK)):
            for put in (ours, bare) if number % 2 else (bare, ours):
                times[put] += put(min(BLOCK, jobs - first))
        if woken:
            bench.wait(bench.nothing_left)
    stored = bench.value("all_jobs")
    if stored != 2 * (jobs + WARM):
        raise JobwellError(f"{stored} of {2 * (jobs + WARM)} jobs are stored; the figure would be wrong")
    rate, floor = (jobs / sum(times[put]) for put in (ours, bare))
    suffix = "-async" if asynchronous else "-wake" if woken else ""
    return Result(
        scenario=f"enqueue-single{suffix}", jobs=jobs,
        figures={
            "jobs_per_s": rate, "floor_per_s": floor, "ratio": rate / floor, **percentiles(times[ours]),
            **percentiles(times[bare], "floor_"),
        },
    )  # fmt: skip


@contextmanager
def _plain() -> Iterator[Put]:
    def put(count: int) -> list[float]:
        times = []
        for number in range(count):
            began = time.perf_counter()
            tasks.noop.enqueue(employee_id=number, event_version=VERSION)
            times.append(time.perf_counter() - began)
        return times

    yield put


@contextmanager
def _asynchronous(bench: Bench) -> Iterator[Put]:
    async def put(count: int) -> list[float]:
        times = []
        for number in range(count):
            began = time.perf_counter()
            await tasks.noop.aenqueue(employee_id=number, event_version=VERSION)
            times.append(time.perf_counter() - began)
        return times

    with asyncio.Runner() as runner:  # one loop for all blocks: a pool of connections belongs to it
        try:
            yield lambda count: runner.run(put(count))
        finally:
            runner.run(bench.app.aclose())


@contextmanager
def _bare(bench: Bench) -> Iterator[Put]:
    sample = noop(0)
    same = {"queue": sample.queue, "task": sample.task, "rank": sample.rank, "gate": sample.gate, "deadline": sample.deadline}
    with bench.database.connect("bench") as conn:
        cursor, statement = conn.cursor(), bench.statement["bench.bare_insert"]

        def put(count: int) -> list[float]:
            # The rows are made before: the floor is the statement and its commit alone.
            rows: list[dict[str, Any]] = []
            for number in range(count):
                job = noop(number)
                rows.append({**same, "id": new_id(), "bytes": job.size, "args": job.args})
            times = []
            for row in rows:
                began = time.perf_counter()
                cursor.execute(statement, row, prepare=True)
                times.append(time.perf_counter() - began)
            return times

        yield put
