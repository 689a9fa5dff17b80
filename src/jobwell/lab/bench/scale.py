"""What a large store costs: millions of rows and thousands of tenants, against an empty table."""

import asyncio
import os
import socket
import time
from uuid import UUID

import jobwell
from jobwell.core.errors import JobwellError
from jobwell.core.ids import new_id
from jobwell.core.marks import Marks
from jobwell.core.outcome import Succeeded
from jobwell.lab import tasks
from jobwell.lab.bench.place import Bench, noop
from jobwell.lab.bench.result import Result, percentiles
from jobwell.store.arrays import teach
from jobwell.store.jobs import ClaimRequest, JobVerbs
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.streams import Rotation

TENANTS = 2000
PIECE = 100_000  # rows of one INSERT
DRAINED = 60_000  # jobs over which a rate is taken; half of all that are ready at the most
CLAIMS = 300  # over a quarter of the jobs at the most
WANT = 100  # jobs of one claim
DAY_MS = 86_400_000
IDS_A_MS = 4096  # ids that bench.sql makes of one millisecond


def scale(bench: Bench, jobs: int) -> Result:
    """A worker, and single claims, on a store of `jobs` ready, as many scheduled and twice as many finished, 2,000 tenants.

    Against the same worker on a table that holds only what it works off: with as many tenants (before the store is filled and
    again after it was emptied, as machines drift), and with one tenant. Claims are the store's own, 100 jobs each, on a
    connection of their own, each finished before the next.
    """
    drained = min(DRAINED, max(1, jobs // 2))
    bench.say(f"an empty table: {drained:,} jobs of one tenant, then of {TENANTS:,}")
    one = _empty_rate(bench, drained, tenants=1)
    before = _empty_rate(bench, drained, tenants=TENANTS)
    began = time.perf_counter()
    first, last = _fill(bench, jobs)
    filled = time.perf_counter() - began
    want = min(WANT, max(1, jobs // 8))
    bench.say(f"up to {CLAIMS} claims of {want} jobs")
    claims = asyncio.run(_claims(bench, want, min(CLAIMS, jobs // 4 // want)))
    bench.say(f"one worker process over {drained:,} of {jobs:,} ready jobs, {TENANTS:,} tenants")
    rate = _rate(bench, first, last, drained)
    size, dead = bench.run("size")[0]
    bench.say("the empty table once more")
    empty = (before + _empty_rate(bench, drained, tenants=TENANTS)) / 2
    return Result(
        scenario="scale", jobs=jobs,
        figures={
            "jobs_per_s": rate, "empty_per_s": empty, "ratio": rate / empty, "one_tenant_per_s": one,
            "one_tenant_ratio": rate / one, **percentiles(claims, "claim_"), "claims": len(claims), "dead_rows": dead,
            "table_mb": size, "fill_s": filled,
        },
    )  # fmt: skip


def _empty_rate(bench: Bench, jobs: int, *, tenants: int) -> float:
    bench.run("empty")
    first, last = _put(bench, "fill_ready", jobs, tenants, _now_ms())
    bench.run("vacuum")
    return _rate(bench, first, last, jobs)


def _fill(bench: Bench, jobs: int) -> tuple[UUID, UUID]:
    """Returns the first possible id of the ready jobs, and the last."""
    bench.run("empty")
    now = _now_ms()
    bench.say(f"filling: {2 * jobs:,} finished, {jobs:,} scheduled, {jobs:,} ready")
    _put(bench, "fill_finished", 2 * jobs, TENANTS, now - 60 * DAY_MS)
    _put(bench, "fill_scheduled", jobs, TENANTS, now - 30 * DAY_MS)
    ids = _put(bench, "fill_ready", jobs, TENANTS, now)
    bench.say("cleaning up, and taking statistics")
    bench.run("vacuum")
    bench.run("vacuum_finished")
    return ids


def _put(bench: Bench, name: str, rows: int, tenants: int, base: int) -> tuple[UUID, UUID]:
    sample = noop(0)
    for first in range(0, rows, PIECE):
        bench.run(
            name, first=first, last=min(first + PIECE, rows) - 1, tenants=tenants, base=base, gate=sample.gate, task=sample.task,
            queue=sample.queue, rank=sample.rank,
        )  # fmt: skip
    return UUID(int=base << 80), UUID(int=((base + rows // IDS_A_MS + 1) << 80) - 1)


def _rate(bench: Bench, first: UUID, last: UUID, jobs: int) -> float:
    """Jobs a second of one worker over the first so many that it finishes of this range of ids, from its first start on."""
    mine = {"first": first, "last": last, "since": bench.value("now")}
    with bench.workers(resting=False):
        bench.wait(lambda: bench.value("count_finished", **mine) >= jobs, every=0.1)
    seconds, done = bench.run("pace", **mine, count=jobs)[0]
    if done != jobs:
        raise JobwellError(f"{done} of {jobs} jobs are finished; the figure would be wrong")
    return float(jobs / seconds)


async def _claims(bench: Bench, want: int, count: int) -> list[float]:
    """Seconds of each of so many claims, each of so many jobs."""
    statements = bench.database.statements
    verbs, workers, worker = JobVerbs(statements), WorkerVerbs(statements), new_id()
    conn = await bench.database.aconnect("bench")
    async with conn:
        conn.prepare_threshold = 0  # as a worker's connections
        teach(conn)
        await arun(
            conn,
            workers.register(
                worker, lease=3600, pid=os.getpid(), host=socket.gethostname(), name="bench", version=jobwell.__version__,
                slots=want, queues=["default"],
            ),
        )  # fmt: skip
        gates = [spec.gate for spec in tasks.app.catalog]
        rotation, marks, found = Rotation(gates), Marks(), list[float]()
        for _ in range(count):
            claim_id, lanes = new_id(), marks.lanes(time.monotonic())
            request = ClaimRequest(
                worker, claim_id, ["default"], gates, want, 0, rotation.gate, rotation.tenant, lanes, marks.lag
            )
            began = time.perf_counter()
            rows = await verbs.claim(conn, request)
            took = time.perf_counter() - began
            marks.learn(rows, whole=lanes is None, now=time.monotonic(), took=took)
            if len(rows) < want:
                raise JobwellError(f"a claim of {want} jobs found {len(rows)}; the figure would be wrong")
            found.append(took)
            rotation.learn(rows)
            lost = await verbs.finish(conn, [row.id for row in rows], [claim_id] * len(rows), [Succeeded()] * len(rows))
            if lost:
                raise JobwellError(f"{len(lost)} jobs were taken from the benchmark's own worker; the figure would be wrong")
        await arun(conn, workers.leave(worker))
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
