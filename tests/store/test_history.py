"""The history checker on real tables: a late worker is refused and the history is good; with the fence off it is caught."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from jobwell.core.ids import new_id
from jobwell.core.outcome import Succeeded
from jobwell.store.history import tables
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from jobwell.testing.evidence import Mark, Put, read
from jobwell.testing.history import Verdict, check
from tests.store.conftest import Hands
from tests.store.helpers import Hand, Store, new

DONE = Succeeded()
FENCE = "((j.id, j.claim_id) in (select g.id, g.claim_id from given g)) is true"
FUNCTION = "select pg_get_functiondef(oid) from pg_proc where proname = 'finish' and pronamespace = %s::regnamespace"


@contextlib.contextmanager
def unfenced(store: Store) -> Iterator[None]:
    """Meanwhile any outcome is stored, whoever brings it."""
    original: str = store.one(FUNCTION, store.statements.schema)
    broken = original.replace(FENCE, "true").replace("and g.claim_id = e.claim_id", "")
    assert broken.count("claim_id") < original.count("claim_id") - 3, "the fence is written in another way now"
    store.conn.execute(broken)
    try:
        yield
    finally:
        store.conn.execute(original)


class Marks:
    """As a job writes them."""

    def __init__(self) -> None:
        self.rows: list[Mark] = []
        self._calls: dict[UUID, UUID] = {}

    def add(self, hand: Hand, job: UUID, attempt: int, what: str) -> None:
        call_id = self._calls.setdefault(hand.worker, new_id())
        self.rows.append(Mark(call_id, job, attempt, hand.worker, "async", what, datetime.now(UTC)))


async def late_finish(store: Store, hands: Hands, workers: WorkerVerbs) -> Verdict:
    """A frozen worker is declared dead, another one begins; the frozen one thaws, and says that it is done."""
    marks = Marks()
    frozen, other = await hands(), await hands()
    (job,) = store.put_new()
    first = await frozen.claim_one()
    marks.add(frozen, job, first.attempt, "begin")
    run(store.conn, workers.expire(frozen.worker))
    run(store.conn, workers.rescue(limit=10, bound=10))
    second = await other.claim_one()
    marks.add(other, job, second.attempt, "begin")
    marks.add(frozen, job, first.attempt, "effect")
    await frozen.end(DONE, (job, frozen.claim_id))
    marks.add(other, job, second.attempt, "effect")
    await other.end(DONE, (job, other.claim_id))
    found = run(store.conn, tables(store.statements))
    return check(read(found, puts=[Put(job, "committed")], marks=marks.rows, tolerance=timedelta(0)))


async def test_a_late_worker_is_refused_and_its_zombie_is_excused(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    verdict = await late_finish(store, hands, workers)
    assert verdict.findings == []
    assert (verdict.states, verdict.outcomes, verdict.zombies) == ({"succeeded": 1}, {"lost": 1, "succeeded": 1}, 1)


async def test_without_the_fence_the_checker_says_so(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    with unfenced(store):
        verdict = await late_finish(store, hands, workers)
    assert {finding.kind for finding in verdict.findings} == {"lost", "unexplained"}
    assert any("had done nothing" in finding.what or "after its outcome" in finding.what for finding in verdict.findings)


@pytest.mark.parametrize("table", ["finished", "quarantine", "jobs"])
async def test_rows_that_vanish_or_double_are_found(store: Store, hand: Hand, table: str) -> None:
    jobs = store.put_new(2)
    claimed = await hand.claim(2)
    await hand.end(DONE, *[(row.id, hand.claim_id) for row in claimed])
    if table == "finished":
        store.conn.execute("insert into finished select * from finished where id = %s", [jobs[0]])
    elif table == "jobs":
        store.put([replace(new()[0], id=jobs[0])])
    else:
        store.conn.execute("delete from finished where id = %s", [jobs[0]])
    found = run(store.conn, tables(store.statements))
    verdict = check(read(found, puts=[Put(job, "committed") for job in jobs], marks=[], marked=False))
    assert {finding.job for finding in verdict.findings} == {jobs[0]}
    assert verdict.count("lost" if table == "quarantine" else "double_finished") == 1
