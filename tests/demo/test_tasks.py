"""The tasks of the demo, called directly on a real database: all or nothing, and once."""

import asyncio
import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from jobwell import Reject, Retry
from jobwell.demo import tasks as shipped
from jobwell.demo.people import refusal
from jobwell.demo.processes import sink
from jobwell.demo.sink import DEFERRED_SHARE, fraction
from jobwell.demo.world import World

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


def _enqueued(place: World) -> dict[str, int]:
    rows = place.conn.execute(f"select task from {place.settings.schema}.jobs").fetchall()
    return dict(Counter(task for (task,) in rows))


def test_a_batch_owes_each_moved_person_one_notice(place: World, tasks: ModuleType) -> None:
    assert tasks.apply_batch(ids=[1, 2, 3], event_version=EVENT) == 3
    assert _enqueued(place) == {"hr.notify": 3}
    moved = {row[0]: row[1:] for row in place.ask("employees") if row[4]}
    assert moved == {
        person.employee_id: (person.new_department, person.new_position, person.new_manager_id, EVENT)
        for person in place.people[:3]
    }


def test_a_batch_that_runs_again_changes_and_owes_nothing(place: World, tasks: ModuleType) -> None:
    tasks.apply_batch(ids=[1, 2, 3], event_version=EVENT)
    assert tasks.apply_batch(ids=[1, 2, 3], event_version=EVENT) == 0
    assert tasks.apply_batch(ids=[3, 4], event_version=EVENT) == 1
    assert _enqueued(place) == {"hr.notify": 4}


def test_a_batch_that_fails_leaves_neither_rows_nor_notices(
    place: World, tasks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(dict[str, str]):
        def __missing__(self, name: str) -> str:
            return "select 1 / 0" if name == "applied" else place.case[name]

    monkeypatch.setattr(tasks.office, "statements", Broken())
    with pytest.raises(Exception, match="division by zero"):
        tasks.apply_batch(ids=[1, 2, 3], event_version=EVENT)
    assert _enqueued(place) == {}
    assert all(row[4] is None for row in place.ask("employees"))


def test_the_batch_that_completes_the_event_asks_for_the_report_once(place: World, tasks: ModuleType) -> None:
    ids = [person.employee_id for person in place.people]
    for at in range(0, 300, 100):
        tasks.apply_batch(ids=ids[at : at + 100], event_version=EVENT)
        tasks.apply_batch(ids=ids[at : at + 100], event_version=EVENT)
    assert _enqueued(place) == {"hr.notify": 300, "hr.recalculate": 1}


def test_the_report_counts_heads_and_may_be_made_again(place: World, tasks: ModuleType) -> None:
    tasks.apply_batch(ids=[person.employee_id for person in place.people], event_version=EVENT)
    heads = Counter(person.new_department for person in place.people)
    for _ in range(2):
        assert tasks.recalculate(event_version=EVENT) == len(heads)
        assert dict(place.ask("departments", event=EVENT)) == heads


def test_a_notice_is_sent_put_off_or_refused(
    place: World, tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = next(person for person in place.people if not refusal(person.email))
    bad = next(person for person in place.people if refusal(person.email))

    async def outcomes() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"good": set(), "bad": set()}
        try:
            # Each call has a key of its own, as each job has; of two hundred some are put off.
            for name, person, times in (("good", good, 200), ("bad", bad, 3)):
                for _ in range(times):
                    try:
                        await tasks.notify(employee_id=person.employee_id, event_version=EVENT, department="IT")
                        found[name].add("sent")
                    except Retry as error:
                        found[name].add(f"retry: {'451' in str(error)}")
                    except Reject as error:
                        found[name].add(error.code)
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
    with pytest.raises(Reject, match="employee 999999 is gone"):
        await tasks.notify(employee_id=999_999, event_version=EVENT, department="IT")
    await tasks.office.aclose()


def test_the_share_of_first_tries_that_are_put_off_is_as_declared() -> None:
    share = sum(fraction(f"<{number}@jobwell.example>") < DEFERRED_SHARE for number in range(20_000)) / 20_000
    assert share == pytest.approx(DEFERRED_SHARE, abs=0.005)
