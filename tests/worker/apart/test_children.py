"""Jobs in child processes: results and errors cross as plain data, limits are held, and one death is nobody else's."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobwell import App
from jobwell.actions import jobs as actions
from tests.waiting import auntil
from tests.worker.apart.tasks import acpu, cpu, small
from tests.worker.helpers import Desk, starting, working


async def test_results_and_errors_cross_as_plain_data(app: App, desk: Desk) -> None:
    async with working(app):
        same = [cpu.enqueue("pid") for _ in range(6)]
        added, looped, async_ = cpu.enqueue("add", 10), cpu.enqueue("loop"), acpu.enqueue("quick")
        rejected, value, unstorable = cpu.enqueue("reject", 7), cpu.enqueue("value"), cpu.enqueue("unstorable")
        snoozed, retried, recursion = cpu.enqueue("snooze"), cpu.enqueue("retry"), cpu.enqueue("recursion")
        pids = {(await desk.end(job))["result"] for job in same}
        assert 1 <= len(pids) <= 2  # warm children, two of them
        assert str(os.getpid()) not in pids
        assert ((await desk.end(added))["result"], (await desk.end(looped))["state"]) == ("45", "succeeded")
        assert '["around",' in (await desk.end(async_))["result"]
        found = await desk.end(rejected)
        assert (found["reason"], found["code"], found["message"]) == ("rejected", "no_such_thing", "7 is gone")
        found = await desk.end(value)
        assert (found["reason"], found["failures"], found["error_type"]) == ("exhausted", 3, "ValueError")
        assert 'throw(ValueError("it did not work"))' in found["traceback"]
        assert "/worker/attempt.py" not in found["traceback"]
        found = await desk.end(unstorable)
        assert (found["state"], found["attempt"]) == ("succeeded", 1)
        assert "could not be stored" in found["note"]
        found = await desk.end(retried)
        assert (found["reason"], found["failures"]) == ("exhausted", 3)
        assert (await desk.end(recursion))["error_type"] == "RecursionError"
        await auntil(lambda: desk.job(snoozed)["postponements"] >= 2)
        actions.named(app.database, "jobs.cancel", [snoozed.id], by="test")
    assert desk.one("select count(*) from jobs where state = 'running'") == 0


async def test_tasks_share_the_children_whatever_the_order_of_their_names(app: App, desk: Desk) -> None:
    """And low priority has its sixteenth claim: one free child takes one job a claim, so turns are all there is."""
    for n in range(40):
        cpu.using(priority=10).enqueue("pid")
        acpu.using(priority=10).enqueue("quick")
        if n < 2:
            small.enqueue(1000)
    app.override({"children": 1})
    try:
        async with working(app):
            await auntil(lambda: desk.one("select count(*) from finished") == 82)
    finally:
        app.override({"children": 2})
    first = [row[0] for row in desk.conn.execute("select task from finished order by started_at limit 40").fetchall()]
    assert min(first.count(cpu.name), first.count(acpu.name)) >= 10
    assert small.name in first


async def test_log_lines_reach_the_parent_with_their_fields(app: App, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with working(app):
        job = cpu.enqueue("log", 3)
        await desk.end(job)
    (line,) = [record for record in caplog.records if record.getMessage() == "half way"]
    assert (line.name, line.levelname, line.__dict__["step"]) == ("shop", "WARNING", 3)
    (line,) = [record for record in caplog.records if record.getMessage() == "from the context"]
    assert line.__dict__["job"] == str(job.id)


@pytest.mark.parametrize(
    ("word", "n", "how"), [("exit", 0, "code 0"), ("exit", 1, "code 1"), ("kill", 0, "SIGKILL"), ("null", 0, "SIGSEGV")]
)
async def test_a4_a_job_that_kills_its_process_is_quarantined_after_three_crashes(
    app: App, desk: Desk, word: str, n: int, how: str
) -> None:
    """Case A4."""
    async with working(app):
        bad = cpu.enqueue(word, n)
        good = [cpu.enqueue("add", number) for number in range(20)]
        for job in good:
            assert (await desk.end(job))["state"] == "succeeded"
        found = await desk.end(bad)
    assert (found["reason"], found["crashes"], found["failures"], found["losses"]) == ("crashed", 3, 0, 0)
    assert how in found["message"]
    assert os.uname().nodename in found["message"]
    assert [row["outcome"] for row in found["attempts"]] == ["crashed"] * 3


async def test_c7_one_death_harms_nobody_else_and_the_rest_goes_on(app: App, desk: Desk) -> None:
    """Case C7."""
    app.override({"children": 4})
    try:
        async with working(app):
            slow = [acpu.enqueue("quick") for _ in range(3)]
            cpu.enqueue("exit", 9)
            many = [cpu.enqueue("add", n) for n in range(200)]
            for job in [*slow, *many]:
                found = await desk.end(job)
                assert (found["state"], found["crashes"]) == ("succeeded", 0)
    finally:
        app.override({"children": 2})


async def test_c6_a_time_limit_kills_the_whole_family(app: App, desk: Desk, tmp_path: Path, monkeypatch: Any) -> None:
    """Case C6."""

    from jobwell.worker.executors import children

    monkeypatch.setattr(children, "KILL_AFTER", 0.3)
    path = tmp_path / "pid"
    async with working(app) as worker:
        job = cpu.using(deadline="2s").enqueue("family", path=str(path))
        await auntil(lambda: path.exists() and path.read_text())
        left = int(path.read_text())
        assert psutil.pid_exists(left)
        found = await desk.end(job, 6.0)
        assert (found["state"], found["reason"]) == ("failed", "deadline")
        await auntil(lambda: not alive(left))
        assert (await desk.end(cpu.enqueue("add", 3)))["state"] == "succeeded"
        await auntil(lambda: worker.busy == 0)  # it knows a moment after the store


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_what_a_dead_child_has_started_goes_with_it(app: App, desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    async with working(app):
        found = await desk.end(cpu.enqueue("family then die", path=str(path)))
    assert (found["reason"], "code 7" in found["message"]) == ("crashed", True)
    left = int(path.read_text())
    await auntil(lambda: not alive(left))


@pytest.mark.parametrize("word", ["spin", "deaf"])
async def test_c6_cancel_stops_it_and_frees_the_child(app: App, desk: Desk, word: str, monkeypatch: Any) -> None:
    """Case C6."""

    from jobwell.worker.executors import children

    monkeypatch.setattr(children, "KILL_AFTER", 0.3)
    async with working(app):
        job = cpu.enqueue(word)
        await auntil(lambda: desk.state(job) == "running")
        await auntil(lambda: desk.one("select count(*) from jobs where state = 'running'") == 1)
        actions.named(app.database, "jobs.cancel", [job.id], by="olga", why="too long")
        found = await desk.end(job, 5.0)
        assert (found["state"], found["note"]) == ("cancelled", "cancelled by olga: too long")
        assert (await desk.end(cpu.enqueue("add", 3)))["state"] == "succeeded"


async def test_shutdown_hands_back_what_runs_in_children_uncounted(app: App, desk: Desk, monkeypatch: Any) -> None:
    from jobwell.worker.executors import children

    monkeypatch.setattr(children, "KILL_AFTER", 0.3)
    app.override({"grace": "0.3s"})
    try:
        async with starting(app) as (worker, task):
            plain, async_ = cpu.enqueue("deaf"), acpu.enqueue("wait")
            await auntil(lambda: desk.one("select count(*) from jobs where state = 'running'") == 2)
            worker.stop()
            assert await asyncio.wait_for(asyncio.shield(task), 10) == 0
    finally:
        app.override({"grace": "25s"})
    for job in (plain, async_):
        found = desk.job(job)
        assert (found["state"], found["attempt"], found["crashes"], found["losses"], found["postponements"]) == (
            "ready",
            0,
            0,
            0,
            1,
        )


async def test_memory_above_the_limit_is_a_failure_and_not_a_crash(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(small.enqueue(400_000_000))
        assert (found["reason"], found["error_type"], found["crashes"], found["failures"]) == ("exhausted", "MemoryLimit", 0, 3)
        assert (await desk.end(small.enqueue(1000)))["state"] == "succeeded"


async def test_where_memory_is_short_a_task_with_a_limit_waits_and_others_run(app: App, desk: Desk) -> None:
    app.override({"memory_high": "80%"})
    try:
        async with working(app) as worker:
            assert worker._pools is not None
            assert worker._pools.memory is not None
            found = 0.9
            worker._pools.memory._read = lambda limit: found
            await auntil(lambda: worker._pools is not None and not worker._pools.heavy)
            held = small.enqueue(1000)
            for _ in range(2):
                assert (await desk.end(acpu.enqueue("quick")))["state"] == "succeeded"
            assert desk.state(held) == "ready"
            found = 0.5
            assert (await desk.end(held))["state"] == "succeeded"
    finally:
        app.override({"memory_high": ""})


async def test_no_more_are_claimed_than_there_are_children(app: App, desk: Desk) -> None:
    """No job waits behind a busy child while another worker has a free one."""
    async with working(app):
        held = [acpu.enqueue("wait") for _ in range(2)]
        await auntil(lambda: desk.one("select count(*) from jobs where state = 'running'") == 2)
        waiting = [acpu.enqueue("quick") for _ in range(5)]
        await auntil(lambda: desk.one("select count(*) from workers where idle") <= 1)
        assert {desk.state(job) for job in waiting} == {"ready"}
        async with working(app):
            for job in waiting:
                assert (await desk.end(job))["state"] == "succeeded"
        assert {desk.state(job) for job in held} == {"running"}
        actions.named(app.database, "jobs.cancel", [job.id for job in held], by="test")
        for job in held:
            await desk.end(job)


async def test_a_child_enqueues_with_connections_of_its_own(app: App, desk: Desk) -> None:
    async with working(app):
        found = await desk.end(acpu.enqueue("children"))
        assert found["state"] == "succeeded"
        assert await desk.settled() == {"succeeded": 4}
    assert desk.one("select count(*) from finished where meta ->> 'parent' is not null") == 3
