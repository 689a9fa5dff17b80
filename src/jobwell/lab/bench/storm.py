"""A dependency that is down while thousands of jobs want it: with a breaker, and with growing pauses alone."""

import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jobwell.core.errors import JobwellError
from jobwell.core.job import NewJob
from jobwell.lab import storm as tasks
from jobwell.lab.bench.place import Bench
from jobwell.lab.bench.result import Result

SECONDS = tasks.OUTAGE
SLOTS = 100
PATIENCE = 30.0  # outages, for everything to be well again
MODULE = tasks.__name__


def storm(bench: Bench, jobs: int, *, seconds: float = SECONDS) -> Result:
    """All jobs wait for a dependency that is down for `seconds` and answers 503 with a `Retry-After` of a sixth of that.

    Once behind a breaker; and once with the default rule of retries alone, its number of attempts apart. Measured for each: calls
    that the dependency saw, the most of them in a second, attempts that jobs have spent, and the time from the end of the outage
    until all jobs have succeeded.

    Args:
        bench: the place.
        jobs: how many.
        seconds: of the outage; the pauses of both policies are shortened with it.
    """
    bench.app.include(tasks.group)
    ours = _play(bench, jobs, seconds, tasks.guarded.job)
    bench.say(f"with a breaker: {ours['calls']:,.0f} calls, all well {ours['back_s']:.1f} s after the outage")
    plain = _play(bench, jobs, seconds, tasks.unguarded.job)
    bench.say(f"without: {plain['calls']:,.0f} calls, all well {plain['back_s']:.1f} s after the outage")
    return Result(
        scenario="storm", jobs=jobs,
        figures={
            "outage_s": seconds, **ours, **{f"plain_{name}": value for name, value in plain.items()},
            "fewer_calls": plain["refused"] / max(1.0, ours["refused"]),
        },
    )  # fmt: skip


def _play(bench: Bench, jobs: int, seconds: float, make: Callable[[int], NewJob]) -> dict[str, float]:
    bench.run("empty")
    with _gateway(seconds) as gateway:
        environ = {tasks.VARIABLE: str(gateway.path), tasks.LENGTH: str(seconds)}
        with bench.workers(1, SLOTS, target=f"{MODULE}:app", environ=environ):
            bench.say(f"{jobs:,} jobs; the dependency is down for {seconds:g} s")
            gateway.begin()
            bench.app.enqueue_many(map(make, range(jobs)))
            until = time.monotonic() + PATIENCE * seconds + 60
            while not bench.nothing_left():
                if time.monotonic() > until:
                    raise JobwellError(f"after {time.monotonic() - gateway.began:.0f} s there are still jobs; given up")
                time.sleep(0.05)
            back = time.monotonic() - gateway.began - seconds
    done, attempts = bench.run("spent")[0]
    if done != jobs:
        raise JobwellError(f"{done} of {jobs} jobs have succeeded; the figures would be wrong")
    each_second = Counter(int(at - gateway.began) for at in gateway.calls if at < gateway.began + seconds)
    refused = sum(each_second.values())
    return {
        "calls": float(len(gateway.calls)), "refused": float(refused), "calls_per_s": refused / seconds,
        "peak_calls_per_s": float(max(each_second.values(), default=0)), "attempts": float(attempts), "back_s": max(0.0, back),
    }  # fmt: skip


class Gateway:
    """The dependency, on a thread.

    Attributes:
        calls: when each came.
        began: when it went down.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self.path = path
        self.calls: list[float] = []
        self.began = time.monotonic()
        self._seconds = seconds
        self._after = max(1, round(seconds / 6))
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="bench-gateway", daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        if not self._ready.wait(10):
            raise JobwellError("the dependency of the benchmark did not start")

    def begin(self) -> None:
        """The outage begins."""
        self.began = time.monotonic()

    def stop(self) -> None:
        """Listen no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_unix_server(self._answer, self.path, backlog=1000))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        now = time.monotonic()
        self.calls.append(now)
        down = now < self.began + self._seconds
        head = f"503 Service Unavailable\r\nRetry-After: {self._after}" if down else "200 OK"
        writer.write(f"HTTP/1.1 {head}\r\n\r\n".encode("ascii"))
        writer.close()


@contextmanager
def _gateway(seconds: float) -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="jobwell-bench-") as folder:
        gateway = Gateway(Path(folder, "gateway"), seconds)
        gateway.start()
        try:
            yield gateway
        finally:
            gateway.stop()
