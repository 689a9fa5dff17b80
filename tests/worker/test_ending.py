"""Slots are claimed for while the outcomes of longer jobs are stored, and never for more code than there are slots."""

from typing import Any
from uuid import UUID

import pytest

from jobwell import App
from jobwell.core.ids import new_id
from jobwell.core.outcome import Succeeded
from jobwell.store.jobs import Claimed, JobVerbs
from jobwell.store.link import Link
from jobwell.worker.finisher import Finisher
from jobwell.worker.record import Attempt, begin
from tests.waiting import apause
from tests.worker.helpers import Desk, working


def ended(app: App, *, apart: bool) -> Attempt:
    row = Claimed(new_id(), "none", "default", "", 1, 100, 1, 0, 0, 2, None, "{}", None, 0, 0, 0)
    made = begin(row, new_id(), app.catalog)
    made.apart, made.began = apart, made.began - 1.0
    return made


async def test_what_ran_in_a_child_frees_no_slot_and_a_failure_frees_none(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    async def finish(_verbs: Any, _conn: Any, _ids: list[UUID], _claims: Any, _ends: Any) -> set[UUID]:
        seen.append(finisher.ending)
        if len(seen) == 1:
            raise ConnectionResetError
        return set()

    monkeypatch.setattr(JobVerbs, "finish", finish)
    link = Link(app.database, "test")
    finisher = Finisher(JobVerbs(app.database.statements), link, largest=10, stored=lambda _: None, soon=lambda: None)
    for apart in (True, True, False):
        finisher.add(ended(app, apart=apart), Succeeded())
    with pytest.raises(ConnectionResetError):
        await finisher.tick()
    assert finisher.ending == 0
    await finisher.tick()  # after a failure nothing is claimed for before the store has answered
    assert (seen, finisher.ending, finisher.waiting) == ([1, 0], 0, 0)
    await link.close()


async def test_never_more_code_runs_than_there_are_slots(app: App, desk: Desk) -> None:
    under_way, most = 0, 0

    @app.task(name="nap")
    async def nap(n: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await apause(0.012 + n % 3 / 1000)
        under_way -= 1

    app.enqueue_many(nap.job(n) for n in range(600))
    async with working(app, slots=8):
        assert await desk.settled() == {"succeeded": 600}
    assert most == 8
