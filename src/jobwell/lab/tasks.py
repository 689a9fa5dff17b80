"""The tasks that benchmarks run."""

import time

from jobwell import App

app = App()


@app.task(name="bench.noop", timeout="30s")
async def noop(employee_id: int, event_version: str) -> None:
    """Nothing: what is measured is the path to it and back."""


@app.task(name="bench.stamp", timeout="30s")
async def stamp(sent: float) -> float:
    """How long it took from the call of enqueue to here, on the clock that the processes of a host share."""
    return time.monotonic() - sent
