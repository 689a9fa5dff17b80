"""The laboratory's no-op with everything that can limit it: what `lanes` starts in place of the plain app."""

from jobwell import App, Tasks

__all__ = ["CONCURRENCY", "RATE", "RESOURCE", "TENANTS", "app"]

TENANTS = 10
CONCURRENCY = 2000  # twice the slots: it is counted, and does not bind
RATE = "1000000/s"
RESOURCE = "bench"

group = Tasks()


@group.task(name="bench.noop", timeout="30s", resources=(RESOURCE,))
async def noop(employee_id: int, event_version: str) -> None:
    """Nothing, as the plain one does."""


app = App()
app.include(group)
app.resource(RESOURCE, concurrency=CONCURRENCY, rate=RATE)
app.tenants(default=1, weights={"t0": 2})
