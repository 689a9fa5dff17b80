"""Failed jobs that a human sends back: a new budget, a new deadline, the history kept."""

from datetime import timedelta
from typing import Any

import pytest

from jobwell.core.filters import Selection
from jobwell.core.outcome import Failed
from jobwell.core.states import Reason
from jobwell.store import quarantine
from jobwell.store.quarantine import PIECE
from jobwell.store.statements import run
from tests.store.helpers import DONE, FAILED, FAILURE, Hand, Store, new


def retry(store: Store, **chosen: Any) -> list[Any]:
    return run(store.conn, quarantine.retry(store.statements, Selection(**chosen))).ids


def count(store: Store, **chosen: Any) -> int:
    return run(store.conn, quarantine.count(store.statements, Selection(**chosen)))


async def fail(store: Store, hand: Hand, end: Failed = FAILED, **columns: Any) -> Any:
    (job,) = store.put_new(1, **columns)
    (row,) = await hand.claim(1, queues=("default", "bulk"), gates=(new(1)[0].gate, 5))
    await hand.end(end, (row.id, hand.claim_id))
    assert row.id == job
    return job


async def test_back_to_ready_with_a_new_budget_and_a_new_deadline(store: Store, hand: Hand) -> None:
    job = await fail(store, hand, tenant="hr", lock_key="k", rank=7, deadline=120.0, args="[1]")
    store.conn.execute(
        "update quarantine set deadline = deadline - interval '1 day', run_at = run_at - interval '1 day', enqueued_at = enqueued_at - interval '1 day'"
    )
    assert retry(store, ids=[job]) == [job]
    assert store.count("quarantine") == 0
    columns = "id, state, attempt, failures, crashes, losses, postponements, tenant, lock_key, rank, args::text, deadline - run_at, run_at > clock_timestamp() - interval '1 minute', claim_id, worker"
    assert store.one(f"select {columns} from jobs") == (
        job, "ready", 1, 0, 0, 0, 0, "hr", "k", 7, "[1]", timedelta(seconds=120), True, None, None)  # fmt: skip
    assert store.ask("select attempt, outcome from attempts") == [(1, "failed")]
    row = await hand.claim_one()
    assert row.attempt == 2
    assert row.remaining == pytest.approx(120, abs=5)
    assert await hand.end(DONE, (job, hand.claim_id)) == set()


async def test_a_selection_takes_what_fits_all_of_it(store: Store, hand: Hand) -> None:
    a = await fail(store, hand, tenant="a")
    b = await fail(store, hand, Failed(Reason.REJECTED, FAILURE), tenant="a")
    c = await fail(store, hand, queue="bulk", task="other", gate=5)
    assert count(store) == 3
    assert [
        count(store, **{name: value})
        for name, value in {"tenant": "a", "reason": "rejected", "queue": "bulk", "task": "other", "ids": [a, b]}.items()
    ] == [2, 1, 1, 1, 2]
    assert count(store, tenant="a", reason="exhausted") == 1
    assert count(store, ids=[]) == 0
    assert retry(store, tenant="a", reason="exhausted") == [a]
    assert retry(store, ids=[]) == []
    assert retry(store, queue="bulk") == [c]
    assert {row[0] for row in store.ask("select id from quarantine")} == {b}


async def test_it_goes_piece_by_piece(store: Store, hand: Hand) -> None:
    store.put_new(PIECE + 20)
    rows = await hand.claim(PIECE + 20)
    await hand.end(FAILED, *[(row.id, hand.claim_id) for row in rows])
    assert [len(retry(store)) for _ in range(3)] == [PIECE, 20, 0]
    assert store.states() == {"ready": PIECE + 20}
