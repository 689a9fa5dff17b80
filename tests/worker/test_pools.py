"""Pools in a live worker: doors of their own, borrowed slots, queues in order and by weight, the night, costs and memory."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from jobwell import App, DeclarationError, Pool, SettingsError
from jobwell.core.pools import parse
from jobwell.core.size import MemoryLimit
from jobwell.core.why import explain
from jobwell.store import why
from jobwell.store.statements import run
from jobwell.worker.memory import Memory
from jobwell.worker.pools import Pools
from jobwell.worker.worker import Worker
from tests.waiting import apause, auntil
from tests.worker.helpers import Desk, working


@dataclass
class Stage:
    """Tasks that wait until their name is called, and who was on stage together.

    Attributes:
        open: names that need not wait.
        now, most: jobs under way by name, now and at the most.
        used, most_used: slots that they take, all together.
    """

    app: App
    open: set[str] = field(default_factory=set)
    now: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    used: int = 0
    most_used: int = 0
    order: list[str] = field(default_factory=list)
    let_go: Counter[str] = field(default_factory=Counter)

    def task(self, name: str, *, cost: int = 1, **options: Any) -> Any:
        """Declare one."""

        @self.app.task(name=name, cost=cost, **options)
        async def act() -> None:
            self.now[name] += 1
            self.used += cost
            self.most[name] = max(self.most[name], self.now[name])
            self.most_used = max(self.most_used, self.used)
            self.order.append(name)
            try:
                while not (name in self.open or self.let_go[name]):
                    await apause(0.002)
                self.let_go[name] -= name not in self.open
                await asyncio.sleep(0)
            finally:
                self.now[name] -= 1
                self.used -= cost

        return act

    def put(self, task: Any, number: int) -> None:
        """Enqueue so many."""
        self.app.enqueue_many(task.job() for _ in range(number))


@pytest.fixture
def stage(app: App) -> Stage:
    return Stage(app)


def pooled(app: App, pools: str, **settings: Any) -> None:
    app.override({"pools": pools, **settings})


def inside(worker: Worker) -> Pools:
    assert worker._pools is not None
    return worker._pools


# --- doors of their own ----------------------------------------------------------------------------------------------


async def test_important_work_finds_its_door_beside_a_flood(app: App, stage: Stage, desk: Desk) -> None:
    critical, bulk = stage.task("critical", queue="critical"), stage.task("bulk", queue="bulk")
    stage.put(bulk, 50)
    pooled(app, "fast=critical,notifications:3 heavy=bulk:2")
    async with working(app) as worker:
        await auntil(lambda: stage.now["bulk"] == 2)
        stage.put(critical, 5)
        await auntil(lambda: stage.now["critical"] == 3)
        assert worker.slots == 5
        stage.open |= {"critical"}
        await auntil(lambda: desk.one("select count(*) from jobs where queue = 'critical'") == 0)
        stage.open |= {"bulk"}
        assert await desk.settled() == {"succeeded": 55}
    assert (stage.most["bulk"], stage.most["critical"]) == (2, 3)


async def test_what_others_leave_idle_is_borrowed_and_given_back(app: App, stage: Stage, desk: Desk) -> None:
    critical, bulk = stage.task("critical", queue="critical"), stage.task("bulk", queue="bulk")
    stage.put(bulk, 50)
    pooled(app, "fast=critical:4 heavy=bulk:2..5")
    async with working(app):
        await auntil(lambda: stage.now["bulk"] == 4)  # not five: half of the other's slots are never lent
        stage.put(critical, 20)
        await auntil(lambda: stage.now["critical"] == 2)
        stage.let_go["bulk"] = 2  # what ends goes to the one below its own
        await auntil(lambda: stage.now["critical"] == 4)
        assert stage.now["bulk"] == 2
        stage.open |= {"critical", "bulk"}
        await desk.settled()
    assert stage.most["bulk"] <= 5
    assert stage.most_used <= 6


async def test_slots_of_the_process_that_no_pool_owns_can_be_borrowed(app: App, stage: Stage) -> None:
    stage.put(stage.task("bulk", queue="bulk"), 20)
    pooled(app, "fast=critical:2;least=2 heavy=bulk:1..9", slots=10)
    async with working(app):
        await auntil(lambda: stage.now["bulk"] == 8)
        stage.open |= {"bulk"}


async def test_strict_queues_are_empty_one_after_the_other(app: App, stage: Stage, desk: Desk) -> None:
    stage.put(stage.task("c", queue="bulk", priority=100), 30)
    stage.put(stage.task("b", queue="default"), 30)
    stage.put(stage.task("a", queue="critical", priority=-100), 30)
    stage.open |= {"a", "b", "c"}
    pooled(app, "all=critical>default>bulk:4")
    async with working(app):
        await desk.settled()
    assert stage.order == sorted(stage.order)


async def test_weighted_queues_have_their_shares_while_they_have_jobs(app: App, stage: Stage, desk: Desk) -> None:
    stage.put(stage.task("a", queue="critical"), 600)
    stage.put(stage.task("b", queue="bulk", priority=100), 600)
    stage.open |= {"a", "b"}
    pooled(app, "all=critical*3,bulk*1:4")
    async with working(app):
        await desk.settled(timeout=60)
    assert Counter(stage.order[:700])["a"] == pytest.approx(525, rel=0.1)


async def test_by_priority_across_the_queues_of_a_pool(app: App, stage: Stage, desk: Desk) -> None:
    stage.put(stage.task("b", queue="critical"), 10)
    stage.put(stage.task("a", queue="bulk", priority=10), 10)
    stage.open |= {"a", "b"}
    pooled(app, "rest=*:1")
    async with working(app) as worker:
        assert set(worker.queues) == set(app.queues)
        await desk.settled()
    assert stage.order[:10] == ["a"] * 10


async def test_without_pools_nothing_of_them_is_there(app: App, stage: Stage) -> None:
    stage.task("a")
    worker = Worker(app)
    assert worker._pools is None
    assert (worker.slots, worker.queues) == (100, app.queues)


# --- the time table --------------------------------------------------------------------------------------------------


async def test_the_night_begins_and_ends_without_a_restart_and_kills_nothing(app: App, stage: Stage, desk: Desk) -> None:
    stage.put(stage.task("bulk", queue="bulk"), 20)
    night = Pool("heavy", queues=["bulk"], slots=1, hours={"22:00-06:00": 4}, zone="Asia/Almaty")
    app.override({"pools": [night]})
    worker = Worker(app)
    assert inside(worker)._now == worker._now  # the database's time
    assert worker.slots == 4
    clock = datetime(2026, 1, 15, 16, 59, 59, tzinfo=UTC)
    async with working(app) as worker:
        inside(worker)._now = lambda: clock
        await auntil(lambda: desk.one("select slots from workers") == 1)
        stage.let_go["bulk"] = 3  # those of a night that was real
        await auntil(lambda: stage.now["bulk"] == 1)
        clock = datetime(2026, 1, 15, 17, 0, tzinfo=UTC)
        await auntil(lambda: stage.now["bulk"] == 4, timeout=5)
        assert desk.one("select slots from workers") == 4
        clock = datetime(2026, 1, 16, 1, 0, tzinfo=UTC)
        await auntil(lambda: desk.one("select slots from workers") == 1, timeout=5)
        assert stage.now["bulk"] == 4
        done = desk.one("select count(*) from finished")
        stage.let_go["bulk"] = 3
        await auntil(lambda: desk.one("select count(*) from finished") == done + 3)
        await apause(0.3)
        assert stage.now["bulk"] == 1  # none in the places of the three
        stage.let_go["bulk"] = 1
        await auntil(lambda: desk.one("select count(*) from finished") == done + 4)
        await auntil(lambda: stage.now["bulk"] == 1)
        stage.open |= {"bulk"}
        await desk.settled()


@pytest.mark.parametrize(
    ("tables", "room", "total"),
    [
        ("fast=critical:20 heavy=bulk:16;06:00-22:00=2;zone=UTC", 20, 36),  # its door is open though others still end
        ("fast=critical:4;06:00-22:00=20;zone=UTC heavy=bulk:16;06:00-22:00=2;zone=UTC", 6, 22),  # never more than there were
    ],
)
def test_what_a_pool_has_lost_to_its_table_and_still_uses_takes_nothing_from_others(tables: str, room: int, total: int) -> None:
    clock = datetime(2026, 1, 15, 5, 59, tzinfo=UTC)
    pools = Pools(parse(tables), [("critical",), ("bulk",)], slots=None, costs={1}, now=lambda: clock, memory=None)
    pools.refresh()
    pools._used = [0, 16]
    assert pools.rooms()[1].most == 0
    clock = datetime(2026, 1, 15, 6, 0, tzinfo=UTC)
    assert pools.refresh()
    assert [each.most for each in pools.rooms()] == [room, 0]
    assert pools.total == total
    pools._used = [0, 3]
    assert [each.most for each in pools.rooms()] == [min(20, pools.total - 3), 0]
    pools._used = [0, 1]
    assert [each.most for each in pools.rooms()] == [20, 1]
    assert pools.total == 22


# --- costs -----------------------------------------------------------------------------------------------------------


async def test_a_heavy_job_takes_its_slots_and_is_not_starved(app: App, stage: Stage, desk: Desk) -> None:
    light, heavy = stage.task("light"), stage.task("heavy", cost=4)
    stage.put(light, 1000)
    stage.put(heavy, 5)
    stage.open |= {"light", "heavy"}
    async with working(app, slots=4):
        await desk.settled(timeout=60)
    assert (stage.most["heavy"], stage.most_used) == (1, 4)
    assert max(at for at, name in enumerate(stage.order) if name == "heavy") < 900


async def test_slots_are_gathered_where_light_jobs_hold_them(app: App, stage: Stage, desk: Desk) -> None:
    light, heavy = stage.task("light"), stage.task("heavy", cost=3)
    stage.put(light, 20)
    async with working(app, slots=4):
        await auntil(lambda: stage.now["light"] == 4)
        stage.put(heavy, 1)
        for n in range(1, 20):  # one ends at a time: without gathering its slot would go to a light one
            if stage.now["heavy"]:
                break
            stage.let_go["light"] += 1
            await auntil(lambda n=n: desk.one("select count(*) from finished") == n)
            await apause(0.05)
        await auntil(lambda: stage.now["heavy"] == 1)
        await auntil(lambda: desk.one("select busy from workers") == stage.now["light"] + 3)
        assert stage.used <= 4
        stage.open |= {"light", "heavy"}
        await desk.settled()


def test_a_cost_that_no_pool_has_is_refused(app: App, stage: Stage) -> None:
    stage.task("huge", queue="bulk", cost=8)
    with pytest.raises(SettingsError, match=r"takes 8 slots \(cost=8\), and the worker has 4; it could never begin"):
        Worker(app, slots=4)
    pooled(app, "fast=critical:20 heavy=bulk:4..12")
    with pytest.raises(SettingsError, match=r"the pool 'heavy' of its queue 'bulk' has 4"):
        Worker(app)
    pooled(app, "fast=critical:20 heavy=bulk:4;22:00-06:00=8;zone=Asia/Almaty")
    assert Worker(app).slots == 28  # at night it can


@pytest.mark.parametrize("cost", [0, -1, 1.5, True, 20_000])
def test_a_cost_is_a_number_of_slots(app: App, cost: Any) -> None:
    with pytest.raises(DeclarationError, match="a whole number of slots"):
        app.task(name="a", cost=cost)(lambda: None)


def test_what_does_not_fit_together_is_refused(app: App, stage: Stage) -> None:
    stage.task("a")
    pooled(app, "fast=critical:20")
    with pytest.raises(SettingsError, match="the pools have 20 slots of their own, and the process has 10"):
        Worker(app, slots=10)
    with pytest.raises(SettingsError, match="leave the others out"):
        Worker(app, queues=("critical",))
    with pytest.raises(SettingsError, match="leave `queues` out"):
        app.override({"queues": "critical"})


# --- memory ----------------------------------------------------------------------------------------------------------


async def test_above_the_limit_heavy_tasks_wait_and_light_ones_go_on(
    app: App, stage: Stage, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    light, heavy = stage.task("light"), stage.task("heavy", cost=2)
    stage.open |= {"light", "heavy"}
    app.override({"memory_high": "80%"})
    found = 0.9
    async with working(app, slots=4) as worker:
        memory = inside(worker).memory
        assert memory is not None
        memory._read = lambda limit: found
        await auntil(lambda: desk.one("select held from workers").startswith("the memory in use, 90%, is above memory_high=80%"))
        waiting = heavy.enqueue()
        for _ in range(3):
            await desk.end(light.enqueue())
        assert desk.state(waiting) == "ready"
        (because,) = explain(run(desk.conn, why.facts(app.database.statements, waiting.id)))
        assert because.code == "memory_high"
        found = 0.78  # not far enough below
        await apause(1.2)
        assert desk.state(waiting) == "ready"
        found = 0.5
        await desk.end(waiting)
        await auntil(lambda: desk.one("select held from workers") == "")
    told = [record for record in caplog.records if "memory_high" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]


async def test_the_memory_of_machine_and_process_is_measured() -> None:
    assert not await Memory(MemoryLimit(10.0, part=True)).look()
    low = Memory(MemoryLimit(1024 * 1024, part=False))
    assert not await low.look()
    assert low.high
    assert "MB, is above memory_high=1MB" in low.said


# --- what people see -------------------------------------------------------------------------------------------------


async def test_what_pools_have_and_take_is_published_and_explains_why_a_job_waits(app: App, stage: Stage, desk: Desk) -> None:
    bulk, critical = stage.task("bulk", queue="bulk"), stage.task("critical", queue="critical")
    stage.put(bulk, 3)
    pooled(app, "fast=critical,notifications:3 heavy=bulk:1..2")

    def codes(job: Any) -> list[tuple[str, str]]:
        return [(each.code, each.sentence) for each in explain(run(desk.conn, why.facts(app.database.statements, job)))]

    async with working(app):
        await auntil(lambda: stage.now["bulk"] == 2)
        await auntil(lambda: [pool["busy"] for pool in desk.one("select pools from workers") or ()] == [0, 2])
        assert desk.one("select pools from workers") == [
            {"name": "fast", "queues": ["critical", "notifications"], "order": "priority", "slots": 3, "most": 3, "least": 2, "busy": 0, "may": 2},
            {"name": "heavy", "queues": ["bulk"], "order": "priority", "slots": 1, "most": 2, "least": 1, "busy": 2, "may": 2},
        ]  # fmt: skip
        third = desk.one("select id from jobs where state = 'ready'")
        ((code, sentence),) = codes(third)
        assert code == "slots_busy"
        assert sentence.startswith("All 2 slot(s) in the pools of the queue 'bulk' of the 1 worker(s)")
        stage.open |= {"critical"}
        await desk.end(critical.enqueue())
        stage.open |= {"bulk"}
        await desk.settled()


# --- no prefetch (D14), low priority lives (D15) -----------------------------------------------------------------------


async def test_nothing_is_reserved_behind_a_long_job(app: App, stage: Stage, desk: Desk) -> None:
    """Two workers of four slots, one long job and thirty short ones: all but the long one end while it runs."""
    long, short = stage.task("long"), stage.task("short")
    stage.put(long, 1)
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(working(app, slots=4)) for _ in range(2)]
        await auntil(lambda: stage.now["long"] == 1)
        stage.put(short, 30)
        await auntil(lambda: stage.now["short"] == 7)  # no slot is free, and no more than that are claimed
        assert desk.one("select count(*) from jobs where state = 'running'") == 8
        assert desk.one("select max(count) from (select count(*) from jobs where state = 'running' group by worker) c") == 4
        stage.let_go["short"] = 1
        await auntil(lambda: desk.one("select count(*) from finished") == 1)
        await auntil(lambda: stage.now["short"] == 7)
        stage.open |= {"short"}
        await auntil(lambda: desk.one("select count(*) from finished") == 30)
        assert stage.now["long"] == 1
        assert all(worker.busy <= 4 for worker in workers)
        stage.open |= {"long"}
        await desk.settled()


def _steady(app: App, stage: Stage) -> Callable[[], Any]:
    """High-priority jobs that each bring the next one: their stream never breaks."""

    @app.task(name="high", priority=50)
    async def high(n: int) -> None:
        stage.order.append("high")
        if n:
            await high.aenqueue(n=n - 1)

    return lambda: app.enqueue_many(high.job(n=40) for _ in range(10))


async def test_low_priority_begins_beside_an_unbroken_stream(app: App, stage: Stage, desk: Desk) -> None:
    low = stage.task("low", priority=-50)
    stage.open |= {"low"}
    _steady(app, stage)()
    low.enqueue()
    async with working(app, slots=1):
        await desk.settled(timeout=60)
    await app.aclose()
    assert stage.order.index("low") <= 32  # one claim in sixteen begins at a lower rank
