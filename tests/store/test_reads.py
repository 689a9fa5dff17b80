"""What people see: a job wherever it stands, newest first, bounded."""

from typing import Any
from uuid import UUID

import pytest

from jobwell.core.errors import NotFound
from jobwell.core.ids import new_id
from jobwell.core.outcome import Succeeded
from jobwell.store import reads
from jobwell.store.reads import Filter
from jobwell.store.statements import run
from tests.store.helpers import FAILED, RETRYING, Hand, Store, new


def jobs(store: Store, **wanted: Any) -> list[dict[str, Any]]:
    return run(store.conn, reads.jobs(store.statements, Filter(**wanted)))


def one(store: Store, job: UUID) -> dict[str, Any]:
    return run(store.conn, reads.one(store.statements, job))


@pytest.fixture
async def everywhere(store: Store, hand: Hand) -> dict[str, UUID]:
    """A job in each place."""
    text = '"' + "x" * 3000 + '"'
    ready = store.put_new(5, args=text, size=len(text))
    await hand.claim(4)
    for job, end in zip(ready[1:4], (RETRYING, Succeeded("[1]", "a note"), FAILED), strict=True):
        await hand.end(end, (job, hand.claim_id))
    (scheduled,) = store.put_new(1, delay=60.0, queue="bulk", tenant="hr")
    return dict(zip(["running", "retrying", "succeeded", "failed", "ready"], ready, strict=True)) | {"scheduled": scheduled}


async def test_a_job_is_found_wherever_it_stands(store: Store, everywhere: dict[str, UUID]) -> None:
    for state, job in everywhere.items():
        found = one(store, job)
        assert (found["id"], found["state"]) == (job, state)
        assert found["args"] == ("{}" if state == "scheduled" else '"' + "x" * 3000 + '"')
        assert [row["outcome"] for row in found["attempts"]] == {"retrying": ["retrying"], "failed": ["failed"]}.get(state, [])
    assert (one(store, everywhere["succeeded"])["result"], one(store, everywhere["succeeded"])["note"]) == ("[1]", "a note")
    assert one(store, everywhere["failed"])["reason"] == "exhausted"
    with pytest.raises(NotFound):
        one(store, new_id())


async def test_lists_are_newest_first_over_all_places(store: Store, everywhere: dict[str, UUID]) -> None:
    rows = jobs(store)
    assert [row["id"] for row in rows] == sorted(everywhere.values(), reverse=True)
    assert {row["id"]: row["state"] for row in rows} == {job: state for state, job in everywhere.items()}
    assert [row["id"] for row in jobs(store, limit=2)] == sorted(everywhere.values())[:-3:-1]
    assert [row["id"] for row in jobs(store, before=rows[2]["id"], limit=2)] == [row["id"] for row in rows[3:5]]


async def test_a_filter_takes_what_fits_all_of_it(store: Store, everywhere: dict[str, UUID]) -> None:
    for state, job in everywhere.items():
        assert [row["id"] for row in jobs(store, state=state)] == [job]
    assert (
        [row["id"] for row in jobs(store, queue="bulk")]
        == [row["id"] for row in jobs(store, tenant="hr")]
        == [everywhere["scheduled"]]
    )
    assert jobs(store, queue="bulk", state="ready") == []
    (failed,) = run(store.conn, reads.quarantine(store.statements, Filter(reason="exhausted")))
    assert failed["id"] == everywhere["failed"]


async def test_an_id_is_found_by_its_beginning(store: Store, everywhere: dict[str, UUID]) -> None:
    for job in everywhere.values():
        for typed in (str(job), job.hex, str(job).upper(), str(job)[:-2]):
            try:
                assert run(store.conn, reads.by_prefix(store.statements, typed)) == job
            except NotFound as error:
                assert "several" in str(error)
                assert typed == str(job)[:-2]
    for typed in ("", "01", "xyz!", "0" * 33, "ffffffff"):
        with pytest.raises(NotFound):
            run(store.conn, reads.by_prefix(store.statements, typed))


async def test_the_overview_counts(store: Store, everywhere: dict[str, UUID]) -> None:
    store.put(new(2, queue="unknown to the app"))
    seen = run(store.conn, reads.overview(store.statements, ["default", "reports"]))
    assert seen["states"] == {
        "ready": 3,
        "running": 1,
        "scheduled": 1,
        "retrying": 1,
        "waiting": 0,
        "quarantined": 1,
        "finished in the last hour": 1,
    }
    by_queue = {row["queue"]: row for row in seen["queues"]}
    assert {name: row["ready"] for name, row in by_queue.items()} == {"default": 1, "reports": 0, "unknown to the app": 2}
    assert by_queue["reports"]["oldest_seconds"] is None
    assert by_queue["default"]["oldest_seconds"] >= 0
