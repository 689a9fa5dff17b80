"""G7: processes are killed all the time, and every reading of the counters is right."""

import random
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection

from jobwell import App
from jobwell.runs import Run
from tests.crash.conftest import SIGKILL, SIGTERM, Fleet, fleet  # noqa: F401  a fixture
from tests.runs.conftest import check
from tests.waiting import until

COUNT, ADDED = 5000, 50


@pytest.fixture
def storming(fleet: Fleet) -> Fleet:  # noqa: F811  as above
    """Workers of the application beside this file."""
    fleet.target = "tests.runs.app_under_test:app"
    fleet.queues = "bulk,notifications,reports,default"
    return fleet


def _start(app: App, count: int) -> Run:
    from tests.runs.app_under_test import storm

    before = storm._tasks
    storm._tasks = app  # the same declaration, over the test's own settings
    for spec in before.catalog:
        if spec.name.startswith("storm."):
            app.accept(spec)
    try:
        return storm.start(items=({"number": number} for number in range(1, count + 1)), key="storm", on_bad="skip", seal=False)
    finally:
        storm._tasks = before


def _read(app: App, conn: "Connection[Any]", run: UUID) -> None:
    """One reading: all of it in one snapshot."""
    with conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        check(app, conn, run)


@pytest.mark.timeout(300)
def test_every_reading_of_five_thousand_items_under_kills_is_right(app: App, conn: "Connection[Any]", storming: Fleet) -> None:
    chance = random.Random(7)
    storming.several(2, processes=1, slots=20)
    run = _start(app, COUNT)
    readings = 0

    def over() -> bool:
        nonlocal readings
        _read(app, conn, run.id)
        readings += 1
        if readings % 25 == 0 and readings <= 150:
            supervisors = [each for each in storming.started if each.poll() is None]
            victim = chance.choice(supervisors)
            children = storming.children(victim)
            if children:
                chance.choice(children).send_signal(chance.choice([SIGKILL, SIGTERM]))
        card = run.status()
        if not card.sealed and card.total == COUNT + ADDED:
            run.seal()
        return card.over

    until(over, timeout=240, what="the run is over")
    card = run.status()
    apply, notify = card["apply"], card["notify"]
    assert card.status == "completed_with_errors"
    assert (apply.total, apply.open, apply.failed, apply.skipped) == (COUNT + ADDED, 0, COUNT // 50, COUNT // 50)
    assert (notify.total, notify.open) == (apply.done, 0)
    assert notify.failed == COUNT // 100
    until(lambda: storming.rows("select count(*) from jobs") == [(0,)], what="no job is left")  # a part is over before its job is
    finishes = "select task, count(*) from finished where task = any (array['storm.after_apply', 'storm.at_the_end'])"
    assert storming.rows(f"{finishes} and state = 'succeeded' group by task order by task") == [
        ("storm.after_apply", 1),
        ("storm.at_the_end", 1),
    ]
    assert readings > 25
    assert storming.rows("select coalesce(sum(out), 0)::int from run_counts") == [(0,)]
    _read(app, conn, run.id)
