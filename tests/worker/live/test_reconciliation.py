"""Lost answers: what was claimed without being known goes back uncounted, and what was done is stored in the end."""

from collections import Counter
from typing import Any

import psycopg
import pytest

from jobwell import App, Fixed, Reject
from jobwell.core.ids import new_id
from jobwell.store.jobs import JobVerbs
from tests.waiting import auntil
from tests.worker.live.helpers import Books, Start

LOST = psycopg.OperationalError("the connection was lost")


class Trouble:
    """Makes one verb of the store raise as when a connection breaks, before or after its work.

    Attributes:
        left: how many of its next calls are lost.
        calls: how often it was lost.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verb: str, times: int, *, after: bool) -> None:
        self.left, self.calls = times, 0
        real = getattr(JobVerbs, verb)

        async def verb_with_trouble(verbs: JobVerbs, *given: Any) -> Any:
            found = await real(verbs, *given) if after or not self.left else None
            if self.left and (found or verb != "claim"):
                self.left -= 1
                self.calls += 1
                raise LOST
            return found

        monkeypatch.setattr(JobVerbs, verb, verb_with_trouble)


@pytest.fixture
def ran() -> Counter[int]:
    return Counter()


@pytest.fixture
def note(app: App, ran: Counter[int]) -> Any:
    @app.task(name="note", retry=Fixed("10ms", attempts=2))
    async def note(n: int, text: str = "", how: str = "") -> int:
        ran[n] += 1
        if how == "reject":
            raise Reject("no")
        if how == "fail once" and ran[n] == 1:
            raise TimeoutError
        return n

    return note


@pytest.mark.parametrize("times", [1, 3])
async def test_jobs_whose_claim_was_not_answered_go_back_and_run_once(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    trouble = Trouble(monkeypatch, "claim", times, after=True)
    ids = list(await app.aenqueue_many(note.job(n) for n in range(5)))
    working = await start()
    ends = [await books.ended(job) for job in ids]
    assert (trouble.calls, ran) == (times, Counter(range(5)))
    assert {(end["state"], end["attempt"], end["failures"]) for end in ends} == {("succeeded", 1, 0)}
    for job in ids:
        assert books.history(job, "outcome", "note") == [("released", "the answer to the claim was lost")] * times
    assert await working.stop() == 0


async def test_a_lost_claim_at_the_very_end_is_handed_back_before_the_worker_leaves(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = Trouble(monkeypatch, "claim", 1000, after=True)
    working = await start()
    job = await note.aenqueue(1)
    await auntil(lambda: trouble.calls > 0)
    assert await working.stop() == 0
    row = books.live(job)
    assert row is not None
    assert (row["state"], row["attempt"], row["losses"], row["claim_id"], ran) == ("ready", 0, 0, None, Counter())
    assert books.count("workers") == 0


async def test_jobs_whose_arguments_were_not_answered_go_back_and_run_once(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = Trouble(monkeypatch, "payloads", 2, after=True)
    ids = list(await app.aenqueue_many(note.job(n, text="x" * 5000) for n in range(4)))
    await start()
    assert [(await books.ended(job))["attempt"] for job in ids] == [1] * 4
    assert (trouble.calls, ran) == (2, Counter(range(4)))


@pytest.mark.parametrize("after", [False, True], ids=["not written", "written"])
@pytest.mark.parametrize(
    ("verb", "how", "state", "runs"),
    [("finish", "", "succeeded", 1), ("fail", "reject", "failed", 1), ("retry", "fail once", "succeeded", 2)],
)
async def test_an_outcome_is_kept_until_it_is_stored(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int], monkeypatch: pytest.MonkeyPatch, after: bool,
    verb: str, how: str, state: str, runs: int,
) -> None:  # fmt: skip
    trouble = Trouble(monkeypatch, verb, 3, after=after)
    job = await note.aenqueue(1, how=how)
    working = await start(slots=1)
    end = await books.ended(job)
    await auntil(lambda: working.worker.busy == 0, what="a free slot")
    assert (end["state"], end["attempt"], ran, trouble.calls) == (state, runs, Counter({1: runs}), 3)
    await books.ended(await note.aenqueue(2))
    assert ran[2] == 1
    assert await working.stop() == 0


async def test_a_batch_with_lost_answers_loses_nothing(
    app: App, start: Start, books: Books, note: Any, ran: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, claim = Trouble(monkeypatch, "finish", 3, after=True), Trouble(monkeypatch, "claim", 3, after=True)
    await app.aenqueue_many(note.job(n) for n in range(100))
    await start(slots=20)
    await books.empty()
    assert ran == Counter(range(100))
    assert books.count("finished", "attempt = 1") == 100
    assert (finish.calls, claim.calls) == (3, 3)


async def test_a_job_that_was_taken_away_is_left_to_its_new_owner(
    app: App, start: Start, books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    gate = asyncio.Event()

    @app.task(name="wait")
    async def wait() -> str:
        await gate.wait()
        return "mine"

    job = await wait.aenqueue()
    working = await start()
    await books.in_state(job, "running")
    other = new_id()  # lives before it owns anything, so that nobody rescues the job from it
    books.conn.execute(
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues) values (%s, now() + interval '1 h', 1, 'h', 'n', '0', 1, '{}')",
        [other],
    )
    books.conn.execute("update jobs set claim_id = gen_random_uuid(), worker = %s, attempt = 2", [other])
    gate.set()
    await auntil(lambda: "ownership lost" in caplog.text)
    await auntil(lambda: working.worker.busy == 0)
    row = books.live(job)
    assert row is not None
    assert (row["state"], row["attempt"], books.end(job)) == ("running", 2, None)
