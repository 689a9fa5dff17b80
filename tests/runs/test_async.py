"""Each verb of a run in async code does what its plain one does."""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from jobwell import App
from jobwell.runs import RunContext
from jobwell.runs.items import Item
from jobwell.testing import Testbed
from tests.runs.conftest import Employee, Office, Transfer, people


def wait(call: "Coroutine[Any, Any, Any]") -> Any:
    """On a loop of its own, as in a web process of its own."""
    return asyncio.run(call)


def test_look_retry_and_control(app: App, office: Office, bed: Testbed) -> None:
    office.fails = {2, 3}
    rows: list[Any] = [*people(20), {"employee_id": "not a number"}]
    run = wait(office.operation.astart(Transfer(to="Astana"), items=rows, on_bad="skip", canary=4))
    bed.drain()
    assert wait(run.astatus()) == run.status()
    assert run.status().status == "paused"
    assert wait(run.abad_rows()) == run.bad_rows() != []
    assert wait(run.acontinue(by="x", why="looks good"))
    assert not wait(run.acontinue(by="x"))
    assert wait(run.apause(by="x"))
    assert wait(run.aresume(by="x"))
    assert not wait(run.aresume(by="x"))
    bed.drain()
    assert wait(run.aerrors()) == run.errors()
    assert [error.key for error in run.errors()] == ["2", "3"]
    assert wait(run.areasons()) == run.reasons() == [("apply", "locked", 2)]
    assert wait(run.aitem("2")) == run.item("2") != []
    assert wait(run.afailed(keys=["2"])) == run.failed(keys=["2"]) == 1
    office.fails = set()
    assert wait(run.aretry(by="x", keys=["2"])) == 1
    assert wait(run.aretry(by="x")) == 1
    assert wait(run.aretry(by="x")) == 0
    bed.drain()
    assert run.status().status == "completed"
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert wait(app.runs.alist("hr.transfer", before=later)) == app.runs.list("hr.transfer", before=later) != []
    assert wait(app.runs.aget(run.id)).id == run.id


def test_fill_seal_cancel_and_deliver(app: App, bed: Testbed) -> None:
    tokens: list[str] = []
    mail = app.bulk("mail", item=Employee, key="employee_id")

    @mail.stage
    async def send(ctx: RunContext, item: Item[Employee]) -> None:
        tokens.append(item.token)

    run = mail.start(items=people(2), seal=False)
    assert wait(run.aadd(people(2, first=3))) == 2
    wait(run.aseal())
    assert run.status().sealed
    bed.drain()
    assert len(tokens) == 4
    assert wait(app.runs.adeliver(tokens[0], "delivered"))
    assert not wait(app.runs.adeliver(tokens[0], "delivered"))
    assert run.status()["send"].delivered == 1
    other = mail.start(items=people(5))
    assert wait(other.acancel(by="x", why="not today"))
    assert not wait(other.acancel(by="x"))
    assert other.status().status == "cancelled"
