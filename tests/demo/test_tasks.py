"""The tasks of the demo, called directly on a real database: all or nothing, and once."""

import asyncio
import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jobwell import Retry
from jobwell.core.ids import new_id
from jobwell.demo import tasks as shipped
from jobwell.demo.people import refusal
from jobwell.demo.processes import sink
from jobwell.demo.sink import DEFERRED_SHARE, fraction
from jobwell.demo.world import World
from jobwell.runs import Item, Run
from jobwell.worker.worker import Worker
from tests.waiting import auntil

EVENT = "2026-01-28"


@pytest.fixture
def tasks(place: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as a worker imports it for this world."""
    monkeypatch.setenv("JOBWELL_DATABASE_URL", place.settings.database_url)
    monkeypatch.setenv("JOBWELL_SCHEMA", place.settings.schema)
    module = importlib.reload(shipped)
    yield module
    module.app.close()
    monkeypatch.undo()
    importlib.reload(shipped)


async def _work_off(module: ModuleType, run: Run) -> None:
    """A worker of these tasks until the run has ended."""
    worker = Worker(module.app, slots=20)
    running = asyncio.create_task(worker.run())
    await worker.ready()

    async def over() -> bool:
        return (await run.astatus()).over

    try:
        await auntil(over, what="the run has ended")
    finally:
        worker.stop()
        await running
        await module.office.aclose()


def _start(place: World, module: ModuleType, count: int) -> Run:
    items = (module.Moved(person.employee_id, person.new_department) for person in place.people[:count])
    started: Run = module.transfer.start(module.Event(EVENT), items=items)
    return started


def _moved(place: World) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in place.ask("employees") if row[4]}


def test_a_run_moves_everyone_and_makes_the_report_once(
    place: World, tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sink(tmp_path) as address:
        monkeypatch.setenv("JOBWELL_DEMO_SMTP", address)
        run = _start(place, tasks, 300)
        asyncio.run(_work_off(tasks, run))
    card = run.status()
    assert (card.status, card["apply"].done, card["notify"].done, card["notify"].failed) == ("completed_with_errors", 300, 297, 3)
    assert run.reasons() == [("notify", "invalid_address", 3)]
    assert _moved(place) == {
        person.employee_id: (person.new_department, person.new_position, person.new_manager_id, EVENT) for person in place.people
    }
    assert dict(place.ask("departments", event=EVENT)) == Counter(person.new_department for person in place.people)
    assert place.ask("reports", task="hr.transfer.recalculate") == [(1,)]


def test_a_chunk_that_fails_moves_nobody_and_owes_nothing(
    place: World, tasks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(dict[str, str]):
        def __missing__(self, name: str) -> str:
            return "select 1 / 0" if name == "apply" else place.case[name]

    monkeypatch.setattr(tasks.office, "statements", Broken())
    run = _start(place, tasks, 3)
    asyncio.run(_work_off(tasks, run))
    card = run.status()
    assert (card["apply"].failed, card["notify"].total, card.status) == (3, 0, "completed_with_errors")
    assert _moved(place) == {}


def _item(module: ModuleType, employee: int) -> "Item[Any]":
    moved = module.Moved(employee, "IT")
    return Item(run=new_id(), stage=1, no=employee, key=str(employee), data=moved, attempt=1, tries=0, secret=new_id())


def _context() -> Any:
    return SimpleNamespace(params=SimpleNamespace(event_version=EVENT))


def test_a_notice_is_sent_put_off_or_refused(
    place: World, tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = next(person for person in place.people if not refusal(person.email))
    bad = next(person for person in place.people if refusal(person.email))

    async def outcomes() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"good": set(), "bad": set()}
        try:
            # Each item has a key of its own; of two hundred some are put off.
            for name, person, times in (("good", good, 200), ("bad", bad, 3)):
                for _ in range(times):
                    item = _item(tasks, person.employee_id)
                    try:
                        await tasks.notify(_context(), item)
                        found[name].add(item.code or "sent")
                    except Retry as error:
                        found[name].add(f"retry: {'451' in str(error)}")
        finally:
            await tasks.office.aclose()
        return found

    with sink(tmp_path) as address:
        monkeypatch.setenv("JOBWELL_DEMO_SMTP", address)
        found = asyncio.run(outcomes())
    assert found["bad"] == {"invalid_address"}
    assert "sent" in found["good"]
    assert found["good"] <= {"sent", "retry: True"}


async def test_a_person_who_is_gone_is_a_logical_error(tasks: ModuleType) -> None:
    item = _item(tasks, 999_999)
    await tasks.notify(_context(), item)
    assert (item.code, item.message) == ("no_such_employee", "employee 999999 is gone")
    await tasks.office.aclose()


def test_the_share_of_first_tries_that_are_put_off_is_as_declared() -> None:
    share = sum(fraction(f"<{number}@jobwell.example>") < DEFERRED_SHARE for number in range(20_000)) / 20_000
    assert share == pytest.approx(DEFERRED_SHARE, abs=0.005)
