"""A worker dies between handing a report over and writing that down: the report comes again, the same, and is not lost."""

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.actions import subscriptions as actions
from tests.crash.conftest import SIGKILL, Fleet
from tests.reports.conftest import Desk
from tests.reports.conftest import desk as desk  # noqa: PLC0414  a fixture
from tests.reports.postbox import Postbox
from tests.waiting import until


@pytest.fixture
def postbox() -> Iterator[Postbox]:
    made = Postbox()
    yield made
    made.close()


def test_killed_between_the_sending_and_its_record(
    fleet: Fleet, desk: Desk, postbox: Postbox, app: App, conn: "Connection[Any]", travel: Callable[[str], None]
) -> None:
    url = f"smtp://127.0.0.1:{postbox.port}?from=jobs@corp.example"
    desk.failed.put(3)
    supervisor = fleet.start(smtp_url=url)
    family = [*fleet.children(supervisor), psutil.Process(supervisor.pid)]

    def kill(_: Any) -> None:
        for process in family:
            process.send_signal(SIGKILL)

    postbox.received = kill
    sub = desk.subscribe("a@corp.example")
    until(lambda: postbox.mails, what="the mail")
    psutil.wait_procs(family, timeout=10)
    assert (actions.log(app.database, sub.id), desk.now(sub).last_sent) == ([], None)
    pending = desk.now(sub).pending
    assert pending is not None
    postbox.received = lambda _: None
    desk.failed.put(2, ago="2 seconds")
    fleet.start(smtp_url=url)
    assert len(postbox.mails) == 1  # the lease of the dead one holds
    travel("6 minutes")
    until(lambda: actions.log(app.database, sub.id), what="the record")
    first, second = postbox.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert first.get_body(("plain",)) is not None
    assert str(second["Subject"]) == "3 jobs failed (all failed jobs)"  # what came later is for the next one
    (row,) = actions.log(app.database, sub.id)
    assert (row["since"], row["until"], row["jobs"]) == (pending.since, pending.until, 3)
