"""The tasks that benchmarks run."""

import asyncio
import time

from jobwell import App, Dedup, Tasks

group = Tasks()


@group.task(name="bench.noop", timeout="30s")
async def noop(employee_id: int, event_version: str) -> None:
    """Nothing: what is measured is the path to it and back."""


@group.task(name="bench.once", timeout="30s", dedup=Dedup(by=("employee_id", "event_version")))
async def once(employee_id: int, event_version: str) -> None:
    """The same, and the only one of its kind."""


@group.task(name="bench.nap", timeout="30s")
async def nap(seconds: float) -> None:
    """Wait as for a slow service, and need no processor for it."""
    await asyncio.sleep(seconds)


@group.task(name="bench.stamp", timeout="30s")
async def stamp(sent: float) -> float:
    """How long it took from the call of enqueue to here, on the clock that the processes of a host share."""
    return time.monotonic() - sent


app = App()
app.include(group)
