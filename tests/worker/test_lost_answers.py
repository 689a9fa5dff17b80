"""Answers that are lost on their way: the store has done what the worker does not know. Nothing runs twice, nothing is stuck."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.store.jobs import JobVerbs
from jobwell.worker import fetcher
from tests.waiting import apause, auntil
from tests.worker.helpers import Acts, Desk, working

Break = Callable[[str, int], list[int]]
VERBS = ["claim", "payloads", "finish", "fail", "retry", "postpone", "flip_due"]


@pytest.fixture
def break_after(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Make a verb lose its connection after the store has done it, so many times; gives the counter of what was broken."""

    def patch(name: str, times: int) -> list[int]:
        true, broken = getattr(JobVerbs, name), [0]

        async def breaking(self: Any, conn: Any, *arguments: Any) -> Any:
            answer = await true(self, conn, *arguments)
            # Only an answer that says something: an idle look has nothing to lose.
            if broken[0] < times and (answer if name in {"claim", "payloads"} else answer[0] if name == "flip_due" else True):
                broken[0] += 1
                await conn.close()
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return answer

        monkeypatch.setattr(JobVerbs, name, breaking)
        return broken

    return patch


async def test_running_jobs_are_not_taken_for_strays(app: App, acts: Acts, desk: Desk, break_after: Break) -> None:
    """Reconciliation hands back what the worker does not know, and leaves what it does."""
    running = [acts.act.enqueue("wait", n) for n in range(3)]
    async with working(app, slots=10):
        await auntil(lambda: acts.under_way == 3)
        broken = break_after("claim", 1)
        for n in range(3):
            await desk.end(acts.act.enqueue("ok", 100 + n))
        assert broken == [1]
        acts.open_all()
        for handle in running:
            assert (await desk.end(handle))["attempt"] == 1
    assert len(acts.ran) == 6
    assert desk.one("select count(*) from attempts where job_id = any(%s)", [handle.id for handle in running]) == 0


async def test_due_jobs_whose_flip_was_not_answered_run_once(app: App, acts: Acts, desk: Desk, break_after: Break) -> None:
    broken = break_after("flip_due", 2)
    app.enqueue_many(acts.act.using(run_after="100ms").job("ok", n) for n in range(50))
    async with working(app):
        assert await desk.settled() == {"succeeded": 50}
    assert broken[0] >= 1
    assert len(acts.ran) == 50


async def test_connections_that_are_cut_all_the_time_lose_nothing(app: App, acts: Acts, desk: Desk) -> None:
    """Every connection of the worker is terminated again and again while 600 jobs go through."""
    app.override({"poll": 0.05})
    words = ("ok", "fail twice", "snooze once", "logical")
    app.enqueue_many(acts.act.job(words[n % 4], n) for n in range(600))
    cuts = 0
    kill = "select pg_terminate_backend(pid) from pg_stat_activity where application_name in ('jobwell claims', 'jobwell finish') and query like %s"
    async with working(app, slots=20):

        async def done() -> bool:
            nonlocal cuts
            if cuts < 15:
                cuts += len(desk.all(kill, f"%{app.settings.schema}%"))
            return desk.one("select count(*) from jobs") == 0

        await auntil(done, timeout=60)
    assert cuts >= 5
    assert desk.states() == {"succeeded": 450, "failed": 150}
    assert desk.one("select count(*) from attempts where outcome = 'lost'") == 0
    for word, runs in {"ok": 1, "logical": 1, "fail twice": 3, "snooze once": 2}.items():
        ran = [one for one in acts.ran if one.word == word]
        assert len(ran) == runs * 150, word


async def test_jobs_that_end_while_the_store_is_asked_are_no_strays(
    app: App, acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The comparison comes now and then, in a flood too: the store's answer is older than the memory it is held against."""
    asked, true = [0], JobVerbs.held_by

    async def slow(self: Any, conn: Any, worker: Any) -> Any:
        answer = await true(self, conn, worker)
        asked[0] += len(answer)
        await apause(0.05)
        return answer

    monkeypatch.setattr(JobVerbs, "held_by", slow)
    monkeypatch.setattr(fetcher.Fetcher, "_reconcile_at", property(lambda _: 0.0, lambda *_: None), raising=False)
    app.enqueue_many(acts.act.job("ok", n) for n in range(1000))
    async with working(app, slots=20):
        assert await desk.settled(timeout=40) == {"succeeded": 1000}
    assert asked[0] > 0
    assert "answer was lost" not in caplog.text
    assert len(acts.ran) == 1000
