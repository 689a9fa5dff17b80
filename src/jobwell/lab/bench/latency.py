"""How soon a worker that rests begins."""

import time

from jobwell.lab import meter, tasks
from jobwell.lab.bench.place import Bench
from jobwell.lab.bench.result import Result, percentiles

EVERY = 0.02  # seconds between two jobs


def latency(bench: Bench, jobs: int) -> Result:
    """An idle worker; one job at a time; from the call of enqueue, its commit included, to the first line of the task."""
    bench.run("empty")
    with bench.workers(1, 100) as pids:
        for _ in range(20):  # connections, prepared statements, plans
            tasks.stamp.enqueue(time.monotonic())
            time.sleep(EVERY)
        bench.wait(bench.nothing_left)
        bench.run("empty")
        bench.say(f"{jobs} jobs, one each {EVERY * 1000:.0f} ms")
        for _ in range(jobs):
            tasks.stamp.enqueue(time.monotonic())
            time.sleep(EVERY)
        bench.wait(bench.nothing_left)
        memory = meter.peak_memory_mb(pids())
    found = [float(row[0]) for row in bench.run("results")]
    return Result(scenario="latency", jobs=jobs, figures={**percentiles(found, whole=True), "rss_mb": memory})
