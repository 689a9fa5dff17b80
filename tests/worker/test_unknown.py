"""Tasks that no live worker knows: said, and after a while in the quarantine, where a person decides."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from jobwell import App
from jobwell.actions import jobs as actions
from jobwell.worker.housekeeping import unknown
from tests.waiting import auntil
from tests.worker.helpers import Desk, working


@pytest.fixture
def other(app: App) -> Iterator[App]:
    """Another release on the same tables."""
    made = App(app.settings.url, schema=app.settings.schema)
    yield made
    made.close()


async def test_b5_a_task_that_nobody_has_waits_is_told_and_then_left_to_a_person(
    app: App, other: App, desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Case B5."""
    monkeypatch.setattr(unknown, "EVERY", 0.05)
    caplog.set_level(logging.WARNING)

    @app.task(name="known", aliases=("former",))
    async def known() -> None: ...

    @other.task(name="nobody.has.this")
    async def nobody(n: int) -> int:
        return n

    @other.task(name="former")
    async def former() -> None: ...

    jobs = [nobody.enqueue(n) for n in range(3)]
    renamed = former.enqueue()
    app.override({"unknown_after": "1h"})
    async with working(app):
        await desk.end(renamed)
        desk.conn.execute("update jobs set ready_at = ready_at - interval '2 minutes'")
        await auntil(lambda: "no live worker knows the task nobody.has.this: 3 job(s) of queue default" in caplog.text)
        assert {desk.state(job) for job in jobs} == {"ready"}
        desk.conn.execute("update jobs set ready_at = ready_at - interval '1 hour'")
        await auntil(lambda: desk.one("select count(*) from quarantine") == 3)
    found = desk.job(jobs[0])
    assert (found["reason"], found["attempt"], found["failures"]) == ("unsupported", 0, 0)
    assert "no live worker has known the task nobody.has.this" in found["message"]
    assert caplog.text.count("no live worker knows the task") == 1
    actions.named(app.database, "quarantine.retry", [job.id for job in jobs], by="olga")
    async with working(other):
        assert (await desk.end(jobs[2]))["result"] == "2"


async def test_nothing_is_said_while_a_worker_lives_that_does_not_say_what_it_knows(app: App, other: App, desk: Desk) -> None:
    from jobwell.store import control

    @other.task(name="nobody.has.this")
    async def nobody() -> None: ...

    nobody.enqueue()

    def ask() -> list[Any]:
        return app.database.run(control.unknown(app.database.statements))

    register = (
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues, tasks) values"
        " (gen_random_uuid(), now() + interval '1 hour', 1, 'h', 'h/1', '0', 1, '{}', %s)"
    )
    assert ask() == []  # nobody lives: that is another alarm
    desk.conn.execute(register, [["known"]])
    assert [found.task for found in ask()] == ["nobody.has.this"]
    desk.conn.execute(register, [[]])
    assert ask() == []


async def test_many_gates_are_walked_by_the_index(app: App, other: App, desk: Desk) -> None:
    from jobwell.store import control

    desk.conn.execute(
        "insert into jobs (id, gate, task, queue, rank) select gen_random_uuid(), n % 50, 'task ' || n % 50, 'default', n % 3"
        " from generate_series(1, 20000) n"
    )
    desk.conn.execute(
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues, tasks) values"
        " (gen_random_uuid(), now() + interval '1 hour', 1, 'h', 'h/1', '0', 1, '{}', array['task 7'])"
    )
    found = app.database.run(control.unknown(app.database.statements))
    assert len({each.task for each in found}) == 49
    assert sum(each.jobs for each in found) == 20000 - 400
