"""Jobs that all wait when the clock starts, worked off by real worker processes."""

from collections.abc import Callable
from dataclasses import dataclass

from jobwell.core.errors import JobwellError
from jobwell.core.job import NewJob
from jobwell.lab import meter, tasks
from jobwell.lab.bench.bare_io import bare_io
from jobwell.lab.bench.place import SLOTS, Bench, frozen, noop
from jobwell.lab.bench.result import Result

IO_SLOTS = 100
TENANTS = 10
NAP = 0.05  # seconds


@dataclass(frozen=True)
class WorkedOff:
    """What it took: jobs a second, microseconds of CPU a job, the worker's peak in megabytes."""

    rate: float
    worker_cpu: float
    server_cpu: float | None
    memory: float | None


def drain(bench: Bench, jobs: int, *, processes: int = 1) -> Result:
    """No-op async jobs, from the first start to the last commit, against the bare claim+finish loop over as many."""
    bench.say(f"the bare loop over {jobs:,} jobs")
    floor = bench.floor(jobs)
    found = _work_off(bench, jobs, processes=processes, slots=SLOTS)
    return Result(
        scenario="drain" if processes == 1 else f"drain-{processes}", jobs=jobs,
        figures={
            "jobs_per_s": found.rate, "floor_per_s": floor, "ratio": found.rate / floor, "worker_cpu_us": found.worker_cpu,
            "server_cpu_us": found.server_cpu, "rss_mb": found.memory,
        },
    )  # fmt: skip


def io(bench: Bench, jobs: int) -> Result:
    """Async jobs that wait 50 ms on 100 slots, from the first start to the last commit, against the ideal: 2,000 a second.

    And against a bare loop that has the same slots: between two jobs of a slot lie two commits, which no loop can leave out.
    """
    ideal = IO_SLOTS / NAP
    bench.say(f"the bare loop over {jobs:,} jobs")
    bench.fill(jobs)
    bench.run("vacuum")
    bare = bare_io(bench, IO_SLOTS, NAP)
    found = _work_off(bench, jobs, processes=1, slots=IO_SLOTS, make=lambda _: tasks.nap.job(seconds=NAP))
    return Result(
        scenario="io", jobs=jobs,
        figures={
            "jobs_per_s": found.rate, "ideal_per_s": ideal, "ratio": found.rate / ideal, "bare_per_s": bare,
            "bare_ratio": found.rate / bare, "worker_cpu_us": found.worker_cpu,
            "server_cpu_us": found.server_cpu, "rss_mb": found.memory,
        },
    )  # fmt: skip


def lanes(bench: Bench, jobs: int) -> Result:
    """The drain shared between ten tenants, with a limit and a rate on everything, against the plain one of the same run."""
    plain = _work_off(bench, jobs, processes=1, slots=SLOTS)
    bench.limit()
    try:
        found = _work_off(bench, jobs, processes=1, slots=SLOTS, make=_of_a_tenant)
    finally:
        bench.run("unlimit")
    return Result(
        scenario="lanes", jobs=jobs,
        figures={
            "jobs_per_s": found.rate, "plain_per_s": plain.rate, "ratio": found.rate / plain.rate,
            "worker_cpu_us": found.worker_cpu, "server_cpu_us": found.server_cpu, "plain_server_cpu_us": plain.server_cpu,
        },
    )  # fmt: skip


def _of_a_tenant(number: int) -> NewJob:
    job = noop(number)
    job.tenant = f"tenant{number % TENANTS}"
    return job


def _work_off(bench: Bench, jobs: int, *, processes: int, slots: int, make: "Callable[[int], NewJob] | None" = None) -> WorkedOff:
    bench.run("empty")
    with bench.workers(processes, slots) as pids:
        bench.say(f"{processes} worker process(es), {jobs:,} jobs")
        with frozen(bench, pids()):
            bench.fill(jobs, make)
            bench.run("vacuum")
            before = meter.read(pids(), bench.postmaster)
        bench.wait(bench.nothing_left)
        after = meter.read(pids(), bench.postmaster)
        memory = meter.peak_memory_mb(pids())
    seconds, done = bench.run("span")[0]
    if done != jobs:
        raise JobwellError(f"{done} of {jobs} jobs are finished; the figure would be wrong")
    server = None if before.server is None or after.server is None else (after.server - before.server) / jobs * 1e6
    return WorkedOff(jobs / seconds, (after.worker - before.worker) / jobs * 1e6, server, memory)
