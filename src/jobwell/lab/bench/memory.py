"""Whether a worker grows."""

import statistics
import time

from jobwell.core.errors import JobwellError
from jobwell.lab import meter
from jobwell.lab.bench.place import Bench, noop
from jobwell.lab.bench.result import Result
from jobwell.settings import Settings

PIECE = 5000  # jobs put in at once; there are never more than three times as many, so that the table stays small
EVERY = 0.05  # seconds between two samples


def memory(bench: Bench, jobs: int) -> Result:
    """Resident memory of one worker with the default slots, over no-op jobs that are fed while it works them off.

    Samples all along; the growth is that from the median of the first quarter of the jobs to that of the last.
    """
    bench.run("empty")
    piece = max(1, min(PIECE, jobs // 20))
    samples: list[tuple[int, float]] = []
    with bench.workers(1, Settings().slots) as pids:
        [worker] = pids()
        idle = meter.memory_mb(worker)
        bench.say(f"{jobs:,} jobs in pieces of {piece:,}; the worker rests at {idle:.1f} MB")
        fed, told, began = 0, 0, time.monotonic()
        while True:
            left = bench.value("live_jobs")
            samples.append((fed - left, meter.memory_mb(worker)))
            if fed == jobs and not left:
                break
            if time.monotonic() > began + 120 + jobs / 1000:
                raise JobwellError(f"the worker did less than 1,000 jobs a second ({fed - left:,} of {jobs:,}); given up")
            if fed < jobs and left < 2 * piece:
                count = min(piece, jobs - fed)
                bench.app.enqueue_many(map(noop, range(fed, fed + count)))
                fed += count
            if (fed - left) * 10 // jobs > told:
                told = (fed - left) * 10 // jobs
                bench.say(f"{fed - left:,} done, {samples[-1][1]:.1f} MB")
            time.sleep(EVERY)
        peak = meter.peak_memory_mb([worker])
    seconds, done = bench.run("span")[0]
    if done != jobs:
        raise JobwellError(f"{done} of {jobs} jobs are finished; the figure would be wrong")
    first = statistics.median(size for at, size in samples if at <= jobs / 4)
    last = statistics.median(size for at, size in samples if at >= jobs * 3 / 4)
    return Result(
        scenario="memory", jobs=jobs,
        figures={
            "idle_mb": idle, "first_quarter_mb": first, "last_quarter_mb": last, "growth_mb": last - first,
            "rss_mb": peak if peak is not None else max(size for _, size in samples), "samples": len(samples),
            "jobs_per_s": jobs / seconds,
        },
    )  # fmt: skip
