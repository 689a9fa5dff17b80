"""What a task says about errors is what the worker goes by."""

import httpx
import pytest

from jobwell import App, Fixed
from tests.waiting import auntil
from tests.worker.helpers import Desk, working


@pytest.mark.parametrize(("status", "ends"), [(404, True), (409, False), (503, False)])
async def test_the_rules_of_a_task_decide(app: App, desk: Desk, status: int, ends: bool) -> None:
    @app.task(name="shop.charge", errors={409: "temporary"}, retry=Fixed("1h"))
    async def charge() -> None:
        httpx.Response(status, request=httpx.Request("GET", "http://shop")).raise_for_status()

    handle = charge.enqueue()
    async with working(app):
        await auntil(lambda: desk.outcomes(handle))
        job = desk.job(handle)
    assert (job["state"] == "failed", job["reason"] == "rejected") == (ends, ends)
