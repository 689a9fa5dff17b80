"""Case C12: how long the event loop does not answer is measured, and shown for each worker."""

import threading
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.worker.heartbeat import LoopWatch
from tests.waiting import until
from tests.worker.helpers import Acts, Desk, working


async def test_the_lag_of_the_loop_is_shown_while_a_job_blocks_it(
    app: App, acts: Acts, desk: Desk, database_url: str, schema: str
) -> None:
    app.override({"lease": 2})
    seen: list[float] = []

    def look() -> None:
        try:
            with psycopg.connect(database_url, autocommit=True, options=f"-c search_path={schema}") as conn:
                worst = "select coalesce(max(lag), 0) from workers"
                until(lambda: seen.append(conn.execute(worst).fetchall()[0][0]) or seen[-1] > 0.6)  # type: ignore[func-returns-value]
        finally:
            acts.open_all()

    async with working(app):
        watcher = threading.Thread(target=look)
        watcher.start()
        job = acts.act.enqueue("block")
        assert (await desk.end(job))["attempt"] == 1
        watcher.join()
    assert max(seen) > 0.6


@pytest.mark.parametrize("answers", [True, False])
def test_the_worst_since_the_last_look_is_told(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    clock = [0.0]
    asked: list[Any] = []
    monkeypatch.setattr("jobwell.worker.heartbeat.time.monotonic", lambda: clock[0])
    watch = LoopWatch(asked.append, lambda _seconds, _stack: None, str)
    watch.look()
    clock[0] = 0.4
    if answers:
        asked[0]()
        clock[0] = 3.0
    assert watch.worst() == 0.4
    clock[0] += 1
    assert watch.worst() == (0 if answers else 1.4)
