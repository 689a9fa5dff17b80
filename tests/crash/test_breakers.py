"""A worker that is killed while it runs the probe of a breaker: the breaker does not stay in probing for ever."""

from typing import Any

import pytest

from jobwell import App, Context
from tests.crash.conftest import LEASE, Fleet
from tests.waiting import until


@pytest.fixture
def dial(app: App) -> Any:
    app.resource("line")

    @app.task(name="dial", resources=("line",))
    async def dial(ctx: Context, how: str, job: str) -> str:
        return job

    return dial


@pytest.mark.parametrize("way", ["its host vanishes", "its supervisor sees it"])
def test_a_probe_that_is_killed_is_followed_by_another(fleet: Fleet, dial: Any, way: str) -> None:
    """Within two leases where nobody has seen the death, and before the lease is over where somebody has."""
    doomed = fleet.start()
    dial.enqueue("fail", "first")
    until(lambda: fleet.one("select state from breakers") == "open", what="the breaker opens")
    dial.enqueue("hang", "probe")
    for name in "abc":
        dial.enqueue("ok", name)
    until(lambda: fleet.marks("dial") == 2, what="the probe has begun")
    assert fleet.one(f"select job from {fleet.schema}.marks order by at desc limit 1") == "probe"
    fleet.start()
    assert fleet.one("select state = 'open' and until < now() from breakers")
    assert fleet.marks("dial") == 2  # nobody besides the probe, on either of them
    victims = fleet.children(doomed)
    if way == "its host vanishes":
        doomed.kill()
    for victim in victims:
        victim.kill()
    killed = fleet.one("select clock_timestamp()")
    until(lambda: fleet.marks("dial") >= 3, timeout=2 * LEASE + 5, what="another probe")
    waited = fleet.one(f"select extract(epoch from min(at) - '{killed}') from {fleet.schema}.marks where at > '{killed}'")
    assert waited < (2 * LEASE if way == "its host vanishes" else LEASE)
    until(lambda: fleet.finished() == 4, what="all are done, the killed one too")
    assert fleet.one("select state from breakers") == "closed"
    assert fleet.one("select attempt from finished order by attempt desc limit 1") == 2
