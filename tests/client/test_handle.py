"""What an enqueue returns."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import Connection

from jobwell import App, NotFound
from jobwell.client.handle import Enqueued
from jobwell.client.task import Task
from jobwell.core.ids import new_id


def test_a_handle_tells_the_state_wherever_the_job_stands(note: Task[..., None], conn: Connection[Any]) -> None:
    handle = note.enqueue(1)
    later = note.using(run_after="1h").enqueue(2)
    assert (handle.status(), later.status()) == ("ready", "scheduled")
    conn.execute("update jobs set state = 'running', ready_at = null where id = %s", [handle.id])
    assert handle.status() == "running"
    columns = "id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, tenant"
    conn.execute(f"with gone as (delete from jobs where id = %s returning *) insert into finished ({columns}, state)"
                 f" select {columns}, 'succeeded' from gone", [handle.id])  # fmt: skip
    assert handle.status() == "succeeded"
    more = f"{columns}, gate, crashes, losses, postponements, lock_key"
    conn.execute(f"with gone as (delete from jobs where id = %s returning *) insert into quarantine ({more}, reason, fingerprint)"
                 f" select {more}, 'rejected', 'x' from gone", [later.id])  # fmt: skip
    assert later.status() == "failed"


@pytest.mark.asyncio
async def test_an_async_handle_does_the_same(aapp: App, note: Task[..., None]) -> None:
    handle = await note.using(run_after="1h").aenqueue(1)
    assert await handle.astatus() == "scheduled"


def test_a_handle_tells_why_it_does_not_run(note: Task[..., None]) -> None:
    because = note.using(run_after="1h").enqueue(1).why()
    assert [one.code for one in because] == ["not_due", "no_worker"]
    assert "No worker lives" in because[1].sentence


@pytest.mark.asyncio
async def test_an_async_handle_tells_why_too(aapp: App, note: Task[..., None]) -> None:
    assert [one.code for one in await (await note.aenqueue(1)).awhy()] == ["no_worker"]
    with pytest.raises(NotFound):
        await aapp.handle(new_id()).awhy()


def test_a_job_that_is_gone_or_not_committed_is_not_found(note: Task[..., None], conn: Connection[Any], caller: Any) -> None:
    handle = note.enqueue(1)
    conn.execute("delete from jobs")
    with pytest.raises(NotFound, match=f"there is no job {handle.id}"):
        handle.status()
    with caller.transaction():
        inside = note.using(conn=caller).enqueue(2)
        with pytest.raises(NotFound, match="its transaction has not committed"):
            inside.status()
    assert inside.status() == "ready"


def test_async_status_of_nothing_is_not_found(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    handle = note.enqueue(1)
    conn.execute("delete from jobs")

    async def ask() -> None:
        with pytest.raises(NotFound):
            await handle.astatus()
        await app.aclose()

    asyncio.run(ask())


@given(st.lists(st.uuids(), max_size=20), st.integers(-25, 25), st.slices(25))
def test_enqueued_is_a_sequence_like_a_list(ids: list[UUID], at: int, part: slice) -> None:
    enqueued = Enqueued(b"".join(id_.bytes for id_ in ids))
    assert list(enqueued) == ids
    assert len(enqueued) == len(ids)
    assert enqueued[part] == ids[part]
    assert list(reversed(enqueued)) == ids[::-1]
    if -len(ids) <= at < len(ids):
        assert enqueued[at] == ids[at]
    else:
        with pytest.raises(IndexError):
            enqueued[at]


def test_enqueued_takes_sixteen_bytes_for_each() -> None:
    enqueued = Enqueued(b"".join(new_id().bytes for _ in range(1000)))
    assert len(enqueued._ids) == 16_000
    assert repr(enqueued) == "<1000 jobs>"
    assert enqueued[0] in enqueued


async def test_a_handle_cancels_its_job(app: App, conn: Any) -> None:
    @app.task(name="cancelled")
    async def cancelled() -> None: ...

    one, two = cancelled.enqueue(), cancelled.enqueue()
    assert one.cancel(why="by mistake", by="olga") == "cancelled"
    assert await two.acancel() == "cancelled"
    assert one.cancel() == one.status() == "cancelled"
    notes = conn.execute("select note from finished order by id").fetchall()
    assert notes == [("cancelled by olga: by mistake",), ("cancelled by the application",)]
    assert conn.execute("select count(*) from audit").fetchone() == (2,)
    with pytest.raises(NotFound):
        app.handle(new_id()).cancel()
