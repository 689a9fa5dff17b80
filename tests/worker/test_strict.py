"""Strict by choice: the setting reaches the claims of a worker."""

import pytest

from jobwell import App
from tests.worker.helpers import Acts, Desk, working


@pytest.mark.parametrize("strict", [True, False])
async def test_the_sixteenth_claim_goes_lower_unless_the_worker_is_strict(app: App, acts: Acts, desk: Desk, strict: bool) -> None:
    """One slot, so each claim takes one job: the low one is among the first twenty, or it is the last."""
    app.override({"strict_priority": strict})
    acts.act.using(priority=-50).enqueue("ok", 1000)
    app.enqueue_many(acts.act.job("ok", n) for n in range(40))
    async with working(app, slots=1):
        await desk.settled()
    at = [ran.n for ran in acts.ran].index(1000)
    assert at == 40 if strict else at < 20
