"""A dependency that is down, the task that calls it behind a breaker, and the same task without one.

The worker of `bench storm` has this app; the length of the outage and the place of the dependency come by the environment.
"""

import asyncio
import os

from jobwell import App, Backoff, Breaker, Context, Retry, Tasks

VARIABLE, LENGTH = "BENCH_GATEWAY", "BENCH_OUTAGE"
AT_ONCE = 50  # calls, with and without a breaker
OUTAGE = 120.0  # seconds, for which the waits below are meant; a shorter outage makes them shorter

outage = float(os.environ.get(LENGTH, OUTAGE))
scale = outage / OUTAGE
# The default rule, but for the number of attempts: with five of them the plain policy would lose most of the jobs.
RULE = Backoff(10 * scale, factor=3, cap=600 * scale, attempts=1000)

group = Tasks()


async def _status() -> tuple[int, str]:
    """One request: the status, and what `Retry-After` says."""
    reader, writer = await asyncio.open_unix_connection(os.environ[VARIABLE])
    try:
        writer.write(b"POST /send HTTP/1.1\r\n\r\n")
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    finally:
        writer.close()
    headers = dict(line.split(": ", 1) for line in answer.splitlines()[1:] if line)
    return int(answer.split()[1]), headers.get("Retry-After", "")


@group.task(name="bench.guarded", resources=("gateway",), retry=RULE, timeout="30s", deadline="2h")
async def guarded(ctx: Context, number: int) -> None:  # noqa: ARG001  it tells jobs apart
    """What the resource's breaker guards."""
    async with ctx.call("gateway", timeout="10s"):
        status, after = await _status()
        if status == 503:
            raise Retry("503", after=after)


@group.task(name="bench.unguarded", resources=("gateway-without",), retry=RULE, timeout="30s", deadline="2h")
async def unguarded(number: int) -> None:  # noqa: ARG001  it tells jobs apart
    """The same without a breaker: each job comes again by itself, after growing pauses."""
    status, _ = await _status()
    if status == 503:
        raise ConnectionError("503")


app = App()
app.resource("gateway", concurrency=AT_ONCE, breaker=Breaker(open=max(1.0, 10 * scale), longest=max(1.0, 300 * scale)))
app.resource("gateway-without", concurrency=AT_ONCE)
app.include(group)
