"""Pools on the command line: given to a worker, refused in words, and seen."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.core.ids import new_id
from jobwell.worker.worker import Worker
from tests.cli.conftest import Cli
from tests.waiting import auntil, until

Conn = psycopg.Connection[tuple[Any, ...]]
SHOP = """
from jobwell import App
app = App()

@app.task(name="sum", queue="bulk", cost=2)
async def sum_up() -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        (["fast"], "the form is name=queues:slots"),
        (["fast=critical:20", "heavy=critical:4"], "the queue 'critical' is in the pools 'fast' and 'heavy'"),
        (["heavy=bulk:2;22:00-06:00=16"], "needs the zone"),
        (["heavy=bulk:1"], "the task sum takes 2 slots (cost=2), and the pool 'heavy' of its queue 'bulk' has 1"),
        (["heavy=bluk:4"], "the app declares no queue 'bluk'; did you mean 'bulk'?"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(shop: Path, cli: Cli, pools: list[str], words: str) -> None:
    path = os.pathsep.join((str(shop), os.environ.get("PYTHONPATH", "")))
    given = (f"--pool={pool}" for pool in pools)
    said = cli("worker", "shop:app", "--child", str(new_id()), *given, PYTHONPATH=path)  # the process that a supervisor starts
    assert said.code == 78
    assert words in said.err


def test_pools_reach_the_processes_and_go_before_the_file(shop: Path, app: App, conn: Conn) -> None:
    (shop / "jobwell.toml").write_text('pools = ["all=*:7"]\n')
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    environ |= {"JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema}
    command = [
        sys.executable,
        "-m",
        "jobwell",
        "worker",
        "shop:app",
        "--pool",
        "fast=critical*2,notifications*1:3",
        "--pool",
        "heavy=bulk:2..4",
    ]
    process = subprocess.Popen(command, env=environ, cwd=shop, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: conn.execute("select from workers where pools is not null").fetchone() is not None)
        (row,) = conn.execute("select slots, queues, pools from workers").fetchall()
        assert row[:2] == (5, ["critical", "notifications", "bulk"])
        assert [(pool["name"], pool["order"], pool["slots"], pool["most"]) for pool in row[2]] == [
            ("fast", "weighted", 3, 3),
            ("heavy", "priority", 2, 4),
        ]
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert "1 process(es) × 5 slots (fast=critical*2,notifications*1:3 heavy=bulk:2..4) = 5 jobs at once" in said


def test_pools_are_seen(app: App, conn: Conn, cli: Cli) -> None:
    door = asyncio.Event()

    @app.task(name="wait", queue="bulk", cost=2)
    async def wait() -> None:
        await door.wait()

    app.override({"pools": "fast=critical:3 heavy=bulk:2..3"})

    async def live() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await worker.ready()
        await wait.aenqueue()
        await auntil(lambda: conn.execute("select from workers where pools -> 1 ->> 'busy' = '2'").fetchone() is not None)
        waiting = await wait.aenqueue()
        call = asyncio.to_thread
        (row,) = (await call(cli, "workers", "list", "-o", "json")).json
        assert (row["slots"], [pool["busy"] for pool in row["pools"]]) == (5, [0, 2])
        for command in (("workers", "list"), ("status",)):
            assert "fast 0/3, heavy 2/2..3" in (await call(cli, *command)).out
        shown = (await call(cli, "workers", "show", row["name"])).out
        assert "heavy" in shown
        assert "least" in shown
        (because,) = (await call(cli, "jobs", "why", str(waiting.id), "-o", "json")).json["because"]
        assert because["code"] == "slots_busy"
        assert because["sentence"].startswith("It takes 2 slots, and none of the 1 worker(s)")
        door.set()
        worker.stop()
        assert await running == 0
        await app.aclose()

    asyncio.run(asyncio.wait_for(live(), 60))


def test_a_setting_is_shown(shop: Path, bare: Cli) -> None:
    (shop / "jobwell.toml").write_text('memory_high = "80%"\n[pools]\nfast = "critical, default : 20"\nheavy = "bulk:4..12"\n')
    rows = {row["setting"]: row["value"] for row in bare("doctor", "-o", "json").json["settings"]}
    assert (rows["pools"], rows["memory_high"]) == ("fast=critical,default:20 heavy=bulk:4..12", "80%")
