"""What limits, rates and weights cost: jobs of ten tenants behind all of them, against the same jobs without any."""

from jobwell.core.ids import gate_of
from jobwell.core.job import NewJob
from jobwell.lab.bench import lanes_app
from jobwell.lab.bench.drain import work_off
from jobwell.lab.bench.lanes_app import CONCURRENCY, RATE, RESOURCE, TENANTS
from jobwell.lab.bench.place import SLOTS, Bench, noop
from jobwell.lab.bench.result import Result


def lanes(bench: Bench, jobs: int) -> Result:
    """A worker over `jobs` no-ops of ten tenants with different weights, behind a limit and a rate for the whole fleet.

    Against the same worker over plain no-ops of one tenant, before and after it, of which the mean is taken.
    """
    bench.run("no_limits")
    bench.say("plain jobs")
    before = work_off(bench, jobs, processes=1, slots=SLOTS)
    bench.say(f"{TENANTS} tenants with weights, a limit of {CONCURRENCY:,} and a rate of {RATE}")
    found = work_off(bench, jobs, processes=1, slots=SLOTS, make=_of_a_tenant, target=f"{lanes_app.__name__}:app")
    bench.run("no_limits")
    bench.say("plain jobs once more")
    plain = (before.rate + work_off(bench, jobs, processes=1, slots=SLOTS).rate) / 2
    return Result(
        scenario="lanes", jobs=jobs,
        figures={
            "jobs_per_s": found.rate, "plain_per_s": plain, "ratio": found.rate / plain, "worker_cpu_us": found.worker_cpu,
            "server_cpu_us": found.server_cpu, "rss_mb": found.memory,
        },
    )  # fmt: skip


def _of_a_tenant(number: int) -> NewJob:
    job = noop(number)
    job.gate = gate_of(job.task, (RESOURCE,))
    job.tenant = f"t{number % TENANTS}"
    return job
