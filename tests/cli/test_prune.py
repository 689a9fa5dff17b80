"""Case D9: retention by hand beside the work: small commits, one at a time, interruptible, and nobody waits for it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from jobwell import App, Conflict
from jobwell.actions.prune import Prune
from jobwell.core.ids import new_id
from jobwell.store.statements import run
from jobwell.store.upkeep import Pruner, UpkeepVerbs
from jobwell.worker.worker import Worker
from tests.cli.conftest import Cli
from tests.cli.test_seeing import declare, work_off
from tests.waiting import pause, until

Conn = psycopg.Connection[tuple[Any, ...]]
DAY = 86400.0
PUT = """insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)
 select gen_random_uuid(), now() - make_interval(days => %(days)s), now(), now(), 1, 1, 0, 2, 'q', 't', 'succeeded', '' from generate_series(1, %(count)s)"""
PUT_ATTEMPTS = """insert into attempts (job_id, ended_at, attempt, outcome)
 select gen_random_uuid(), now() - make_interval(days => %(days)s), 1, 'retrying' from generate_series(1, %(count)s)"""
OLD_DAY = "create table finished_20200102 partition of finished for values from ('2020-01-02+00') to ('2020-01-03+00')"


@pytest.fixture(autouse=True)
def _no_day_is_left(conn: Conn) -> Iterator[None]:
    yield
    conn.execute("drop table if exists finished_20200102")


def count(conn: Conn, table: str = "finished", where: str = "true") -> int:
    row = conn.execute(f"select count(*) from {table} where {where}").fetchone()  # type: ignore[call-overload]
    return int(row[0])


def fill(conn: Conn, expired: int, *, attempts: int = 0) -> None:
    conn.execute(PUT, {"days": 30, "count": expired})
    conn.execute(PUT, {"days": 1, "count": 10})
    if attempts:
        conn.execute(PUT_ATTEMPTS, {"days": 30, "count": attempts})


def pruner(app: App, **given: Any) -> Prune:
    return Prune(app.database, **({"keep": 7 * DAY, "budget": 60.0, "by": "olga", "rest": lambda _: None} | given))


def test_all_that_is_old_goes_and_nothing_else(app: App, conn: Conn, cli: Cli) -> None:
    good, _ = declare(app)
    good.enqueue("x" * 5000)
    work_off(app, conn)
    kept = good.enqueue("y" * 5000)
    fill(conn, 2500, attempts=1200)
    conn.execute(OLD_DAY)
    conn.execute(
        PUT.replace("now() - make_interval(days => %(days)s)", "timestamptz '2020-01-02 05:00+00'"), {"days": 0, "count": 7}
    )
    conn.execute("insert into payloads values ('00000000-0000-7000-8000-000000000001', '1')")
    said = cli("store", "prune", "-o", "json")
    assert (said.code, said.err) == (0, "")
    assert said.json == {
        "finished": 2500,
        "attempts": 1200,
        "payloads": 1,
        "steps": 0,
        "windows": 0,
        "hits": 0,
        "days": ["finished_20200102"],
        "in_use": [],
        "more": False,
    }
    assert (count(conn), count(conn, "attempts"), count(conn, "payloads"), count(conn, "jobs")) == (11, 0, 2, 1)
    assert kept.id
    actions = [row[0] for row in conn.execute("select action from audit order by id").fetchall()]
    assert actions == ["store.prune", "store.prune.end"]
    assert count(conn, "upkeep") == 0
    assert "removed 0 day(s), 0 finished" in cli("store", "prune").out


def test_shorter_than_the_retention_is_asked(app: App, conn: Conn, cli: Cli) -> None:
    fill(conn, 5)
    refused = cli("store", "prune", "--keep", "2h")
    assert refused.code == 2
    assert "say --yes" in refused.err
    assert count(conn) == 15
    assert cli("store", "prune", "--keep", "2h", "--yes").code == 0
    assert count(conn) == 0
    for wrong in ("5m", "soon", "-1d"):
        assert cli("store", "prune", "--keep", wrong, "--yes").code == 2


def test_each_piece_is_a_commit_with_a_limit_of_its_own(app: App, conn: Conn) -> None:
    fill(conn, 3500)
    seen: list[int] = []
    pruner(app, told=lambda _: seen.append(count(conn))).run()
    assert seen[:4] == [2510, 1510, 510, 10]
    pruned = pruner(app, budget=-1.0).run()
    assert pruned.more


def test_one_at_a_time(app: App, conn: Conn) -> None:
    fill(conn, 30_000)

    def one(_: int) -> int | None:
        try:
            return pruner(app, rest=lambda seconds: pause(min(seconds, 0.5))).run().finished
        except Conflict as error:
            assert "one at a time" in str(error)
            return None

    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(one, range(3)))
    assert sum(end or 0 for end in ends) == 30_000
    assert max(end or 0 for end in ends) == 30_000
    assert count(conn) == 10


def test_a_dead_pruners_lease_ends_by_itself(app: App, conn: Conn) -> None:
    fill(conn, 100)
    verbs = UpkeepVerbs(app.database.statements)
    with conn.transaction():
        assert run(conn, verbs.lease(Pruner(new_id(), "one that is killed")))
    assert pruner(app, rest=lambda _: pause(0.1)).run().finished == 100


def test_a_stolen_lease_stops_the_one_that_stood_still(app: App, conn: Conn) -> None:
    fill(conn, 3500)

    def stall(_: Any) -> None:
        conn.execute("update upkeep set holder = gen_random_uuid(), until = now() + interval '1 minute'")

    with pytest.raises(Conflict, match="after this one stood still"):
        pruner(app, told=stall).run()
    assert count(conn) == 2510


def test_a_day_in_use_is_left_and_tried_again(app: App, conn: Conn, database_url: str) -> None:
    conn.execute(OLD_DAY)
    with psycopg.connect(database_url) as reader:
        reader.execute(f"select * from {app.settings.schema}.finished_20200102")  # type: ignore[call-overload]
        rests: list[float] = []

        def rest(seconds: float) -> None:
            rests.append(seconds)
            if len(rests) == 4:
                reader.commit()

        pruned = pruner(app, rest=rest).run()
    assert (pruned.days, pruned.in_use) == (["finished_20200102"], [])
    assert len(rests) >= 4


def test_a_day_in_use_to_the_end_is_named(app: App, conn: Conn, cli: Cli, database_url: str) -> None:
    conn.execute(OLD_DAY)
    with psycopg.connect(database_url) as reader:
        reader.execute(f"select * from {app.settings.schema}.finished_20200102")  # type: ignore[call-overload]
        said = cli("store", "prune", "--for", "1s")
    assert said.code == 4
    assert "left, because somebody uses them: finished_20200102" in said.out


def start(app: App, cwd: Path) -> "subprocess.Popen[str]":
    environ = os.environ | {"JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema}
    return subprocess.Popen([sys.executable, "-m", "jobwell", "store", "prune"], env=environ, cwd=cwd, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


class Flow:
    """Jobs that flow through a worker of this process; each tells how long it took from its enqueue to its first line."""

    def __init__(self, app: App) -> None:
        self.took: list[float] = []
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(app)))

        @app.task(name="beat")
        async def beat(sent: float) -> None:
            self.took.append(time.monotonic() - sent)

        self._beat = beat
        self._sent = 0

    async def _live(self, app: App) -> None:
        self._worker = Worker(app, slots=10)
        self._loop = asyncio.get_running_loop()
        await self._worker.run()

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._worker is not None and self._worker._ready.is_set())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._worker is not None
        self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join(30)

    def one(self) -> None:
        """One job, to its end: the next comes when it has begun."""
        self._sent += 1
        self._beat.enqueue(time.monotonic())
        until(lambda: len(self.took) == self._sent)

    def p99(self, since: int = 0) -> float:
        took = sorted(self.took[since:])
        return took[int(len(took) * 0.99)]


def beside_the_work(app: App, conn: Conn, cwd: Path, expired: int, patience: float) -> None:
    """Prune while jobs flow; kill it half way; then three at once."""
    app.override({"retention": "60d"})  # of the worker: it leaves the rows to those who are tested here
    fill(conn, expired)
    conn.execute("analyze finished")
    old = "finished_at < now() - interval '7 days'"
    with Flow(app) as flow:
        for _ in range(150):
            flow.one()
        alone, began = flow.p99(), len(flow.took)
        first = start(app, cwd)
        ended = time.monotonic() + patience
        while count(conn, "finished_default", old) > expired * 0.7:
            flow.one()
            assert time.monotonic() < ended, "the pruning does not begin"
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=20)
        assert 0 < count(conn, "finished_default", old) < expired
        others = [start(app, cwd) for _ in range(3)]
        while any(other.poll() is None for other in others):
            flow.one()
            assert time.monotonic() < ended, "the pruning does not come to its end"
        said = [(other.returncode, *other.communicate()) for other in others]
        assert sorted(code for code, _, _ in said) == [0, 4, 4], said
        assert count(conn, "finished_default", old) == 0
        assert flow.p99(began) < max(0.25, 10 * alone)


def test_beside_the_work_killed_and_three_at_once(app: App, conn: Conn, tmp_path: Path) -> None:
    beside_the_work(app, conn, tmp_path, 60_000, 90.0)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_beside_the_work_at_a_larger_size(app: App, conn: Conn, tmp_path: Path) -> None:
    beside_the_work(app, conn, tmp_path, 1_000_000, 600.0)
