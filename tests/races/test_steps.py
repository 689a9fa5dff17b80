"""A step is written at the very moment at which its job is taken away, and two workers go on with one undoing."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from jobwell.core.ids import new_id
from jobwell.store import steps
from jobwell.store.statements import Program, arun
from jobwell.store.workers import WorkerVerbs
from tests.races.conftest import Waits
from tests.races.test_late_finish import rescue
from tests.store.conftest import Hands
from tests.store.helpers import Store

Write = Callable[[Store, UUID, UUID], Program[Any]]
MORE: dict[str, Any] = {"unknown": "hold", "call": "f()", "compensate": None}
WRITES: dict[str, Write] = {
    "begin": lambda store, job, claim: steps.begin(store.statements, job, claim, "new", **MORE),
    "again": lambda store, job, claim: steps.again(store.statements, job, claim, "old", **MORE),
    "done": lambda store, job, claim: steps.done(store.statements, job, claim, "old", result="1", note=None),
    "forget": lambda store, job, claim: steps.forget(store.statements, job, claim, "old"),
    "remark": lambda store, job, claim: steps.remark(store.statements, job, claim, "old", note="late"),
}
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@each_write
async def test_the_rescue_is_first(store: Store, hands: Hands, workers: WorkerVerbs, waits: Waits, write: Write) -> None:
    """Case G13: the late one waits for the rescuer's commit, is told that it has lost, and has written nothing."""
    late, rescuer = await hands(), await hands()
    store.put_new(1)
    (row,) = await late.claim(1)
    await arun(late.conn, steps.begin(store.statements, row.id, late.claim_id, "old", **MORE))
    before = store.ask("select * from steps")
    await arun(rescuer.conn, workers.expire(late.worker))
    async with rescuer.conn.transaction():
        assert await rescue(rescuer, workers) == 1
        writing = asyncio.create_task(arun(late.conn, write(store, row.id, late.claim_id)))
        await waits(late)
    assert not await writing
    assert store.ask("select * from steps") == before


@each_write
async def test_the_step_is_first(store: Store, hands: Hands, workers: WorkerVerbs, write: Write) -> None:
    """The rescuer passes over the job, and takes it when the step is written."""
    late, rescuer = await hands(), await hands()
    store.put_new(1)
    (row,) = await late.claim(1)
    await arun(late.conn, steps.begin(store.statements, row.id, late.claim_id, "old", **MORE))
    before = store.ask("select * from steps")
    await arun(rescuer.conn, workers.expire(late.worker))
    async with late.conn.transaction():
        assert await arun(late.conn, write(store, row.id, late.claim_id))
        assert await rescue(rescuer, workers) == 0
    assert store.ask("select * from steps") != before
    assert await rescue(rescuer, workers) == 1


async def test_two_workers_go_on_with_one_undoing(store: Store, hands: Hands, waits: Waits) -> None:
    one, other = await hands(), await hands()
    job, undo = new_id(), new_id()
    compensate = (
        '{"task": "undo", "queue": "default", "rank": 100, "gate": "7", "deadline": 60, "version": 1, "parameter": "what"}'
    )
    put = (
        "insert into steps (job_id, name, unknown, attempt, claim_id, state, result, kept, compensate, undo_id)"
        " values (%s, %s, 'hold', 1, gen_random_uuid(), %s, '1', true, %s, %s)"
    )
    for name, state, by in (("a", "done", None), ("b", "done", None), ("c", "compensating", undo)):
        store.conn.execute(put, [job, name, state, compensate, by])
    store.conn.execute(
        "insert into finished (id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
        " values (%s, now(), now(), 100, 1, 0, 2, 'default', 'undo', 'succeeded', 'acme')", [undo],
    )  # fmt: skip
    async with one.conn.transaction():
        assert await arun(one.conn, steps.go_on_undoing(store.statements)) == 1
        going = asyncio.create_task(arun(other.conn, steps.go_on_undoing(store.statements)))
        await waits(other)
    assert await going == 0
    assert store.ask("select name, state from steps order by 1") == [("a", "done"), ("b", "compensating"), ("c", "compensated")]
    assert store.ask("select tenant, args, state from jobs") == [("acme", {"what": 1}, "ready")]
