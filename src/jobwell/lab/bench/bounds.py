"""How much of a limit and of a rate live workers use, and whether they ever go beyond."""

import orjson

from jobwell.core.errors import JobwellError
from jobwell.core.limits import rate
from jobwell.lab import tasks
from jobwell.lab.bench.place import Bench
from jobwell.lab.bench.result import Result

PROCESSES, SLOTS = 2, 100
AT_ONCE = 20  # jobs, of the 200 that the slots could run
NAP = 0.5  # seconds: what lies between two jobs of a place is not what is measured
PER_SECOND = 200  # starts, where the workers could do thousands


def bounds(bench: Bench, jobs: int) -> Result:
    """Two workers, first under a concurrency limit, then under a rate, both far below what they could do.

    A fifth of the jobs naps under the limit; all others begin by the rate. Judged by the times that the store has written.
    """
    naps = max(jobs // 5, AT_ONCE)
    starts = max(jobs - naps, 10)
    bench.say(f"{naps:,} jobs of {NAP:g} s, {AT_ONCE} at once")
    most, busy = _play(bench, {"concurrency": AT_ONCE}, naps, nap=NAP, read="parallel")
    bench.say(f"{starts:,} jobs at {PER_SECOND} a second")
    crowd, seconds = _play(bench, {"rates": [rate(f"{PER_SECOND}/s").stored()]}, starts, nap=0.0, read="starts")
    return Result(
        scenario="bounds", jobs=jobs,
        figures={
            "limit_used": naps * NAP / busy / AT_ONCE, "limit_most": most,
            "rate_used": (starts - 1) / seconds / PER_SECOND, "rate_most": crowd,
        },
    )  # fmt: skip


def _play(bench: Bench, override: dict[str, object], jobs: int, *, nap: float, read: str) -> tuple[float, float]:
    bench.run("empty")
    bench.run("limit", override=orjson.dumps(override).decode())
    try:
        with bench.workers(PROCESSES, SLOTS):
            bench.fill(jobs, lambda _: tasks.nap.job(seconds=nap))
            bench.wait(bench.nothing_left)
    finally:
        bench.run("unlimit")
    most, seconds, done = bench.run(read)[0]
    if done != jobs:
        raise JobwellError(f"{done} of {jobs} jobs are finished; the figure would be wrong")
    return float(most), max(float(seconds), 1e-6)
